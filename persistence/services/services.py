"""The services over a router, wired to each other, for one face of the API."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from persistence.dialect import Dialect
from persistence.model.users import Admin
from persistence.providers.provider import Provider
from persistence.providers.router import Router, only
from persistence.services.access import Access
from persistence.services.behind_proxy import DefinitionsBehindProxy, DocumentsBehindProxy
from persistence.services.codec import AS_STORED, Codec
from persistence.services.definitions import Definitions
from persistence.services.documents import Documents
from persistence.services.form_list import PublishedForms
from persistence.services.jobs import Reindexing
from persistence.services.publishing import Publishing
from persistence.services.searching import Searching
from persistence.services.transforms import Attachments


@dataclass(frozen=True, slots=True)
class Services:
    """The services behind the requests of one face."""

    definitions: Definitions
    documents: Documents
    publishing: Publishing
    attachments: Attachments
    forms: PublishedForms
    searching: Searching
    reindexing: Reindexing

    @classmethod
    def public(
        cls, router: Router, dialect: Dialect, admins: Iterable[Admin] = (), codec: Codec = AS_STORED
    ) -> Services:
        """Wire the services of the public face; ``codec`` translates between clients and storage."""
        documents = Documents(router, dialect, Access(dialect))
        return cls._wired(documents, replace(documents, codec=codec), Definitions(router), admins)

    @classmethod
    def of_tree(cls, provider: Provider, router: Router, dialect: Dialect, admins: Iterable[Admin] = ()) -> Services:
        """Wire the services of the provider face for one tree; in some dialects a proxy comes before it (spec crud 11).

        Definitions are read and published in the tree itself, while rules go by the definitions that ``router`` finds.
        """
        documents = Documents(router, dialect, Access(dialect))
        definitions = Definitions(only(provider, router.properties))
        wired = cls._wired(documents, documents, definitions, admins)
        if not dialect.has_proxy:
            return wired
        served = DocumentsBehindProxy(router, dialect, documents.access)
        return replace(wired, definitions=DefinitionsBehindProxy(definitions.router), documents=served)

    @classmethod
    def _wired(
        cls, documents: Documents, served: Documents, definitions: Definitions, admins: Iterable[Admin]
    ) -> Services:
        router, dialect = documents.router, documents.dialect
        forms = PublishedForms(router, admins, is_strict=dialect.is_strict)
        return cls(
            definitions=definitions,
            documents=served,
            publishing=Publishing(dialect, documents, definitions),
            attachments=Attachments(documents),
            forms=forms,
            searching=Searching(router, dialect, forms),
            reindexing=Reindexing(router),
        )
