"""The list of a document's attachments (spec crud 8.2)."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Blueprint, Response, request

from persistence.errors import BadRequestError
from persistence.http.parsing import RequestParser
from persistence.http.responses import xml
from persistence.model.addresses import SERVICE_PREFIX, Form
from persistence.services.attachments import Attachments


@dataclass(frozen=True, slots=True)
class AttachmentLists:
    """The handler."""

    attachments: Attachments
    parser: RequestParser

    def blueprint(self) -> Blueprint:
        """The route."""
        blueprint = Blueprint("attachments", __name__, url_prefix=SERVICE_PREFIX)
        blueprint.get("/<app>/<form>/attachments", provide_automatic_options=False)(self.of_document)
        return blueprint

    def of_document(self, app: str, form: str) -> Response:
        """``GET /fr/service/$app/$form/attachments?document=$document``."""
        document = request.args.get("document")
        if not document:
            raise BadRequestError("the parameter document must name the document whose attachments are asked for")
        return xml(self.attachments.of_document(Form(app, form), document, self.parser.user(request)))
