"""The differences between two revisions of a document, and the actions on a document: bring back, break a lease."""

from __future__ import annotations

from dataclasses import dataclass

from flask import render_template, request

from persistence.errors import LockedError, NotFoundError, NotSupportedError, PreconditionError
from persistence.limits import LONGEST_VALUE, VALUES_SHOWN
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.users import ANONYMOUS, Bearer, User
from persistence.pages.actions import Action, Done, Question, Values
from persistence.pages.document_paths import PATH, address_of, asked_instant, document_path, instant_of
from persistence.pages.site import Site
from persistence.services.diffs import DiffOptions, RevisionDiffs, RevisionPair
from persistence.services.documents import Documents
from persistence.services.reverting import RestorePlan, Reverting, before_current
from persistence.services.rules import Revert

_SUBJECT = "/<app>/<form>/<document>"


@dataclass(frozen=True, slots=True)
class RevisionPages:
    """The page and the actions."""

    documents: Documents

    def add_to(self, site: Site) -> None:
        site.page(f"{PATH}/changes", "changes", self.changes, reads="history")
        site.action(Action("revert", self._ask_to_revert, self._revert, ("revision", "current"), _SUBJECT))
        site.action(Action("lease-break", self._ask_to_break, self._break, ("holder",), _SUBJECT))

    def changes(self, app: str, form: str, collection: str, document: str) -> str:
        address = address_of(app, form, collection, document)
        older, newer = asked_instant("older"), asked_instant("newer")
        if older is None or newer is None:
            raise NotFoundError("the times of two revisions are needed, as older and newer")
        found = self.documents.router.of(address.form).storage.read_revision(address, newer, content=False)
        if found is None:
            raise NotFoundError(f"{address} has no revision of {newer}")
        pair = RevisionPair(found.sidecar.version, older, newer)
        options = DiffOptions(request.args.get("lang") or None, LONGEST_VALUE)
        rows = RevisionDiffs(self.documents).rows(address, pair, Bearer(ANONYMOUS), options, VALUES_SHOWN + 1)
        return render_template(
            "changes.html",
            address=address,
            back=document_path("document", address),
            pair=pair,
            by=found.sidecar.modifier or "",
            rows=rows[:VALUES_SHOWN],
            has_more=len(rows) > VALUES_SHOWN,
        )

    def _ask_to_revert(self, values: Values) -> Question:
        address = _address(values)
        asked = self._asked(address, values, ANONYMOUS)
        plan = Reverting(self.documents).plan(address, asked)
        older, is_deleted = plan.file.older, plan.file.is_deleted
        by = f" by {older.modifier}" if older.modifier else ""
        effects = [f"The revision of {older.modified}{by} becomes the current one, as a new revision of yours."]
        if plan.attachments:
            effects.append(f"{len(plan.attachments)} attachments come back as they were then.")
        if not is_deleted:
            effects.append("What is current now stays in the history.")
        effects.append("The draft of the document is removed, if there is one.")
        if plan.notice is not None:
            effects.append(f"Note: {plan.notice}.")
        name = f"{address.form}/{address.document}"
        title = (
            f"Bring back the deleted document {name}?"
            if is_deleted
            else f"Make an older revision of {name} current again?"
        )
        button = "Bring it back" if is_deleted else "Make it current"
        sent = {"revision": str(asked.instant), "current": _current_tag(plan)}
        return Question(title, tuple(effects), button, document_path("document", address), sent=sent)

    def _revert(self, values: Values, by: str) -> Done:
        address = _address(values)
        reverting = Reverting(self.documents)
        plan = reverting.plan(address, self._asked(address, values, User(name=by)))
        _require_current(plan, values["current"])
        reverting.restore(plan)
        back = document_path("document", address)
        return Done(f"The revision of {plan.file.older.modified} is the current one again.", back)

    def _asked(self, address: DocumentAddress, values: Values, user: User) -> Revert:
        instant = instant_of(values["revision"]) or before_current(self.documents, address)
        return Revert(instant=instant, user=user)

    def _ask_to_break(self, values: Values) -> Question:
        address = _address(values)
        try:
            self.documents.router.of(address.form).data.leases.require(address, ANONYMOUS)
        except LockedError as error:
            who = error.user or "Somebody"
            effects = (
                f"{who} has leased it for {error.seconds} more seconds, and may be editing it now.",
                "Others can then lease and save it. Whoever saves last is stopped only by If-Match.",
            )
            title, back = f"Break the lease of {address.form}/{address.document}?", document_path("document", address)
            sent = {"holder": error.user or ""}
            return Question(title, effects, "Break the lease", back, is_dangerous=True, sent=sent)
        raise NotFoundError(f"nobody has leased the document {address.document}")

    def _break(self, values: Values, _by: str) -> Done:
        address = _address(values)
        managed = self.documents.router.of(address.form).data.managed
        if managed is None:
            raise NotSupportedError(f"another service has the leases of {address.form}")
        try:
            lease = managed.leases.broken(address.document, values["holder"])
        except PreconditionError as error:
            raise PreconditionError(f"{error}. Nothing was broken: look at the document again.") from error
        return Done(f"The lease of {lease.user} is broken.", document_path("document", address))


def _address(values: Values) -> DocumentAddress:
    return DocumentAddress(Form(values["app"], values["form"]), Collection.DATA, values["document"], DATA_XML)


def _current_tag(plan: RestorePlan) -> str:
    return "" if plan.file.current is None else plan.file.current.etag


def _require_current(plan: RestorePlan, tag: str) -> None:
    """Require that the current revision is still that of the question. ``If-Match`` never holds for a tombstone."""
    if tag == _current_tag(plan):
        return
    address, current, now = plan.file.address, plan.file.current, plan.file.replaced
    cause = ""
    if now is not None and not (current is not None and current.is_edited):
        who = now.modifier or "somebody without a name"
        cause = f": {'deleted' if now.deleted else 'saved'} by {who} at {now.modified}"
    raise PreconditionError(
        f"{address.form}/{address.document} has changed since you were asked{cause}. Nothing was written. "
        "Look at the document again."
    )
