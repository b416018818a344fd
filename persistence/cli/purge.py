"""``persistence purge``: remove old revisions, deleted documents, drafts, and attachments that nothing names."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

import click

from persistence.cli.completion import form_names
from persistence.cli.managing import managing
from persistence.cli.options import ChosenTree, choose_trees, on_each, tree_options, usage_errors
from persistence.cli.statuses import REMAINS
from persistence.cli.terminal import (
    counted,
    is_quiet,
    json_option,
    json_text,
    progress,
    quiet_option,
    safe,
    say,
    say_json,
    summarize,
)
from persistence.errors import BadRequestError, NotFoundError, PersistenceError
from persistence.limits import MOST_PURGE_PROBLEMS
from persistence.model.addresses import Form
from persistence.model.retention import cutoff
from persistence.services.purge_plans import PurgeRules, PurgeTotals, retention_rules
from persistence.services.purging import StoragePurge, purge_documents

_KINDS = ("revisions", "tombstones", "drafts", "orphans")


@click.command(short_help="Remove data that is old enough, for good.")
@click.argument("path", metavar="[APP[/FORM[/DOC]]]", required=False, shell_complete=form_names)
@click.option("--older-than", metavar="DATE|SPAN", help="Stored before a date, or a time span ago: 30d, 2y.")
@click.option("--revisions", is_flag=True, help="Older revisions of documents and attachments.")
@click.option("--tombstones", is_flag=True, help="Deleted documents and attachments, with all their history.")
@click.option("--drafts", is_flag=True, help="Drafts.")
@click.option("--orphans", is_flag=True, help="Attachments that no data names, and those of deleted documents.")
@click.option("--retention", is_flag=True, help="What is older than the properties of its form allow; for cron.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed and freed: the default.")
@click.option("--yes", is_flag=True, help="Do it. It cannot be undone but by a backup.")
@json_option
@quiet_option
@tree_options
def purge(  # noqa: PLR0913 - its options
    *,
    path: str | None,
    older_than: str | None,
    retention: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **options: str | None,
) -> None:
    """Remove data that is old enough, without a trace: of all forms, of an application, a form or a document.

    At least one of --revisions, --tombstones, --drafts and --orphans chooses what will be removed, or --retention, with
    which the properties of each form choose that and its age. Current revisions stay, except of deleted documents, and
    definitions stay with their history. Without --yes nothing is changed.

    The service may run: no request waits for more than a few revisions of its own document. A run that was stopped
    goes on where it was when it is called again.
    """
    kinds = {name: bool(options.pop(name)) for name in _KINDS}
    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes exclude each other")
    with usage_errors():
        rules = _rules(older_than, kinds, is_retention=retention)
        app, form, document = _parts(path)
    choice = choose_trees(options)
    trees = choice.trees if form is None else (choice.tree_of(form),)
    run = _Run(app, form, document, rules, is_trial=not yes, as_json=as_json)
    sys.exit(on_each(trees, run.on))


def _rules(older_than: str | None, kinds: Mapping[str, bool], *, is_retention: bool) -> PurgeRules | None:
    if is_retention:
        if older_than is not None or any(kinds.values()):
            raise BadRequestError("--retention goes by the properties: leave out --older-than and the kinds")
        return None
    if older_than is None or not any(kinds.values()):
        raise BadRequestError(f"name an age with --older-than, and a kind: --{', --'.join(_KINDS)}")
    before = cutoff(older_than, datetime.now(UTC))
    return PurgeRules(**{name: before for name, is_asked in kinds.items() if is_asked})


def _parts(path: str | None) -> tuple[str | None, Form | None, str | None]:
    match [] if path is None else path.split("/"):
        case []:
            return None, None, None
        case [app] if app:
            return app, None, None
        case [app, name] if app and name:
            return app, Form(app, name), None
        case [app, name, document] if app and name and document:
            return app, Form(app, name), document
        case _:
            raise BadRequestError(f"{safe(path or '')} is not APP, APP/FORM or APP/FORM/DOC")


class _Run:
    """One run over trees. Without ``rules`` the properties of each form have them."""

    def __init__(  # noqa: PLR0913 - its choice
        self,
        app: str | None,
        form: Form | None,
        document: str | None,
        rules: PurgeRules | None,
        *,
        is_trial: bool,
        as_json: bool,
    ) -> None:
        self._app = app
        self._form = form
        self._document = document
        self._rules = rules
        self._is_trial = is_trial
        self._as_json = as_json
        self._now = datetime.now(UTC)
        self._problems = 0

    def on(self, tree: ChosenTree, prefix: str) -> int:
        total, before, began = PurgeTotals(), self._problems, time.monotonic()
        with _opened_purge(tree) as purging:
            forms = self._forms(purging)
            label = f"{prefix}{'looking' if self._is_trial else 'purging'}"
            with progress(label, lambda: sum(1 for form in forms for _ in self._documents(purging, form))) as bar:
                for form in forms:
                    of_form = PurgeTotals()
                    for result in self._results(purging, tree, form):
                        bar.step()
                        if isinstance(result, PersistenceError):
                            self._problems += 1
                            if self._problems <= MOST_PURGE_PROBLEMS:
                                click.echo(safe(f"{prefix}{result}"), err=True)
                        else:
                            of_form.add(result)
                    if not of_form.is_empty and self._as_json:
                        bar.say(json_text({"tree": tree.name, "form": str(form), **_facts(of_form)}))
                    elif not (of_form.is_empty or is_quiet()):
                        bar.say(safe(f"{prefix}{form}: {_line(of_form)}"))
                    total.add(of_form)
        self._say_total(tree, prefix, total, self._problems - before, time.monotonic() - began)
        if self._is_trial and not total.is_empty:
            summarize("nothing was changed: --yes does it")
        return REMAINS if self._problems > before else 0

    def _say_total(self, tree: ChosenTree, prefix: str, total: PurgeTotals, problems: int, seconds: float) -> None:
        if self._as_json:
            facts = {"tree": tree.name, **_facts(total), "problems": problems, "dry_run": self._is_trial}
            say_json({**facts, "seconds": round(seconds, 3)})
        elif not is_quiet():
            done = "would go" if self._is_trial else "purged"
            say(f"{prefix}{_line(total)} {done} in {seconds:.1f} s")

    def _results(self, purging: StoragePurge, tree: ChosenTree, form: Form) -> Iterator[PurgeTotals | PersistenceError]:
        rules = self._rules
        if rules is None:
            try:
                rules = retention_rules(tree.properties.of(form).retention, self._now)
            except PersistenceError as error:  # it has no provider any more, so nothing says how long it is kept
                yield error
                return
        documents = self._documents(purging, form)
        yield from purge_documents(purging, form, documents, rules, is_trial=self._is_trial)

    def _forms(self, purging: StoragePurge) -> list[Form]:
        found = purging.forms(self._app)
        if self._form is None:
            return found
        if self._form not in found:
            raise NotFoundError(f"{self._form} does not exist")
        return [self._form]

    def _documents(self, purging: StoragePurge, form: Form) -> Iterator[str]:
        if self._document is None:
            yield from purging.store.documents_and_drafts(form)
        elif purging.has(form, self._document):
            yield self._document
        else:
            raise NotFoundError(f"{form} has no document {safe(self._document)}")


@contextmanager
def _opened_purge(tree: ChosenTree) -> Iterator[StoragePurge]:
    with managing(tree) as place:
        yield StoragePurge(place.storage, place.providers.bodies_by_form)
        place.leave()


def _facts(totals: PurgeTotals) -> dict[str, object]:
    return {
        "revisions": totals.revisions,
        "deleted_documents": totals.documents,
        "drafts": totals.drafts,
        "attachments": totals.attachments,
        "bytes": totals.freed,
    }


def _line(totals: PurgeTotals) -> str:
    parts = [
        counted(number, noun)
        for number, noun in (
            (totals.revisions, "revision"),
            (totals.documents, "deleted document"),
            (totals.drafts, "draft"),
            (totals.attachments, "attachment"),
        )
        if number
    ]
    return f"{', '.join(parts) or 'nothing'}, {totals.freed} bytes"
