"""A service as a client sees it, and one form: its definition, documents, drafts, searches, histories and leases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Literal, Self

import msgspec

from persistence.client.client_documents import (
    DeletedData,
    DocumentName,
    DocumentsClient,
    LoadedDefinition,
    SavedDocument,
    ServiceCaller,
    ServiceHealth,
    older,
)
from persistence.client.service_connection import ServiceAnswer, ServiceConnection, authorization
from persistence.closable import Closable
from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, ConflictError, PersistenceError
from persistence.forms import messages
from persistence.forms.messages import (
    HistoryEntry,
    ReportedDifference,
    read_differences,
    read_history,
    read_values,
    write_lock,
)
from persistence.forms.search_xml import read_search_answer, write_distinct_request, write_search_request
from persistence.limits import LARGEST_HISTORY_PAGE
from persistence.model.addresses import FORM_XHTML, Collection, DocumentAddress, Form
from persistence.model.permissions import ANONYMOUS, FINDING, User
from persistence.model.queries import (
    DraftFilter,
    Drafts,
    ExportQuery,
    Field,
    FoundDocuments,
    Query,
    Scope,
    SearchResult,
    export_parameters,
    parse_patterns,
)
from persistence.model.texts import Instant, without_encoding
from persistence.model.versions import LeaseHolder, Searched
from persistence.wire import XML, Answer, Call, CallPolicy, Content, whole_number


class SearchResults:
    """The documents that a search finds. Pages are requested when they are needed, and only once.

    This is not a snapshot: changes meanwhile may move a document to a page that was read already, or is still to be
    read. A document is not found twice on neighbouring pages.

    Iterating, ``total`` and ``notice`` raise ``BadRequestError`` for a query that the service refuses, ``BusyError``
    while the index is being built, and ``RemoteError``.
    """

    def __init__(
        self, caller: ServiceCaller, form: Form, query: Query, scope: Scope, version: int | str | None
    ) -> None:
        if query.size < 1 or query.offset % query.size:
            raise BadRequestError("the offset of a search must be a multiple of the size of a page")
        self._caller = caller
        self._form = form
        self._query = query
        self._scope = scope
        self._version = version

    @property
    def total(self) -> int:
        """The number of all documents that match."""
        return whole_number(self._first[0].total) or 0

    @property
    def notice(self) -> str | None:
        """The line of the service about an unknown form, version or control, for which nothing can be found."""
        return self._first[1]

    def __iter__(self) -> Iterator[SearchResult]:
        before: set[tuple[str, bool]] = set()
        page, query = self._first[0], self._query
        while True:
            yield from (each for each in page.documents if (each.document, each.is_draft) not in before)
            before = {(each.document, each.is_draft) for each in page.documents}
            query = replace(query, offset=query.offset + query.size)
            # Not the length of a page decides: the service may leave out documents that a provider has found.
            if query.offset >= (whole_number(page.total) or 0):
                return
            page = self._asked(query)[0]

    @cached_property
    def _first(self) -> tuple[FoundDocuments, str | None]:
        return self._asked(self._query)

    def _asked(self, query: Query) -> tuple[FoundDocuments, str | None]:
        body = write_search_request(self._scope, query, all_indexed=query.paths is None)
        answer = ask(self._caller, "search", self._form, body, self._version)
        return answer.values(read_search_answer), self._caller.own(answer).text("Notice")


def ask(caller: ServiceCaller, api: str, form: Form, body: bytes, version: int | str | None = None) -> ServiceAnswer:
    """Return the answer to a query, which is a POST and changes nothing."""
    fields = (XML, *caller.fields(version))
    return caller.send("POST", (api, form.app, form.name), fields, content=body, is_safe=True)


class HeldLease:
    """The lease of a document by the user of a client: taken when it is made, and given back at the end of a ``with``.

    ``seconds`` is how long it lasts, unless it is renewed. Raises ``LockedError`` if somebody else holds it: ``user``
    and ``seconds`` say who, and for how long. Raises ``ForbiddenError`` if leases are switched off; or if they are
    enforced, and the user may not save the document.
    """

    def __init__(self, caller: ServiceCaller, path: str, seconds: int) -> None:
        if caller.user.name is None:
            raise BadRequestError("a lease needs a user: give the client one")
        self.seconds = seconds
        self._caller = caller
        self._path = path
        self._body = write_lock(LeaseHolder(caller.user.name, caller.user.group))
        self.renew()

    def renew(self) -> None:
        """Make it last for ``seconds`` from now on."""
        self._send("LOCK", ("Timeout", f"Second-{self.seconds}"))

    def end(self) -> None:
        """Give it back. Nothing happens if it has expired."""
        self._send("UNLOCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        try:
            self.end()
        except PersistenceError:
            if kind is None:
                raise

    def _send(self, method: str, *fields: tuple[str, str]) -> None:
        # Safe to repeat: the same holder renews or ends the same lease.
        self._caller.send(method, self._path, (XML, *fields, *self._caller.fields()), content=self._body, is_safe=True)


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
        first is 1. ``attachments``, by their file names, are stored before the definition. Raises ``BadRequestError``
        if it is not well-formed, or something in it cannot be published.
        """
        xhtml = without_encoding(xhtml) if isinstance(xhtml, str) else xhtml
        own = self._caller.fields(version)
        for name, content in (attachments or {}).items():
            fields = (("Content-Type", "application/octet-stream"), *own)
            self._caller.send("PUT", self._part(name), fields, content=content)
        fields = (("Content-Type", "application/xhtml+xml"), *own)
        answer = self._caller.send("PUT", self._part(FORM_XHTML), fields, content=xhtml)
        return self._caller.version(answer)

    def definition(self) -> LoadedDefinition:
        """Return the published definition."""
        answer = self._caller.send("GET", self._part(FORM_XHTML), self._caller.fields(self.version), is_safe=True)
        etag, own = answer.headers.get("ETag", ""), self._caller.own(answer)
        modified, created = (Instant(own.text(name) or "") for name in ("Last-Modified", "Created"))
        version, modifier = self._caller.version(answer), own.text("Last-Modified-By-Username")
        return LoadedDefinition(self.form, version, etag, answer.body, modified, created, modifier)

    def unpublish(self, version: int) -> None:
        """Delete a version of the definition. The data that was made with it stays."""
        self._caller.send("DELETE", self._part(FORM_XHTML), self._caller.fields(version))

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
        return ask(self._caller, "distinct-values", self.form, body, version).values(read_values)

    def _searched(self, all_versions: bool) -> int | str | None:  # noqa: FBT001 - as the methods have it
        return Searched.ALL.value if all_versions else self.version

    # Revisions.

    def history(self, document: DocumentName, attachment: str | None = None) -> Iterator[HistoryEntry]:
        """Yield the revisions of a document or of one of its attachments, newest first; deletions are among them."""
        names = (self.address(document).document, *(() if attachment is None else (attachment,)))
        path, last = ("history", *self._names, *names), None
        for number in range(1, 1 << 31):
            query = (("page-number", str(number)), ("page-size", str(LARGEST_HISTORY_PAGE)))
            page = self._caller.send("GET", path, query=query, is_safe=True).values(read_history)
            for entry in page.revisions:
                if last is None or entry.modified < last:  # a save meanwhile moves revisions to the next page
                    yield entry
                last = entry.modified if last is None else min(last, entry.modified)
            size, total = (whole_number(page.attributes.get(name, "")) for name in ("page-size", "total"))
            if number * (size or LARGEST_HISTORY_PAGE) >= (total or 0):
                return

    def revert(
        self, document: DocumentName, *, revision: Instant | None = None, as_of: Instant | None = None
    ) -> SavedDocument:
        """Make an older revision the current one again, with its attachments; also of a document that was deleted.

        ``revision`` is its ``modified`` in the history, ``as_of`` a time when it was current: one of them is given.
        Raises ``BusyError`` if somebody else writes meanwhile.
        """
        query = older(revision, as_of)
        if len(query) != 1:
            raise BadRequestError("revert needs either revision or as_of")
        address = self.address(document)
        condition = self._condition(document)
        path = ("history", *self._names, address.document, "restore")
        fields = (*condition, *self._caller.fields())
        answer = self._caller.send("POST", path, fields, query, is_safe=bool(condition))
        return self._stored(address, answer)

    def differences(
        self, document: DocumentName, older: Instant, newer: Instant, *, language: str | None = None
    ) -> list[ReportedDifference]:
        """Return the differences between two revisions, which ``modified`` in the history names, in a form's words.

        ``language`` is that of the labels, the first of the form if there is none. Raises ``BadRequestError`` if a
        revision is of another version of the form.
        """
        address = self.address(document)
        version = self._version_of(document)
        if not version:
            answer = self._caller.send(
                "HEAD", self._path(address), query=(("last-modified-time", newer),), is_safe=True
            )
            version = self._caller.version(answer)
        query = [("form-version", str(version)), ("older-modified-time", older), ("newer-modified-time", newer)]
        query += [] if language is None else [("lang", language)]
        path = ("history", *self._names, address.document, "diff")
        return self._caller.send("GET", path, query=query, is_safe=True).values(read_differences)

    # Removing.

    def delete_all(self, *, version: int | None = None) -> DeletedData:
        """Delete all data of a form, or of a ``version``; each document can be brought back by ``revert``.

        It is never repeated: what was saved after the first request would be deleted, too. Raises ``ForbiddenError`` if
        there are documents, and the user may delete none of them.
        """
        path = f"{self._caller.path('crud', *self._names, 'data')}/"
        answer = self._caller.send("DELETE", path, self._caller.fields(version))
        own = self._caller.own(answer)
        return DeletedData(own.number("Deleted") or 0, own.number("Refused") or 0)

    def purge_revision(self, document: DocumentName, revision: Instant) -> None:
        """Remove an older revision of a document without a trace. Only for administrators, as ``purge`` of the client.

        Raises ``ConflictError`` if it is the current one.
        """
        self._purge(self.address(document), (("last-modified-time", revision),))

    def purge_attachment(self, document: DocumentName, name: str) -> None:
        """Remove an attachment with all its revisions without a trace. Only for administrators."""
        self._purge(self._attachment(document, name))

    def _purge(self, address: DocumentAddress, query: tuple[tuple[str, str], ...] = ()) -> None:
        self._caller.send("DELETE", self._path(address), query=(("force-delete", "true"), *query))

    def change(
        self,
        document: DocumentName | None = None,
        *,
        owned_by: str | None = None,
        owner: str | None = None,
        group: str | None = None,
        stage: str | None = None,
    ) -> list[str]:
        """Give a document, or all documents ``owned_by`` a user, another owner or stage; return the ids of the changed.

        An empty owner or stage is none. Only for administrators. Raises ``ConflictError`` if some were not changed; its
        text has the first cause.
        """
        names = () if document is None else (self.address(document).document,)
        given = {"owned-by": owned_by, "owner": owner or None, "group": group, "stage": stage}
        query = [(name, value) for name, value in given.items() if value is not None]
        query += [("no-owner", "true")] if owner == "" else []
        changed, has_more = list[str](), True
        while has_more:
            answer = msgspec.json.decode(self._caller.send("POST", ("change", *self._names, *names), query=query).body)
            changed += [each["document"] for each in answer["changed"]]
            if answer["failed"]:
                raise ConflictError(f"{len(changed)} documents are changed: {answer['failed'][0]['cause']}")
            has_more = answer["has_more"]
        return changed

    # The index, encryption, and access tokens.

    def reindex(self, version: int) -> None:
        """Rebuild the index of a version, and return when that is done; as ``PersistenceClient.reindex``."""
        self._begin("reindex", version)

    def reencrypt(self, version: int | None = None) -> None:
        """Begin to encrypt all data again, or that of a version. ``PersistenceClient.reencryptions`` has the progress.

        Raises ``NotSupportedError`` if there is no encryption key.
        """
        self._begin("reencrypt", version)

    def _begin(self, api: str, version: int | None) -> None:
        self._caller.send("POST", (api, *self._names), self._caller.fields(version))

    def issue_token(self, document: DocumentName, operations: Iterable[str], expires: str) -> str:
        """Return an access token for a document, which ``PersistenceClient.with_token`` takes.

        ``operations`` are ``read``, ``update`` and ``delete``; ``expires`` is a time span such as ``7d``. Raises
        ``ForbiddenError`` if the setting ``token_issuers`` does not name the key of the caller, or the form has no
        permission for tokens.
        """
        name = self.address(document).document
        query = (("operations", ",".join(operations)), ("expires", expires))
        fields = self._caller.fields(self._version_of(document))
        return self._caller.send("POST", ("token", *self._names, name), fields, query).body.decode().strip()

    def lease(self, document: DocumentName, seconds: int = 600) -> HeldLease:
        """Lease a document for the user of this client, as a rule in a ``with`` block.

        ``seconds`` is how long the lease lasts, unless it is renewed: at most a day. The document need not be stored.
        """
        return HeldLease(self._caller, self._path(self.address(document)), seconds)

    def _part(self, name: str) -> tuple[str, ...]:
        return ("crud", *self._names, "form", name)

    @property
    def _names(self) -> tuple[str, str]:
        return self.form.app, self.form.name


# A service: its forms, its health, and what administrators may do.


_USUAL = CallPolicy()
_EVERYTHING = ExportQuery()
_KINDS = {"zip": "application/zip", "jsonl": "application/jsonl"}


class PersistenceClient(Closable):
    """Calls a service. Use it in a ``with`` block, or ``close`` it; threads may share it.

    ``url`` is ``http://HOST:PORT``, ``https://…``, or ``unix:`` and the path of a socket. ``key`` is the API key of the
    caller. ``user`` is the user for whom requests are made, a name or a ``User`` with group and roles; without one they
    are anonymous. ``dialect`` is that of the service, ``svc`` or ``orbeon``. ``policy`` has timeouts and the bounds of
    repetitions.

    Every error is a ``PersistenceError``: ``NotFoundError``, ``ForbiddenError``, ``PreconditionError`` and so on, whose
    text is the line of the service. ``UnauthorizedError`` means the key, ``RemoteError`` that the service cannot be
    reached or has failed. An address or a key that is not valid is a ``BadRequestError``, an unknown dialect a
    ``KeyError``.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        user: User | str = ANONYMOUS,
        dialect: str = "svc",
        policy: CallPolicy = _USUAL,
    ) -> None:
        connection = ServiceConnection(url, authorization(key), policy)
        self._caller = ServiceCaller(connection, DIALECTS[dialect], _user(user))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._caller.connection.url!r}, user={self._caller.user.name!r})"

    def acting_as(self, user: User | str) -> PersistenceClient:
        """Return a client for another user, which shares the connections of this one."""
        return self._calling(replace(self._caller, user=_user(user)))

    def with_token(self, token: str) -> PersistenceClient:
        """Return a client that sends an access token with every request, and shares the connections of this one.

        The token opens the document that it was issued for, also to a user who may not open it otherwise.
        """
        connection = self._caller.connection.with_query(("fr-access-token", token))
        return self._calling(replace(self._caller, connection=connection))

    def form(self, app: str, name: str, version: int | None = None) -> FormClient:
        """Return a form, published or not, by its names, in the latest or a given version."""
        return FormClient(self._caller, Form(app, name), version)

    def forms(
        self,
        app: str | None = None,
        name: str | None = None,
        *,
        all_versions: bool = False,
        all_forms: bool = False,
        modified_since: Instant | None = None,
    ) -> list[messages.ListedForm]:
        """Return the published forms with which the user may do something, those that were published last first.

        It is the highest version of each form, or ``all_versions``. ``all_forms`` lists those that are hidden, too.
        """
        path = ("form", *filter(None, (app, name if app else None)))
        query = [("all-versions", str(all_versions).lower()), ("all-forms", str(all_forms).lower())]
        query += [] if modified_since is None else [("modified-since", modified_since)]
        return self._caller.send("GET", path, query=query, is_safe=True).values(messages.read_forms)

    def search(
        self, query: Query | str = "", app: str | None = None, *, drafts: Drafts = Drafts.EXCLUDE
    ) -> FoundDocuments:
        """Return a page of the documents of all forms, or of those of an application, that a query finds.

        The query names no controls, and is sorted by ``Field.CREATED`` or ``Field.LAST_MODIFIED``. Each result has its
        ``form``.
        """
        asked = Query(query, size=100) if isinstance(query, str) else query
        body = write_search_request(Scope(drafts=DraftFilter(drafts)), replace(asked, paths=()))
        path = ("search", *filter(None, (app,)))
        return self._caller.send("POST", path, (XML,), content=body, is_safe=True).values(read_search_answer)

    def health(self) -> ServiceHealth:
        """Return whether the service is alive and ready. It needs no key; callers that are let in get the cause."""
        is_alive = False
        try:
            self._caller.send("GET", "/healthz", ())
            is_alive = True
            answer = self._caller.send("GET", "/readyz", ()).body.decode("utf-8", "replace")
        except PersistenceError as error:
            return ServiceHealth(is_alive=is_alive, is_ready=False, cause=str(error))
        return ServiceHealth(is_alive=True, is_ready=True, cause=answer.strip().partition("ready, but ")[2])

    # The indexes, and encryption.

    def reindex(self) -> None:
        """Rebuild the indexes of all forms, and return when that is done. Searches are answered meanwhile.

        It is sent once. After ``CallPolicy.silence`` seconds ``RemoteTimeoutError`` is raised, and the rebuild goes on.
        Raises ``BusyError`` if one runs already.
        """
        self._caller.send("POST", ("reindex",))

    def reindexing(self) -> messages.ReportedReindexing:
        """Return the progress of a rebuild of indexes."""
        return self._caller.send("GET", ("reindex", "status"), is_safe=True).values(messages.read_reindexing)

    def reencryptions(self) -> list[messages.ReportedReencryption]:
        """Return the progress of each form that is or was encrypted again (``FormClient.reencrypt``)."""
        return self._caller.send("GET", ("reencrypt",), is_safe=True).values(messages.read_reencryptions)

    # For administrators: callers with an API key that the setting ``administrators`` names, others get ForbiddenError.

    def export(self, query: ExportQuery | str = _EVERYTHING) -> Answer:
        """Open a ZIP archive of forms and data, to be read in pieces in a ``with`` block.

        A text names forms as ``APP/FORM/VERSION``, whose empty parts stand for everything. If the archive
        breaks off, reading it raises ``RemoteError``. A form that is named in full, and does not exist, raises
        ``NotFoundError``.
        """
        asked = ExportQuery(parse_patterns([query])) if isinstance(query, str) else query
        parameters = export_parameters(asked)
        if asked.search is not None:
            parameters.append(("search", write_search_request(Scope(), asked.search).decode()))
        call = Call("GET", self._caller.path("export"), query=parameters, is_safe=True)
        return self._caller.connection.open(call)

    def import_archive(
        self,
        archive: Content,
        kind: Literal["zip", "jsonl"] = "zip",
        *,
        dry_run: bool = False,
        on_conflict: Literal["refuse", "skip", "new-revision"] = "refuse",
    ) -> messages.ReportedImport:
        """Import a ZIP archive or JSON lines, sent in pieces, and return the report.

        ``on_conflict`` says what to do with a document that differs here. Raises ``BusyError`` while another import
        runs.
        """
        query = (("dry-run", str(dry_run).lower()), ("on-conflict", on_conflict))
        fields = (("Content-Type", _KINDS[kind]),)
        return self._caller.send("POST", ("import",), fields, query, archive).values(messages.read_import_report)

    def purge(
        self,
        what: Iterable[Literal["revisions", "tombstones", "drafts", "orphans"]],
        older_than: str,
        place: Sequence[str] = (),
        *,
        dry_run: bool = True,
    ) -> messages.ReportedPurge:
        """Remove old data without a trace, or only report what would go, and return the report.

        ``older_than`` is a time span such as ``30d`` or ``2y``, or an instant. ``place`` narrows it down to an
        application, a form (application and form), or a document (both, and its id). Raises ``BusyError`` while another
        purge runs.
        """
        query = (("what", ",".join(what)), ("older-than", older_than), ("dry-run", str(dry_run).lower()))
        answer = self._caller.send("POST", ("purge", *place), (), query, is_safe=dry_run)
        return answer.values(messages.read_purge_report)

    def _calling(self, caller: ServiceCaller) -> PersistenceClient:
        other = copy(self)
        other._caller = caller  # noqa: SLF001 - its own class
        return other

    def close(self) -> None:
        """Close the connections."""
        self._caller.connection.close()


def _user(user: User | str) -> User:
    return User(user) if isinstance(user, str) else user
