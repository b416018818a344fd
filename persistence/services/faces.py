"""The services behind the requests of one API, wired to each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from persistence.model.users import Admin
from persistence.providers.provider import Provider
from persistence.providers.router import Router, only
from persistence.services.access import Access
from persistence.services.behind_proxy import DefinitionsBehindProxy, DocumentsBehindProxy
from persistence.services.codec import AS_STORED, Codec
from persistence.services.definitions import Definitions
from persistence.services.diffs import RevisionDiffs
from persistence.services.documents import Documents
from persistence.services.forced_deletes import ForcedDeletes, PurgeOf
from persistence.services.form_list import PublishedForms
from persistence.services.histories import Histories
from persistence.services.jobs import Reindexing
from persistence.services.leasing import Leasing
from persistence.services.reverting import Reverting
from persistence.services.searching import Searching
from persistence.services.transforms import Attachments


@dataclass(frozen=True, slots=True)
class Services:
    """The services behind the requests of one API."""

    definitions: Definitions
    documents: Documents
    leasing: Leasing
    attachments: Attachments
    histories: Histories
    reverting: Reverting
    forms: PublishedForms
    searching: Searching
    reindexing: Reindexing
    forced_deletes: ForcedDeletes

    @classmethod
    def public(
        cls,
        router: Router,
        access: Access,
        admins: Iterable[Admin] = (),
        codec: Codec = AS_STORED,
        purge_of: PurgeOf = lambda _: None,
    ) -> Services:
        """Wire the services of the public API; ``codec`` translates between clients and storage."""
        documents = Documents(router, access.dialect, access)
        definitions = Definitions(router, refuses_marks=True)
        return cls._wired(documents, replace(documents, codec=codec), definitions, admins, purge_of)

    @classmethod
    def of_provider(
        cls,
        provider: Provider,
        router: Router,
        access: Access,
        admins: Iterable[Admin] = (),
        purge_of: PurgeOf = lambda _: None,
    ) -> Services:
        """Wire the services of the provider API for a provider; in some dialects behind a proxy (spec crud 11).

        Definitions are read and published there, while rules go by the definitions that ``router`` finds.
        """
        dialect = access.dialect
        documents = Documents(router, dialect, access)
        definitions = Definitions(only(provider, router.properties), refuses_marks=True)
        wired = cls._wired(documents, documents, definitions, admins, purge_of)
        if not dialect.has_proxy:
            return wired
        served = DocumentsBehindProxy(router, dialect, access)
        return replace(
            wired,
            definitions=DefinitionsBehindProxy(definitions.router),
            documents=served,
            leasing=Leasing(router, dialect, None),
            forms=PublishedForms(router, admins, is_strict=dialect.is_strict, filters=False),
            histories=Histories(router, None, RevisionDiffs(served)),
            reverting=Reverting(served),
            forced_deletes=ForcedDeletes(served, None, purge_of),
        )

    @classmethod
    def _wired(
        cls,
        documents: Documents,
        served: Documents,
        definitions: Definitions,
        admins: Iterable[Admin],
        purge_of: PurgeOf,
    ) -> Services:
        router, dialect = documents.router, documents.dialect
        forms = PublishedForms(router, admins, is_strict=dialect.is_strict)
        return cls(
            definitions=definitions,
            documents=served,
            leasing=Leasing(router, dialect, documents.access),
            attachments=Attachments(documents),
            histories=Histories(router, documents.access, RevisionDiffs(served)),
            reverting=Reverting(documents),
            forms=forms,
            searching=Searching(router, dialect, forms),
            reindexing=Reindexing(router),
            forced_deletes=ForcedDeletes(documents, documents.access, purge_of),
        )
