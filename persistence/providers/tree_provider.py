"""File trees as providers, and what commands open of a tree."""

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
from persistence.index.sync.updater import FlatViews, TreeIndex, Updater
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from persistence.providers.locations import defined_elsewhere, definitions_root
from persistence.providers.router import Place, Provider
from persistence.settings import Settings
from persistence.storage import root
from persistence.storage.layout import JOURNAL, LAYOUT, Layout
from persistence.storage.reader import StoreReader
from persistence.storage.storage import NOBODY, ChangeListener, KeepsHistory, keeps_all
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


class TreePlace(Place):
    """A tree by the path of its root."""

    def init(self) -> tuple[str, bool]:
        return self.address, root.init(self.address)

    def exists(self) -> bool:
        return os.path.lexists(Layout(self.address).own(LAYOUT))

    def probe(self) -> str | None:
        with open_store(self.settings, self.address) as store:
            return store.probe()


def open_tree(opening: Providers, path: str) -> Tree:
    settings, properties = opening.settings, opening.properties
    enter, listener_at = opening.closing.enter_context, opening.listener_at

    def index_catalog(form: Form) -> Catalog:
        return opening.catalog_at(definitions_root(form, path, properties, settings.roots))

    index = open_index(settings, properties, path, opening.catalog_at)
    listener = index.updater(opening.failed) if listener_at is None else listener_at(path)
    store = enter(open_store(settings, path, listener, opening.keeps_history))
    opening.written.append(store)
    enter(index)
    if isinstance(listener, Updater):
        enter(listener).start()
    return Tree(store, provider_of_tree(store, index, opening.catalog_at(path), index_catalog), index)


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
