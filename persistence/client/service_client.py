"""A service: its forms, its health, and what administrators may do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Literal

from persistence.client.client_documents import ServiceCaller, ServiceHealth
from persistence.client.form_client import FormClient
from persistence.client.service_connection import ServiceConnection, authorization, proper
from persistence.closable import Closable
from persistence.dialect import DIALECTS
from persistence.errors import PersistenceError
from persistence.forms import messages
from persistence.forms.search_xml import read_search_answer, write_search_request
from persistence.model.addresses import Form
from persistence.model.permissions import ANONYMOUS, User
from persistence.model.queries import (
    DraftFilter,
    Drafts,
    ExportQuery,
    FoundDocuments,
    Query,
    Scope,
    export_parameters,
    parse_patterns,
)
from persistence.model.texts import Instant
from persistence.wire import XML, Answer, Call, CallPolicy, Content

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
    reached or has failed.

    Raises:
        BadRequestError: ``url`` is not a valid address, or ``key`` is not a valid key.
        KeyError: ``dialect`` is unknown.
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
        path = self._caller.path("form", *filter(None, (app, name if app else None)))
        query = [("all-versions", str(all_versions).lower()), ("all-forms", str(all_forms).lower())]
        query += [] if modified_since is None else [("modified-since", modified_since)]
        return proper(messages.read_forms, self._caller.send("GET", path, query=query, is_safe=True))

    def search(
        self, query: Query | str = "", app: str | None = None, *, drafts: Drafts = Drafts.EXCLUDE
    ) -> FoundDocuments:
        """Return a page of the documents of all forms, or of those of an application, that a query finds.

        The query names no controls, and is sorted by ``Field.CREATED`` or ``Field.LAST_MODIFIED``. Each result has its
        ``form``.
        """
        asked = Query(query, size=100) if isinstance(query, str) else query
        body = write_search_request(Scope(drafts=DraftFilter(drafts)), replace(asked, paths=()))
        path = self._caller.path("search", *filter(None, (app,)))
        answer = self._caller.send("POST", path, (XML,), content=body, is_safe=True)
        return proper(read_search_answer, answer)

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

        Raises:
            BusyError: a rebuild runs.
        """
        self._caller.send("POST", self._caller.path("reindex"))

    def reindexing(self) -> messages.ReportedReindexing:
        """Return the progress of a rebuild of indexes."""
        answer = self._caller.send("GET", self._caller.path("reindex", "status"), is_safe=True)
        return proper(messages.read_reindexing, answer)

    def reencryptions(self) -> list[messages.ReportedReencryption]:
        """Return the progress of each form that is or was encrypted again (``FormClient.reencrypt``)."""
        return proper(
            messages.read_reencryptions, self._caller.send("GET", self._caller.path("reencrypt"), is_safe=True)
        )

    # For administrators: callers with an API key that the setting ``administrators`` names.

    def export(self, query: ExportQuery | str = _EVERYTHING) -> Answer:
        """Open a ZIP archive of forms and data, to be read in pieces in a ``with`` block.

        A text names forms as ``APP/FORM/VERSION``, whose empty parts stand for everything. If the archive
        breaks off, reading it raises ``RemoteError``.

        Raises:
            ForbiddenError: the caller is not an administrator.
            NotFoundError: a form that is named in full does not exist.
        """
        asked = ExportQuery(parse_patterns([query])) if isinstance(query, str) else query
        call = Call("GET", self._caller.path("export"), query=export_parameters(asked), is_safe=True)
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

        ``on_conflict`` says what to do with a document that differs here.

        Raises:
            ForbiddenError: the caller is not an administrator.
            BusyError: another import runs.
        """
        query = (("dry-run", str(dry_run).lower()), ("on-conflict", on_conflict))
        fields = (("Content-Type", _KINDS[kind]),)
        answer = self._caller.send("POST", self._caller.path("import"), fields, query, archive)
        return proper(messages.read_import_report, answer)

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
        application, a form (application and form), or a document (both, and its id).

        Raises:
            ForbiddenError: the caller is not an administrator.
            BusyError: another purge runs.
        """
        query = (("what", ",".join(what)), ("older-than", older_than), ("dry-run", str(dry_run).lower()))
        answer = self._caller.send("POST", self._caller.path("purge", *place), (), query, is_safe=dry_run)
        return proper(messages.read_purge_report, answer)

    def _calling(self, caller: ServiceCaller) -> PersistenceClient:
        other = copy(self)
        other._caller = caller  # noqa: SLF001 - its own class
        return other

    def close(self) -> None:
        """Close the connections."""
        self._caller.connection.close()


def _user(user: User | str) -> User:
    return User(user) if isinstance(user, str) else user
