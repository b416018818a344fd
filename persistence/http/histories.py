"""The revision history of documents and attachments (spec crud 8.1)."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask, Request, Response
from flask.globals import request_ctx

from persistence.http.application import add_route
from persistence.http.parsing import Face
from persistence.http.responses import ResponseHeaders, xml
from persistence.limits import HISTORY_PAGE, LARGEST_HISTORY_PAGE
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.history import PageRequest
from persistence.model.texts import count


@dataclass(frozen=True, slots=True)
class HistoryApi:
    """The handlers of one face."""

    face: Face
    headers: ResponseHeaders

    def add_to(self, app: Flask) -> None:
        """Add the routes."""
        path = f"{self.face.prefix}/history/<app>/<form>/<document>"
        add_route(app, path, self.revisions, "GET", "HEAD")
        add_route(app, f"{path}/<name>", self.revisions, "GET", "HEAD")

    def revisions(self, app: str, form: str, document: str, name: str = DATA_XML) -> Response:
        """Answer ``/history/$app/$form/$document``, or below it that of an attachment."""
        request = request_ctx.request
        address = DocumentAddress(Form(app, form), Collection.DATA, document, name)
        asked, user = _page_request(request), self.face.parser.user(request)
        answered = self.face.services(request).histories.answer(address, asked, user)
        return xml(answered.body, self.headers.of_notice(answered.notice))


def _page_request(request: Request) -> PageRequest:
    number = count(request.args.get("page-number") or "", "page-number", 1)
    size = count(request.args.get("page-size") or "", "page-size", HISTORY_PAGE)
    return PageRequest(number, min(size, LARGEST_HISTORY_PAGE))
