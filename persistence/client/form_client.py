"""One form: its definition, its documents and drafts, searches, histories and leases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from persistence.client.caller import HeaderPairs, ServiceCaller
from persistence.client.connection import ServiceAnswer, ServiceCall, proper
from persistence.client.content import Content, OutgoingContent
from persistence.client.documents import DocumentName, DocumentsClient, saved
from persistence.client.leases import HeldLease
from persistence.client.listings import SearchResults, ask, history
from persistence.client.refusals import whole_number
from persistence.client.values import AnswerFacts, DeletedData, HistoryEntry, LoadedDefinition, SavedDocument
from persistence.errors import BadRequestError
from persistence.forms.answers_xml import ReportedDifference, read_differences, read_values
from persistence.forms.search_xml import write_distinct_request
from persistence.model.addresses import FORM_XHTML, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.permissions import FINDING
from persistence.model.search import DraftFilter, Drafts, Field, Query, Scope
from persistence.model.texts import without_encoding
from persistence.model.versions import Searched

_XHTML = ("Content-Type", "application/xhtml+xml")
_ANY = ("Content-Type", "application/octet-stream")
_COUNTS = ("Deleted", "Refused")


class FormClient(DocumentsClient):
    """A form of a service: the methods of ``DocumentsClient`` for its saved data, and more.

    ``version`` is also that of the definition that is read, and of the data that is searched.
    """

    def __init__(self, caller: ServiceCaller, form: Form, version: int | None = None) -> None:
        super().__init__(caller, form, Collection.DATA, version)
        self.drafts = DocumentsClient(caller, form, Collection.DRAFT, version)
        """The drafts, by the ids of the documents that they are of. Saving a document removes its draft."""

    # The definition.

    def publish(
        self,
        xhtml: Content,
        version: int | Literal["next"] | None = None,
        attachments: Mapping[str, Content] | None = None,
    ) -> int:
        """Publish a definition, and return its version.

        ``version`` is a number, ``next`` for a new version, or ``None`` for the latest one, which is replaced; the
        first is 1. ``attachments``, by their file names, are stored before the definition.

        Raises:
            BadRequestError: it is not well-formed, or something in it cannot be published.
        """
        xhtml = without_encoding(xhtml) if isinstance(xhtml, str) else xhtml
        for name, content in (attachments or {}).items():
            self._put_part(name, content, (_ANY, *self._caller.fields(version)))
        answer = self._put_part(FORM_XHTML, xhtml, (_XHTML, *self._caller.fields(version)))
        return AnswerFacts.of(answer.headers, self._caller.dialect).version

    def definition(self) -> LoadedDefinition:
        """Return the published definition."""
        call = ServiceCall("GET", self._part(FORM_XHTML), self._caller.fields(self.version), is_safe=True)
        answer = self._caller.connection.read(call)
        facts, get = AnswerFacts.of(answer.headers, self._caller.dialect), answer.headers.get
        own = self._caller.dialect.header
        created, modifier = Instant(get(own("Created"), "")), get(own("Last-Modified-By-Username"))
        return LoadedDefinition(self.form, facts.version, facts.etag, answer.body, facts.modified, created, modifier)

    def unpublish(self, version: int) -> None:
        """Delete a version of the definition. The data that was made with it stays."""
        self._caller.connection.read(ServiceCall("DELETE", self._part(FORM_XHTML), self._caller.fields(version)))

    # Finding documents.

    def search(
        self,
        query: Query | str = "",
        *,
        all_versions: bool = False,
        drafts: DraftFilter | Drafts = Drafts.EXCLUDE,
        any_of: tuple[str, ...] = FINDING,
    ) -> SearchResults:
        """Return the documents that a query finds, to be iterated; pages are requested as they are needed.

        A text is searched anywhere in a document. A ``Query`` has conditions on indexed controls and on fields, an
        order, and the size of pages; its ``paths`` are the controls whose values are returned, all indexed ones if
        ``None``. Documents are found on which the user has one of the operations ``any_of``.
        """
        asked = Query(query, size=100) if isinstance(query, str) else query
        wanted = drafts if isinstance(drafts, DraftFilter) else DraftFilter(drafts)
        scope = Scope(drafts=wanted, any_of=any_of)
        return SearchResults(self._caller, self.form, asked, scope, self._searched(all_versions))

    def distinct_values(self, *by: Field | str, all_versions: bool = False) -> Mapping[Field | str, tuple[str, ...]]:
        """Return the distinct values of indexed controls, named by their paths, and of fields."""
        body, version = write_distinct_request(*by), self._searched(all_versions)
        return proper(read_values, ask(self._caller, "distinct-values", self.form, body, version))

    def _searched(self, all_versions: bool) -> int | str | None:  # noqa: FBT001 - as the methods have it
        return Searched.ALL.value if all_versions else self.version

    # Revisions.

    def history(self, document: DocumentName, attachment: str | None = None) -> Iterator[HistoryEntry]:
        """Yield the revisions of a document or of one of its attachments, newest first; deletions are among them."""
        name = self.address(document).document
        return history(self._caller, self.form, name, *(() if attachment is None else (attachment,)))

    def revert(
        self, document: DocumentName, *, revision: Instant | None = None, as_of: Instant | None = None
    ) -> SavedDocument:
        """Make an older revision the current one again, with its attachments; also of a document that was deleted.

        ``revision`` is its ``modified`` in the history, ``as_of`` a time when it was current.

        Raises:
            BadRequestError: neither is given, or both.
            BusyError: somebody else writes meanwhile.
        """
        query = [(name, at) for name, at in (("last-modified-time", revision), ("as-of", as_of)) if at is not None]
        if len(query) != 1:
            raise BadRequestError("revert needs either revision or as_of")
        address = self.address(document)
        condition = self._condition(document)
        path = self._caller.path("history", self.form.app, self.form.name, address.document, "restore")
        fields = (*condition, *self._caller.fields())
        call = ServiceCall("POST", path, fields, query, is_safe=bool(condition))
        return saved(address, self._caller.connection.read(call), self._caller)

    def differences(
        self, document: DocumentName, older: Instant, newer: Instant, *, language: str | None = None
    ) -> list[ReportedDifference]:
        """Return the differences between two revisions, which ``modified`` in the history names, in a form's words.

        ``language`` is that of the labels, the first of the form if there is none.

        Raises:
            NotFoundError: the revision does not exist.
            BadRequestError: a revision is of another version of the form.
        """
        address = self.address(document)
        version = self._version_of(document)
        if not version:
            of_revision = (("last-modified-time", newer),)
            head = ServiceCall("HEAD", self._path(address), self._caller.fields(), of_revision, is_safe=True)
            version = AnswerFacts.of(self._caller.connection.read(head).headers, self._caller.dialect).version
        query = [("form-version", str(version)), ("older-modified-time", older), ("newer-modified-time", newer)]
        query += [] if language is None else [("lang", language)]
        path = self._caller.path("history", self.form.app, self.form.name, address.document, "diff")
        call = ServiceCall("GET", path, self._caller.fields(), query, is_safe=True)
        return proper(read_differences, self._caller.connection.read(call))

    # Removing.

    def delete_all(self, *, version: int | None = None) -> DeletedData:
        """Delete all data of a form, or of a ``version``; each document can be brought back by ``revert``.

        It is never repeated: what was saved after the first request would be deleted, too.

        Raises:
            ForbiddenError: there are documents, and the user may delete none of them.
        """
        path = f"{self._caller.path('crud', self.form.app, self.form.name, 'data')}/"
        answer = self._caller.connection.read(ServiceCall("DELETE", path, self._caller.fields(version)))
        counts = (whole_number(answer.headers.get(self._caller.dialect.header(each), "")) for each in _COUNTS)
        return DeletedData(*(each or 0 for each in counts))

    def purge_revision(self, document: DocumentName, revision: Instant) -> None:
        """Remove an older revision of a document without a trace. Only for administrators, as ``purge`` of the client.

        Raises:
            ConflictError: it is the current one.
        """
        self._purge(self.address(document), (("last-modified-time", revision),))

    def purge_attachment(self, document: DocumentName, name: str) -> None:
        """Remove an attachment with all its revisions without a trace. Only for administrators."""
        self._purge(self._attachment(document, name))

    def _purge(self, address: DocumentAddress, query: tuple[tuple[str, str], ...] = ()) -> None:
        forced = (("force-delete", "true"), *query)
        self._caller.connection.read(ServiceCall("DELETE", self._path(address), self._caller.fields(), forced))

    # The index, encryption, and access tokens.

    def reindex(self, version: int) -> None:
        """Rebuild the index of a version, and return when that is done; as ``PersistenceClient.reindex``."""
        self._begin("reindex", version)

    def reencrypt(self, version: int | None = None) -> None:
        """Begin to encrypt all data again, or that of a version. ``PersistenceClient.reencryptions`` has the progress.

        Raises:
            NotSupportedError: there is no encryption key.
        """
        self._begin("reencrypt", version)

    def _begin(self, api: str, version: int | None) -> None:
        path = self._caller.path(api, self.form.app, self.form.name)
        self._caller.connection.read(ServiceCall("POST", path, self._caller.fields(version)))

    def issue_token(self, document: DocumentName, operations: Iterable[str], expires: str) -> str:
        """Return an access token for a document, which ``PersistenceClient.with_token`` takes.

        ``operations`` are ``read``, ``update`` and ``delete``; ``expires`` is a time span such as ``7d``.

        Raises:
            ForbiddenError: the setting ``token_issuers`` does not name the key of the caller, or the form has no
                permission for tokens.
        """
        name = self.address(document).document
        query = (("operations", ",".join(operations)), ("expires", expires))
        path = self._caller.path("token", self.form.app, self.form.name, name)
        call = ServiceCall("POST", path, self._caller.fields(self._version_of(document)), query)
        return self._caller.connection.read(call).body.decode().strip()

    def lease(self, document: DocumentName, seconds: int = 600) -> HeldLease:
        """Lease a document for the user of this client, as a rule in a ``with`` block.

        ``seconds`` is how long the lease lasts, unless it is renewed: at most a day. The document need not be stored.
        """
        return HeldLease(self._caller, self._path(self.address(document)), seconds)

    def _put_part(self, name: str, content: Content, fields: HeaderPairs) -> ServiceAnswer:
        return self._caller.connection.read(
            ServiceCall("PUT", self._part(name), fields, content=OutgoingContent(content))
        )

    def _part(self, name: str) -> str:
        return self._caller.path("crud", self.form.app, self.form.name, "form", name)
