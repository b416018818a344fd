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
from persistence.cli.status import EDITED, REMAINS, REPAIRED
from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, PersistenceError, StartupError, one_line
from persistence.index.noting import Noting
from persistence.opening import integrity_of, open_index
from persistence.places import bodies_by_form
from persistence.store.bodies import BodiesView
from persistence.upkeep.check import Check, Inspectors, Measures, Tally
from persistence.upkeep.findings import Outcome, Remedy, Report, Severity
from persistence.upkeep.tree import Tree


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--repair", is_flag=True, help="Repair what is safe; what is not goes to .quarantine in the tree.")
@click.option("--adopt", is_flag=True, help="Take in what was edited or put there by hand, below PATH or with --all.")
@click.option("--all", "is_all", is_flag=True, help="Adopt edits wherever they are in the tree.")
@click.option("--as", "adopter", metavar="USER", help="Who adopts: the last modifier of what is adopted.")
@click.option("--dry-run", is_flag=True, help="Only say what --repair and --adopt would do, with a diff of XML.")
@click.option("--deep", is_flag=True, help="Read every content, and compare its digest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@tree_options
def check(  # noqa: PLR0913 - an option each
    *,
    paths: tuple[str, ...],
    repair: bool,
    adopt: bool,
    is_all: bool,
    adopter: str | None,
    dry_run: bool,
    deep: bool,
    as_json: bool,
    **flags: str | None,
) -> None:
    """Look for damage, and repair it.

    All of the tree of forms is checked, or the parts named, also while the service runs.

    PATH is relative to the data directory: hr, hr/leave, hr/leave/data/1b4e28ba. Only where PATH is that of a file,
    --adopt takes in what counts as damage, such as another content of an attachment.

    \b
    Exit status: 0  nothing found, or only notices
                 1  could not check
                 2  wrong usage
                 3  something was found, and all of it taken care of
                 4  damage or leftovers remain, or a remedy failed
                 5  nothing worse than edits by hand that nobody has adopted
    """  # noqa: D301 - click's mark for lines that stay apart
    if (adopt and not (paths or is_all)) or (is_all and not adopt):
        raise click.UsageError("--adopt wants the PATH of what is to be adopted, or --all; --all goes with --adopt")
    choice = chosen(flags)
    settings, root = choice.settings, choice.root
    noting = Noting(root)
    tree = Tree(root, lock_timeout=settings.lock_timeout, observer=noting)
    if not os.path.isdir(tree.root):
        raise StartupError(f"there is no data directory {tree.root}")
    try:
        parts = [tree.parts(path) for path in paths] or [()]
    except BadRequestError as error:
        raise click.UsageError(str(error)) from error
    remedies = frozenset(remedy for remedy, is_on in ((Remedy.REPAIR, repair), (Remedy.ADOPT, adopt)) if is_on)
    index, integrity = open_index(settings, choice.properties, root), integrity_of(settings)
    bodies_of = bodies_by_form(choice.properties, lambda base: BodiesView(base, integrity))
    inspectors = Inspectors.of(tree, index, bodies_of, integrity, deep=deep)
    measures = Measures(remedies, DIALECTS[settings.dialect], lambda: choice.sight().seen, adopter, dry_run)
    run = Check(tree, inspectors, measures)
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
    sys.exit(_status(run.tally))


def _status(tally: Tally) -> int:
    if tally.remaining:
        return REMAINS
    if tally.edits:
        return EDITED
    return REPAIRED if tally.mended else 0


def _line(tree: Tree, report: Report) -> str:
    finding, kind = report.finding, report.finding.kind
    if report.outcome is Outcome.MENDED:
        end = f"{kind.remedy.value} {kind.deed}: done"
        if report.said != kind.deed:
            end = f"{kind.remedy.value}: {one_line(report.said)}"
    elif report.outcome is Outcome.FOUND and report.said:
        end = "\n    ".join(map(one_line, (report.said, *report.difference)))
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
        "difference": "\n".join(report.difference),
    }
    return msgspec.json.encode(values).decode()


def _json_summary(tally: Tally, seconds: float) -> str:
    counts = {severity.value: tally.found[severity] for severity in Severity}
    values = {
        "folders": tally.folders,
        **counts,
        "mended": tally.mended,
        "remaining": tally.remaining,
        "edits": tally.edits,
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
