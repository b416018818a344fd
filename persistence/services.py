"""The services over one store, wired to each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from persistence.dialect import Dialect
from persistence.model.admins import Admin
from persistence.properties.properties import Properties
from persistence.service.access import Access
from persistence.service.attachments import Attachments
from persistence.service.catalog import Catalog
from persistence.service.controls import Controls
from persistence.service.definitions import Definitions
from persistence.service.documents import Documents
from persistence.service.published_forms import PublishedForms
from persistence.service.publishing import Publishing
from persistence.service.rights import Rights
from persistence.service.singleton import Singletons
from persistence.store.store import Store


@dataclass(frozen=True, slots=True)
class Services:
    """What answers requests."""

    definitions: Definitions
    documents: Documents
    publishing: Publishing
    attachments: Attachments
    forms: PublishedForms


def services_of(store: Store, dialect: Dialect, properties: Properties, admins: Iterable[Admin] = ()) -> Services:
    """The services over a store, in one dialect; ``admins`` administer forms."""
    catalog = Catalog(store)
    rights = Rights(catalog, properties)
    singletons = Singletons(store, catalog, properties, rights)
    definitions = Definitions(store, properties)
    documents = Documents(store, dialect, properties, Access(store, rights), singletons)
    return Services(
        definitions=definitions,
        documents=documents,
        publishing=Publishing(store, dialect, documents, definitions),
        attachments=Attachments(documents, Controls(store), properties),
        forms=PublishedForms(catalog, admins, rights),
    )
