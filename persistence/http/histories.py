"""The revision history of documents and attachments, and the differences between revisions (spec crud 8.1).

An older revision is brought back by a request of the service's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from flask import Flask, Request, Response, request

from persistence.errors import BadRequestError
from persistence.http.application import add_route
from persistence.http.audit import note_in_audit
from persistence.http.bodies import drain
from persistence.http.parsing import Face, instant_of
from persistence.http.responses import ResponseHeaders, empty, xml
from persistence.http.scopes import Touches
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.history import page_request
from persistence.model.texts import count, flag, short
from persistence.services.diffs import DiffOptions, RevisionPair


@dataclass(frozen=True, slots=True)
class HistoryApi:
    """The handlers of one face."""

    face: Face
    headers: ResponseHeaders

    def add_to(self, app: Flask) -> None:
        path = f"{self.face.prefix}/history/<app>/<form>/<document>"
        add_route(app, path, self.revisions, "GET", "HEAD", touches=Touches.NAMED)
        add_route(app, f"{path}/diff", self.diff, "GET", "HEAD", touches=Touches.NAMED)
        add_route(app, f"{path}/<name>", self.revisions, "GET", "HEAD", touches=Touches.NAMED)
        add_route(app, f"{path}/restore", self.restore, "POST", touches=Touches.NAMED)
        add_route(app, f"{path}/<name>/restore", self.restore, "POST", touches=Touches.NAMED)

    def revisions(self, app: str, form: str, document: str, name: str = DATA_XML) -> Response:
        """Answer ``/history/$app/$form/$document``, or below it that of an attachment."""
        address = DocumentAddress(Form(app, form), Collection.DATA, document, name)
        asked = page_request(request.args.get("page-number"), request.args.get("page-size"))
        options = _diff_options(request)
        diffed = options if flag(request.args.get("include-diffs") or None, "include-diffs") else None
        histories = self.face.services(request).histories
        answered = histories.answer(address, asked, self.face.parser.bearer(request), diffed)
        return xml(answered.body, self.headers.of_notice(answered.notice))

    def diff(self, app: str, form: str, document: str) -> Response:
        address = DocumentAddress(Form(app, form), Collection.DATA, document, DATA_XML)
        pair, options, reader = _pair(request), _diff_options(request), self.face.parser.bearer(request)
        return xml(self.face.services(request).histories.diffs.between(address, pair, reader, options))

    def restore(self, app: str, form: str, document: str, name: str = DATA_XML) -> Response:
        """Answer ``POST /history/$app/$form/$document/restore``, or of an attachment; its body has no meaning."""
        drain(request.environ)
        address = DocumentAddress(Form(app, form), Collection.DATA, document, name)
        asked = self.face.parser.restore(request)
        note_in_audit(request.environ, details={"instant": asked.instant, "as_of": asked.as_of})
        reverting = self.face.services(request).reverting
        plan = reverting.plan(address, asked)
        written = reverting.restore(plan)
        status = HTTPStatus.CREATED if written.created else HTTPStatus.NO_CONTENT
        return empty(status, [*self.headers.of_write(written), *self.headers.of_notice(plan.notice)])


def _diff_options(asked: Request) -> DiffOptions:
    truncation = count(asked.args.get("truncation-size") or "", "truncation-size", 0)
    return DiffOptions(short(asked.args.get("lang"), "language"), truncation or None)


def _pair(asked: Request) -> RevisionPair:
    version = count(asked.args.get("form-version") or "", "form-version", 0)
    older = instant_of(asked.args.get("older-modified-time"), "older-modified-time")
    newer = instant_of(asked.args.get("newer-modified-time"), "newer-modified-time")
    if not version or older is None or newer is None:
        raise BadRequestError("send form-version, older-modified-time and newer-modified-time")
    return RevisionPair(version, older, newer)
