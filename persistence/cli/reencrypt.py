"""``persistence reencrypt``: encrypt stored data by what forms mark now, with the key that encrypts now."""

from __future__ import annotations

import sys
import time

import click

from persistence.cli.forms_and_versions import form_and_version
from persistence.cli.options import Chosen, chosen, tree_options
from persistence.cli.progress import Progress, progress
from persistence.cli.status import REMAINS
from persistence.cli.texts import counted, safe
from persistence.cli.trees import each
from persistence.errors import BadRequestError, NotFoundError, disk_errors
from persistence.index.protocol import RebuildAim
from persistence.index.sync.journal import OfflineJournal
from persistence.maintenance import indexes
from persistence.model.addresses import Form
from persistence.providers.opening import open_index, open_reencryption
from persistence.services.reencryption_jobs import ReencryptionJob
from persistence.storage import owner
from persistence.storage.reader import StoreReader


@click.command()
@click.argument("path", metavar="[APP/FORM[/VERSION]]", required=False)
@click.option("--dry-run", is_flag=True, help="Only say how much would be rewritten.")
@tree_options
def reencrypt(*, path: str | None, dry_run: bool, **options: str | None) -> None:
    """Encrypt the data of all forms in all trees anew, or that of one form.

    Needed after a change of the key (persistence key new), and after a form has marked other controls. Older
    revisions, attachments and drafts are rewritten too, in place: what they were is not kept. The service may run.
    What is as it should be is not touched, so a run that was stopped goes on where it was.

    \b
    Exit status: 0  done
                 1  could not: no key, no such form, no data directory, another user's
                 2  wrong usage
                 4  something could not be rewritten, and is as it was
    """  # noqa: D301 - click's mark for lines that stay apart
    choice = chosen(options)
    try:
        form, version = (None, None) if path is None else form_and_version(path)
    except BadRequestError as error:
        raise click.UsageError(str(error)) from error
    trees = choice.trees if form is None else (choice.with_data(form),)
    sys.exit(each(trees, lambda tree, prefix: _reencrypt(tree, prefix, form, version, dry_run=dry_run)))


def _reencrypt(tree: Chosen, prefix: str, form: Form | None, version: int | None, *, dry_run: bool) -> int:
    """Encrypt the forms of a tree anew, or one of them; returns the exit status."""
    view = StoreReader(tree.root)
    with disk_errors(f"data directory {view.root}"):
        owner.require(view.root)

    def reindex(changed: Form) -> None:
        with open_index(tree.settings, tree.properties, view.root) as index:
            indexes.plan(view, index, RebuildAim.REBUILT, changed).run(lambda _: None)

    with (
        OfflineJournal(tree.root) as noting,
        open_reencryption(tree.settings, tree.properties, tree.root, noting) as reencryption,
    ):
        jobs = [
            ReencryptionJob(reencryption, view.root, one, version, reindex)
            for one in _forms(reencryption.forms(), form)
        ]
        started = time.monotonic()
        count, problems = (_tried if dry_run else _done)(jobs, prefix)
        seconds = time.monotonic() - started
        noting.leave()
    did = "would be encrypted anew" if dry_run else "encrypted anew"
    click.echo(f"{prefix}{count:,} revisions of {counted(len(jobs), 'form')} {did} in {seconds:.1f} s", err=True)
    return REMAINS if problems else 0


def _forms(there: list[Form], wanted: Form | None) -> list[Form]:
    if wanted is None:
        return there
    if wanted not in there:
        raise NotFoundError(f"{wanted} does not exist")
    return [wanted]


def _tried(jobs: list[ReencryptionJob], prefix: str) -> tuple[int, int]:
    """How many revisions would be rewritten, and how many problems there are."""
    count = problems = 0
    with progress(f"{prefix}looking", lambda: _documents(jobs)) as bar:
        for job in jobs:
            for document in job.reencryption.documents(job.form):
                plan = job.reencryption.plan(job.form, document, job.version)
                count += len(plan.rewritings)
                problems += _say(bar, prefix, list(plan.problems))
    return count, problems


def _done(jobs: list[ReencryptionJob], prefix: str) -> tuple[int, int]:
    """How many revisions were rewritten, and how many problems there were."""
    count = problems = 0
    with progress(f"{prefix}encrypting", lambda: _documents(jobs)) as bar:

        def step(said: list[str]) -> None:
            nonlocal problems
            problems += _say(bar, prefix, said)

        for job in jobs:
            count += job.run(step)
    return count, problems


def _say(bar: Progress, prefix: str, problems: list[str]) -> int:
    for problem in problems:
        bar.say(safe(f"{prefix}{problem}"))
    bar.step()
    return len(problems)


def _documents(jobs: list[ReencryptionJob]) -> int:
    return sum(1 for job in jobs for _ in job.reencryption.documents(job.form))
