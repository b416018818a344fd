"""The services over one store, wired to each other."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from persistence.dialect import Dialect
from persistence.index.flat.views import FlatViews
from persistence.index.forms import FormsFile
from persistence.index.handing import Handed
from persistence.index.index import Index
from persistence.index.pending import Pending
from persistence.index.sources import Source
from persistence.model.addresses import Form
from persistence.model.admins import Admin
from persistence.model.flat_names import Naming
from persistence.properties.properties import Properties
from persistence.service.access import Access
from persistence.service.attachments import Attachments
from persistence.service.catalog import Catalog
from persistence.service.controls import Controls
from persistence.service.definitions import Definitions
from persistence.service.documents import Documents
from persistence.service.published_forms import PublishedForms
from persistence.service.publishing import Publishing
from persistence.service.reindexing import Reindexing
from persistence.service.rights import Rights
from persistence.service.searching import Searching
from persistence.service.singleton import Singletons
from persistence.store.layout import FORMS, PENDING, Layout
from persistence.store.store import Store
from persistence.store.view import View


@dataclass(frozen=True, slots=True)
class Services:
    """What answers requests."""

    definitions: Definitions
    documents: Documents
    publishing: Publishing
    attachments: Attachments
    forms: PublishedForms
    searching: Searching
    reindexing: Reindexing


def index_of(root: str, dialect: Dialect, properties: Properties, pending: Pending) -> Index:
    """The index of the tree of a root, in one dialect, with its flat views; ``pending`` is what it has to take in."""
    handed = Handed()

    def source_of(form: Form) -> Source:
        data_format = properties.of(form).data_format
        return Source(View(root), form, data_format, is_designer=dialect.is_designer(form), handed=handed)

    return Index(root, pending, source_of, flat_views_of(root, dialect, properties))


def flat_views_of(root: str, dialect: Dialect, properties: Properties) -> FlatViews:
    """The flat views of the tree of a root, in one dialect."""

    def naming_of(form: Form) -> Naming:
        said = properties.of(form)
        return Naming(dialect.flat_view_prefix, said.longest_flat_name, said.has_flat_prefixes)

    return FlatViews(root, naming_of)


def pending_in(root: str) -> Pending:
    """What the index of the tree of a root has still to take in."""
    return Pending(Layout(os.path.abspath(root)).own(PENDING))


def services_of(
    store: Store,
    dialect: Dialect,
    properties: Properties,
    admins: Iterable[Admin] = (),
    *,
    index: Index | None = None,
) -> Services:
    """The services over a store, in one dialect; ``admins`` administer forms.

    ``index`` is the one that hears of changes; without it, there is one that hears only of those that others note.
    """
    index = index or index_of(store.root, dialect, properties, pending_in(store.root))
    flat = index.flat or flat_views_of(store.root, dialect, properties)
    catalog = Catalog(store, FormsFile(Layout(store.root).own(FORMS)))
    rights = Rights(catalog, properties)
    singletons = Singletons(store, catalog, properties, rights, index)
    definitions = Definitions(store, properties, flat)
    documents = Documents(store, dialect, properties, Access(store, rights), singletons, index)
    return Services(
        definitions=definitions,
        documents=documents,
        publishing=Publishing(store, dialect, documents, definitions),
        attachments=Attachments(documents, Controls(store), properties),
        forms=PublishedForms(catalog, admins, rights),
        searching=Searching(index, catalog, properties, rights, dialect),
        reindexing=Reindexing(store, index, flat),
    )
