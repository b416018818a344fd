"""The services over the places of forms, wired to each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from persistence.dialect import Dialect
from persistence.index.extraction import ExtractionCache
from persistence.index.forms import FORGETFUL, FormsFile, Memory
from persistence.index.protocol import SearchIndex
from persistence.index.sources import NOTHING_ELSEWHERE, Elsewhere, Source
from persistence.index.sync.flat_views import FlatViews
from persistence.index.sync.journal import Journal
from persistence.index.sync.reindexing import TreeReindexer
from persistence.index.sync.tree_index import TreeIndex
from persistence.model.addresses import Form
from persistence.model.flat_views import FlatNaming
from persistence.model.users import Admin
from persistence.properties.properties import Properties
from persistence.providers.places import Place, PlaceOf, beside, reindexed
from persistence.services.access import Access
from persistence.services.attachments import Attachments
from persistence.services.catalog import Catalog
from persistence.services.codec import Codec
from persistence.services.controls import Controls
from persistence.services.definitions import Definitions
from persistence.services.documents import Documents
from persistence.services.notices import Notices
from persistence.services.provided import ProvidedDefinitions, ProvidedDocuments
from persistence.services.published_forms import PublishedForms
from persistence.services.publishing import Publishing
from persistence.services.resources import DefinitionResources, DocumentResources
from persistence.services.rights import Rights
from persistence.services.routed import RoutedIndex, RoutedReindexing, RoutedTables
from persistence.services.searched import searched
from persistence.services.searching import Searching
from persistence.services.services import Services
from persistence.services.singleton import Singletons
from persistence.services.visibility import Visibility
from persistence.storage.integrity import Integrity
from persistence.storage.layout import FORMS, PENDING, Layout
from persistence.storage.routed import RoutedStorage, apart
from persistence.storage.storage import Storage
from persistence.storage.store import Store


def index_of(
    root: str,
    dialect: Dialect,
    properties: Properties,
    pending: Journal,
    elsewhere: Elsewhere = NOTHING_ELSEWHERE,
) -> TreeIndex:
    """The index of the tree of a root, in one dialect, with its flat views; ``pending`` is what it has to take in."""
    cache, integrity = ExtractionCache(), Integrity(elsewhere.hand_edits)

    def source_of(form: Form) -> Source:
        seen, data_format = apart(root, elsewhere.root(form), integrity), properties.of(form).data_format
        return Source(seen, form, data_format, is_designer=dialect.is_designer(form), cache=cache)

    return TreeIndex(root, pending, source_of, flat_views_of(root, dialect, properties, elsewhere), elsewhere)


def flat_views_of(
    root: str,
    dialect: Dialect,
    properties: Properties,
    elsewhere: Elsewhere = NOTHING_ELSEWHERE,
) -> FlatViews:
    """The flat views of the tree of a root, in one dialect."""

    def naming_of(form: Form) -> FlatNaming:
        said = properties.of(form)
        return FlatNaming(dialect.flat_view_prefix, said.longest_flat_name, said.has_flat_prefixes)

    return FlatViews(root, naming_of, elsewhere)


def pending_in(root: str) -> Journal:
    """What the index of the tree of a root has still to take in."""
    return Journal(Layout(os.path.realpath(root)).own(PENDING))


def place_of_tree(store: Store, index: TreeIndex, dialect: Dialect, properties: Properties) -> Place:
    """The place that a tree is; ``index`` is what hears of its changes."""
    flat = index.flat or flat_views_of(store.root, dialect, properties)
    return Place(store, index, flat, TreeReindexer(store, index))


_Face = Callable[[Definitions, Documents], tuple[DefinitionResources, DocumentResources]]
"""The resources as a face has them."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """What services have in common, wherever forms are; ``admins`` administer forms."""

    dialect: Dialect
    properties: Properties
    admins: Iterable[Admin] = ()

    def of_all(self, place_of: PlaceOf, stored: Storage, codec: Codec, memory: Memory = FORGETFUL) -> Services:
        """The services of all places, each form being where the properties say; ``stored`` is all that is in them.

        The ``codec`` is before the documents that requests read and write.
        """

        def of_data(form: Form) -> Place:
            return place_of(self.properties.of(form).route.data)

        def behind(definitions: Definitions, documents: Documents) -> tuple[DefinitionResources, DocumentResources]:
            return definitions, replace(documents, codec=codec)

        place = Place(
            stored,
            RoutedIndex(lambda form: of_data(form).index),
            RoutedTables(lambda form: of_data(form).flat),
            RoutedReindexing(lambda form: of_data(form).reindexing, lambda: reindexed(self.properties, place_of)),
        )
        return self._wired(place, stored, Catalog(stored, memory), behind)

    def of_tree(self, place: Place, place_of: PlaceOf, memory: Memory = FORGETFUL) -> Services:
        """The services of one place, wherever the properties say that forms are."""
        return self._of_place(place, place_of, memory, _as_they_are)

    def of_provider(self, place: Place, place_of: PlaceOf, memory: Memory = FORGETFUL) -> Services:
        """The same as the provider face has them: in some dialects for the proxy of a runtime (spec crud 11)."""
        return self._of_place(place, place_of, memory, _behind_proxy if self.dialect.has_proxy else _as_they_are)

    def _of_place(self, place: Place, place_of: PlaceOf, memory: Memory, face: _Face) -> Services:
        seen = RoutedStorage(beside(place.storage, self.properties, lambda provider: place_of(provider).storage))
        return self._wired(place, seen, Catalog(seen, memory), face)

    def _wired(self, place: Place, seen: Storage, catalog: Catalog, face: _Face) -> Services:
        """The services of a place, where data is ``seen`` with the definitions that hold for it."""
        dialect, properties = self.dialect, self.properties
        rights = Rights(catalog, properties)
        visibility = Visibility(rights, properties)
        singletons = Singletons(seen, catalog, properties, visibility, place.index)
        definitions = Definitions(place.storage, properties, place.flat)
        documents = Documents(seen, dialect, properties, Access(seen, rights, dialect), singletons, place.index)
        forms = PublishedForms(catalog, self.admins, rights, is_strict=dialect.is_strict)
        resources = face(definitions, documents)
        return Services(
            definitions=resources[0],
            documents=resources[1],
            publishing=Publishing(place.storage, dialect, documents, definitions),
            attachments=Attachments(documents, Controls(seen), properties),
            forms=forms,
            searching=searching_of(place.index, catalog, visibility, forms, self),
            reindexing=place.reindexing,
        )


def searching_of(
    index: SearchIndex, catalog: Catalog, visibility: Visibility, forms: PublishedForms, wiring: Wiring
) -> Searching:
    """Searches of an index, by the definitions of a catalog."""
    dialect = wiring.dialect
    versions = partial(searched, catalog=catalog, properties=wiring.properties, dialect=dialect)
    notices = Notices(catalog, forms, index.keys, dialect)
    return Searching(index, visibility, versions, notices, is_strict=dialect.is_strict)


def _as_they_are(definitions: Definitions, documents: Documents) -> tuple[DefinitionResources, DocumentResources]:
    return definitions, documents


def _behind_proxy(definitions: Definitions, documents: Documents) -> tuple[DefinitionResources, DocumentResources]:
    return ProvidedDefinitions(definitions), ProvidedDocuments(documents)


def memory_of(root: str) -> Memory:
    """Where processes leave for each other what published versions say, in the tree of a root."""
    return FormsFile(Layout(root).own(FORMS))


def services_of(
    store: Store,
    dialect: Dialect,
    properties: Properties,
    admins: Iterable[Admin] = (),
    *,
    index: TreeIndex,
) -> Services:
    """The services over one tree that has everything, in one dialect; ``admins`` administer forms.

    ``store`` and ``index`` stay the caller's, who closes them.
    """
    place = place_of_tree(store, index, dialect, properties)
    return Wiring(dialect, properties, admins).of_tree(place, lambda _: place, memory_of(store.root))
