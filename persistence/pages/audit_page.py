"""The audit: its newest lines, by user, action, document and time, and its verification."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from flask import render_template, request, url_for

from persistence.audit.log import seals
from persistence.audit.newest import NewestLines, newest, outcome_of, subject_of
from persistence.errors import BadRequestError, NotFoundError
from persistence.keys import Keys
from persistence.limits import AUDIT_LINES_SHOWN
from persistence.model import instants
from persistence.pages.actions import Action, Done, Question, Values
from persistence.pages.background import BackgroundCommand
from persistence.pages.site import Site
from persistence.settings import Settings

_FILTERS = ("user", "key", "action", "app", "form", "document")
_LARGEST = 18
"""Digits of the number of a line."""


@dataclass(frozen=True, slots=True)
class AuditPage:
    """The page, and the action that verifies."""

    settings: Settings
    keys: Keys
    verification: BackgroundCommand

    def add_to(self, site: Site) -> None:
        site.page("/admin/audit", "audit", self.show, "Audit")
        site.action(Action("audit-verify", self._ask, self._verify))

    def show(self) -> str:
        asked = {name: request.args.get(name, "").strip() for name in (*_FILTERS, "since", "before")}
        found, problem = None, self._absence()
        if not problem:
            try:
                found = self._found(asked)
            except NotFoundError:
                problem = "There are no lines yet."
            except BadRequestError as error:
                problem = str(error)
        lines = found.lines if found else ()
        query = urlencode({**asked, "before": found.older}) if found and found.older else ""
        older = f"{url_for('pages.audit')}?{query}" if query else ""
        return render_template(
            "audit.html",
            asked=asked,
            rows=[{"place": subject_of(each), "outcome": outcome_of(each), **each} for each in lines],
            problem=problem,
            older=older,
            verified=self.verification.output(),
            can_verify=self.settings.audit == "file",
        )

    def _absence(self) -> str:
        kind = self.settings.audit
        if kind == "off":
            return 'The audit is off. The setting audit = "file" begins one.'
        return "" if kind == "file" else f"The audit goes to {kind}: look for its lines there."

    def _found(self, asked: Values) -> NewestLines:
        wanted = {name: asked[name] for name in _FILTERS if asked[name]}
        since = instants.from_datetime(instants.parse_time(asked["since"], "since")) if asked["since"] else ""
        before = asked["before"]
        if before and not (before.isascii() and before.isdecimal() and len(before) <= _LARGEST):
            raise BadRequestError("before is the number of a line")
        path, seal_of = self.settings.audit_file, seals(self.keys)
        return newest(path, seal_of, wanted, since=since, before=int(before or 0), most=AUDIT_LINES_SHOWN)

    def _ask(self, _values: Values) -> Question:
        if self._absence():
            raise NotFoundError(self._absence())
        effects = "All lines are read, and compared with their chain. Nothing is changed."
        return Question("Verify the audit?", (effects,), "Verify it", url_for("pages.audit"))

    def _verify(self, _values: Values, _by: str) -> Done:
        self.verification.begin(["verify"])
        return Done("The audit is being verified.", url_for("pages.audit"))
