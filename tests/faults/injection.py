"""One fault in one request: strace makes a chosen system call of the serving thread fail."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
from pathlib import Path

from tests import rig_service
from tests.crash import strace
from tests.service import Answer, Service

WRITING = (
    *("openat", "openat2", "write", "fsync", "flock", "utimensat", "mkdir", "mkdirat", "link", "linkat"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir"),
)
"""The calls by which a change reaches the disk; a file is also opened by one of them."""

LOOKING = ("read", "newfstatat", "getdents64")
"""The calls by which a change looks at what is there."""

READING = ("openat", "openat2", *LOOKING, "sendfile")
"""The calls by which content, sidecars and lists of names come from the disk."""

FULL = ("ENOSPC", "EDQUOT")
"""The errors of a disk without room: 507, and 500 for all others."""

ERRORS = (*FULL, "EIO", "EROFS", "EMFILE")

_LOOKS = 3
_PATIENCE = 0.5
_INDEX = "/.index"
_INJECTED = "(INJECTED)"
_CALL = re.compile(r"(\w+)\(")
_RESULT = re.compile(r"\) += ")
_PATH = re.compile(r'<([^>]*)>|"([^"]*)"')
_NAME = re.compile(r"[\w.-]*[\w-]")
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
    """A system call of a request on files of the service: its name, which one of that name, and what it is about.

    ``committed`` says that the request's change has happened before it.
    """

    call: str
    ordinal: int
    about: str
    committed: bool

    @property
    def is_for_the_index(self) -> bool:
        """Whether only the index needs it, without which everything can be stored."""
        return self.about.startswith(_INDEX)

    def __str__(self) -> str:
        return f"{self.call} #{self.ordinal} {self.about}"


@dataclass(frozen=True)
class Struck:
    """A request in which a call was made to fail: its answer, or how the connection broke, and the calls it made."""

    answer: Answer | None
    broken: str
    lines: tuple[tuple[str, str, bool], ...]

    @cached_property
    def hit(self) -> list[tuple[str, str]]:
        """Name and subject of the calls that failed by injection."""
        return [(call, about) for call, about, injected in self.lines if injected]

    def is_at(self, point: Point) -> bool:
        """Whether exactly the call that was meant has failed."""
        return self.hit == [(point.call, point.about)]

    def synced_again(self) -> bool:
        """Whether something was fsynced once more after its fsync had failed."""
        failed: set[str] = set()
        for call, about, injected in self.lines:
            if call == "fsync" and about in failed:
                return True
            if call == "fsync" and injected:
                failed.add(about)
        return False


class Injector:
    """Makes system calls of a service fail that has one worker with one serving thread."""

    def __init__(self, service: Service, directory: Path) -> None:
        self._root = str(service.data)
        self._service = service
        self._log = directory / "calls.log"

    def points(self, ask: Ask, calls: tuple[str, ...]) -> list[Point]:
        """Every call of some names that an undisturbed request makes on files below the data root."""
        with self._traced(calls):
            ask()
        points, seen, committed = list[Point](), Counter[str](), False
        for call, about, _ in self._lines():
            seen[call] += 1
            if about:
                points.append(Point(call, seen[call], about, committed))
                committed = committed or _COMMIT.fullmatch(f"{call} {about}") is not None
        return points

    def strike(self, point: Point, effect: str, ask: Ask) -> Struck:
        """Ask with one call failing; ``effect`` is strace's word for how, such as ``error=EIO``."""
        inject = f"inject={point.call}:{effect}:when={point.ordinal}"
        answer, broken = None, ""
        with self._traced((point.call,), "-e", inject):
            try:
                answer = ask()
            except (OSError, HTTPException) as error:
                broken = repr(error)
        return Struck(answer, broken, tuple(self._lines()))

    def _traced(self, calls: tuple[str, ...], *options: str) -> AbstractContextManager[None]:
        names = strace.calls(*calls)
        return strace.attached(
            self._thread(), self._log, "-y", "-s", "0", "-e", "signal=none", "-e", f"trace={names}", *options
        )

    def _thread(self) -> int:
        """The thread that serves requests, at rest: what it still does for the last one would count for the next."""
        (worker,) = self._service.workers()
        task = rig_service.serving(worker)
        looks, deadline = 0, time.monotonic() + _PATIENCE
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
        about = " ".join(path.removeprefix(self._root) or "/" for path in paths if self._is_told(path))
        for pattern, word in _VARIABLE:
            about = pattern.sub(word, about)
        return about

    def _is_told(self, path: str) -> bool:
        return path.startswith(self._root) or (_NAME.fullmatch(path) is not None)
