"""The import of an archive or of JSON lines that a request sends (spec crud 8.4), for administrators."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Flask, Request, Response, request

from persistence.errors import EncodedBodyError
from persistence.http.application import add_route
from persistence.http.audit import note_in_audit
from persistence.http.bodies import body_of
from persistence.http.callers import KeySetting
from persistence.http.responses import xml
from persistence.http.scopes import Touches
from persistence.limits import LARGEST_IMPORT
from persistence.model.addresses import PUBLIC_PREFIX
from persistence.model.texts import flag, known_parameters, word
from persistence.services.imports.importer import ImportOptions
from persistence.services.imports.planning import OnConflict
from persistence.services.imports.sources import is_importable
from persistence.services.imports.spooled import SpooledImports

_DRY_RUN, _ON_CONFLICT = "dry-run", "on-conflict"
PARAMETERS = (_DRY_RUN, _ON_CONFLICT)
"""The parameters of an import."""


@dataclass(frozen=True, slots=True)
class ImportApi:
    """The handler. ``administrators`` are the API keys whose callers may import."""

    imports: SpooledImports
    administrators: KeySetting

    def add_to(self, app: Flask) -> None:
        add_route(app, f"{PUBLIC_PREFIX}/import", self.receive, "POST", touches=Touches.ALL)

    def receive(self) -> Response:
        """Answer ``POST /import?dry-run=false&on-conflict=refuse`` with a report, when all is imported."""
        self.administrators.require(request.environ, "import")
        options, kind = _options(request), request.environ.get("CONTENT_TYPE")
        if not is_importable(kind):
            raise EncodedBodyError("the content type must be application/zip or application/jsonl")
        asked = {"dry_run": options.is_dry, "on_conflict": options.on_conflict.value}
        note_in_audit(request.environ, details=asked)
        return xml(self.imports.run(kind, body_of(request.environ, LARGEST_IMPORT), options))


def _options(asked: Request) -> ImportOptions:
    sent = known_parameters(asked.args.items(multi=True), PARAMETERS, "import")
    is_dry = flag(sent.get(_DRY_RUN) or None, _DRY_RUN) is True
    on_conflict = word(OnConflict, sent.get(_ON_CONFLICT) or OnConflict.REFUSE.value, _ON_CONFLICT)
    return ImportOptions(is_dry, on_conflict)
