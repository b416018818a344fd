"""Killing a worker at a system call of a request: what a client finds then, and after a write or a repair."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

from tests import search_faults
from tests.rigs import aftermath, views
from tests.rigs.aftermath import Scene, prepared
from tests.rigs.scenarios import WRITTEN, Scenario
from tests.rigs.strikes import Injector, Point
from tests.rigs.views import Comparison, Views
from tests.service import Service

_CALLS = (
    *("openat", "openat2", "close", "read", "write", "newfstatat", "fstat", "lseek", "flock", "utimensat"),
    *("fadvise64", "fsync", "mkdir", "mkdirat", "link", "linkat", "rename", "renameat", "renameat2", "unlink"),
    *("unlinkat", "rmdir", "recvfrom", "sendto", "sendfile", "getdents64", "copy_file_range", "ftruncate", "pwrite64"),
)


@dataclass(frozen=True, slots=True)
class Trial:
    """A request that nobody killed: its system calls in their order up to the answer, and what a client finds then."""

    scenario: Scenario
    points: tuple[Point, ...]
    after: Views


@dataclass(frozen=True, slots=True)
class Outcome:
    """A kill: what a client found then, what was left in the tree, and everything wrong, also with what came after."""

    point: Point
    scene: Scene
    comparison: Comparison
    left: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def committed(self) -> list[bool]:
        return self.comparison.committed(self.scene.scenario)


class Killer:
    """Kills the only worker of a service, whose master starts a new one each time."""

    def __init__(self, service: Service, directory: Path) -> None:
        self._service = service
        self._injector = Injector(service, directory)
        self._numbers = count()

    def trial(self, scenario: Scenario) -> Trial:
        scene = self._fresh(scenario)
        points = self._injector.points(partial(scene.ask, self._service), _CALLS)
        after = aftermath.expected(self._service, scene)
        assert aftermath.left(self._service.data, scene.form) == [], "a request that nobody killed leaves something"
        return Trial(scenario, tuple(points), after)

    def then_write(self, trial: Trial, points: Iterable[Point]) -> list[Outcome]:
        return [self._with_next_write(self._kill(trial, point)) for point in points]

    def then_check(self, trial: Trial, points: Iterable[Point]) -> list[Outcome]:
        """Kill at each point, in a form each; let ``persistence check`` repair all, and only then write again."""
        killed = [self._kill(trial, point) for point in points]
        repaired = aftermath.repaired(self._service, [(each.scene, each.comparison) for each in killed])
        return [self._with_next_write(each, faults) for each, faults in zip(killed, repaired, strict=True)]

    def _kill(self, trial: Trial, point: Point) -> Outcome:
        """Kill the worker when it begins a call of a request, and look at what a client finds then."""
        service, scenario = self._service, trial.scenario
        scene = self._fresh(scenario)
        workers = service.workers()
        struck = self._injector.strike(point, "signal=KILL", partial(scene.ask, service))
        # The first of these waits for the new worker in the listener's queue.
        found = views.seen(service, scene.form, scenario.resources)
        answer = struck.answer
        faults = [] if answer is None else [f"the worker was not killed, and answered {answer.status}"]
        if service.workers() == workers:
            faults.append("the worker lives")
        comparison = Comparison(scene.before, found, trial.after)
        faults += comparison.faults(scenario)
        faults += views.history_faults(service, scene.form, scene.kept, found)
        faults += search_faults.faults(service, scene.form, WRITTEN)
        left = tuple(aftermath.left(service.data, scene.form))
        return Outcome(point, scene, comparison, left, tuple(faults))

    def _with_next_write(self, killed: Outcome, before: Iterable[str] = ()) -> Outcome:
        service, scene = self._service, killed.scene
        after = aftermath.written_again(service, scene, killed.comparison.found)
        faults = (*killed.faults, *before, *after, *aftermath.remaining(service, scene))
        return replace(killed, faults=faults)

    def _fresh(self, scenario: Scenario) -> Scene:
        """A form whose application, as the id of a document, has its lease in a directory that is not there yet.

        It is prepared by a worker that has served nothing else.
        """
        (worker,) = self._service.workers()
        os.kill(worker, signal.SIGKILL)
        names = (f"kill-{number:04}" for number in self._numbers)
        data = self._service.data
        form = next(f"{name}/form" for name in names if not aftermath.lease(data, name).parent.exists())
        return prepared(self._service, form, scenario)
