"""File trees as providers: the engine of a service, and what commands open of a tree."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from persistence.catalog import Catalog
from persistence.dialect import DIALECTS
from persistence.forms.flat_tables import FlatNaming
from persistence.index.protocol import RequestedRebuilds
from persistence.index.sources import ExtractionCache, Source, SourceDescription
from persistence.index.sqlite.tree_outbox import TreeOutbox
from persistence.index.sync.journal import Journal
from persistence.index.sync.updater import FlatViews, TreeIndex
from persistence.model.addresses import Form
from persistence.properties.properties import Properties, ProviderProperties
from persistence.providers.locations import base_of, defined_elsewhere, definitions_root, root_of
from persistence.providers.router import Engine, Provider
from persistence.settings import Settings
from persistence.storage.attachments import FileBodies
from persistence.storage.layout import JOURNAL, Layout
from persistence.storage.reader import StoreReader
from persistence.storage.storage import NOBODY, ChangeListener, KeepsHistory, Storage, keeps_all
from persistence.storage.store import Store
from persistence.storage.stored_revision import HandEdits, Integrity

CatalogAt = Callable[[str], Catalog]
"""Leads from a root to the catalog of the definitions in its tree, always the same one."""

if TYPE_CHECKING:
    from persistence.providers.opened import Providers


@dataclass(frozen=True, slots=True)
class Tree:
    """A served tree."""

    store: Store
    provider: Provider
    index: TreeIndex


class Trees(Engine):
    """The engine of file trees: each, and each directory with attachments that are kept apart, is opened once."""

    def __init__(self, opening: Providers) -> None:
        integrity, keeps_history = integrity_of(opening.settings), opening.properties.keeps_history
        self._opening = opening
        self._catalog_at = catalogs(integrity)
        self.at = cache(self._open)
        self.bodies_at = cache(partial(FileBodies, integrity=integrity, keeps_history=keeps_history))

    def provider(self, configured: ProviderProperties) -> Provider:
        return self.at(str(root_of(configured, self._opening.settings.roots))).provider

    def bodies(self, configured: ProviderProperties, main: Storage) -> FileBodies:  # noqa: ARG002 - others need it
        return self.bodies_at(str(base_of(configured)))

    def _open(self, path: str) -> Tree:
        settings, properties = self._opening.settings, self._opening.properties
        enter, listener_at = self._opening.closing.enter_context, self._opening.listener_at

        def index_catalog(form: Form) -> Catalog:
            return self._catalog_at(definitions_root(form, path, properties, settings.roots))

        index = open_index(settings, properties, path, self._catalog_at)
        if listener_at is None:
            updater = index.updater(self._opening.failed)
            store = enter(open_store(settings, path, updater, properties.keeps_history))
            enter(index)
            enter(updater).start()
        else:
            store = enter(open_store(settings, path, listener_at(path), properties.keeps_history))
            enter(index)
        return Tree(store, provider_of_tree(store, index, self._catalog_at(path), index_catalog), index)


def catalogs(integrity: Integrity) -> CatalogAt:
    lock = threading.Lock()  # two threads that ask first would make two of them
    made = cache(lambda root: Catalog(StoreReader(root, integrity)))

    def catalog_at(root: str) -> Catalog:
        with lock:
            return made(root)

    return catalog_at


def open_index(settings: Settings, properties: Properties, path: str, catalog_at: CatalogAt | None = None) -> TreeIndex:
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
    outbox = store.recorder if isinstance(store.recorder, TreeOutbox) else None
    return Provider(store, catalog, index, index.flat, rebuilds, index_catalog, outbox=outbox)


def open_store(
    settings: Settings, path: str, listener: ChangeListener = NOBODY, keeps_history: KeepsHistory = keeps_all
) -> Store:
    """Open the store of a tree; ``listener`` hears which documents are changed through it."""
    return Store(
        path,
        lock_timeout=settings.lock_timeout,
        listener=listener,
        integrity=integrity_of(settings),
        keeps_history=keeps_history,
        recorder=TreeOutbox(path) if settings.events else None,
        append_only=settings.append_only,
    )


def integrity_of(settings: Settings) -> Integrity:
    verify_up_to = settings.verify_up_to if settings.verify == "digest" else 0
    return Integrity(HandEdits(settings.hand_edits), verify_up_to=verify_up_to)
