"""The purge of all that is old enough, for administrators (spec crud 8.5)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from flask import Flask, Request, Response, request

from persistence.errors import BadRequestError
from persistence.http.application import add_route
from persistence.http.audit import note_in_audit
from persistence.http.bodies import drain
from persistence.http.callers import KeySetting
from persistence.http.parsing import Face
from persistence.http.responses import xml
from persistence.http.scopes import Touches
from persistence.model.instants import Instant
from persistence.model.retention import cutoff
from persistence.model.texts import flag
from persistence.services.forced_deletes import PurgeRequests
from persistence.services.purge_plans import PurgeRules

KINDS = ("revisions", "tombstones", "drafts", "orphans")


@dataclass(frozen=True, slots=True)
class PurgeApi:
    """The handler. ``administrators`` are those who may purge."""

    face: Face
    purges: PurgeRequests
    administrators: KeySetting

    def add_to(self, app: Flask) -> None:
        """Add the routes."""
        for path in ("", "/<app>", "/<app>/<form>", "/<app>/<form>/<document>"):
            add_route(app, f"{self.face.prefix}/purge{path}", self.purge, "POST", touches=Touches.NAMED)

    def purge(self, app: str | None = None, form: str | None = None, document: str | None = None) -> Response:
        """Answer ``POST /purge/$app/$form/$document?what=revisions,drafts&older-than=30d&dry-run=false``.

        Its body has no meaning.
        """
        drain(request.environ)
        self.administrators.require(request.environ, "purge")
        rules = _rules(request)
        is_dry = flag(request.args.get("dry-run") or None, "dry-run") is not False
        asked = {"what": request.args["what"], "older_than": request.args["older-than"], "dry_run": is_dry}
        note_in_audit(request.environ, details=asked)
        return xml(self.purges.purge(app, form, document, rules, dry=is_dry))


def _rules(asked: Request) -> PurgeRules:
    words = [each.strip() for each in (asked.args.get("what") or "").split(",")]
    older_than = asked.args.get("older-than") or ""
    if not older_than or not set(words) <= set(KINDS):
        raise BadRequestError(f"older-than must say how old, and what a list of: {', '.join(KINDS)}")
    before: Instant = cutoff(older_than, datetime.now(UTC))
    return PurgeRules(**dict.fromkeys(words, before))
