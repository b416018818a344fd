"""File trees as providers: where settings and properties say that they are, and what is opened of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from persistence.crypto.encryption_keys import EncryptionKeys
from persistence.definitions.catalog import Catalog
from persistence.definitions.summaries import NO_FILE, FormsFile, SummaryFile
from persistence.dialect import DIALECTS, Dialect
from persistence.errors import StartupError
from persistence.index.sources import NOTHING_ELSEWHERE, Elsewhere, ExtractionCache, Source
from persistence.index.sync.journal import Journal
from persistence.index.sync.live_views import FlatViews
from persistence.index.sync.tree_index import TreeIndex, TreeReindexer
from persistence.index.sync.updater import Failed
from persistence.keys import Keys
from persistence.model.addresses import Form
from persistence.model.flat_views import FlatNaming
from persistence.properties.properties import Properties, ProviderProperties
from persistence.providers.provider import Provider
from persistence.settings import Roots, Settings
from persistence.storage import owner, root
from persistence.storage.attachment_bodies import BodiesReader, FileBodies
from persistence.storage.change_events import NOBODY, ChangeListener
from persistence.storage.integrity import HandEdits, Integrity
from persistence.storage.layout import FORMS, JOURNAL, Layout
from persistence.storage.reader import StoreReader
from persistence.storage.store import Store

CatalogAt = Callable[[str], Catalog]
"""Leads from a root to the catalog of the definitions in its tree, always the same one."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree that is being served: its store, and the provider that it is."""

    store: Store
    provider: Provider


def root_of(provider: ProviderProperties, roots: Roots) -> str:
    """Return the root of the tree of a provider.

    Raises:
        StartupError: it names an unknown datasource.
    """
    found = roots.root(provider.datasource)
    if found is None:
        known = ", ".join(sorted(roots.named)) or "none"
        raise StartupError(
            f"provider {provider.name!r} has the datasource {provider.datasource!r}; the settings have {known}"
        )
    return found


def base_of(provider: ProviderProperties) -> str:
    """Return the directory of a provider of attachments.

    Raises:
        StartupError: it has none, or an expression, which is not evaluated.
    """
    if not provider.base_path or "{" in provider.base_path:
        raise StartupError(
            f"provider {provider.name!r} keeps attachments: its base-path must be a directory, not"
            f" {provider.base_path!r}"
        )
    return os.path.realpath(provider.base_path)


def bases_of(properties: Properties) -> list[str]:
    """Return the directories of all local providers of attachments; raises as ``base_of``."""
    return [base_of(provider) for provider in properties.attachment_providers if not provider.is_remote]


def check(properties: Properties, roots: Roots) -> None:
    """Make sure that every provider of a form has a directory, and that none lies in another's.

    Raises:
        StartupError: it has not, or one does.
    """
    every = dict.fromkeys((*roots, *bases_of(properties)))
    for place in every:
        for other in every:
            if other != place and os.path.commonpath((place, other)) == place:
                raise StartupError(f"the directory {other} lies within {place}: each tree needs one of its own")
    for provider in properties.form_providers:
        if not provider.is_remote:
            root_of(provider, roots)


B = TypeVar("B", bound=BodiesReader)


def bodies_by_form(properties: Properties, at: Callable[[str], B]) -> Callable[[Form], B | None]:
    """Return a function to what is ``at`` the directory with a form's attachments, if they have one of their own."""

    def of(form: Form) -> B | None:
        provider = properties.of(form).route.attachments
        return None if provider is None or provider.is_remote else at(base_of(provider))

    return of


def elsewhere(
    path: str, properties: Properties, roots: Roots, hand_edits: HandEdits, catalog_at: CatalogAt | None = None
) -> Elsewhere:
    """Return which definitions are in other trees than that of a root, which has the data of their forms."""
    path = os.path.realpath(path)

    def root_of_definition(form: Form) -> str:
        route = properties.of(form).route
        if route.data.is_remote or route.definition.is_remote or root_of(route.data, roots) != path:
            return ""
        there = root_of(route.definition, roots)
        return "" if there == path else there

    def forms() -> Iterator[Form]:
        for other in roots:
            if other != path and os.path.isdir(other):
                yield from (form for form in StoreReader(other).forms() if root_of_definition(form) == other)

    return Elsewhere(root_of_definition, forms, hand_edits, catalog_at)


def catalogs(integrity: Integrity, file: SummaryFile = NO_FILE) -> CatalogAt:
    """Return a function to one catalog for each root."""
    return cache(lambda root: Catalog(StoreReader(root, integrity), file))


def index_of(
    path: str,
    dialect: Dialect,
    properties: Properties,
    pending: Journal,
    there: Elsewhere = NOTHING_ELSEWHERE,
) -> TreeIndex:
    """Return the index of the tree of a root, with its flat views; ``pending`` is what it has still to take in."""
    extracted, integrity = ExtractionCache(), Integrity(there.hand_edits)
    definitions_at = there.catalog_at or catalogs(integrity)

    def source_of(form: Form) -> Source:
        view, catalog = StoreReader(path, integrity), definitions_at(there.root(form) or path)
        data_format, is_designer = properties.of(form).data_format, dialect.is_designer(form)
        return Source(view, catalog, form, data_format, is_designer=is_designer, cache=extracted)

    return TreeIndex(path, pending, source_of, flat_views_of(path, dialect, properties, there), there)


def flat_views_of(
    path: str, dialect: Dialect, properties: Properties, there: Elsewhere = NOTHING_ELSEWHERE
) -> FlatViews:
    """Return the flat views of the tree of a root."""

    def naming_of(form: Form) -> FlatNaming:
        said = properties.of(form)
        return FlatNaming(dialect.flat_view_prefix, said.longest_flat_name, said.has_flat_prefixes)

    return FlatViews(path, naming_of, there)


def pending_in(path: str) -> Journal:
    """Return what the index of the tree of a root has still to take in."""
    return Journal(Layout(os.path.realpath(path)).own(JOURNAL))


def summary_file(path: str) -> SummaryFile:
    """Return the file of a tree in which workers leave each other the summaries of published versions."""
    return FormsFile(Layout(path).own(FORMS))


def provider_of_tree(store: Store, index: TreeIndex, catalog: Catalog) -> Provider:
    """Return the provider that a tree is; ``index`` must hear of its changes. Both stay the caller's."""
    return Provider(store.root, store, catalog, index, index.flat, TreeReindexer(store, index))


@contextmanager
def serving(
    settings: Settings, properties: Properties, path: str, failed: Failed, catalog_at: CatalogAt
) -> Iterator[Tree]:
    """Serve a tree for a block: changes in it go to its index. At the end the tree is released last."""
    dialect, pending = DIALECTS[settings.dialect], pending_in(path)
    there = elsewhere(path, properties, settings.roots, HandEdits(settings.hand_edits), catalog_at)
    index = index_of(path, dialect, properties, pending, there)
    updater = index.updater(failed)
    with open_store(settings, path, updater) as store, index, updater:
        updater.start()
        yield Tree(store, provider_of_tree(store, index, catalog_at(store.root)))


def open_store(settings: Settings, path: str, listener: ChangeListener = NOBODY) -> Store:
    """Open the store of the tree at a path; ``listener`` hears which documents are changed through it."""
    return Store(path, lock_timeout=settings.lock_timeout, listener=listener, integrity=integrity_of(settings))


def integrity_of(settings: Settings) -> Integrity:
    """Return how the settings want contents to be judged that do not match their sidecars."""
    verify_up_to = settings.verify_up_to if settings.verify == "digest" else 0
    return Integrity(HandEdits(settings.hand_edits), verify_up_to=verify_up_to)


def open_index(settings: Settings, properties: Properties, path: str, catalog_at: CatalogAt | None = None) -> TreeIndex:
    """Open the index of the tree of a root, for commands that change no documents."""
    there = elsewhere(path, properties, settings.roots, HandEdits(settings.hand_edits), catalog_at)
    return index_of(path, DIALECTS[settings.dialect], properties, pending_in(path), there)


def init_trees(settings: Settings, properties: Properties) -> list[tuple[str, bool]]:
    """Make every tree of the settings that is missing; return each root, and whether it was made.

    Raises:
        StartupError: one cannot be made there, or a provider has no directory.
        BusyError: one is being restored.
        DiskError: the disk refused.
    """
    check(properties, settings.roots)
    made = []
    for each in settings.roots:
        with owner.acting(each):
            made.append((each, root.init(each)))
    return made


def probe(settings: Settings, properties: Properties) -> str | None:
    """Try out every tree; return the reason why the service cannot write into one of them for now.

    Raises:
        StartupError: one cannot be used, or a provider has no directory.
        BusyError: one is being restored or upgraded.
        DiskError: one cannot be prepared.
    """
    check(properties, settings.roots)
    for path in (*settings.roots, *bases_of(properties)):
        owner.identity_of(path)  # refuses what others may write to, before anything is opened there
    for base in bases_of(properties):
        FileBodies(base)
    found = []
    for each in settings.roots:
        with open_store(settings, each) as store:
            found.append(store.probe())
    return next((cause for cause in found if cause is not None), None)


def open_keys(settings: Settings) -> Keys:
    """Return the API keys of the settings."""
    return Keys(settings.keys, tree=settings.data)


def open_encryption_keys(settings: Settings, properties: Properties) -> EncryptionKeys:
    """Return the keys of encryption at rest of the settings, and the real system's passwords of the properties.

    Raises:
        StartupError: they lie in a data directory, or those of the environment are malformed.
    """
    return EncryptionKeys(
        settings.encryption_keys,
        trees=(*settings.roots, *bases_of(properties)),
        given=settings.encryption_key,
        passwords=properties.passwords,
    )
