"""The export of forms and data as an archive, for administrators only (spec crud 8.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from http import HTTPStatus
from urllib.parse import parse_qsl

from flask import Flask, Request, Response, request

from persistence.errors import BadRequestError
from persistence.http import logs
from persistence.http.application import add_route
from persistence.http.audit import note_in_audit
from persistence.http.bodies import body_of
from persistence.http.callers import KeySetting
from persistence.http.logs import REQUEST_ID
from persistence.http.parsing import Face
from persistence.http.responses import BareResponse, Headers
from persistence.http.scopes import Touches
from persistence.limits import LARGEST_QUERY, MOST_EXPORT_PATTERNS
from persistence.model.exports import (
    SINCE,
    UNTIL,
    ExportQuery,
    parse_contents,
    parse_history,
    parse_range,
    patterns_of,
)
from persistence.model.instants import next_after
from persistence.model.texts import flag, known_parameters
from persistence.services.exporting import Exporting

_FORM = "application/x-www-form-urlencoded"
_DRAFTS = {"exclude": False, "include": True}
_ONCE = ("content", "data-revision-history", SINCE, UNTIL, "drafts", "decrypt", "form-version")
PARAMETERS = ("match", *_ONCE)
"""The parameters of an export."""


@dataclass(frozen=True, slots=True)
class ExportApi:
    """The handler. ``administrators`` are the callers who may export; permissions of forms do not count for them."""

    face: Face
    exporting: Exporting
    administrators: KeySetting

    def add_to(self, app: Flask) -> None:
        for path in ("", "/<app>", "/<app>/<form>", "/<app>/<form>/<document>"):
            touches = Touches.NAMED if path else Touches.ALL
            url = f"{self.face.prefix}/export{path}"
            add_route(app, url, self.export, "GET", "POST", touches=touches, only_reads=True)

    def export(self, app: str | None = None, form: str | None = None, document: str | None = None) -> Response:
        """Answer ``GET`` or ``POST /export/$app/$form/$document``.

        The archive is sent while it is made, so that no length is known.

        What cannot be done is refused before it begins. An archive that must stop breaks the connection.
        """
        number = request.environ.get(REQUEST_ID)
        self.administrators.require(request.environ, "export")
        pairs = _parameters(request)
        query = replace(_query(pairs, app, form), document=document)
        note_in_audit(
            request.environ, details=dict(pairs) | {"match": [value for name, value in pairs if name == "match"]}
        )

        def report(line: str) -> None:
            logs.write("not-exported", is_error=True, id=number, cause=line)

        export = self.exporting.begin(query)
        return BareResponse(logs.Unbroken(export.archive(report, lambda: None), number), HTTPStatus.OK, _headers())


def _headers() -> Headers:
    day = next_after(None)[:10]
    return [
        ("Content-Type", "application/zip"),
        ("Content-Disposition", f'attachment; filename="export-{day}.zip"'),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
        ("X-Accel-Buffering", "no"),  # nginx would write as much of it to its disk as comes before the client reads
    ]


def _parameters(asked: Request) -> list[tuple[str, str]]:
    pairs = list(asked.args.items(multi=True))
    if asked.method == "POST":
        body = b"".join(body_of(asked.environ, LARGEST_QUERY))
        if body and asked.mimetype != _FORM:
            raise BadRequestError(f"the parameters of an export are sent as {_FORM}, not {asked.mimetype or 'nothing'}")
        most = MOST_EXPORT_PATTERNS + len(PARAMETERS)
        try:
            pairs += parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=most)
        except ValueError as error:  # bytes that are not ASCII, or percent-encoded ones that are not UTF-8; too many
            raise BadRequestError("the body must be a form-encoded list of parameters, and not too many") from error
    return pairs


def _query(pairs: list[tuple[str, str]], app: str | None, form: str | None) -> ExportQuery:
    once = known_parameters(pairs, PARAMETERS, "export", repeatable=("match",))
    since, until = parse_range(once.get(SINCE), once.get(UNTIL))
    return ExportQuery(
        patterns_of(app, form, once.get("form-version"), [value for name, value in pairs if name == "match"]),
        parse_contents(once.get("content")),
        parse_history(once.get("data-revision-history")),
        since,
        until,
        _drafts(once.get("drafts")),
        flag(once.get("decrypt") or None, "decrypt") is True,
    )


def _drafts(text: str | None) -> bool:
    if text and text not in _DRAFTS:
        raise BadRequestError(f"drafts must be exclude or include, not {text[:60]!r}")
    return _DRAFTS.get(text or "", False)
