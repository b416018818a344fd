"""``persistence check``: find damage in the trees, and mend it with ``--repair`` and ``--adopt``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import click

from persistence.cli.declarations import EDITED, FAILED, REMAINS, REPAIRED, command, exits, unless_dry, worst
from persistence.cli.options import (
    TREES,
    ChosenTree,
    TreeChoice,
    encryption_remark,
    on_each,
    say_failed,
    seconds,
    usage_errors,
)
from persistence.cli.terminal import counted, is_json, progress, say_error, say_json, say_result, summarize
from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, NotSupportedError, PersistenceError, disk_errors, one_line
from persistence.index.sync.journal import OfflineJournal
from persistence.keys import warnings_of
from persistence.maintenance.check import ADOPTED_AS_IS, ALL_SLICES, CheckOptions, Parts, Slices, TreeCheck, within
from persistence.maintenance.records import LastCheck, record
from persistence.maintenance.storage_check import AttachmentsCheck, MarkCheck, ObjectsCheck, StorageCheck
from persistence.maintenance.tree_walk import FolderTree
from persistence.model.texts import epoch_seconds, next_after
from persistence.providers.locations import buckets_of, open_keys
from persistence.providers.opened import bucket_bodies, integrity_of, managing, open_index, readable_bodies
from persistence.settings import Settings
from persistence.storage import owner
from persistence.storage.findings import (
    Finding,
    FindingKind,
    FindingTotals,
    Outcome,
    Remedy,
    Report,
    Severity,
    Treatment,
)
from persistence.storage.layout import LAYOUT
from persistence.storage.reader import StoreReader
from persistence.storage.root import missing
from persistence.storage.storage import Readable

_STYLES = {Severity.DAMAGE: "red", Severity.LEFTOVER: "yellow"}


@command(
    "check",
    None,
    TREES,
    audits=lambda params: unless_dry(params) and bool(params.get("repair") or params.get("adopt")),
    is_quiet=True,
)
@exits(
    "nothing found, or only notices",
    "could not check",
    repaired="something was found, and all of it is repaired",
    remains="damage or leftovers remain, or a remedy failed",
    edited="edits by hand that nobody has adopted, and nothing worse",
)
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--repair", is_flag=True, help="Repair what is safe; what is not goes to .quarantine in the tree.")
@click.option("--adopt", is_flag=True, help="Take in files edited or added by hand, below PATH or with --all.")
@click.option("--all", "is_all", is_flag=True, help="Adopt edits wherever they are.")
@click.option("--as", "adopter", metavar="USER", help="The last modifier of the adopted files.")
@click.option("--dry-run", is_flag=True, help="Only say what --repair and --adopt would do, with a diff of XML.")
@click.option("--deep", is_flag=True, help="Read every content, and compare its digest.")
@click.option(
    "--budget", type=seconds, metavar="TIME", help="With --deep: only as much as fits, oldest first: 10m, say."
)
@click.option("--status", "is_status", is_flag=True, help="Only say how old the oldest deep look is.")
def check(*, is_status: bool, choice: TreeChoice, **options: Any) -> int:
    """Look for damage, and repair it.

    All trees and directories of attachments of the settings are checked, or the parts named, also while the service
    runs.

    PATH is relative to the data directory: hr, hr/leave, hr/leave/data/1b4e28ba. Only where PATH is that of a file,
    --adopt takes in what counts as damage, such as another content of an attachment.
    """
    wanted = _Wanted(**options)
    wanted.check()
    if is_status:
        return on_each(choice.trees, _say_coverage)
    if not (wanted.paths or choice.is_named):
        _say_keys(choice.settings)
    run = _Run(choice, wanted)
    status = on_each(choice.trees, run.check_tree)
    if not wanted.paths:
        status = worst((status, run.check_keys()))
    if not choice.is_named:
        status = worst((status, *run.check_attachments(), *run.check_objects()))
    if run.not_found and status != FAILED:
        raise click.UsageError(f"{', '.join(sorted(run.not_found))}: in no data directory or database")
    if not (wanted.paths or wanted.dry_run or wanted.budget or choice.is_named) and status != FAILED:
        record(choice.settings.home, LastCheck.of(run.totals, run.seconds, is_deep=wanted.deep))
    if is_json():
        totals = run.totals
        facts = {"mended": totals.mended, "remaining": totals.remaining, "edits": totals.edits}
        found = {severity.value: totals.found[severity] for severity in Severity}
        say_json({"folders": totals.folders, **found, **facts, "seconds": run.seconds})
    return status


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options of a check; ``budget`` is in seconds."""

    paths: tuple[str, ...]
    repair: bool
    adopt: bool
    is_all: bool
    adopter: str | None
    dry_run: bool
    deep: bool
    budget: float | None

    def check(self) -> None:
        has_scope = bool(self.paths) != self.is_all
        if (self.adopt and not has_scope) or (self.is_all and not self.adopt):
            raise click.UsageError("--adopt needs a PATH to adopt, or --all without a PATH")
        if self.adopter is not None and not self.adopt:
            raise click.UsageError("--as goes with --adopt")
        if self.budget is not None and (not self.deep or self.paths):
            raise click.UsageError("--budget goes with --deep, without a PATH")

    @property
    def remedies(self) -> frozenset[Remedy]:
        return frozenset([Remedy.REPAIR] * self.repair + [Remedy.ADOPT] * self.adopt)


class _Run:
    """One run of the command over trees and directories of attachments; ``totals`` counts the findings of all."""

    def __init__(self, choice: TreeChoice, wanted: _Wanted) -> None:
        self.totals = FindingTotals()
        self.seconds = 0.0
        self.not_found = set(wanted.paths)
        self._choice = choice
        self._wanted = wanted
        self._usable: dict[str, FolderTree] = {}
        self._usable_databases: list[str] = []

    def check_tree(self, chosen: ChosenTree, prefix: str) -> int:
        if chosen.is_database:
            return self._check_database(chosen, prefix)
        settings, root, wanted = chosen.settings, chosen.root, self._wanted
        with ExitStack() as stack:
            journal = stack.enter_context(OfflineJournal(root))
            tree = FolderTree(root, lock_timeout=settings.lock_timeout, listener=journal)
            if not os.path.isdir(tree.root):
                raise missing(tree.root)
            parts = self._parts(tree.parts, is_only=not prefix)
            index = stack.enter_context(open_index(settings, chosen.properties, root))
            integrity = integrity_of(settings)
            options = CheckOptions(
                DIALECTS[settings.dialect],
                integrity,
                readable_bodies(settings, chosen.properties, integrity),
                chosen.reader,
                adopter=wanted.adopter,
                deep=wanted.deep,
            )
            treatment = Treatment(wanted.remedies, wanted.dry_run)
            found = self._found(tree, TreeCheck(tree, index, options, treatment), parts)
            status = self._say_reports(prefix, treatment, found, partial(_count, tree, parts), tree.inside)
            if os.path.lexists(tree.layout.own(LAYOUT)):  # else the records may be in another directory
                self._usable[tree.root] = tree
            if wanted.remedies:
                journal.leave()
                with suppress(OSError, PersistenceError):  # else the next search reads the journal
                    index.recover()
            return status

    def _check_database(self, chosen: ChosenTree, prefix: str) -> int:
        wanted = self._wanted
        if wanted.adopt or wanted.budget is not None:
            raise NotSupportedError("--adopt and --budget are for data directories")
        with chosen.managing() as place:
            database, catalog_of = place.provider.database, place.provider.index_catalog
            if database is None or catalog_of is None:
                raise NotSupportedError(f"{chosen.place} is with another service")
            bodies_of = readable_bodies(chosen.settings, chosen.properties, integrity_of(chosen.settings))
            run = StorageCheck(database, bodies_of, MarkCheck(catalog_of), wanted.deep)
            found = run.findings(self._parts(run.part, is_only=not prefix))
            self._usable_databases.append(chosen.place)
            return self._say_reports(prefix, Treatment(wanted.remedies, wanted.dry_run), found, run.count)

    def _found(self, tree: FolderTree, run: TreeCheck, parts: Parts) -> Iterator[Finding | Report | None]:
        if self._wanted.budget is not None:
            owner.require(tree.root)  # the slices are recorded in the tree
            budget = self._wanted.budget / len(self._choice.trees)
            yield from within(budget, Slices(tree.root), partial(run.findings, parts))
            return
        began = next_after(None)
        yield from run.findings(parts)
        if self._wanted.deep and parts == [()] and owner.of(tree.root) == os.geteuid():
            with suppress(OSError):
                Slices(tree.root).record(ALL_SLICES, began)

    def check_keys(self) -> int:
        settings = self._choice.settings
        remark = encryption_remark(settings, self._choice.properties)
        if remark is None:
            return 0
        if self._choice.is_named:  # the settings of the tree may be others, with another file of keys
            say_error(f"persistence: {remark}")
            return 0
        found = [FindingKind.KEY_MISSING.at(settings.encryption_keys, remark)]
        return self._say_reports("keys: ", Treatment(), found)

    def check_attachments(self) -> Iterator[int]:
        for name, base in self._choice.bases.items():
            try:
                owner.require_closed(base)
                records_of = partial(self._choice.records_of, place=base)
                run = AttachmentsCheck(base, records_of, self._usable, self._choice.settings.lock_timeout)
                if parts := self._parts(run.tree.parts):
                    count = partial(_count, run.tree, parts)
                    found = run.findings(parts)
                    yield self._say_reports(f"{name}: ", self._elsewhere(), found, count, run.tree.inside)
            except PersistenceError as error:
                say_failed(name, error)
                yield FAILED

    def check_objects(self) -> Iterator[int]:
        choice, parts = self._choice, [tuple(path.strip("/").split("/")) for path in self._wanted.paths] or [()]
        bodies_at = bucket_bodies(choice.settings, choice.properties.keeps_history)
        for place in buckets_of(choice.properties):
            try:
                with ExitStack() as opened:
                    records: dict[str, Readable] = {root: StoreReader(root) for root in self._usable}
                    for address in self._usable_databases:
                        found = opened.enter_context(managing(choice.settings, choice.properties, address))
                        records[address] = found.storage
                    run = ObjectsCheck(bodies_at(place), partial(choice.records_of, place=place), records)
                    yield self._say_reports(f"{place}: ", self._elsewhere(), run.findings(parts), are_folders=False)
            except PersistenceError as error:
                say_failed(str(place), error)
                yield FAILED

    def _elsewhere(self) -> Treatment:
        """Return the treatment of bodies outside trees and databases, whose repair is not foretold."""
        return Treatment(frozenset() if self._wanted.dry_run else self._wanted.remedies)

    def _parts(self, part: Callable[[str], tuple[str, ...]], *, is_only: bool = False) -> Parts:
        parts: list[tuple[str, ...]] = [] if self._wanted.paths else [()]
        for path in self._wanted.paths:
            with usage_errors() if is_only else suppress(BadRequestError):
                parts.append(part(path))
                self.not_found.discard(path)
        return parts

    def _say_reports(  # noqa: PLR0913 - how they are shown
        self,
        prefix: str,
        treatment: Treatment,
        found: Iterable[Finding | Report | None],
        count: Callable[[], int] = lambda: 0,
        inside: Callable[[str], str] = str,
        *,
        are_folders: bool = True,
    ) -> int:
        """Say what is found in a place: with a prefix before each line, and a bar of ``count`` steps."""
        totals, place = treatment.totals, {"tree": prefix.removesuffix(": ")} if prefix else {}
        with progress(f"{prefix}checking", count) as bar:
            for report in treatment.reports(found, are_folders=are_folders):
                if report is None:
                    bar.step()
                else:
                    path = one_line(os.fsencode(inside(report.finding.path)).decode("utf-8", "replace"))
                    style = _STYLES.get(report.finding.kind.severity, "")
                    bar.say_either({**place, **_facts(path, report)}, f"{prefix}{_line(path, report)}", style)
        seconds = bar.seconds
        if not is_json():
            speed = f"{seconds:.1f} s, {totals.folders / seconds:.0f} a second" if seconds else "at once"
            harmless = counted(totals.found[Severity.LEFTOVER], "leftover")
            summarize(
                f"{prefix}{totals.folders} documents, drafts and form versions ({speed}): "
                f"{totals.found[Severity.DAMAGE]} damaged, {harmless}, "
                f"{counted(totals.found[Severity.NOTICE], 'notice')}; "
                f"{totals.mended} repaired, {totals.remaining} remaining"
            )
        self.totals.include(totals)
        self.seconds += seconds
        if totals.remaining:
            return REMAINS
        if totals.edits:
            return EDITED
        return REPAIRED if totals.mended else 0


def _say_keys(settings: Settings) -> None:
    try:
        warnings = warnings_of(open_keys(settings), settings.administrators, settings.token_issuers)
    except PersistenceError as error:  # the service cannot read them either
        warnings = [str(error)]
    for warning in warnings:
        say_error(f"persistence: {warning}")


def _say_coverage(tree: ChosenTree, prefix: str) -> int:
    root = StoreReader(tree.root).root
    with disk_errors(f"data directory {tree.root}"):
        coverage = Slices(root).coverage()
    text = "no part of the tree was ever looked at deeply (check --deep)"
    if coverage.oldest is not None:
        days = (time.time() - epoch_seconds(coverage.oldest)) / (24 * 3600)
        rest = f"; {coverage.never} of {coverage.slices} parts never" if coverage.never else ""
        text = f"the oldest deep look is of {coverage.oldest}, {max(days, 0):.1f} days ago{rest}"
    say_result({"tree": prefix.removesuffix(": "), **asdict(coverage)}, f"{prefix}{text}", click.echo)
    return 0


def _count(tree: FolderTree, parts: Parts) -> int:
    return sum(map(tree.count, parts))


def _line(path: str, report: Report) -> str:
    finding, kind = report.finding, report.finding.kind
    if report.outcome is Outcome.MENDED:
        remedy = Remedy.ADOPT if report.said == ADOPTED_AS_IS else kind.remedy
        end = f"{remedy.value} {kind.deed}: done"
        if report.said != kind.deed:
            end = f"{remedy.value}: {one_line(report.said)}"
    elif report.outcome is Outcome.FOUND and report.said:
        end = "\n    ".join(map(one_line, (report.said, *report.difference)))
    elif report.outcome is Outcome.FAILED:
        end = f"{kind.remedy.value} failed: {one_line(report.said)}"
    else:
        end = finding.deed if finding.remedy is Remedy.NONE else f"{finding.remedy.value} {finding.deed}"
    return f"{kind.severity.value}: {path}: {kind.label}: {one_line(finding.what)}; {end}"


def _facts(path: str, report: Report) -> dict[str, object]:
    finding, kind = report.finding, report.finding.kind
    return {
        "path": path,
        "kind": kind.label,
        "severity": kind.severity.value,
        "what": one_line(finding.what),
        "remedy": finding.remedy.value,
        "does": finding.deed,
        "outcome": report.outcome.value,
        "said": one_line(report.said),
        "difference": "\n".join(report.difference),
    }
