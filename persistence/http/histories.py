"""The revision history of documents and attachments (spec crud 8.1)."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask, Request, Response
from flask.globals import request_ctx

from persistence.errors import BadRequestError
from persistence.http.application import add_route
from persistence.http.parsing import Face, instant_of
from persistence.http.responses import ResponseHeaders, xml
from persistence.limits import HISTORY_PAGE, LARGEST_HISTORY_PAGE
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.history import PageRequest
from persistence.model.instants import Instant
from persistence.model.texts import count, flag, short
from persistence.services.diffs import DiffOptions, RevisionPair


@dataclass(frozen=True, slots=True)
class HistoryApi:
    """The handlers of one face."""

    face: Face
    headers: ResponseHeaders

    def add_to(self, app: Flask) -> None:
        """Add the routes."""
        path = f"{self.face.prefix}/history/<app>/<form>/<document>"
        add_route(app, path, self.revisions, "GET", "HEAD")
        add_route(app, f"{path}/diff", self.diff, "GET", "HEAD")
        add_route(app, f"{path}/<name>", self.revisions, "GET", "HEAD")

    def revisions(self, app: str, form: str, document: str, name: str = DATA_XML) -> Response:
        """Answer ``/history/$app/$form/$document``, or below it that of an attachment."""
        request = request_ctx.request
        address = DocumentAddress(Form(app, form), Collection.DATA, document, name)
        asked, user = _page_request(request), self.face.parser.user(request)
        options = _diff_options(request)
        diffed = options if flag(request.args.get("include-diffs") or None, "include-diffs") else None
        answered = self.face.services(request).histories.answer(address, asked, user, diffed)
        return xml(answered.body, self.headers.of_notice(answered.notice))

    def diff(self, app: str, form: str, document: str) -> Response:
        """Answer ``/history/$app/$form/$document/diff``."""
        request = request_ctx.request
        address = DocumentAddress(Form(app, form), Collection.DATA, document, DATA_XML)
        pair, options, user = _pair(request), _diff_options(request), self.face.parser.user(request)
        return xml(self.face.services(request).diffs.between(address, pair, user, options))


def _page_request(request: Request) -> PageRequest:
    number = count(request.args.get("page-number") or "", "page-number", 1)
    size = count(request.args.get("page-size") or "", "page-size", HISTORY_PAGE)
    return PageRequest(number, min(size, LARGEST_HISTORY_PAGE))


def _diff_options(request: Request) -> DiffOptions:
    truncation = count(request.args.get("truncation-size") or "", "truncation-size", 0)
    return DiffOptions(short(request.args.get("lang"), "language"), truncation or None)


def _pair(request: Request) -> RevisionPair:
    version = count(_required(request, "form-version"), "form-version", 0)
    return RevisionPair(version, _instant(request, "older-modified-time"), _instant(request, "newer-modified-time"))


def _instant(request: Request, name: str) -> Instant:
    instant = instant_of(_required(request, name), name)
    assert instant is not None, "it is not blank"
    return instant


def _required(request: Request, name: str) -> str:
    sent = request.args.get(name, "")
    if not sent.strip():
        raise BadRequestError(f"the parameter {name} is missing")
    return sent
