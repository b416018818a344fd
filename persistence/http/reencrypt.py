"""Encrypting anew on request (spec forms 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from flask import Blueprint, Response, request

from persistence.http import bodies
from persistence.http.parsing import RequestParser
from persistence.http.responses import empty, xml
from persistence.http.routes import without_head
from persistence.model.addresses import Form
from persistence.services.reencryption_jobs import Reencrypts


@dataclass(frozen=True, slots=True)
class Reencrypt:
    """The handlers. An answer to a POST comes when the work has begun; bodies say nothing."""

    reencrypts: Reencrypts
    parser: RequestParser

    def blueprint(self, name: str, prefix: str) -> Blueprint:
        """The routes below ``prefix``."""
        blueprint = Blueprint(name, __name__, url_prefix=f"{prefix}/reencrypt")
        blueprint.get("", provide_automatic_options=False)(self.status)
        blueprint.post("/<app>/<form>", provide_automatic_options=False)(self.form)
        blueprint.record(without_head)
        return blueprint

    def form(self, app: str, form: str) -> Response:
        """``POST /reencrypt/$app/$form``: all data of a form, or of the version in the header."""
        number = self.parser.version_to_reencrypt(request)
        bodies.drain(request.environ)
        self.reencrypts.begin(Form(app, form), number)
        return empty(HTTPStatus.OK, [])

    def status(self) -> Response:
        """``GET /reencrypt``: how far that is."""
        return xml(self.reencrypts.status())
