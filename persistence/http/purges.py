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
from persistence.model.exports import (
    SINCE,
    UNTIL,
    ExportedContent,
    ExportQuery,
    parse_history,
    parse_range,
    patterns_of,
)
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
        for path in ("", "/<app>", "/<app>/<form>", "/<app>/<form>/<document>"):
            add_route(app, f"{self.face.prefix}/purge{path}", self.purge, "POST", touches=Touches.NAMED)

    def purge(self, app: str | None = None, form: str | None = None, document: str | None = None) -> Response:
        """Answer ``POST /purge/$app/$form/$document``; its body has no meaning.

        ``?what=revisions,drafts&older-than=30d&dry-run=false`` is the service's own, ``?data-revision-history=include``
        with ``match``, ``form-version`` and dates the real system's (spec runtime 6).
        """
        drain(request.environ)
        self.administrators.require(request.environ, "purge")
        args = request.args
        names = set(args) - {"dry-run"}
        is_own = names <= _OWN
        if not names or not (is_own or names <= _REAL):
            own, real = ", ".join(sorted(_OWN)), ", ".join(sorted(_REAL))
            raise BadRequestError(f"a purge has either the parameters {own}, or some of {real}; and dry-run")
        trial = flag(args.get("dry-run") or None, "dry-run")
        is_dry = trial is not False if is_own else trial is True
        asked: dict[str, object] = {name.replace("-", "_"): ",".join(args.getlist(name)) for name in args}
        note_in_audit(request.environ, details=asked | {"dry_run": is_dry})
        if is_own:
            return xml(self.purges.purge(app, form, document, _rules(request), dry=is_dry))
        return xml(
            self.purges.purge_data(_query(request, app, form), document, self.face.parser.user(request), dry=is_dry)
        )


_OWN = frozenset({"older-than", "what"})
_REAL = frozenset({"match", "form-version", "data-revision-history", SINCE, UNTIL})


def _query(asked: Request, app: str | None, form: str | None) -> ExportQuery:
    since, until = parse_range(asked.args.get(SINCE), asked.args.get(UNTIL))
    patterns = patterns_of(app, form, asked.args.get("form-version"), asked.args.getlist("match"))
    history = parse_history(asked.args.get("data-revision-history"))
    return ExportQuery(patterns, frozenset({ExportedContent.DATA}), history, since, until)


def _rules(asked: Request) -> PurgeRules:
    words = [each.strip() for each in (asked.args.get("what") or "").split(",")]
    older_than = asked.args.get("older-than") or ""
    if not older_than or not set(words) <= set(KINDS):
        raise BadRequestError(f"older-than must say how old, and what a list of: {', '.join(KINDS)}")
    before: Instant = cutoff(older_than, datetime.now(UTC))
    return PurgeRules(**dict.fromkeys(words, before))
