"""The CRUD API: definitions, data, drafts, attachments, leases, histories (seed, Endpoints; spec crud 4, 7, 8.1)."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus

from flask import Blueprint, Request, Response, g, request

from persistence.errors import BadAddressError, BadRequestError, LockedError
from persistence.http.application import RESOURCE_METHODS, RouteScope, ServedApi, api
from persistence.http.audit import note_in_audit
from persistence.http.parsing import body_of, drain, instant_of, is_forced
from persistence.http.responses import (
    JSON,
    SHOWN_TYPES,
    answered,
    empty,
    is_not_modified,
    locked,
    prefers_json,
    refusal,
    send_transformed,
    whole,
)
from persistence.limits import LARGEST_LOCK
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection, DocumentAddress, Form
from persistence.model.sidecar import page_request
from persistence.model.texts import count, flag, short
from persistence.model.versions import parse_timeout
from persistence.services.documents import holder_document
from persistence.services.histories import DiffOptions, RevisionPair
from persistence.services.rules import Read, Removed, Written
from persistence.services.transforms import JsonDocuments, migrated, removes_nonrelevant, transformed

crud = Blueprint("crud", __name__)
leases = Blueprint("leases", __name__)
history = Blueprint("history", __name__, url_prefix="/history/<app>/<form>/<document>")
unknown_paths = Blueprint("unknown_paths", __name__)
"""Answers 400 under all other paths of resources, to the methods that resources have; to others it stays 405."""

_DEFINITION = "/crud/<app>/<form>/form/<name>"
_DATA, _DRAFT = "/crud/<app>/<form>/data/<document>/<name>", "/crud/<app>/<form>/draft/<document>/<name>"
_OF_DATA, _OF_DRAFTS = {"collection": Collection.DATA}, {"collection": Collection.DRAFT}


@crud.route(_DEFINITION, methods=RESOURCE_METHODS, scope=RouteScope.NAMED)
def definition(app: str, form: str, name: str) -> Response:
    served: ServedApi = g.api
    target, parser = Form(app, form), served.parser
    if request.method == "PUT":
        put = parser.put(request)
        body = body_of(request.environ, served.shared.max_xml if name == FORM_XHTML else served.shared.max_body)
        return _written(served, served.services.definitions.write(target, name, put, body))
    if request.method == "DELETE":
        return _removed(served, served.services.definitions.delete(target, name, parser.delete(request)))
    if request.query_string and is_forced(request):
        raise BadRequestError("definitions are not purged (force-delete)")
    data_format = parser.definition_format(request) if request.query_string and name == FORM_XHTML else None
    read = served.services.definitions.read(target, name, parser.get(request))
    if data_format is None and prefers_json(request.environ, "application/xhtml+xml", JSON) and read.address.is_main:
        read = replace(read, is_json=True)
    return _read(served, read, data_format)


@crud.route(_DATA, methods=RESOURCE_METHODS, defaults=_OF_DATA, scope=RouteScope.NAMED)
@crud.route(_DRAFT, methods=RESOURCE_METHODS, defaults=_OF_DRAFTS, scope=RouteScope.NAMED)
def resource(collection: Collection, app: str, form: str, document: str, name: str) -> Response:
    served: ServedApi = g.api
    # Flask's documented way to the request itself: each use of the proxy looks it up, 12 of them are 4 % of a GET.
    current: Request = request._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001
    address = DocumentAddress(Form(app, form), collection, document, name)
    parser, shared = served.parser, served.shared
    if current.method == "PUT":
        put = parser.put(current)
        body = body_of(current.environ, shared.max_xml if address.is_main else shared.max_body)
        is_json = address.is_main and (put.content_type or "").partition(";")[0].strip().lower() == JSON
        if is_json and not shared.dialect.is_designer(address.form):
            return _written(served, JsonDocuments(served.services.documents).write(address, put, body))
        return _written(served, served.services.documents.write(address, put, body))
    if current.query_string and is_forced(current):
        return _forced(served, address)
    if current.method == "DELETE":
        return _removed(served, served.services.documents.delete(address, parser.delete(current)))
    data_format, only_relevant = None, False
    if current.query_string:
        is_definition = address.is_main and shared.dialect.is_designer(address.form)
        data_format = parser.definition_format(current) if is_definition else None
        only_relevant = removes_nonrelevant(parser.nonrelevant(current), address, shared.dialect)
    read = served.services.documents.read(address, parser.get(current))
    if address.is_main and prefers_json(current.environ, "application/xml", JSON):
        read = replace(read, is_json=not shared.dialect.is_designer(address.form))
    return _read(served, read, data_format, only_relevant=only_relevant)


def _forced(served: ServedApi, address: DocumentAddress) -> Response:
    administrators, parser = served.shared.administrators, served.parser
    if not administrators.keys:
        raise BadRequestError("purging (force-delete) is not enabled on this service")
    administrators.require(request.environ, "purge")
    forced = served.services.forced_deletes
    if request.method == "DELETE":
        delete, instant = parser.forced_delete(request)
        note_in_audit(request.environ, details={"instant": instant})
        return _removed(served, forced.delete(address, delete, instant))
    return _read(served, forced.read(address, parser.get(request)), None)


# A draft alone is discarded by a service whose attachments are here.
@crud.delete("/crud/<app>/<form>/draft/<document>", scope=RouteScope.NAMED)
def discard_draft(app: str, form: str, document: str) -> Response:
    documents, delete = api.services.documents, api.parser.delete(request)
    return _removed(api, documents.discard_draft(Form(app, form), document, delete))


@crud.delete("/crud/<app>/<form>/data/", strict_slashes=False, scope=RouteScope.NAMED)
def delete_all(app: str, form: str) -> Response:
    documents = api.services.documents
    cleared = documents.delete_all(Form(app, form), api.parser.delete(request))
    headers = api.headers.of_clearing(cleared)
    if cleared.refused and not cleared.deleted:
        cause = f"none of {cleared.refused} documents was deleted: {cleared.refusal}"
        return refusal(request.environ, HTTPStatus.FORBIDDEN, cause, headers)
    return empty(HTTPStatus.OK, headers)


def _read(served: ServedApi, read: Read, data_format: str | None, *, only_relevant: bool = False) -> Response:
    environ, found, headers = request.environ, read.found, served.headers.of_read(read)
    is_navigation = environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
    if is_navigation and headers[0][1].partition(";")[0].strip().lower() not in SHOWN_TYPES:
        headers.append(("Content-Disposition", "attachment"))
    if is_not_modified(environ, read):
        found.close()
        return empty(HTTPStatus.NOT_MODIFIED, headers)
    is_changed = only_relevant or data_format is not None or read.decryption is not None or read.is_json
    if found.file is None:  # how long a changed content is, only the change would tell
        size = None if is_changed else read.size
        return empty(HTTPStatus.OK, headers, length=size)
    if read.is_json:
        body = JsonDocuments(served.services.documents).content(read, only_relevant=only_relevant)
        return whole(body, [*headers, ("Vary", "Accept")])
    if not is_changed:
        return served.shared.contents.send(environ, read, headers)
    if data_format is not None:
        return whole(migrated(read, data_format), headers)
    return send_transformed(environ, transformed(read, only_relevant=only_relevant), headers)


def _written(served: ServedApi, written: Written) -> Response:
    return empty(HTTPStatus.CREATED if written.created else HTTPStatus.NO_CONTENT, served.headers.of_write(written))


def _removed(served: ServedApi, removed: Removed) -> Response:
    return empty(HTTPStatus.NO_CONTENT, served.headers.of_removal(removed))


# A lease is of the id alone, which a document of another form may have.
@leases.route(_DATA, methods=("LOCK", "UNLOCK"), defaults=_OF_DATA, scope=RouteScope.ALL)
@leases.route(_DRAFT, methods=("LOCK", "UNLOCK"), defaults=_OF_DRAFTS, scope=RouteScope.ALL)
def lease(collection: Collection, app: str, form: str, document: str, name: str) -> Response:
    address = DocumentAddress(Form(app, form), collection, document, name)
    caller = api.parser.bearer(request)
    try:
        if request.method == "LOCK":
            seconds = parse_timeout(request.environ.get("HTTP_TIMEOUT"))
            body = body_of(request.environ, LARGEST_LOCK)
            holder = api.services.leasing.lock(address, caller, seconds, body)
        else:
            body = body_of(request.environ, LARGEST_LOCK)
            holder = api.services.leasing.unlock(address, caller, body)
    except LockedError as error:
        others = holder_document(error)
        if not others:
            raise
        return locked(request.environ, error, others)
    note_in_audit(request.environ, user=holder.user)
    return empty(HTTPStatus.OK, [])


@leases.route(_DEFINITION, methods=("LOCK", "UNLOCK"), scope=RouteScope.ALL)
def no_lease(app: str, form: str, name: str) -> Response:
    raise BadAddressError(f"only form data can be leased, and {app}/{form}/form/{name} is a definition's")


@unknown_paths.route("/crud", methods=RESOURCE_METHODS, scope=RouteScope.ALL)
@unknown_paths.route("/crud/", methods=RESOURCE_METHODS, scope=RouteScope.ALL)
@unknown_paths.route("/crud/<path:rest>", methods=RESOURCE_METHODS, scope=RouteScope.ALL)
def unknown(rest: str = "") -> Response:
    raise BadAddressError(f"there are no resources under the path {rest!r}")


@history.route("", methods=("GET", "HEAD"), scope=RouteScope.NAMED)
@history.route("/<name>", methods=("GET", "HEAD"), scope=RouteScope.NAMED)
def revisions(app: str, form: str, document: str, name: str = DATA_XML) -> Response:
    address = DocumentAddress(Form(app, form), Collection.DATA, document, name)
    asked = page_request(request.args.get("page-number"), request.args.get("page-size"))
    options = _diff_options(request)
    diffed = options if flag(request.args.get("include-diffs") or None, "include-diffs") else None
    answer, notice = api.services.histories.answer(address, asked, api.parser.bearer(request), diffed)
    return answered(request.environ, answer, api.headers.of_notice(notice))


@history.route("/diff", methods=("GET", "HEAD"), scope=RouteScope.NAMED)
def diff(app: str, form: str, document: str) -> Response:
    address = DocumentAddress(Form(app, form), Collection.DATA, document, DATA_XML)
    version = count(request.args.get("form-version") or "", "form-version", 0)
    older = instant_of(request.args.get("older-modified-time"), "older-modified-time")
    newer = instant_of(request.args.get("newer-modified-time"), "newer-modified-time")
    if not version or older is None or newer is None:
        raise BadRequestError("send form-version, older-modified-time and newer-modified-time")
    options, reader = _diff_options(request), api.parser.bearer(request)
    answer = api.services.histories.diffs.between(address, RevisionPair(version, older, newer), reader, options)
    return answered(request.environ, answer)


@history.post("/restore", scope=RouteScope.NAMED)
@history.post("/<name>/restore", scope=RouteScope.NAMED)
def restore(app: str, form: str, document: str, name: str = DATA_XML) -> Response:
    """Answer ``POST /history/$app/$form/$document/restore``, or of an attachment; its body has no meaning."""
    drain(request.environ)
    address = DocumentAddress(Form(app, form), Collection.DATA, document, name)
    asked = api.parser.restore(request)
    note_in_audit(request.environ, details={"instant": asked.instant, "as_of": asked.as_of})
    reverting = api.services.reverting
    plan = reverting.plan(address, asked)
    written = reverting.restore(plan)
    status = HTTPStatus.CREATED if written.created else HTTPStatus.NO_CONTENT
    return empty(status, [*api.headers.of_write(written), *api.headers.of_notice(plan.notice)])


def _diff_options(asked: Request) -> DiffOptions:
    truncation = count(asked.args.get("truncation-size") or "", "truncation-size", 0)
    return DiffOptions(short(asked.args.get("lang"), "language"), truncation or None)
