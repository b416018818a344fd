"""Putting requests of a real service through faults, one in each request, and looking at what is there afterwards."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from tests import search_faults
from tests.rigs import aftermath
from tests.rigs.aftermath import Comparison, Scene, View, Views
from tests.rigs.faults.filling import refusal_faults, replace_worker
from tests.rigs.processes import Process
from tests.rigs.scenarios import WRITTEN, Scenario
from tests.rigs.strikes import Injector, Point, Struck
from tests.service import Service

WRITING = (
    *("openat", "openat2", "write", "fsync", "flock", "utimensat", "mkdir", "mkdirat", "link", "linkat"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir"),
)
"""The calls by which a change reaches the disk; a file is also opened by one of them."""

LOOKING = ("read", "newfstatat", "getdents64")
"""The calls by which a change looks at what is there."""

_SETTLED = 2
_CALLS = (*WRITING, *LOOKING)
_SHOWN = 3
_ATTEMPTS = 4
_MOST_LOGS = 2
_LOG = re.compile(r"/\.index/\.pending/\w+( \(deleted\))?")
_LOGS = "/logs of changes"
_CLOSING = 4  # connections that have been answered and are not closed yet


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a service occupies: files below its root, and of its worker open descriptors and memory in KiB."""

    files: int
    descriptors: int
    memory: int


class Trial:
    def __init__(self, service: Service, directory: Path) -> None:
        self._service = service
        self._injector = Injector(service, directory)
        self._numbers = count()
        self._workers = service.workers()
        self._held = open_below(self._workers[0], service.data) | logs_below(service.data)
        self._undisturbed = cache(self._seen_undisturbed)

    def points(self, scenario: Scenario) -> list[Point]:
        self._undisturbed(scenario)  # warms up, too: the first request of a kind makes calls of its own
        seen: list[Point] = []
        for _ in range(_ATTEMPTS):
            every = self._injector.points(self._prepared(scenario).ask, _CALLS)
            before, seen = seen, [point for point in every if point.about]
            if seen == before:
                return seen
        raise AssertionError(f"{scenario} makes other calls every time")

    def _seen_undisturbed(self, scenario: Scenario) -> Views:
        scene = self._prepared(scenario)
        answer = scene.ask()
        assert answer.status in (200, 201, 204), answer.cause
        return scene.expected()

    def strike(self, scenario: Scenario, point: Point, error: str) -> Outcome:
        """One request with one fault, and everything that a client or an operator may find then.

        The interpreter makes a call of its own at times; then the fault strikes another one, and is tried again.
        """
        for _ in range(_ATTEMPTS - 1):
            outcome = self._strike(scenario, point, error)
            if outcome.is_at_its_point:
                return outcome
        return self._strike(scenario, point, error)

    def _strike(self, scenario: Scenario, point: Point, error: str) -> Outcome:
        service, scene = self._service, self._prepared(scenario)
        files, trash = self._files(scene), self._trash()
        struck = self._injector.strike(point, f"error={error}", scene.ask)
        found = scene.seen()
        kind, faults = judged(
            point, error, struck, Comparison(scenario, scene.before, found, self._undisturbed(scenario))
        )
        if kind == "refused" and (left := self._files(scene) - files):
            faults.append(f"the refused request left {sorted(map(str, left))[:_SHOWN]}")
        faults += [text for text in aftermath.left(service.data, scene.form) if text.endswith("has no sidecar")]
        if kind == "tolerated" and struck.answer is not None:
            tag = found[scenario.resources[0]].headers.get("etag")
            if tag is not None and tag != struck.answer["ETag"]:
                faults.append("another revision than the acknowledged one is read")
        discards = point.committed and any(word in point.about for word in ("/.trash", "/form/draft"))
        trash |= self._trash() if discards else set()
        faults += search_faults.faults(service, scene.form, WRITTEN)
        faults += self._aftermath(scene, found, trash=trash)
        return Outcome(point, error, kind, tuple(faults), struck.is_at(point))

    def repeat(self, scenario: Scenario, point: Point, error: str, times: int) -> list[str]:
        """The same fault again and again in the same place, before the change: nothing may grow.

        One call of the interpreter's own would spoil the whole row; then it is tried again.
        """
        return self._repeat(scenario, point, error, times) and self._repeat(scenario, point, error, times)

    def _repeat(self, scenario: Scenario, point: Point, error: str, times: int) -> list[str]:
        scene = self._prepared(scenario)
        faults, first, trash = set[str](), self.footprint(scene), self._trash()
        for number in range(times):
            struck = self._injector.strike(point, f"error={error}", scene.ask)
            if struck.answer is None or struck.answer.status < 500 or len(struck.hit) != 1:
                faults.add(f"repeated, the fault struck {struck.hit}: {struck.answer and struck.answer.status}")
            if self._view(scene) != scene.before[scenario.resources[0]]:
                return []  # it made a call less than the first one, so the fault struck after the change
            if number == _SETTLED - 1:
                first = self.footprint(scene)
        last = self.footprint(scene)
        if last.files != first.files:
            faults.add(f"{last.files - first.files} files more after {times - _SETTLED} refusals")
        if last.descriptors > first.descriptors + _CLOSING:
            faults.add(f"{last.descriptors - first.descriptors} descriptors more after {times - _SETTLED} refusals")
        return [*sorted(faults), *self._aftermath(scene, scene.before, trash=trash)]

    def restart(self) -> list[str]:
        """Replace the worker: what could not be removed from the trash must be gone then."""
        replace_worker(self._service)
        self._workers = self._service.workers()
        return [f"a new worker leaves {path.name} in the trash" for path in self._trash()]

    def footprint(self, scene: Scene | None = None) -> Footprint:
        """What the service occupies now, between two requests; of the tree, one form and the service's own."""
        self._service.raw("GET", "/healthz")  # the only thread has ended what it did before
        (worker,) = self._workers
        memory = Process(worker).status("VmRSS")
        return Footprint(sum(1 for _ in self._entries(scene)), opened(worker).total(), memory)

    def _prepared(self, scenario: Scenario) -> Scene:
        return Scene.prepared(self._service, f"app-{next(self._numbers)}/form", scenario)

    def _view(self, scene: Scene) -> View:
        (view,) = scene.seen(scene.scenario.resources[:1]).values()
        return view

    def _entries(self, scene: Scene | None) -> Iterator[Path]:
        """Everything of a form, and in the service's own directories; relative to the root."""
        root = self._service.data
        own = [root / scene.form.partition("/")[0]] if scene else []
        for top in (*own, root / ".spool", root / ".trash"):
            yield from (path.relative_to(root) for path in top.rglob("*"))
        yield from (path.relative_to(root) for path in root.glob("*") if path.is_file())

    def _files(self, scene: Scene) -> set[Path]:
        """Every file but those of the history, where a refused write may leave a second name of what is current."""
        paths = self._entries(scene)
        return {path for path in paths if path.parent.name != ".history" and (self._service.data / path).is_file()}

    def _aftermath(self, scene: Scene, found: Views, *, trash: set[Path]) -> Iterator[str]:
        """Everything wrong with the next write, and with the service; ``trash`` may be left."""
        yield from scene.written_again(found)
        yield from scene.remaining([f".trash/{path.name}" for path in trash])
        for path in ("/healthz", "/readyz"):
            answer = self._service.raw("GET", path)
            if answer.status != 200:
                yield f"{path} is answered {answer.status}: {answer.cause}"
        if self._service.workers() != self._workers:
            yield "the worker has died"
        elif held := open_below(self._workers[0], self._service.data) - self._held:
            yield f"the worker holds {sorted(held)[:_SHOWN]}"

    def _trash(self) -> set[Path]:
        return set((self._service.data / ".trash").iterdir())


def opened(worker: int) -> Counter[str]:
    """What a process has open, and how often; but for indexes and the queue of changes, which stay open."""
    found = Counter[str]()
    for target, times in Process(worker).opened.items():
        found[_LOG.sub(_LOGS, target)] += times
    return Counter({target: times for target, times in found.items() if "/.index/" not in target})


def open_below(worker: int, root: Path) -> Counter[str]:
    """What of it is below a root; logs of changes count for their directory."""
    return Counter({target: times for target, times in opened(worker).items() if target.startswith(f"{root}/")})


def logs_below(root: Path) -> Counter[str]:
    """The most logs of changes that a process has open."""
    return Counter({f"{root}{_LOGS}": _MOST_LOGS})


# What a fault may do: nothing at all; or, once the change has happened, leave open whether it will last.

_TOLERABLE = (
    (
        re.compile(r"rename \S+/\.[^/ ]+\.ID \S+/[^/. ][^/ ]*"),
        "last name of a content: readers and writers know the other",
    ),
    (re.compile(r"unlink \S+/[^/. ][^/ ]*"), "name of a deleted content: readers go by the sidecar, writers remove it"),
    (re.compile(r"(?!rename|fsync)\w+ /\.trash(/ID.*)?"), "emptying the trash: it is garbage either way"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a fault at a point, and everything wrong.

    A request that writes is ``refused`` and undone, ``open`` or ``tolerated``, one that reads ``refused``, ``cut off``
    or ``whole`` all the same.
    """

    point: Point
    error: str
    kind: str
    faults: tuple[str, ...]
    is_at_its_point: bool = True


def tolerance(point: Point) -> str | None:
    """Why a request may succeed although this call of it failed; ``None`` where it may not."""
    if point.is_for_the_index:
        return "a note for the index: where there is none, the index is rebuilt"
    if not point.committed:
        return None
    return next((why for pattern, why in _TOLERABLE if pattern.fullmatch(f"{point.call} {point.about}")), None)


def judged(point: Point, error: str, struck: Struck, comparison: Comparison) -> tuple[str, list[str]]:
    committed, wrong = comparison.committed, list(comparison.faults())
    faults = [] if struck.is_at(point) else [f"the fault struck {struck.hit}"]
    if struck.synced_again():
        faults.append("what a failed fsync was about is fsynced again")
    if struck.answer is None:
        return "refused", [*faults, f"no answer: {struck.broken}"]
    if struck.answer.status < 400:
        if tolerance(point) is None:
            faults.append(f"answered {struck.answer.status}")
        if wrong or not all(committed):
            faults.append(f"acknowledged, but not done: {wrong}")
        return "tolerated", faults
    faults += refusal_faults(struck.answer, error)
    # A draft is moved there only after a look that it is no link to elsewhere; what is in it already does not matter.
    is_look = (point.call, point.about) == ("openat2", "/.trash")
    if point.is_for_the_index or (point.about.startswith("/.trash") and not is_look):
        faults.append("refused for what nothing stored depends on")
    if comparison.found == comparison.before:
        return "refused", faults
    if not point.committed:
        faults.append("refused, but something has changed")
    if wrong or not any(committed):
        faults.append(f"refused, and what is there is neither the old nor the new: {wrong}")
    return "open", faults
