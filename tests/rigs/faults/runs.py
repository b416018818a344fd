"""Runs of one request through many faults, in a service of their own; and the long run of all of them."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tests.rigs import disks, strikes
from tests.rigs.aftermath import view_of
from tests.rigs.faults import filling
from tests.rigs.faults.filling import NO_ROOM, refusal_faults
from tests.rigs.faults.trial import LOOKING, WRITING, Outcome, Trial, logs_below, open_below, tolerance
from tests.rigs.report import Report, Tally, prefixed
from tests.rigs.scenarios import (
    ATTACH_LARGE,
    ATTACH_OVER,
    BESIDE,
    CREATE,
    DELETE,
    DELETE_DRAFT_ATTACHMENT,
    FIRST_REPLACE,
    LARGE,
    OLD,
    PROMOTE,
    PUBLISH_SECOND,
    REPLACE,
    UNINDEXED,
    Scenario,
)
from tests.rigs.strikes import Injector, Point, Struck, struck_service
from tests.rigs.weakened import OF_READING, OF_WRITING
from tests.service import Answer, Service

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
        each = enumerate(SCENARIOS)
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


SCENARIOS = (
    *(CREATE, BESIDE, FIRST_REPLACE, REPLACE, UNINDEXED, ATTACH_OVER, ATTACH_LARGE),
    *(PUBLISH_SECOND, DELETE, PROMOTE, DELETE_DRAFT_ATTACHMENT),
)
"""The requests that meet a fault."""

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
        return strike_all(REPLACE, directory, choose=_vital, weakness=weakness).violations
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
    first = service.put("app/form/data/D/data.xml", OLD)
    stored = (
        first,
        service.put("app/form/data/D/data.xml", _RELEVANT),
        service.put("app/form/data/L/data.xml", b"<d>" + _RELEVANT * 400 + b"</d>"),
        service.put("app/form/data/D/file.bin", OLD),
        service.put("app/form/data/D/large.bin", LARGE),
        service.put("app/form/form/form.xhtml", OLD, Form_Definition_Version=1),
        service.put("app/form/form/form.xhtml", OLD, Form_Definition_Version="next"),
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
