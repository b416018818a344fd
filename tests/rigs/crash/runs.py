"""Requests killed at every system call, and the search for a crash after any step that breaks a promise."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from persistence.storage.layout import EVENTS, TRASH
from tests import search_faults
from tests.in_process import InProcess
from tests.initialised import initialised
from tests.rigs import aftermath, scenarios, strikes
from tests.rigs.aftermath import Comparison, Scene, Views
from tests.rigs.crash.model import ACKNOWLEDGED, Disk, Operation, State, materialise, recording, tree_of
from tests.rigs.report import Report, Tally, prefixed
from tests.rigs.scenarios import Scenario, Step
from tests.rigs.strikes import Injector, Point
from tests.rigs.weakened import OF_KILLS
from tests.service import Answer, Service, running

# Defects, planted in what was recorded: the same request with one protection taken away. They prove the rig. A search
# that does not find them would not find a real one either.

FORM = "app/form"

Operations = tuple[Operation, ...]
_Chosen = Callable[[Operation], bool]

_DRAFTS = f"{FORM}/draft"
_DRAFT = f"{_DRAFTS}/document"


class _Paths:
    def __init__(self, scenario: Scenario) -> None:
        path = scenario.step.path
        below = "form/2/form.xhtml" if path.startswith("form/") else path
        self.directory, name = os.path.split(f"{FORM}/{below}")
        self.parent = os.path.dirname(self.directory)
        self.next_sidecar = f"{self.directory}/.{name}.json"
        self.history = f"{self.directory}/.history"
        self._content = f"{self.directory}/{name}"

    def is_commit(self, operation: Operation) -> bool:
        return operation.kind == "rename" and operation.source == self.next_sidecar

    def is_placing(self, operation: Operation) -> bool:
        """Whether this takes the old content from its name: only the history has it then."""
        return operation.kind in {"remove", "rename"} and operation.path == self._content

    def is_keeping(self, operation: Operation) -> bool:
        return operation.kind == "link" and operation.path.startswith(f"{self.history}/")


_Remove = Callable[[Operations, _Paths], Operations]


def _fsync_of(path: str | None) -> _Chosen:
    return lambda operation: operation.kind == "sync" and operation.path == path


def _discarding(operation: Operation) -> bool:
    return operation.kind == "rename" and operation.source == _DRAFT


def _find(operations: Operations, chosen: _Chosen) -> int:
    return next(number for number, operation in enumerate(operations) if chosen(operation))


def _without(operations: Operations, chosen: _Chosen) -> Operations:
    return tuple(operation for operation in operations if not chosen(operation))


def _with_moved(operations: Operations, chosen: _Chosen, before: _Chosen) -> Operations:
    moved = operations[_find(operations, chosen)]
    rest = _without(operations, chosen)
    number = _find(rest, before)
    return (*rest[:number], moved, *rest[number:])


def _committed_before(what: Callable[[_Paths], _Chosen]) -> _Remove:
    return lambda done, paths: _with_moved(done, paths.is_commit, before=what(paths))


def _commit_not_synced(operations: Operations, paths: _Paths) -> Operations:
    commit = _find(operations, paths.is_commit)
    return operations[:commit] + _without(operations[commit:], _fsync_of(paths.directory))


def _names_not_synced(operations: Operations, paths: _Paths) -> Operations:
    commit, is_fsync = _find(operations, paths.is_commit), _fsync_of(paths.directory)
    last = max(number for number, operation in enumerate(operations[:commit]) if is_fsync(operation))
    return operations[:last] + operations[last + 1 :]


def _commit_not_awaited(operations: Operations, paths: _Paths) -> Operations:
    """The old content is taken away right after the commit, which is not durable yet."""
    after = _find(operations, paths.is_commit) + 1
    placing = operations[_find(operations, paths.is_placing)]
    return (*operations[:after], placing, *_without(operations[after:], paths.is_placing))


def _draft_in_pieces(operations: Operations, _: _Paths) -> Operations:
    """The draft is removed file by file where it is, not taken away whole."""
    return tuple(
        operation._replace(path="/".join((_DRAFT, *operation.path.split("/")[2:])))
        if operation.kind in {"open", "remove"} and operation.path.startswith(f"{TRASH}/")
        else operation
        for operation in _without(operations, _discarding)
    )


@dataclass(frozen=True, slots=True)
class Defect:
    """A protection taken away from one request, and whether it is missed even where names change in order."""

    name: str
    remove: _Remove
    request: Scenario
    ordered: bool

    def planted(self, operations: Operations) -> Operations:
        return self.remove(operations, _Paths(self.request))

    def __str__(self) -> str:
        return f"{self.name}, {self.request.name}, {'ordered' if self.ordered else 'unordered'}"


_NEW = (scenarios.CREATE, scenarios.PUBLISH_SECOND)
_PUTS = (*_NEW, scenarios.FIRST_REPLACE, scenarios.ATTACH_OVER)
_OVER = (scenarios.FIRST_REPLACE, scenarios.DELETE_DATA, scenarios.ATTACH_OVER)
_ALL = (*_PUTS, scenarios.DELETE_DATA)
_SAVING = (scenarios.PROMOTE,)
_BOTH = (True, False)
_UNORDERED = (False,)

_CATALOGUE: tuple[tuple[str, _Remove, tuple[Scenario, ...], tuple[bool, ...]], ...] = (
    ("content not synced", lambda done, _: _without(done, _fsync_of(None)), _PUTS, _BOTH),
    ("sidecar not synced", lambda done, paths: _without(done, _fsync_of(paths.next_sidecar)), _ALL, _BOTH),
    ("commit not synced", _commit_not_synced, _ALL, _BOTH),
    ("commit before the content's fsync", _committed_before(lambda _: _fsync_of(None)), _PUTS, _BOTH),
    (
        "content replaced before the commit",
        lambda done, paths: _with_moved(done, paths.is_placing, before=paths.is_commit),
        _OVER,
        _BOTH,
    ),
    ("content replaced before the commit is durable", _commit_not_awaited, _OVER, _UNORDERED),
    ("revision not kept", lambda done, paths: _without(done, paths.is_keeping), _OVER, _BOTH),
    ("names not synced before the commit", _names_not_synced, _PUTS, _UNORDERED),
    ("commit before the names' fsync", _committed_before(lambda paths: _fsync_of(paths.directory)), _PUTS, _UNORDERED),
    ("history not synced", lambda done, paths: _without(done, _fsync_of(paths.history)), _OVER, _UNORDERED),
    (
        "parent of a new directory not synced",
        lambda done, paths: _without(done, _fsync_of(paths.parent)),
        _NEW,
        _UNORDERED,
    ),
    (
        "draft gone before the commit",
        lambda done, paths: _with_moved(done, _discarding, before=paths.is_commit),
        _SAVING,
        _BOTH,
    ),
    ("draft removed file by file", _draft_in_pieces, _SAVING, _BOTH),
    ("draft's end not synced", lambda done, _: _without(done, _fsync_of(_DRAFTS)), _SAVING, _BOTH),
)

DEFECTS = tuple(
    Defect(name, remove, request, ordered)
    for name, remove, requests, models in _CATALOGUE
    for request in requests
    for ordered in models
)


# Requests killed at every system call.

_PROCESSES = 2
_ATTEMPTS = 3
"""Requests until one makes the call at which it is killed: other threads of a new worker can spare it a call or two."""
_NUMBERS = count()  # of the forms: what was killed early has left none, and its name must not come again
CHECKED = "check --repair"
"""The round in which the service has events: its workers take three times as long to start."""
_KILLS = ("points killed", "old", "between", "new", "leftovers found", "then gone", "events late")
_CALLS = (
    *("openat", "openat2", "close", "read", "write", "newfstatat", "fstat", "lseek", "flock", "utimensat"),
    *("fadvise64", "fsync", "mkdir", "mkdirat", "link", "linkat", "rename", "renameat", "renameat2", "unlink"),
    *("unlinkat", "rmdir", "recvfrom", "sendto", "sendfile", "getdents64", "copy_file_range", "ftruncate", "pwrite64"),
)


def refusals(directory: Path) -> list[str]:
    """Return why the long run is not possible here."""
    return [reason] if (reason := strikes.refusal(directory)) else []


def long_run(report: Report, directory: Path) -> None:
    """Kill every request at every system call, in two rounds, and judge every crash of some that a model allows."""
    with ProcessPoolExecutor(_PROCESSES) as pool:
        futures = {
            pool.submit(_killed, scenario, name, directory): f"{scenario}, then {name}"
            for scenario in (*scenarios.TO_KILL, *scenarios.LEASES)
            for name in ROUNDS
        }
        planted = {pool.submit(_planted, weakness, directory): weakness for weakness in OF_KILLS}
        futures |= {
            pool.submit(_crashed, scenario, directory): f"crashes of {scenario}" for scenario in scenarios.TO_RECORD
        }
        for done in as_completed(futures):  # a part that breaks down does not keep the others from being seen
            error = done.exception()
            for tally in done.result() if error is None else [Tally(futures[done], violations=[repr(error)])]:
                report.add(tally)
        for future, weakness in planted.items():
            report.expect_caught(weakness, future.result())


def _killed(scenario: Scenario, name: str, directory: Path) -> list[Tally]:
    tally = Tally(f"{scenario}, then {name}", _KILLS)
    with (
        tempfile.TemporaryDirectory(dir=directory) as own,
        strikes.struck_service(Path(own), properties=scenario.properties, has_events=name == CHECKED) as service,
    ):
        killer = Killer(service, Path(own), scenario)
        for outcome in ROUNDS[name](killer, killer.points):
            tally["points killed"] += 1
            done = {any(outcome.committed), all(outcome.committed)}
            tally["between" if len(done) > 1 else "new" if done == {True} else "old"] += 1
            tally["leftovers found"] += bool(outcome.left)
            tally["then gone"] += bool(outcome.left and not outcome.faults)
            tally["events late"] += outcome.is_late
            tally.violations += prefixed(outcome.point, outcome.faults)
    return [tally.ended()]


def _planted(weakness: str, directory: Path) -> list[str]:
    with tempfile.TemporaryDirectory(dir=directory) as own:
        return noticed(weakness, Path(own))


def noticed(weakness: str, directory: Path) -> list[str]:
    """What is found where a service is killed that lacks a protection."""
    with strikes.struck_service(directory, weakness=weakness, has_events=True) as service:
        killer = Killer(service, directory, scenarios.REPLACE, patience=15.0)
        outcomes = killer.then_check([point for point in killer.points if point.changes])
    return [fault for outcome in outcomes for fault in outcome.faults]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A kill: what a client found then, what was left in the tree, and everything wrong, also with what came after.

    ``is_late`` where the killed request has changed something and had not recorded its event.
    """

    point: Point
    scene: Scene
    comparison: Comparison
    left: tuple[str, ...]
    faults: tuple[str, ...]
    is_late: bool = False

    @property
    def committed(self) -> list[bool]:
        return self.comparison.committed


class Killer:
    """Kills the only worker of a service in a request, whose master starts a new one each time.

    ``points`` are the system calls of a request that nobody killed, in their order up to the answer. For so many
    seconds it has patience with events that are late: each new worker begins again to look for them.
    """

    def __init__(self, service: Service, directory: Path, scenario: Scenario, *, patience: float = 40.0) -> None:
        self._service = service
        self._injector = Injector(service, directory)
        self._scenario = scenario
        self._patience = patience
        self._has_events = (service.data / EVENTS).exists()
        recorded = []
        for _ in range(_ATTEMPTS):
            scene = self._fresh()
            recorded.append(self._injector.points(scene.ask, _CALLS))
        self.points = min(recorded, key=len)
        self._after = scene.expected()
        assert aftermath.left(service.data, scene.form) == [], "a request that nobody killed leaves something"

    def then_write(self, points: Iterable[Point]) -> list[Outcome]:
        return [self._with_next_write(self._kill(point)) for point in points]

    def then_check(self, points: Iterable[Point]) -> list[Outcome]:
        """Kill at each point, in a form each; let ``persistence check`` repair all, and only then write again.

        Before and after that every commit has its event, and no event is without one.
        """
        killed = self._with_events([self._kill(point) for point in points])
        faults = aftermath.repaired(self._service)
        checked = [[*faults, *each.scene.changes_by_check(each.comparison)] for each in killed]
        return self._with_events([self._with_next_write(*pair) for pair in zip(killed, checked, strict=True)])

    def _kill(self, point: Point) -> Outcome:
        """Kill the worker when it begins a call of a request, and look at what a client finds then."""
        service = self._service
        for _ in range(_ATTEMPTS):
            scene = self._fresh()
            workers = service.workers()
            struck = self._injector.strike(point, "signal=KILL", scene.ask)
            if struck.answer is None:
                break
        found = scene.seen()  # the first of these waits for the new worker in the listener's queue
        faults = [] if struck.answer is None else [f"the worker was not killed, and answered {struck.answer.status}"]
        if service.workers() == workers:
            faults.append("the worker lives")
        comparison = Comparison(self._scenario, scene.before, found, self._after)
        faults += comparison.faults()
        faults += scene.history_faults(found)
        faults += search_faults.faults(service, scene.form, scenarios.WRITTEN)
        left = tuple(aftermath.left(service.data, scene.form))
        is_late = self._has_events and bool(aftermath.event_faults(service, [scene.form])[scene.form])
        return Outcome(point, scene, comparison, left, tuple(faults), is_late)

    def _with_next_write(self, killed: Outcome, before: Iterable[str] = ()) -> Outcome:
        after = killed.scene.written_again(killed.comparison.found)
        return replace(killed, faults=(*killed.faults, *before, *after, *killed.scene.remaining()))

    def _with_events(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Compare the events of all forms with what was committed there, when late ones have been recorded."""
        patience = 0.0 if any(each.faults for each in outcomes) else self._patience  # one fault is enough
        faults = aftermath.event_faults(self._service, [each.scene.form for each in outcomes], patience)
        return [replace(each, faults=(*each.faults, *faults[each.scene.form])) for each in outcomes]

    def _fresh(self) -> Scene:
        """A form whose application, as the id of a document, has its lease in a directory that is not there yet.

        It is prepared by a worker that has served nothing else.
        """
        (worker,) = self._service.workers()
        os.kill(worker, signal.SIGKILL)
        data, names = self._service.data, (f"kill-{number:04}" for number in _NUMBERS)
        name = next(name for name in names if not aftermath.lease(data, name).parent.exists())
        return Scene.prepared(self._service, f"{name}/form", self._scenario)


ROUNDS: dict[str, Callable[[Killer, Iterable[Point]], list[Outcome]]] = {
    "the next write": Killer.then_write,
    CHECKED: Killer.then_check,
}


# Every crash that a model of durability allows, after every step of a request that was recorded once.


@dataclass(frozen=True, slots=True)
class Recording:
    """What one request did: to which tree, what a client found before it and after it, and every operation.

    ``setup`` are the writes before it, recorded too, because what those left to do may matter.
    """

    before: State
    setup: tuple[Operation, ...]
    operations: tuple[Operation, ...]
    scene: Scene
    after: Views


def record(scenario: Scenario, directory: Path) -> Recording:
    with running(directory, workers=1, threads=2) as service:
        service.get(f"{FORM}/data/document/data.xml")  # an answer means that the worker is done with trying the disk
        before, setup, log = tree_of(service.data), list[Operation](), directory / "strace.log"

        def traced(step: Step) -> Answer:
            with recording(service, log) as operations:
                answer = scenarios.send(service, FORM, step)
            setup.extend(operations)
            return answer

        scene = Scene(service, FORM, scenario)
        scene = replace(scene, kept=scene.keep(traced), before=scene.seen())
        with recording(service, log) as operations:
            answer = scene.ask()
        assert answer.status in (201, 204), answer.cause
        assert operations.count(ACKNOWLEDGED) == 1, "the log does not show the answer"
        after = scene.expected()
    return Recording(before, tuple(setup), tuple(operations), scene, after)


class Judge(InProcess):
    """Makes one tree after the other real below a root, and says what is wrong with it."""

    def __init__(self, root: Path) -> None:
        super().__init__(Path(initialised(root)))

    def faults(self, state: State, recording: Recording, *, acknowledged: bool, killed: bool) -> Iterator[str]:
        """Everything wrong with a tree that a kill, or else a power cut, has left during a request or after it.

        Only a kill leaves nothing that the next writer would not clear away: a power cut may have taken the names
        that lead there.
        """
        scene = replace(recording.scene, service=self)
        materialise(state, self.data)
        found = scene.seen()
        for resource, view in found.items():
            if view not in (scene.before[resource], recording.after[resource]):
                yield f"{resource.path} is none of the two revisions: {view.status} {view.body[-60:]!r}"
        comparison = Comparison(scene.scenario, scene.before, found, recording.after)
        yield from comparison.faults()
        if acknowledged and not all(comparison.committed):
            yield "acknowledged, and not there"
        yield from scene.history_faults(found, *scene.kept_of(found))
        yield from scene.written_again(found)
        if killed:
            yield from (f"the next write leaves {text}" for text in aftermath.left(self.data, scene.form))


def search(recording: Recording, judge: Judge, *, ordered: bool) -> Iterator[list[str]]:
    """Crash after every operation of the request, in every way: the faults of each different tree that this leaves.

    Trees that differ only in the trash count as one: nothing is ever read there, and every start empties it.
    """
    disk = Disk.holding(recording.before, ordered=ordered)
    for operation in recording.setup:
        disk.do(operation)
    known = set[tuple[State, bool, bool]]()
    acknowledged = False
    for step in (None, *recording.operations):
        if step is not None:
            disk.do(step)
        acknowledged = acknowledged or step == ACKNOWLEDGED
        cuts = ((state, False) for state in disk.after_a_power_cut())
        for whole, killed in ((disk.after_a_kill(), True), *cuts):
            state = tuple(entry for entry in whole if not entry.path.startswith(f"{TRASH}/"))
            if (state, acknowledged, killed) not in known:
                known.add((state, acknowledged, killed))
                faults = judge.faults(state, recording, acknowledged=acknowledged, killed=killed)
                shown = "nothing" if step is None else repr(step)[:200]
                yield [f"after {shown}: {fault}" for fault in faults]


def _crashed(request: Scenario, directory: Path) -> list[Tally]:
    """Judge every crash of a request, as it is and with defects, where names change in order and in any order."""
    tallies = []
    with tempfile.TemporaryDirectory(dir=directory) as own, Judge(Path(own) / "judged") as judge:
        recording = record(request, Path(own) / "recorded")
        for ordered in (True, False):
            name = f"{request}, names change {'in order' if ordered else 'in any order'}"
            tally = Tally(name, ("steps", "states"))
            tally["steps"] = len(recording.operations)
            for faults in search(recording, judge, ordered=ordered):
                tally["states"] += 1
                tally.violations += faults
            planted = Tally(f"planted: {name}", ("defects planted", "caught"))
            for defect in DEFECTS:
                if defect.request == request and defect.ordered == ordered:
                    operations = defect.planted(recording.operations)
                    found = search(replace(recording, operations=operations), judge, ordered=ordered)
                    is_caught = operations != recording.operations and any(found)
                    planted["defects planted"] += 1
                    planted["caught"] += is_caught
                    planted.violations += [] if is_caught else [f"not caught: {defect}"]
            tallies += [tally.ended(), planted.ended()]
    return tallies
