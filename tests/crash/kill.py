"""Killing a worker at a system call of a request, and what a client finds then."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from itertools import count
from pathlib import Path

from tests import rig_service, search_faults
from tests.crash import remains, strace, views
from tests.crash.requests import WRITTEN, Request, Step, send
from tests.crash.views import Comparison, Kept, Views
from tests.service import Answer, Service

_CALLS = strace.calls(
    *(
        "openat",
        "openat2",
        "close",
        "read",
        "write",
        "newfstatat",
        "fstat",
        "lseek",
        "flock",
        "utimensat",
        "fadvise64",
        "fsync",
    ),
    *("mkdir", "mkdirat", "link", "linkat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir"),
    *("recvfrom", "sendto", "sendfile", "getdents64", "copy_file_range", "ftruncate", "pwrite64"),
)
_ANSWER = "sendto"
_CALL = re.compile(r"(\w+)\(")
_CHANGING = re.compile("rename|link|unlink|rmdir|mkdir|fsync")


@dataclass(frozen=True, slots=True)
class Point:
    """A system call of a request: its name, and which one of that name."""

    call: str
    ordinal: int

    @property
    def changes(self) -> bool:
        """Whether it changes names or makes something durable."""
        return _CHANGING.match(self.call) is not None

    def __str__(self) -> str:
        return f"{self.call} {self.ordinal}"


@dataclass(frozen=True, slots=True)
class Trial:
    """A request that nobody killed: its system calls in their order up to the answer, and what a client finds then."""

    request: Request
    points: tuple[Point, ...]
    after: Views


@dataclass(frozen=True, slots=True)
class Scene:
    """A form in which a request was killed: what was there before, and what a client found first."""

    form: str
    trial: Trial
    point: Point
    kept: tuple[Kept, ...]
    comparison: Comparison
    left: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def request(self) -> Request:
        """The request that was killed."""
        return self.trial.request

    @property
    def committed(self) -> list[bool]:
        """For every moment of the request, whether it has been."""
        return self.comparison.committed(self.request)

    @property
    def known(self) -> tuple[Kept, ...]:
        """Every revision that was ever acknowledged or found."""
        return tuple(dict.fromkeys((*self.kept, *views.kept_of(self.comparison.found))))

    def told(self, step: Step) -> Step:
        """A step of the form, with the instant that it asks for."""
        return _of_first(self.kept, step)


class Killer:
    """Kills the only worker of a service, whose master starts a new one each time."""

    def __init__(self, service: Service, directory: Path) -> None:
        self.service = service
        self._directory = directory
        self._numbers = count()

    def trial(self, request: Request) -> Trial:
        """Serve a request to its end, and note every system call of the thread that serves it."""
        form, kept, _ = self._fresh(request)
        log = self._directory / "calls.log"
        with strace.attached(self._thread(), log, "-e", f"trace={_CALLS}", "-e", "signal=none"):
            answer = send(self.service, form, _of_first(kept, request.step))
        assert answer.status in (200, 201, 204), answer.cause
        after = views.seen(self.service, form, request.resources)
        for resource, view in after.items():
            assert view.content == resource.after, f"{resource.path} is not what the request should give"
        assert remains.left(self.service.data, form) == [], "a request that nobody killed leaves something"
        return Trial(request, tuple(_points(log)), after)

    def kill(self, trial: Trial, point: Point) -> Scene:
        """Kill the worker when it begins a call of a request, and look at what a client finds then."""
        form, kept, before = self._fresh(trial.request)
        workers = self.service.workers()
        answer = self._strike(form, _of_first(kept, trial.request.step), point)
        # The first of these waits for the new worker in the listener's queue.
        found = views.seen(self.service, form, trial.request.resources)
        faults = [] if answer is None else [f"the worker was not killed, and answered {answer.status}"]
        if self.service.workers() == workers:
            faults.append("the worker lives")
        comparison = Comparison(before, found, trial.after)
        faults += comparison.faults(trial.request)
        faults += views.history_faults(self.service, form, kept, found)
        faults += search_faults.faults(self.service, form, WRITTEN)
        left = tuple(remains.left(self.service.data, form))
        return Scene(form, trial, point, kept, comparison, left, tuple(faults))

    def _fresh(self, request: Request) -> tuple[str, tuple[Kept, ...], Views]:
        """A form of an application of its own with an index, prepared by a worker that has served nothing else.

        Everything is looked at before the request, whether it is recorded or killed: a worker that meets its first
        definition makes calls that it makes only once, and they would count in the one and be missing in the other.
        """
        (worker,) = self.service.workers()
        os.kill(worker, signal.SIGKILL)
        form = self._new_form()
        kept = []
        for step in request.prepare:
            answer = send(self.service, form, step)
            assert answer.status in (200, 201, 204), answer.cause
            if step.method == "PUT" and step.path.startswith("data/"):
                kept.append(Kept(step.path, answer["Svc-Last-Modified"] or "", answer["ETag"] or "", step.body))
        search_faults.await_index(self.service, form)
        return form, tuple(kept), views.seen(self.service, form, request.resources)

    def _new_form(self) -> str:
        """A form whose application, as the id of a document, has its lease in a directory that is not there yet."""
        names = (f"kill-{number:04}" for number in self._numbers)
        return next(f"{name}/form" for name in names if not remains.lease(self.service.data, name).parent.exists())

    def _thread(self) -> int:
        """The thread that serves requests: one, as the service was told."""
        (worker,) = self.service.workers()
        return int(rig_service.serving(worker).name)

    def _strike(self, form: str, step: Step, point: Point) -> Answer | None:
        kill = f"inject={point.call}:signal=KILL:when={point.ordinal}"
        log = self._directory / "kill.log"
        with (
            strace.attached(self._thread(), log, "-e", f"trace={point.call}", "-e", kill),
            suppress(OSError, HTTPException),
        ):
            return send(self.service, form, step)
        return None


def _of_first(kept: tuple[Kept, ...], step: Step) -> Step:
    """A step with the instant of the first revision of the document."""
    instants = [revision.instant for revision in kept if revision.path.endswith("/data.xml")]
    return replace(step, path=step.path.replace("@", instants[0])) if "@" in step.path else step


def _points(log: Path) -> Iterator[Point]:
    seen: Counter[str] = Counter()
    for line in log.read_text().splitlines():
        if match := _CALL.match(line):
            seen[match[1]] += 1
            yield Point(match[1], seen[match[1]])
            if match[1] == _ANSWER:
                return
    raise AssertionError("the log does not show the answer")
