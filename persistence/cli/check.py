"""``persistence check``: what is wrong in the tree, and with ``--repair`` and ``--adopt`` the remedy."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

import click
import msgspec

from persistence.cli.options import chosen, tree_options
from persistence.cli.progress import progress
from persistence.cli.status import REMAINS, REPAIRED
from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, PersistenceError, one_line
from persistence.index.noting import Noting
from persistence.opening import open_index
from persistence.places import bodies_by_form
from persistence.store.bodies import BodiesView
from persistence.store.root import missing
from persistence.upkeep.check import Check, Inspectors, Tally
from persistence.upkeep.findings import Outcome, Remedy, Report, Severity
from persistence.upkeep.tree import Tree


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--repair", is_flag=True, help="Repair what is safe; what is not goes to .quarantine in the tree.")
@click.option("--adopt", is_flag=True, help="Take in what was edited or put there by hand.")
@click.option("--deep", is_flag=True, help="Read every content, and compare its digest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@tree_options
def check(*, paths: tuple[str, ...], repair: bool, adopt: bool, deep: bool, as_json: bool, **flags: str | None) -> None:
    """Look for damage, and repair it.

    All of the tree of forms is checked, or the parts named, also while the service runs.

    PATH is relative to the data directory: hr, hr/leave, hr/leave/data/1b4e28ba.

    \b
    Exit status: 0  nothing found, or only notices
                 1  could not check
                 2  wrong usage
                 3  something was found, and all of it taken care of
                 4  damage or leftovers remain, or a remedy failed
    """  # noqa: D301 - click's mark for lines that stay apart
    choice = chosen(flags)
    settings, root = choice.settings, choice.root
    noting = Noting(root)
    tree = Tree(root, lock_timeout=settings.lock_timeout, observer=noting)
    if not os.path.isdir(tree.root):
        raise missing(tree.root)
    try:
        parts = [tree.parts(path) for path in paths] or [()]
    except BadRequestError as error:
        raise click.UsageError(str(error)) from error
    remedies = frozenset(remedy for remedy, is_on in ((Remedy.REPAIR, repair), (Remedy.ADOPT, adopt)) if is_on)
    index = open_index(settings, choice.properties, root)
    inspectors = Inspectors.of(tree, index, bodies_by_form(choice.properties, BodiesView), deep=deep)
    run = Check(tree, DIALECTS[settings.dialect], lambda: choice.sight().seen, inspectors, remedies)
    line = _json if as_json else _line
    started = time.monotonic()
    with progress("checking", lambda: sum(tree.count(part) for part in parts)) as bar:
        for part in parts:
            for report in run.run(part):
                if report is None:
                    bar.step()
                else:
                    bar.say(line(tree, report))
    if remedies:
        noting.leave()
        with suppress(OSError, PersistenceError):  # then whoever searches next takes in what was noted
            index.take_in_abandoned()
    seconds = time.monotonic() - started
    if as_json:
        click.echo(_json_summary(run.tally, seconds))
    else:
        click.echo(_summary(run.tally, seconds), err=True)
    if run.tally.remaining:
        sys.exit(REMAINS)
    sys.exit(REPAIRED if run.tally.mended else 0)


def _line(tree: Tree, report: Report) -> str:
    finding, kind = report.finding, report.finding.kind
    if report.outcome is Outcome.MENDED:
        end = f"{kind.remedy.value} {kind.deed}: done"
        if report.said != kind.deed:
            end = f"{kind.remedy.value}: {one_line(report.said)}"
    elif report.outcome is Outcome.FAILED:
        end = f"{kind.remedy.value} failed: {one_line(report.said)}"
    else:
        end = kind.deed if kind.remedy is Remedy.NONE else f"{kind.remedy.value} {kind.deed}"
    return f"{kind.severity.value}: {_shown(tree, finding.path)}: {kind.label}: {one_line(finding.what)}; {end}"


def _shown(tree: Tree, path: str) -> str:
    """A path on one line; names that are no UTF-8 are shown as far as they are."""
    return one_line(os.fsencode(tree.inside(path)).decode("utf-8", "replace"))


def _json(tree: Tree, report: Report) -> str:
    finding, kind = report.finding, report.finding.kind
    values = {
        "path": _shown(tree, finding.path),
        "kind": kind.label,
        "severity": kind.severity.value,
        "what": one_line(finding.what),
        "remedy": kind.remedy.value,
        "does": kind.deed,
        "outcome": report.outcome.value,
        "said": one_line(report.said),
    }
    return msgspec.json.encode(values).decode()


def _json_summary(tally: Tally, seconds: float) -> str:
    counts = {severity.value: tally.found[severity] for severity in Severity}
    values = {
        "folders": tally.folders,
        **counts,
        "mended": tally.mended,
        "remaining": tally.remaining,
        "seconds": round(seconds, 3),
    }
    return msgspec.json.encode(values).decode()


def _summary(tally: Tally, seconds: float) -> str:
    counts = ", ".join(f"{tally.found[severity]} {severity.value}" for severity in Severity)
    speed = f"{seconds:.1f} s, {tally.folders / seconds:.0f} a second" if seconds else "at once"
    return (
        f"{tally.folders} documents, drafts and form versions ({speed}): {counts}; "
        f"{tally.mended} mended, {tally.remaining} remain"
    )
