"""Searches and distinct values (spec search 1 and 3)."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Blueprint, Response, request

from persistence.http import bodies
from persistence.http.datasources import ServicesOf
from persistence.http.parsing import RequestParser
from persistence.http.responses import ResponseHeaders, xml_in_pieces
from persistence.limits import LARGEST_QUERY
from persistence.model.addresses import Form
from persistence.services.searching import Answered


@dataclass(frozen=True, slots=True)
class Search:
    """The handlers of one face."""

    services: ServicesOf
    parser: RequestParser
    headers: ResponseHeaders

    def blueprint(self, name: str, prefix: str) -> Blueprint:
        """The routes below ``prefix``."""
        blueprint = Blueprint(name, __name__, url_prefix=prefix)
        blueprint.post("/search/<app>/<form>", provide_automatic_options=False)(self.search)
        blueprint.post("/distinct-values/<app>/<form>", provide_automatic_options=False)(self.distinct_values)
        return blueprint

    def search(self, app: str, form: str) -> Response:
        """``POST /search/$app/$form``."""
        user, version = self.parser.user(request), self.parser.version_to_search(request)
        body = bodies.chunks(request.environ, LARGEST_QUERY)
        return self._answer(self.services().searching.search(Form(app, form), version, body, user))

    def distinct_values(self, app: str, form: str) -> Response:
        """``POST /distinct-values/$app/$form``."""
        user, version = self.parser.user(request), self.parser.version_to_search(request)
        body = bodies.chunks(request.environ, LARGEST_QUERY)
        return self._answer(self.services().searching.distinct(Form(app, form), version, body, user))

    def _answer(self, answered: Answered) -> Response:
        return xml_in_pieces(answered.pieces, self.headers.of_notice(answered.notice))
