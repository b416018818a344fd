"""Strike commands at each of their changing calls; check what is served then, and that a second run completes them.

With ``MAINTENANCE_SECONDS`` in the environment the long run begins nothing after so many seconds; another command comes
first each day, and what was left out is said.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from multiprocessing import get_context
from pathlib import Path

from persistence.errors import PersistenceError
from tests import opened
from tests.maintenance import kills
from tests.maintenance.cases import REPAIRED, Inflict
from tests.maintenance.damage import case
from tests.maintenance.kills import Ended, Strike, copied
from tests.maintenance.workshop import ATTACHMENT, DATA, DELETED, DRAFT, FORM, NEW, Workshop, furnished
from tests.rigs.report import Report, Tally, prefixed

READ = (
    *(FORM, DATA, ATTACHMENT, DELETED, DRAFT),
    *("app/form/data/never-saved/scan.bin", "app/form/draft/document/data.xml", "app/form/data/dropped/data.xml"),
)
KILLED = -9
Views = dict[str, tuple[int, bytes]] | None


@dataclass(frozen=True)
class Scenario:
    """A command on a directory: what it makes of it, and what of that may be lost.

    ``arguments`` are those of the command, ``{}`` standing for the directory that holds everything, and ``{now}`` for a
    time after everything in it was stored; ``data`` is the data directory in it. ``again`` are the exit statuses that a
    second run may have; where the first has done it all, it may be ``refused`` in these words. Of a command that makes
    hundreds of lock files, every ``step``-th call will do. What a check may find after the second run is ``left``: a
    commit whose content waits for its last name, if that run has nothing to write there. ``left_by_errors`` is
    what a run may leave that has succeeded although a call has failed: a name that a committed deletion could not
    remove. Of the directory ``copy``, the same is served afterwards as of ``data``.
    """

    name: str
    arguments: tuple[str, ...]
    data: str = "data"
    again: tuple[int, ...] = (0, 3)
    keeps: bool = True
    checked: str = "data"
    step: int = 1
    refused: str = ""
    left: tuple[str, ...] = ()
    left_by_errors: tuple[str, ...] = ()
    copy: str = ""


def views(root: Path) -> Views:
    if not (root / "layout.json").exists():
        return None
    try:
        with Workshop(root) as workshop:
            return {path: workshop.get(path) for path in READ}
    except PersistenceError:
        return None


class Round:
    def __init__(self, pristine: Path, scratch: Path, scenario: Scenario) -> None:
        self._pristine = pristine
        self._scratch = scratch
        self._scenario = scenario
        self._now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        self._before = self._views(self._fresh())
        self._contents = self._kept(self._fresh())
        done = self._run(self._fresh())
        assert done.status in (0, 3), done.said
        self._after = self._views(scratch / "work")

    def faults(self, strike: Strike, *, every: int = 1) -> Iterator[tuple[int, list[str]]]:
        """Return the broken promises for every call that is struck, counted from 1."""
        for at in count(1, every * self._scenario.step):
            work = self._fresh()
            ended = self._run(work, at=at, strike=strike)
            if not ended.struck:
                return
            yield at, [*self._of_end(ended, strike), *self._of_state(work), *self._of_second(work, strike)]

    def _of_end(self, ended: Ended, strike: Strike) -> Iterator[str]:
        if (ended.status == KILLED) != (strike is kills.kill) or ended.status not in {KILLED, 0, 1, 3, 4}:
            yield f"status {ended.status}: {ended.said}"
        if "Traceback" in ended.said or (ended.status == 1 and ended.said.count("persistence: ") != 1):
            yield f"said: {ended.said}"

    def _of_state(self, work: Path) -> Iterator[str]:
        if not self._contents <= self._kept(work):
            yield "content is gone"
        found = self._views(work)
        if found is None or self._before is None or self._after is None:
            if found not in (None, self._before, self._after):
                yield "half of it is served"
            return
        for path, view in found.items():
            if view not in (self._before[path], self._after[path]):
                yield f"{path}: {view} is neither the state before nor that after"

    def _of_second(self, work: Path, strike: Strike) -> Iterator[str]:
        is_done, refused = self._views(work) == self._after, self._scenario.refused
        ended = self._run(work)
        is_refused = is_done and bool(refused) and refused in ended.said
        if ended.status not in self._scenario.again and not is_refused:
            yield f"second run: {ended.status}: {ended.said}"
        if self._views(work) != self._after:
            yield "the second run does not complete it"
        if not self._contents <= self._kept(work):
            yield "content is gone after the second run"
        if self._scenario.copy and views(copied(work / self._scenario.copy, self._scratch / "views")) != self._after:
            yield "the copy is another one"
        checked = Workshop(work / self._scenario.checked).check("--deep")
        left = self._scenario.left + (() if strike is kills.kill else self._scenario.left_by_errors)
        if any(kind not in left for kind, _ in checked.kinds):
            yield f"left after the second run: {checked.kinds}"

    def _fresh(self) -> Path:
        return copied(self._pristine, self._scratch / "work")

    def _run(self, work: Path, *, at: int = 0, strike: Strike = kills.kill) -> Ended:
        arguments = [argument.format(work, now=self._now) for argument in self._scenario.arguments]
        if "--from" not in arguments:
            arguments += ["--data", f"{work}/{self._scenario.data}"]
        return kills.run(arguments, self._scratch / "said", at=at, strike=strike)

    def _views(self, work: Path) -> Views:
        source = work / self._scenario.data  # a copy is read, because a starting service cleans up
        return views(copied(source, self._scratch / "views")) if source.exists() else None

    def _kept(self, work: Path) -> set[str]:
        root = work / self._scenario.data
        return Workshop(root).contents() if root.exists() and self._scenario.keeps else set()


def prepared(pristine: Path, target: Path, inflict: Callable[[Workshop], None]) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    with Workshop(copied(pristine, target / "data")) as workshop:
        inflict(workshop)
    return target


STRIKES = {"killed": kills.kill, "full": kills.FULL, "broken": kills.BROKEN, "read-only": kills.READ_ONLY}
_CASES, _AT_ONCE = 1000, 25
_PROCESSES = 2
_DAY = 24 * 3600


def long_run(report: Report, directory: Path) -> None:
    """Strike every command at every call that changes the tree, in each way; and repair trees with random damage."""
    quietly()
    with furnished(directory / "pristine") as workshop:
        pristine = workshop.root
    with ProcessPoolExecutor(_PROCESSES, get_context("spawn"), initializer=quietly) as pool:
        end = time.time() + float(os.environ.get("MAINTENANCE_SECONDS", _DAY))
        first = int(time.time() // _DAY) % len(SCENARIOS)
        numbers = [*range(first, len(SCENARIOS)), *range(first)]
        repaired = [pool.submit(damaged, pristine, directory, seed, end) for seed in range(0, _CASES, _AT_ONCE)]
        rounds = [pool.submit(struck, pristine, directory / f"struck-{number}", number, end) for number in numbers]
        random = Tally("random damage", ["trees"])
        for each in repaired:
            trees, found = each.result()
            random["trees"] += trees
            random.violations += found
        report.add(random.ended())
        for each in rounds:
            report.add(each.result())


def struck(pristine: Path, scratch: Path, number: int, end: float) -> Tally:
    """Strike a scenario in each way, unless the time is over; returns how often, and what did not hold then."""
    scenario, inflict = SCENARIOS[number]
    if time.time() > end:
        return Tally(f"{scenario.name}, left out", tuple(STRIKES)).ended()
    scratch.mkdir()
    tally = Tally(scenario.name, tuple(STRIKES))
    try:
        round_ = Round(directory(pristine, scratch, inflict), scratch, scenario)
    except (AssertionError, OSError) as error:  # what others have found is to be reported all the same
        tally.violations.append(f"cannot be prepared: {error!r}")
        return tally.ended()
    for what, strike in STRIKES.items():
        for at, found in round_.faults(strike):
            tally[what] += 1
            tally.violations += prefixed(f"{what} at {at}", found)
    shutil.rmtree(scratch, ignore_errors=True)
    tally.violations += _left()
    return tally.ended()


def damaged(pristine: Path, scratch: Path, first: int, end: float) -> tuple[int, list[str]]:
    """Repair trees with random damage; returns how many, none where the time was over, and what did not hold then."""
    if time.time() > end:
        return 0, []
    violations = []
    for seed in range(first, first + _AT_ONCE):
        inflicted, found = case(pristine, scratch / f"damaged-{first}", seed)
        violations += [f"damage {seed} ({', '.join(inflicted.lines)}): {each}" for each in found]
    return _AT_ONCE, violations + _left()


def _left() -> list[str]:
    left = opened.threads()
    return [f"{len(left)} threads of services are left"] if left else []


def quietly() -> None:
    """Keep the log of the service in this process off standard error."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


# Scenarios in which commands are struck: repairs of all kinds of damage, and what else changes trees.


def edit(workshop: Workshop) -> None:
    workshop.file(DATA).write_bytes(b"<d>edited</d>")


def edit_a_file_of_two(workshop: Workshop) -> None:
    """Edit a document in place whose file has a second name, as in a copy that was made of links."""
    (workshop.root.parent / "copied.xml").hardlink_to(workshop.file(DATA))
    edit(workshop)


def drop(workshop: Workshop) -> None:
    dropped = workshop.file("app/form/data/dropped")
    dropped.mkdir(mode=0o750)
    for name in ("data.xml", "picture.png"):
        (dropped / name).write_bytes(NEW)


def edit_a_definition(workshop: Workshop) -> None:
    workshop.file(FORM).write_bytes(b'<html xmlns="http://www.w3.org/1999/xhtml"><head/><body/></html>')


def lose_an_attachment(workshop: Workshop) -> None:
    workshop.file(ATTACHMENT).unlink()
    workshop.file(ATTACHMENT).mkdir()


def save_before(workshop: Workshop) -> None:
    done = kills.run(
        ["backup", f"{workshop.root.parent}/backups", "--data", str(workshop.root)], workshop.root.parent / "said"
    )
    assert done.status == 0, done.said
    workshop.put(DATA, b"<d>newest</d>")


def age(workshop: Workshop) -> None:
    workshop.file("layout.json").write_text(json.dumps({"format": 1}))
    shutil.rmtree(workshop.file(".quarantine"))
    shutil.rmtree(workshop.file(".locks"))
    workshop.file(".locks").mkdir()


def export_all(workshop: Workshop) -> None:
    """Export what is current in a tree, and take everything out of it.

    Of a document with a history an import stores one revision after the other, each of which is current for a moment.
    """
    workshop.close()
    options = ("--drafts", "--data", str(workshop.root))
    done = kills.run(["export", f"{workshop.root.parent}/all.zip", *options], workshop.root.parent / "said")
    assert done.status == 0, done.said
    shutil.rmtree(workshop.file("app"))


def nothing(_workshop: Workshop) -> None:
    """Leave the tree as it is."""


REPAIR = ("check", "--repair")
ADOPT = ("check", "--repair", "--adopt", "--all")
BACKUP, RESTORE = ("backup", "{}/backups"), ("restore", "{}/backups")
PURGE = ("purge", "--revisions", "--tombstones", "--drafts", "--orphans", "--older-than", "{now}", "--yes")
ERASE = ("erase", "app/form/data/document", "--certificate", "{}/certificate.json", "--yes")
SCENARIOS: tuple[tuple[Scenario, Inflict], ...] = (
    *((Scenario(f"repair: {case}", REPAIR, keeps=case.keeps), case.inflict) for case in REPAIRED),
    (Scenario("repair: no file", REPAIR), lose_an_attachment),
    *(
        (Scenario(f"adopt: {each.__name__}", ADOPT, keeps=False), each)
        for each in (edit, edit_a_file_of_two, edit_a_definition)
    ),
    (Scenario("adopt: drop", ADOPT), drop),
    (Scenario("backup: the first", BACKUP), nothing),
    (Scenario("backup: another", BACKUP), save_before),
    (
        Scenario("restore", RESTORE, data="restored", checked="restored", step=5, refused="holds a tree already"),
        save_before,
    ),
    (Scenario("upgrade", ("upgrade",), step=20), age),
    (Scenario("purge", PURGE, again=(0,), keeps=False), nothing),
    (Scenario("erase", ERASE, again=(0,), keeps=False, step=3, refused="the erasure of "), nothing),
    (Scenario("revert", ("revert", "app/form/data/deleted"), again=(0,)), nothing),
    (Scenario("export", ("export", "{}/all.zip", "--history", "include"), again=(0,)), nothing),
    (
        Scenario(
            "move",
            ("move", "--from", "{}/data", "--to", "{}/moved"),
            again=(0,),
            checked="moved",
            step=5,
            copy="moved",
            left_by_errors=("unfinished-removal",),
        ),
        nothing,
    ),
    (Scenario("import", ("import", "{}/all.zip"), again=(0,), step=3, left=("unfinished-commit",)), export_all),
)


def directory(pristine: Path, scratch: Path, inflict: Inflict) -> Path:
    return prepared(pristine, scratch / "prepared", inflict)
