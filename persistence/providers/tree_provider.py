"""File trees as providers: the engine of a service, and what commands open of a tree."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial

from persistence.definitions.catalog import Catalog
from persistence.dialect import DIALECTS
from persistence.index.rebuilds import RequestedRebuilds
from persistence.index.sources import ExtractionCache, Source, SourceDescription
from persistence.index.sync.journal import Journal
from persistence.index.sync.tree_index import TreeIndex
from persistence.index.sync.updater import FlatViews
from persistence.model.addresses import Form
from persistence.model.flat_views import FlatNaming
from persistence.model.network_addresses import SCHEME
from persistence.properties.properties import Properties, ProviderProperties
from persistence.properties.property_table import ENGINES
from persistence.providers.locations import (
    base_of,
    bases_of,
    buckets_of,
    check,
    defined_elsewhere,
    definitions_root,
    root_of,
)
from persistence.providers.router import Opening, Provider, engine_of
from persistence.settings import Settings
from persistence.storage import root
from persistence.storage.attachments import FileBodies
from persistence.storage.layout import JOURNAL, Layout
from persistence.storage.reader import StoreReader
from persistence.storage.storage import NOBODY, ChangeListener, KeepsHistory, Storage, keeps_all
from persistence.storage.store import Store
from persistence.storage.stored_revision import HandEdits, Integrity

CatalogAt = Callable[[str], Catalog]
"""Leads from a root to the catalog of the definitions in its tree, always the same one."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A served tree."""

    store: Store
    provider: Provider
    index: TreeIndex


class Trees:
    """The engine of file trees. All trees of the settings are served, whether or not properties name them.

    ``bodies_at`` are the directories with attachments that are kept apart.
    """

    calls_others = False
    written = ()
    sweeps = ()

    def __init__(self, opening: Opening) -> None:
        settings, properties = opening.settings, opening.properties
        self._roots = settings.roots
        integrity = integrity_of(settings)
        catalog_at = catalogs(integrity)
        self.by_root = {
            path: opening.closing.enter_context(_serving(opening, path, catalog_at)) for path in settings.roots
        }
        self.bodies_at = {base: FileBodies(base, integrity, properties.keeps_history) for base in bases_of(properties)}

    def provider(self, configured: ProviderProperties) -> Provider:
        return self.by_root[str(root_of(configured, self._roots))].provider

    def bodies(self, configured: ProviderProperties, main: Storage) -> FileBodies:  # noqa: ARG002 - others need it
        return self.bodies_at[str(base_of(configured))]


@contextmanager
def _serving(opening: Opening, path: str, catalog_at: CatalogAt) -> Iterator[Tree]:
    settings, properties = opening.settings, opening.properties
    index = open_index(settings, properties, path, catalog_at)
    updater = index.updater(opening.failed)

    def index_catalog(form: Form) -> Catalog:
        return catalog_at(definitions_root(form, path, properties, settings.roots))

    with open_store(settings, path, updater, properties.keeps_history) as store, index, updater:
        updater.start()
        yield Tree(store, provider_of_tree(store, index, catalog_at(path), index_catalog), index)


def catalogs(integrity: Integrity) -> CatalogAt:
    """Return a function to one catalog for each root."""
    lock = threading.Lock()  # two threads that ask first would make two of them
    made = cache(lambda root: Catalog(StoreReader(root, integrity)))

    def catalog_at(root: str) -> Catalog:
        with lock:
            return made(root)

    return catalog_at


def open_index(
    settings: Settings,
    properties: Properties,
    path: str,
    catalog_at: CatalogAt | None = None,
) -> TreeIndex:
    """Open the index of the tree of a root, with its flat views and its journal."""
    path, roots = os.path.realpath(path), settings.roots
    dialect, hand_edits = DIALECTS[settings.dialect], HandEdits(settings.hand_edits)
    extracted, integrity = ExtractionCache(), Integrity(hand_edits)
    definitions_at = catalog_at or catalogs(integrity)

    def source_of(form: Form) -> Source:
        configured, definitions = properties.of(form), definitions_root(form, path, properties, roots)
        naming = FlatNaming(dialect.flat_view_prefix, configured.longest_flat_name, configured.has_flat_prefixes)
        described = SourceDescription(
            form, configured.data_format, dialect.is_designer(form), naming, definitions, hand_edits
        )
        return Source(described, StoreReader(path, integrity), definitions_at(definitions), extracted)

    flat = FlatViews(path, source_of, partial(defined_elsewhere, path, properties, roots))
    return TreeIndex(path, Journal(Layout(path).own(JOURNAL)), source_of, flat)


def provider_of_tree(
    store: Store, index: TreeIndex, catalog: Catalog, index_catalog: Callable[[Form], Catalog] | None = None
) -> Provider:
    """Return the provider that a tree is; ``index`` must hear of its changes."""
    rebuilds = RequestedRebuilds(store, index.rebuild, index.status)
    return Provider(store, catalog, index, index.flat, rebuilds, store.leases, index_catalog, store)


def open_store(
    settings: Settings, path: str, listener: ChangeListener = NOBODY, keeps_history: KeepsHistory = keeps_all
) -> Store:
    """Open the store of a tree; ``listener`` hears which documents are changed through it."""
    integrity = integrity_of(settings)
    return Store(
        path, lock_timeout=settings.lock_timeout, listener=listener, integrity=integrity, keeps_history=keeps_history
    )


def integrity_of(settings: Settings) -> Integrity:
    """Return how the settings judge contents that do not match their sidecars."""
    verify_up_to = settings.verify_up_to if settings.verify == "digest" else 0
    return Integrity(HandEdits(settings.hand_edits), verify_up_to=verify_up_to)


def init_trees(settings: Settings, properties: Properties) -> list[tuple[str, bool]]:
    """Make every missing tree of the settings; return each root, and whether it was made."""
    check(properties, settings.roots)
    return [(each, root.init(each)) for each in settings.roots]


def probe(settings: Settings, properties: Properties) -> str | None:
    """Return the reason why the service cannot write into a tree for now."""
    check(properties, settings.roots)
    for base in bases_of(properties):
        FileBodies(base)
    if buckets_of(properties):
        engine_of(ENGINES[SCHEME])  # says what to install; the store itself is asked by workers alone, after the fork
    found = []
    for each in settings.roots:
        with open_store(settings, each) as store:
            found.append(store.probe())
    return next((cause for cause in found if cause is not None), None)
