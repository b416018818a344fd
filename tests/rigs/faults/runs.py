"""Requests through many faults, one in each, in a service of their own; and the long run of all of them."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from pathlib import Path

from tests import search_faults
from tests.rigs import aftermath, disks, scenarios, strikes
from tests.rigs.aftermath import Comparison, Scene, View, Views, view_of
from tests.rigs.faults import filling
from tests.rigs.faults.filling import NO_ROOM, refusal_faults, replace_worker
from tests.rigs.processes import Process
from tests.rigs.report import Report, Tally, prefixed
from tests.rigs.scenarios import Scenario
from tests.rigs.strikes import Injector, Point, Struck, struck_service
from tests.rigs.weakened import OF_READING, OF_WRITING
from tests.service import Answer, Service

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
        faults += search_faults.faults(service, scene.form, scenarios.WRITTEN)
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


# Runs of one request through many faults.

_PROCESSES = 2
_TIMES = 50
_MEMORY = Path("/dev/shm")  # a disk whose fsync costs nothing: the faults here are not its own
_ENOUGH = 3 << 30  # each request has a form of its own, and that an index


def refusals(directory: Path) -> list[str]:
    """Return why the long run is not possible here."""
    reasons = (strikes.refusal(directory), *(disks.refusal(room.kind, directory) for room in filling.ROOMS))
    return [reason for reason in reasons if reason]


def long_run(report: Report, directory: Path) -> None:
    """Let every call of every request fail, without a protection, too; fill disks, end descriptors, hang a disk."""
    _inject(report, directory)
    for weakness in (*OF_WRITING, *OF_READING):
        with _ground(directory) as ground:
            found = noticed(weakness, ground)
        report.add_row(("protection taken out", "found", "such as"), (weakness, len(found), found[0] if found else "-"))
        report.expect_caught(weakness, found)
    for number, tell in enumerate(filling.STORIES):
        (ground := directory / f"story-{number}").mkdir()
        try:
            report.add(tell(ground).ended())
        except disks.DiskError as error:
            report.wrong.append(f"{tell}: {error}")
    story = filling.stall(directory / "stall")
    for row in filling.exhaust(directory / "exhaust", story):
        report.add_row(("writers that hang", "reads", "answered"), row)
    report.add(story.ended())


def _inject(report: Report, directory: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with _ground(directory) as ground, ProcessPoolExecutor(_PROCESSES, mp_context=context) as pool:
        reading = pool.submit(read_all, ground / "reading")
        each = enumerate(scenarios.TO_FAIL)
        writing = [pool.submit(strike_all, scenario, ground / str(number), times=_TIMES) for number, scenario in each]
        struck = []
        for future in writing:
            struck.append(future.result())
            report.add(struck[-1])
        for run in reading.result():
            report.add(run)
    kinds = sum((run.kinds for run in struck), Counter[tuple[str, str]]())
    for error in ERRORS:
        report.add_row(("error", *_KINDS), (error, *(kinds[error, kind] for kind in _KINDS)))
    after = sum((run.after_commit for run in struck), Counter[tuple[str, str, str]]())
    for (call, kind, why), times in sorted(after.items()):
        report.add_row(("call after the commit", "outcome", "times", "why it may fail"), (call, kind, times, why))


@contextmanager
def _ground(otherwise: Path) -> Iterator[Path]:
    """A directory in memory for the length of a block, if there is room."""
    is_roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH
    parent = _MEMORY if is_roomy else otherwise
    with tempfile.TemporaryDirectory(prefix="persistence-faults-", dir=parent, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


ERRORS = (*NO_ROOM, "EIO", "EROFS", "EMFILE")
_MOST_MEMORY = 12 << 10
"""KiB: as much come and stay with the indexes of the forms that were changed last (32 of them, 9 MiB measured)."""
_KINDS = ("refused", "open", "tolerated")
_WRITTEN = ("points", *_KINDS, "in a row", "KiB more")
_READ = ("points", "refused", "cut off", "whole")


@dataclass(slots=True)
class Run(Tally):
    """What one request went through; ``kinds`` by error and kind, ``after_commit`` by call, kind and why."""

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    after_commit: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def see(self, outcome: Outcome) -> None:
        self.kinds[outcome.error, outcome.kind] += 1
        self[outcome.kind] += 1
        self.violations += prefixed(f"{outcome.error} at {outcome.point}", outcome.faults)


Choose = Callable[[Sequence[Point]], Iterable[tuple[Point, Sequence[str]]]]
"""Which points of a request are struck, and with which errors."""


def every(points: Sequence[Point]) -> Iterable[tuple[Point, Sequence[str]]]:
    """Each error at each point; where a request only looks, one."""
    return ((point, ["EIO"] if point.call in LOOKING else ERRORS) for point in points)


def strike_all(
    scenario: Scenario, directory: Path, *, choose: Choose = every, times: int = 0, weakness: str = ""
) -> Run:
    """One error in each request, at the chosen points; and ``times`` in a row at each of them before the change."""
    run = Run(str(scenario), _WRITTEN)
    with struck_service(directory, weakness=weakness) as service:
        trial = Trial(service, directory)
        chosen = list(choose(trial.points(scenario)))
        run["points"] = len(chosen)
        for point, errors in chosen:
            for error in errors:
                outcome = trial.strike(scenario, point, error)
                run.see(outcome)
                if outcome.kind != "refused":
                    why = tolerance(point) or "" if outcome.kind == "tolerated" else ""
                    run.after_commit[f"{point.call} {point.about}", outcome.kind, why] += 1
        if times and scenario.repeats:
            points = [point for point, _ in chosen if point.call in WRITING and not point.committed]
            points = [point for point in points if not point.is_for_the_index]
            _repeat(run, trial, scenario, points, times)
        run.violations += trial.restart()
    run.ended()
    return run


def _repeat(run: Run, trial: Trial, scenario: Scenario, points: Sequence[Point], times: int) -> None:
    before = trial.footprint()
    for number, point in enumerate(points):
        error = ERRORS[number % len(ERRORS)]
        faults = trial.repeat(scenario, point, error, times)
        run.violations += prefixed(f"{error} at {point}, {times} times", faults)
        run["in a row"] += times
    run["KiB more"] = trial.footprint().memory - before.memory
    if run["KiB more"] > _MOST_MEMORY:
        run.violations.append(f"{run['KiB more']} KiB more after {run['in a row']} refusals")


def read_all(directory: Path, titles: Sequence[str] = (), weakness: str = "") -> list[Run]:
    """Each error that may come of reading, at each point of each reading request, or of those of some titles."""
    with struck_service(directory, weakness=weakness) as service:
        readings = [reading for reading in prepared(service) if not titles or reading.title in titles]
        return [_read(service, directory, reading) for reading in readings]


def noticed(weakness: str, directory: Path) -> list[str]:
    if weakness in OF_WRITING:
        return strike_all(scenarios.REPLACE, directory, choose=_vital, weakness=weakness).violations
    return [violation for run in read_all(directory, ["GET data"], weakness) for violation in run.violations]


def _vital(points: Sequence[Point]) -> Iterable[tuple[Point, Sequence[str]]]:
    notes = [point for point in points if point.call == "write" and point.is_for_the_index]
    fsyncs = [point for point in points if point.call == "fsync"]
    return [(point, ["EIO"]) for point in (*notes, *fsyncs[:2])]


def _read(service: Service, directory: Path, reading: Reading) -> Run:
    run, points = Run(reading.title, _READ), set[Point]()
    for met in meet(service, directory, reading):
        points.add(met.point)
        run.see(met)
    run["points"] = len(points)
    run.ended()
    return run


# Faults while something is read: an error or the whole content, and never half of it as if it were whole.

READING = ("openat", "openat2", *LOOKING, "sendfile")
"""The calls by which content, sidecars and lists of names come from the disk."""

ENDS_EARLY = "ends early"
_PATIENCE = 5.0
_RELEVANT = b"<d><a>" + b"text" * 100 + b"</a>" + b"<b relevant='false'>text</b>" * 20 + b"</d>"


@dataclass(frozen=True, slots=True)
class Reading:
    title: str
    path: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()

    def ask(self, service: Service) -> Answer:
        return service.ask(self.method, f"app/form/{self.path}", None, dict(self.headers))


def prepared(service: Service) -> tuple[Reading, ...]:
    first = service.put("app/form/data/D/data.xml", scenarios.OLD)
    stored = (
        first,
        service.put("app/form/data/D/data.xml", _RELEVANT),
        service.put("app/form/data/L/data.xml", b"<d>" + _RELEVANT * 400 + b"</d>"),
        service.put("app/form/data/D/file.bin", scenarios.OLD),
        service.put("app/form/data/D/large.bin", scenarios.LARGE),
        service.put("app/form/form/form.xhtml", scenarios.OLD, Form_Definition_Version=1),
        service.put("app/form/form/form.xhtml", scenarios.OLD, Form_Definition_Version="next"),
    )
    assert {answer.status for answer in stored} <= {201, 204}
    return (
        Reading("GET data", "data/D/data.xml"),
        Reading("HEAD data", "data/D/data.xml", "HEAD"),
        Reading("GET older data", f"data/D/data.xml?last-modified-time={first['Svc-Last-Modified']}"),
        Reading("GET relevant data", "data/D/data.xml?nonrelevant=remove"),
        Reading("GET large relevant data", "data/L/data.xml?nonrelevant=remove"),
        Reading("GET attachment", "data/D/file.bin"),
        Reading("GET large attachment", "data/D/large.bin"),
        Reading("GET range", "data/D/large.bin", headers=(("Range", "bytes=100-300000"),)),
        Reading("GET form", "form/form.xhtml"),
    )


def meet(service: Service, directory: Path, reading: Reading) -> Iterator[Outcome]:
    """Let every call of a reading request fail in turn, with each error that may come of it."""
    patient = replace(service, timeout=_PATIENCE)
    (worker,) = service.workers()
    injector = Injector(service, directory)
    ask = partial(reading.ask, patient)
    whole = ask()
    held = _held(service, worker) | logs_below(service.data)
    points = [point for point in injector.points(ask, READING) if point.about]
    for point in points:
        for error in _errors_of(point):
            effect = "retval=0" if error == ENDS_EARLY else f"error={error}"
            struck = injector.strike(point, effect, ask)
            if struck.hit and not struck.is_at(point):  # the interpreter made a call of its own
                struck = injector.strike(point, effect, ask)
            kind, faults = _judged(point, points[-1], error, struck, whole)
            again = ask()
            if view_of(again) != view_of(whole):
                faults.append(f"the next time it is answered {again.status}")
            if more := _held(service, worker) - held:
                faults.append(f"the worker holds {more}")
                held += more
            yield Outcome(point, error, kind, tuple(faults))


def _held(service: Service, worker: int) -> Counter[str]:
    service.raw("GET", "/healthz")  # the only thread has ended what it did before
    return open_below(worker, service.data)


def _errors_of(point: Point) -> tuple[str, ...]:
    if point.call in {"openat", "openat2"}:
        return "EIO", "EMFILE"
    if point.call in {"read", "sendfile"}:
        return "EIO", ENDS_EARLY
    return ("EIO",)


def _judged(point: Point, last: Point, error: str, struck: Struck, whole: Answer) -> tuple[str, list[str]]:
    answer, missed = struck.answer, not struck.is_at(point)
    # The last look for more, after the last byte has gone out, may come too late to be traced.
    is_late = not struck.hit and point == last and answer is not None and view_of(answer) == view_of(whole)
    faults = [f"the fault struck {struck.hit}"] if missed and not is_late else []
    if answer is None:
        if not struck.broken.startswith(("IncompleteRead", "RemoteDisconnected")):
            faults.append(f"the connection was not closed: {struck.broken}")
        return "cut off", faults
    if answer.status == whole.status:
        if view_of(answer) != view_of(whole):
            faults.append("answered as whole, and it is not")
        return "whole", faults
    if error != ENDS_EARLY and whole.body:
        faults += refusal_faults(answer, error)
    elif answer.status != 500 or answer.body.count(b"\n") != bool(whole.body):
        faults.append(f"answered {answer.status}: {answer.body[:100]!r}")
    return "refused", faults
