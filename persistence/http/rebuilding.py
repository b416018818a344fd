"""Work on all data of a form: rebuilding its index (spec search 5), and encrypting it anew (spec forms 4.5).

The bodies of these requests have no meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from flask import Flask, Response, request

from persistence.dialect import Dialect
from persistence.http import bodies
from persistence.http.application import add_route
from persistence.http.parsing import Face
from persistence.http.responses import empty, xml
from persistence.model.addresses import Form
from persistence.services.reencryption_jobs import ReencryptionJobs


@dataclass(frozen=True, slots=True)
class ReindexApi:
    """The handlers of one face. A POST is answered when the index is rebuilt."""

    face: Face
    dialect: Dialect

    def add_to(self, app: Flask) -> None:
        """Add the routes."""
        prefix = f"{self.face.prefix}/reindex"
        add_route(app, prefix, self.all, "POST")
        if self.dialect.has_get_of_reindex:  # old callers began by a GET; it changes nothing
            add_route(app, prefix, self.status, "GET")
        add_route(app, f"{prefix}/<app>/<form>", self.version, "POST")
        add_route(app, f"{prefix}/status", self.status, "GET")

    def all(self) -> Response:
        """Answer ``POST /reindex``: all forms."""
        bodies.drain(request.environ)
        self.face.services(request).router.reindex_all()
        return empty(HTTPStatus.OK, [])

    def version(self, app: str, form: str) -> Response:
        """Answer ``POST /reindex/$app/$form``: the version in the header."""
        number = self.face.parser.version_to_reindex(request)
        bodies.drain(request.environ)
        self.face.services(request).router.reindex(Form(app, form), number)
        return empty(HTTPStatus.OK, [])

    def status(self) -> Response:
        """Answer ``GET /reindex/status``."""
        return xml(self.face.services(request).router.reindexing_status().as_xml())


@dataclass(frozen=True, slots=True)
class ReencryptApi:
    """The handlers. A POST is answered when the work has begun."""

    face: Face
    reencrypts: ReencryptionJobs

    def add_to(self, app: Flask) -> None:
        """Add the routes."""
        prefix = f"{self.face.prefix}/reencrypt"
        add_route(app, prefix, self.status, "GET")
        add_route(app, f"{prefix}/<app>/<form>", self.form, "POST")

    def form(self, app: str, form: str) -> Response:
        """Answer ``POST /reencrypt/$app/$form``: all data of a form, or of the version in the header."""
        number = self.face.parser.version_to_reencrypt(request)
        bodies.drain(request.environ)
        self.reencrypts.begin(Form(app, form), number)
        return empty(HTTPStatus.OK, [])

    def status(self) -> Response:
        """Answer ``GET /reencrypt``."""
        return xml(self.reencrypts.status())
