"""Strikes at single system calls: strace kills the serving thread at one of them, or makes it fail.

The one place that starts strace.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from pathlib import Path

import pytest

from tests import rig_service
from tests.rigs.judging import WITH_EVENTS
from tests.rigs.server import Variant, weak
from tests.service import Answer, Service, running

_PATIENCE = 10.0


class TracingError(Exception):
    """strace could not be attached; the text is what it said."""


def calls(*names: str) -> str:
    """A set of system calls for ``-e trace=``; those that this machine does not have are left out."""
    return ",".join(f"?{name}" for name in names)


def require(directory: Path) -> None:
    reason = refusal(directory)
    if reason is not None:
        pytest.skip(reason)


@cache
def refusal(directory: Path) -> str | None:
    if shutil.which("strace") is None:
        return "strace is not installed"
    # A sibling of this process, as a worker is one of strace: some systems allow tracing one's own children only.
    sleeper = subprocess.Popen([sys.executable, "-S", "-c", f"import time; time.sleep({_PATIENCE})"])
    try:
        with attached(sleeper.pid, directory / "trial.log"):
            return None
    except TracingError as error:
        return f"processes cannot be traced here: {error}"
    finally:
        sleeper.kill()
        sleeper.wait()


@contextmanager
def attached(pid: int, log: Path, *options: str) -> Iterator[None]:
    """Trace a process or thread into ``log`` for the length of a block, at the end of which the log is complete."""
    said = log.with_suffix(".said")
    with said.open("wb") as output:
        tracer = subprocess.Popen(
            ["strace", "-o", str(log), *options, "-p", str(pid)], stdout=output, stderr=output, stdin=subprocess.DEVNULL
        )
    try:
        _await(tracer, said)
        yield
    finally:
        tracer.terminate()  # it lets go of what still runs, and has ended already where its signal killed that
        try:
            tracer.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            tracer.kill()
            tracer.wait()


def _await(tracer: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while b" attached" not in said.read_bytes():
        if tracer.poll() is not None or time.monotonic() > deadline:
            raise TracingError(said.read_text(errors="replace").strip() or "strace did not attach in time")
        time.sleep(0.001)


@contextmanager
def struck_service(
    directory: Path, *, properties: Iterable[str] = (), weakness: str = "", has_events: bool = False
) -> Iterator[Service]:
    """A service with one worker that has one serving thread, and has changed its tree once; without a protection.

    ``properties`` of its provider are switched on.
    """
    settings = "".join(f'"svc.persistence.files.{name}" = true\n' for name in properties)
    variant = weak(weakness) if weakness else Variant(rig_service.__name__, rig_service.ENVIRONMENT)
    env = {**variant.environment, "PERSISTENCE_MIN_FREE": "1"} | (WITH_EVENTS if has_events else {})
    with running(directory, workers=1, threads=1, module=variant.module, env=env, settings=settings) as service:
        service.put("first/form/data/document/data.xml")  # the first change of a tree makes directories of its own
        yield service


_LOOKS = 3
_RESTING = 0.5
_INDEX = "/.index"
_INJECTED = "(INJECTED)"
_ANSWER = "sendto"
_CALL = re.compile(r"(\w+)\(")
_RESULT = re.compile(r"\) += ")
_PATH = re.compile(r'<([^>]*)>|"([^"]*)"')
_NAME = re.compile(r"[\w.-]*[\w-]")
_CHANGING = re.compile("rename|link|unlink|rmdir|mkdir|fsync")
_COMMIT = re.compile(r"rename\w* (.*)/\.([^/ ]+\.json) \1/\2")
_VARIABLE = (
    (re.compile(r"\bapp-\d+\b"), "app"),
    (re.compile(r"\b[0-9a-f]{40}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z"), "INSTANT"),
    (re.compile(r"#\d+"), "#"),
    (re.compile(r"\.locks/[0-9a-f]{2}\b"), ".locks/NN"),
)

Ask = Callable[[], Answer]


@dataclass(frozen=True, slots=True)
class Point:
    """A system call of a request: its name, which one of that name, and what of the data root it is about, if anything.

    ``committed`` says that the request's change has happened before it.
    """

    call: str
    ordinal: int
    about: str
    committed: bool

    @property
    def changes(self) -> bool:
        return _CHANGING.match(self.call) is not None

    @property
    def is_for_the_index(self) -> bool:
        """Whether only the index needs it, without which everything can be stored."""
        return self.about.startswith(_INDEX)

    def __str__(self) -> str:
        return f"{self.call} #{self.ordinal} {self.about}"


@dataclass(frozen=True)
class Struck:
    answer: Answer | None
    broken: str
    lines: tuple[tuple[str, str, bool], ...]

    @property
    def hit(self) -> list[tuple[str, str]]:
        return [(call, about) for call, about, injected in self.lines if injected]

    def is_at(self, point: Point) -> bool:
        return self.hit == [(point.call, point.about)]

    def synced_again(self) -> bool:
        failed: set[str] = set()
        for call, about, injected in self.lines:
            if call == "fsync" and about in failed:
                return True
            if call == "fsync" and injected:
                failed.add(about)
        return False


class Injector:
    """Strikes at system calls of a service that has one worker with one serving thread."""

    def __init__(self, service: Service, directory: Path) -> None:
        self._root = str(service.data)
        self._service = service
        self._log = directory / "calls.log"

    def points(self, ask: Ask, names: tuple[str, ...]) -> list[Point]:
        """Every call of some names that an undisturbed request makes, up to its answer if that is one of them."""
        with self._traced(names):
            answer = ask()
        assert answer.status < 300, answer.cause
        points, seen, committed = list[Point](), Counter[str](), False
        for call, about, _ in self._lines():
            seen[call] += 1
            points.append(Point(call, seen[call], about, committed))
            committed = committed or _COMMIT.fullmatch(f"{call} {about}") is not None
            if call == _ANSWER:
                return points
        assert _ANSWER not in names, "the log does not show the answer"
        return points

    def strike(self, point: Point, effect: str, ask: Ask) -> Struck:
        """Ask with one call struck; ``effect`` is strace's word for how, such as ``error=EIO`` or ``signal=KILL``."""
        inject = f"inject={point.call}:{effect}:when={point.ordinal}"
        answer, broken = None, ""
        with self._traced((point.call,), "-e", inject):
            try:
                answer = ask()
            except (OSError, HTTPException) as error:
                broken = repr(error)
        return Struck(answer, broken, tuple(self._lines()))

    def _traced(self, names: tuple[str, ...], *options: str) -> AbstractContextManager[None]:
        told = ("-y", "-s", "0", "-e", "signal=none", "-e", f"trace={calls(*names)}")
        return attached(self._thread(), self._log, *told, *options)

    def _thread(self) -> int:
        """The thread that serves requests, at rest: what it still does for the last one would count for the next."""
        (worker,) = self._service.workers()
        task = rig_service.serving(worker)
        looks, deadline = 0, time.monotonic() + _RESTING
        while looks < _LOOKS and time.monotonic() < deadline:
            looks = looks + 1 if (task / "wchan").read_text().startswith("futex") else 0
            time.sleep(0.0005)
        return int(task.name)

    def _lines(self) -> Iterator[tuple[str, str, bool]]:
        for line in self._log.read_text().splitlines():
            if match := _CALL.match(line):
                yield match[1], self._about(line), _INJECTED in line

    def _about(self, line: str) -> str:
        """The paths of a call below the data root, without what differs from one time to the next."""
        paths = [first or second for first, second in _PATH.findall(_RESULT.split(line)[0])]
        if not any(path.startswith(self._root) for path in paths):
            return ""
        told = (path for path in paths if path.startswith(self._root) or _NAME.fullmatch(path))
        about = " ".join(path.removeprefix(self._root) or "/" for path in told)
        for pattern, word in _VARIABLE:
            about = pattern.sub(word, about)
        return about
