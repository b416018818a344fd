"""The publish API: a form definition and its attachments in one request (spec crud 8.3)."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask, Response, request

from persistence.dialect import Dialect
from persistence.errors import BadRequestError, NotSupportedError
from persistence.http import bodies
from persistence.http.application import add_route
from persistence.http.parsing import RequestParser
from persistence.http.responses import xml
from persistence.limits import LARGEST_TREE, LONGEST_COMMENT
from persistence.model.addresses import DESIGNER_FORM, SERVICE_PREFIX
from persistence.model.texts import short
from persistence.services.publishing import Publication, Publishing


@dataclass(frozen=True, slots=True)
class PublishApi:
    """The handlers."""

    publishing: Publishing
    dialect: Dialect
    parser: RequestParser

    def add_to(self, app: Flask) -> None:
        """Add the routes."""
        from_designer = f"{SERVICE_PREFIX}/{self.dialect.designer_app}/{DESIGNER_FORM}/publish/<document>"
        add_route(app, f"{SERVICE_PREFIX}/publish", self.from_body, "POST")
        add_route(app, from_designer, self.from_designer, "POST")

    def from_body(self) -> Response:
        """Answer ``POST /fr/service/publish[?document-id=$document]``."""
        publication = self._publication(request.args.get("document-id"))
        body = bodies.chunks(request.environ, LARGEST_TREE)
        return xml(self.publishing.from_body(body, publication))

    def from_designer(self, document: str) -> Response:
        """Answer ``POST /fr/service/svc/builder/publish/$document``; its body has no meaning."""
        publication = self._publication(document)
        bodies.drain(request.environ)
        return xml(self.publishing.from_designer(document, publication))

    def _publication(self, source: str | None) -> Publication:
        if request.args.get("remote-server-url"):
            raise NotSupportedError("publishing to another server is not done here")
        return Publication(
            version=self.parser.version_to_publish(request),
            is_available=request.args.get("available") != "false",
            comment=_comment(request.args.get("version-comment")),
            user=self.parser.user(request),
            source=short(source, "document id"),
            flat_view=self.parser.flat_view(request),
        )


def _comment(text: str | None) -> str | None:
    comment = (text or "").strip()
    if len(comment) > LONGEST_COMMENT:
        raise BadRequestError(f"a version comment is at most {LONGEST_COMMENT} characters long")
    return comment or None
