"""The revision history of documents and attachments, and the differences between revisions (spec crud 8.1).

An older revision is brought back by a request of the service's own.
"""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint, Request, Response, g, request

from persistence.errors import BadRequestError
from persistence.http.application import RouteScope, ServedApi
from persistence.http.audit import note_in_audit
from persistence.http.parsing import drain, instant_of
from persistence.http.responses import answered, empty
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.sidecar import page_request
from persistence.model.texts import count, flag, short
from persistence.services.histories import DiffOptions, RevisionPair

history = Blueprint("history", __name__, url_prefix="/history/<app>/<form>/<document>")


@history.route("", methods=("GET", "HEAD"), scope=RouteScope.NAMED)
@history.route("/<name>", methods=("GET", "HEAD"), scope=RouteScope.NAMED)
def revisions(app: str, form: str, document: str, name: str = DATA_XML) -> Response:
    api: ServedApi = g.api
    address = DocumentAddress(Form(app, form), Collection.DATA, document, name)
    asked = page_request(request.args.get("page-number"), request.args.get("page-size"))
    options = _diff_options(request)
    diffed = options if flag(request.args.get("include-diffs") or None, "include-diffs") else None
    answer, notice = api.services.histories.answer(address, asked, api.parser.bearer(request), diffed)
    return answered(request.environ, answer, api.headers.of_notice(notice))


@history.route("/diff", methods=("GET", "HEAD"), scope=RouteScope.NAMED)
def diff(app: str, form: str, document: str) -> Response:
    api: ServedApi = g.api
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
    api: ServedApi = g.api
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
