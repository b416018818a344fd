"""The publish interface: a form definition and its attachments in one request (spec crud 8.3)."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Blueprint, Response, request

from persistence.dialect import Dialect
from persistence.errors import BadRequestError, NotSupportedError
from persistence.http import bodies
from persistence.http.parsing import RequestParser
from persistence.http.responses import xml
from persistence.limits import LARGEST_TREE, LONGEST_COMMENT
from persistence.model.addresses import DESIGNER_FORM, SERVICE_PREFIX
from persistence.model.texts import short
from persistence.services.publishing import Publication, Publishing


@dataclass(frozen=True, slots=True)
class Publish:
    """The handlers."""

    publishing: Publishing
    dialect: Dialect
    parser: RequestParser

    def blueprint(self) -> Blueprint:
        """The two routes."""
        blueprint = Blueprint("publish", __name__, url_prefix=SERVICE_PREFIX)
        from_designer = f"/{self.dialect.designer_app}/{DESIGNER_FORM}/publish/<document>"
        blueprint.post("/publish", provide_automatic_options=False)(self.from_body)
        blueprint.post(from_designer, provide_automatic_options=False)(self.from_designer)
        return blueprint

    def from_body(self) -> Response:
        """``POST /fr/service/publish[?document-id=$document]``."""
        publication = self._publication(request.args.get("document-id"))
        body = self.publishing.from_body(bodies.chunks(request.environ, LARGEST_TREE), publication)
        return xml(body)

    def from_designer(self, document: str) -> Response:
        """``POST /fr/service/svc/builder/publish/$document``."""
        publication = self._publication(document)
        bodies.drain(request.environ)  # it says nothing
        return xml(self.publishing.from_designer(document, publication))

    def _publication(self, source: str | None) -> Publication:
        asked = request.args.get
        if asked("remote-server-url"):
            raise NotSupportedError("publishing to another server is not done here")
        return Publication(
            version=self.parser.version_to_publish(request),
            is_available=asked("available") != "false",
            comment=_comment(asked("version-comment")),
            user=self.parser.user(request),
            source=short(source, "document id"),
            flat_view=self.parser.flat_view(request),
        )


def _comment(text: str | None) -> str | None:
    comment = (text or "").strip()
    if len(comment) > LONGEST_COMMENT:
        raise BadRequestError(f"a version comment is at most {LONGEST_COMMENT} characters long")
    return comment or None
