"""``persistence check``: what is wrong in the tree, and with ``--repair`` and ``--adopt`` the remedy."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import click
import msgspec

from persistence.cli.options import Choice, Chosen, chosen, tree_options
from persistence.cli.progress import progress
from persistence.cli.status import FAILED, REMAINS, REPAIRED, worst
from persistence.cli.trees import each, failed
from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, PersistenceError, StartupError, one_line
from persistence.index.noting import Noting
from persistence.opening import open_index
from persistence.places import bodies_by_form
from persistence.store.bodies import BodiesView
from persistence.upkeep.attachments import AttachmentsCheck
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

    All trees and directories of attachments of the settings are checked, or the parts named, also while the service
    runs.

    PATH is relative to the data directory: hr, hr/leave, hr/leave/data/1b4e28ba.

    \b
    Exit status: 0  nothing found, or only notices
                 1  could not check
                 2  wrong usage
                 3  something was found, and all of it taken care of
                 4  damage or leftovers remain, or a remedy failed
    """  # noqa: D301 - click's mark for lines that stay apart
    choice = chosen(flags)
    remedies = frozenset(remedy for remedy, is_on in ((Remedy.REPAIR, repair), (Remedy.ADOPT, adopt)) if is_on)
    run = _Run(choice, paths, remedies, deep=deep, as_json=as_json)
    status = each(choice.trees, run.tree)
    if not choice.is_told:
        status = worst((status, *run.attachments()))
    if run.not_found and status != FAILED:
        raise click.UsageError(f"{', '.join(sorted(run.not_found))}: in no data directory")
    if as_json:
        click.echo(_json_summary(run.tally, run.seconds))
    sys.exit(status)


class _Run:
    """One run of the command over trees and directories of attachments; ``tally`` counts what was seen in all."""

    def __init__(
        self, choice: Choice, paths: tuple[str, ...], remedies: frozenset[Remedy], *, deep: bool, as_json: bool
    ) -> None:
        self.tally = Tally()
        self.seconds = 0.0
        self.not_found = set(paths)
        self._choice = choice
        self._paths = paths
        self._remedies = remedies
        self._deep = deep
        self._as_json = as_json
        self._usable: dict[str, Tree] = {}

    def tree(self, chosen: Chosen, prefix: str) -> int:
        """Check a tree; returns the exit status."""
        settings, root = chosen.settings, chosen.root
        noting = Noting(root)
        tree = Tree(root, lock_timeout=settings.lock_timeout, observer=noting)
        if not os.path.isdir(tree.root):
            raise StartupError(f"there is no data directory {tree.root}")
        parts = self._parts(tree, is_only=not prefix)
        index = open_index(settings, chosen.properties, root)
        inspectors = Inspectors.of(tree, index, bodies_by_form(chosen.properties, BodiesView), deep=self._deep)
        run = Check(tree, DIALECTS[settings.dialect], lambda: chosen.sight().seen, inspectors, self._remedies)
        status = self._reported(tree, parts, run, prefix)
        self._usable[tree.root] = tree
        if self._remedies:
            noting.leave()
            with suppress(OSError, PersistenceError):  # then whoever searches next takes in what was noted
                index.take_in_abandoned()
        return status

    def attachments(self) -> Iterator[int]:
        """Check the directories of attachments, as far as the trees with their records can be used; exit statuses."""
        timeout = self._choice.settings.lock_timeout
        for name, base in self._choice.bases.items():
            try:
                root_of = partial(self._choice.root_of_records, base=base)
                run = AttachmentsCheck(base, root_of, self._usable, self._remedies, timeout)
                parts = self._parts(run.tree)
                if parts:
                    yield self._reported(run.tree, parts, run, f"{name}: ")
            except PersistenceError as error:
                failed(name, error)
                yield FAILED

    def _parts(self, tree: Tree, *, is_only: bool = False) -> list[tuple[str, ...]]:
        """The parts that are to be checked, all of it where no path is given; a path may be in another tree.

        Raises:
            click.UsageError: it is not in the only tree.
        """
        if not self._paths:
            return [()]
        parts = []
        for path in self._paths:
            try:
                parts.append(tree.parts(path))
            except BadRequestError as error:
                if is_only:
                    raise click.UsageError(str(error)) from error
            else:
                self.not_found.discard(path)
        return parts

    def _reported(self, tree: Tree, parts: list[tuple[str, ...]], run: Check | AttachmentsCheck, prefix: str) -> int:
        started = time.monotonic()
        name = prefix.removesuffix(": ")
        with progress(f"{prefix}checking", lambda: sum(tree.count(part) for part in parts)) as bar:
            for part in parts:
                for report in run.run(part):
                    if report is None:
                        bar.step()
                    else:
                        bar.say(_json(tree, report, name) if self._as_json else f"{prefix}{_line(tree, report)}")
        seconds = time.monotonic() - started
        if not self._as_json:
            click.echo(f"{prefix}{_summary(run.tally, seconds)}", err=True)
        self.tally.include(run.tally)
        self.seconds += seconds
        if run.tally.remaining:
            return REMAINS
        return REPAIRED if run.tally.mended else 0


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


def _json(tree: Tree, report: Report, name: str) -> str:
    finding, kind = report.finding, report.finding.kind
    values = {
        **({"tree": name} if name else {}),
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
