"""The query APIs: searches, distinct values (spec search 1, 3), lists of forms (4) and of attachments (crud 8.2)."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask, Request, Response, request

from persistence.errors import BadRequestError
from persistence.http import bodies
from persistence.http.application import add_route
from persistence.http.parsing import Face
from persistence.http.responses import ResponseHeaders, xml, xml_in_pieces
from persistence.limits import LARGEST_QUERY
from persistence.model.addresses import SERVICE_PREFIX, Form
from persistence.model.form_query import FormField, FormFilter, FormMatch, FormQuery
from persistence.model.instants import parse_time
from persistence.model.texts import flag
from persistence.services.searching import Answered


@dataclass(frozen=True, slots=True)
class QueryApi:
    """The handlers of one face."""

    face: Face
    headers: ResponseHeaders

    def add_to(self, app: Flask) -> None:
        """Add the routes."""
        prefix = self.face.prefix
        for path in ("/form", "/form/<app>", "/form/<app>/<form>"):
            add_route(app, prefix + path, self.forms, "GET", "POST")
        add_route(app, f"{prefix}/search/<app>/<form>", self.search, "POST")
        add_route(app, f"{prefix}/distinct-values/<app>/<form>", self.distinct_values, "POST")

    def forms(self, app: str | None = None, form: str | None = None) -> Response:
        """Answer ``/form/$app/$form``; the query of a POST is in its body only."""
        user = self.face.parser.user(request)
        if request.method == "POST":
            body = bodies.chunks(request.environ, LARGEST_QUERY)
            return xml(self.face.services(request).forms.search(body, user))
        return xml(self.face.services(request).forms.find(_form_query(request, app, form), user))

    def search(self, app: str, form: str) -> Response:
        """Answer ``POST /search/$app/$form``."""
        user, version = self.face.parser.user(request), self.face.parser.version_to_search(request)
        body = bodies.chunks(request.environ, LARGEST_QUERY)
        return self._answer(self.face.services(request).searching.search(Form(app, form), version, body, user))

    def distinct_values(self, app: str, form: str) -> Response:
        """Answer ``POST /distinct-values/$app/$form``."""
        user, version = self.face.parser.user(request), self.face.parser.version_to_search(request)
        body = bodies.chunks(request.environ, LARGEST_QUERY)
        return self._answer(self.face.services(request).searching.distinct(Form(app, form), version, body, user))

    def _answer(self, answered: Answered) -> Response:
        return xml_in_pieces(answered.pieces, self.headers.of_notice(answered.notice))


def add_attachment_lists(app: Flask, face: Face) -> None:
    """Add ``GET /fr/service/$app/$form/attachments?document=$document``."""

    def of_document(app: str, form: str) -> Response:
        document = request.args.get("document")
        if not document:
            raise BadRequestError("the parameter document must name the document whose attachments are asked for")
        attachments = face.services(request).attachments
        return xml(attachments.of_document(Form(app, form), document, face.parser.user(request)))

    add_route(app, f"{SERVICE_PREFIX}/<app>/<form>/attachments", of_document, "GET", "HEAD")


def _form_query(request: Request, app: str | None, form: str | None) -> FormQuery:
    """Return the query of a GET (spec search 4.1)."""
    since = request.args.get("modified-since")
    filters = []
    if since is not None:
        filters.append(FormFilter(FormField.LAST_MODIFIED, FormMatch.GT, parse_time(since, "modified-since")))

    return FormQuery(
        app=app,
        form=form,
        latest_only=not _is_true(request.args.get("all-versions"), "all-versions"),
        all_forms=_is_true(request.args.get("all-forms"), "all-forms"),
        ignore_admin=_is_true(request.args.get("ignore-admin-permissions"), "ignore-admin-permissions"),
        filters=tuple(filters),
    )


def _is_true(text: str | None, name: str) -> bool:
    """Return whether a parameter is true, in any letter case (spec search 4.1); false where it was not sent."""
    return flag(text, name, has_any_case=True) is True
