"""Making the index anew on request (spec search 5)."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint, Response, request

from persistence.dialect import Dialect
from persistence.http import bodies
from persistence.http.datasources import ServicesOf
from persistence.http.parsing import RequestParser
from persistence.http.responses import empty, xml
from persistence.http.routes import without_head
from persistence.model.addresses import Form


@dataclass(frozen=True, slots=True)
class Reindex:
    """The handlers of one face. An answer comes when the index is made; bodies say nothing."""

    services: ServicesOf
    parser: RequestParser
    dialect: Dialect

    def blueprint(self, name: str, prefix: str) -> Blueprint:
        """The routes below ``prefix``."""
        blueprint = Blueprint(name, __name__, url_prefix=f"{prefix}/reindex")
        blueprint.post("", provide_automatic_options=False)(self.all)
        if self.dialect.has_get_of_reindex:
            blueprint.add_url_rule("", "asked_by_get", self.status, methods=("GET",), provide_automatic_options=False)
        blueprint.post("/<app>/<form>", provide_automatic_options=False)(self.version)
        blueprint.get("/status", provide_automatic_options=False)(self.status)
        blueprint.record(without_head)
        return blueprint

    def all(self) -> Response:
        """``POST /reindex``: that of every form."""
        bodies.drain(request.environ)
        self.services().router.reindex_all()
        return empty(HTTPStatus.OK, [])

    def version(self, app: str, form: str) -> Response:
        """``POST /reindex/$app/$form``: that of the version in the header."""
        number = self.parser.version_to_reindex(request)
        bodies.drain(request.environ)
        self.services().router.reindex(Form(app, form), number)
        return empty(HTTPStatus.OK, [])

    def status(self) -> Response:
        """``GET /reindex/status``: how far it is. A GET of ``/reindex`` by old callers changes nothing either."""
        return xml(self.services().router.reindexing_status().as_xml())
