"""Requests in the audit: which of them have a line, and what it says.

A request has one if it changed something or tried to, if it took out all data (an export), and if it read form data
where a property asks for that. The line is written when the response is decided and before it is sent. Requests that
are refused before they are routed (strangers, malformed paths), and forms that are sent to the pages without a session,
have touched nothing: the log has them, and whoever can send them must not be able to fill the audit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flask import Blueprint, Flask, Response, request
from msgspec.structs import replace

from persistence.audit.audit_log import AuditEvent, AuditLog
from persistence.dialect import Dialect
from persistence.errors import BadRequestError, PersistenceError, one_line, status_of
from persistence.http.logs import CALLER, REQUEST_ID
from persistence.http.parsing import TOKEN, is_forced, peer_of, reader_of_users
from persistence.http.responses import headers_of, refusal
from persistence.limits import LONGEST_FORWARDED
from persistence.model.addresses import PUBLIC_PREFIX, SERVICE_PREFIX, Form

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_FACTS = "persistence.audit_facts"
_BEGUN = "persistence.audit_begun"
"""Environ keys: what a handler knows of its request and the path does not say; the number of the line before."""

_READ_METHODS = frozenset({"GET", "HEAD"})
_READS = frozenset({"history", "search", "distinct-values", "attachments"})
"""Requests that only read form data, by whatever method."""
_UNRECORDED = frozenset({"form", "healthz", "readyz"})  # Lists of forms have no form data
_TAKES_OUT = frozenset({"export"})
_PAGES = "admin"  # Begins the paths of the pages for administrators, whose actions are POST
_OF_CRUD = {"GET": "read", "HEAD": "read", "PUT": "write", "DELETE": "delete", "LOCK": "lease", "UNLOCK": "release"}
_STORED = {201: "create", 204: "update"}


@dataclass(frozen=True, slots=True)
class _Route:
    """The action of requests by a rule and a method, and the part of a form that the path leads to."""

    action: str
    collection: str
    is_read: bool


_PAGE = _Route("", "", is_read=True)
"""A page: one that shows form data notes its action (``note_in_audit``), and the others have no line."""


def _route(rule: str, method: str) -> _Route | None:
    """Return the action of a rule; ``None`` for requests that are never in the audit."""
    prefix = next((each for each in (PUBLIC_PREFIX, SERVICE_PREFIX) if rule.startswith(f"{each}/")), "")
    literals = [part for part in rule.removeprefix(prefix).split("/") if part and not part.startswith("<")]
    if "<path:" in rule or literals in ([], ["crud"]):  # paths of no resource
        return None
    word = literals[-1] if prefix == SERVICE_PREFIX else literals[0]
    if word == _PAGES:
        return _Route(literals[-1], "", is_read=False) if method == "POST" else _PAGE
    if word == "history" and literals[-1] == "restore":
        return _Route("revert", "data", is_read=False)
    if word == "crud":
        action, collection = _OF_CRUD.get(method), literals[-1]
        return None if action is None else _Route(action, collection, action == "read")
    if word in _UNRECORDED or (method in _READ_METHODS and word not in _READS | _TAKES_OUT):
        return None
    return _Route(word, "", word in _READS)


def note_in_audit(environ: WSGIEnvironment, *, details: Mapping[str, object] | None = None, **facts: object) -> None:
    """Add fields of an ``AuditEvent`` to the line of a request; ``details`` without a value are left out."""
    if details:
        facts["details"] = {name: value for name, value in details.items() if value}
    environ.setdefault(_FACTS, {}).update(facts)


class RequestAudit:
    """Writes the lines of requests. ``audits_reads`` says of which forms reading data is in the audit."""

    def __init__(self, log: AuditLog, dialect: Dialect, audits_reads: Callable[[Form], bool]) -> None:
        self._log = log
        self._user_of = reader_of_users(dialect)
        self._audits_reads = audits_reads
        self._version = dialect.header("Form-Definition-Version")
        self._deleted = dialect.header("Deleted")

    def look_before(self, blueprint: Blueprint) -> None:
        """Look at the requests of a blueprint before they are answered, where the audit is required."""
        # It comes after the hooks that the blueprint has: those of the pages find out who calls.
        if self._log.is_required:
            blueprint.before_request(self._begin)

    def look_after(self, app: Flask) -> None:
        if self._log.is_on:
            app.after_request(self._end)

    def _begin(self) -> None:
        route = self._audited()
        if route is not None and not route.is_read:
            request.environ[_BEGUN] = 0
            request.environ[_BEGUN] = self._log.begin(self._event(route))

    def _end(self, response: Response) -> Response:
        route = self._audited()
        if route is None:
            return response
        environ = request.environ
        begun = environ.get(_BEGUN)
        if begun == 0 and self._log.is_required:  # refused, because the line before could not be written
            return response
        event = self._event(route, response, begun or 0)
        if not route.is_read:
            self._log.record(event)
            return response
        try:
            self._log.require(event)
        except PersistenceError as error:
            response.close()
            return refusal(environ, status_of(error), str(error), headers_of(error))
        return response

    def _audited(self) -> _Route | None:
        rule = "" if request.url_rule is None else request.url_rule.rule
        route = _route(rule, request.method) if rule else None
        if route is None or not route.is_read:
            is_strangers = rule.startswith(f"/{_PAGES}/") and CALLER not in request.environ
            return None if is_strangers else route
        names, is_noted = request.view_args or {}, "action" in request.environ.get(_FACTS, ())
        if route is _PAGE and (not is_noted or "form" not in names):  # the search of all forms notes what it read
            return route if is_noted else None
        if route.collection == "form" or "form" not in names:  # definitions have no form data
            return None
        try:
            return route if self._audits_reads(Form(names["app"], names["form"])) else None
        except PersistenceError:  # no provider: nothing can be read
            return None

    def _event(self, route: _Route, response: Response | None = None, begun: int = 0) -> AuditEvent:
        environ, names, action = request.environ, request.view_args or {}, route.action
        status = 0 if response is None else response.status_code
        headers = {} if response is None else dict(response.headers)
        deleted = headers.get(self._deleted)
        forwarded, user = environ.get("HTTP_X_FORWARDED_FOR"), ""
        with suppress(BadRequestError):  # such a request is refused, and names nobody
            user = self._user_of(request).name or ""
        with suppress(BadRequestError):
            action = "purge" if action == "delete" and request.query_string and is_forced(request) else action
        event = AuditEvent(
            action=_STORED.get(status, action) if action == "write" else action,
            begun=begun,
            id=environ.get(REQUEST_ID, ""),
            app=names.get("app", ""),
            form=names.get("form", ""),
            collection=route.collection or names.get("collection", ""),
            document=names.get("document", ""),
            name=names.get("name", ""),
            version=int(headers.get(self._version) or names.get("version", 0)),
            revision=headers.get("ETag", "").strip('"'),
            documents=None if deleted is None else int(deleted),
            status=status,
            user=user,
            key=environ.get(CALLER, ""),
            peer=str(peer_of(environ) or ""),
            forwarded=one_line(forwarded[:LONGEST_FORWARDED]) if forwarded else "",
            token=bool(request.query_string) and TOKEN in request.args,
        )
        noted = environ.get(_FACTS)
        return replace(event, **noted) if noted else event
