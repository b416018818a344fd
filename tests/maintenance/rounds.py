"""Strike commands at each of their changing calls; check what is served then, and that a second run completes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from persistence.errors import PersistenceError
from tests.maintenance import kills
from tests.maintenance.kills import Ended, Strike, copied
from tests.maintenance.workshop import ATTACHMENT, DATA, DELETED, DRAFT, FORM, Workshop

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
    """Return what is served; ``None`` if the service does not start."""
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
        """Read a copy, because a starting service cleans up."""
        source = work / self._scenario.data
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
