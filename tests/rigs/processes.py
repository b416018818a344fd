"""What a process takes and holds, as its system says: from outside, so that nothing in it can hide."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.service import Service

_TICKS = os.sysconf("SC_CLK_TCK")
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Process:
    pid: int

    @property
    def seconds(self) -> float:
        fields = (self._directory / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def resident(self) -> int:
        return self.status("VmRSS") * KIB

    @property
    def highest(self) -> int:
        """The most bytes in memory since ``forget_highest``."""
        return self.status("VmHWM") * KIB

    def forget_highest(self) -> None:
        """Count the highest memory from now on (proc(5), clear_refs)."""
        (self._directory / "clear_refs").write_text("5")

    def rest(self, quiet: float = 0.5, longest: float = 15.0) -> None:
        """Wait until it has had next to nothing to do for some seconds."""
        end = time.monotonic() + longest
        last, since = self.seconds, time.monotonic()
        while time.monotonic() < end and time.monotonic() < since + quiet:
            time.sleep(0.05)
            now = self.seconds
            if now > last + 2 / _TICKS:
                last, since = now, time.monotonic()

    def status(self, name: str, file: str = "status") -> int:
        """A number in ``/proc``; memory is in KiB there."""
        lines = (self._directory / file).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))

    @property
    def opened(self) -> Counter[str]:
        found = Counter[str]()
        for entry in (self._directory / "fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                found[os.readlink(entry)] += 1
        return found

    @property
    def descriptors(self) -> int:
        """How many files it has open, but for those of indexes, which stay open."""
        return sum(times for target, times in self.opened.items() if "/.index/" not in target)

    @property
    def _directory(self) -> Path:
        return Path(f"/proc/{self.pid}")


# What a service holds, for comparison: descriptors, threads and memory of its workers, and files not to be kept.

OTHER_THREADS = 3
"""Threads of a worker that do not serve: the main one, the indexer of its tree, and the one that renews the lease."""

_SETTLING = 15.0
_OWN = {".locks", ".leases", ".pages", ".spool", ".trash", ".serve", ".quarantine", ".index", "layout.json"}


class Worker(NamedTuple):
    """What a worker holds; ``memory`` is resident, in KiB."""

    pid: int
    descriptors: int
    threads: int
    memory: int


class Held(NamedTuple):
    workers: tuple[Worker, ...]
    leftovers: int


def held(service: Service) -> Held:
    """What the service holds when no request is under way: the least of what is seen until it stays the same."""
    deadline = time.monotonic() + _SETTLING
    best = _held(service)
    while time.monotonic() < deadline:
        time.sleep(0.2)
        now = _held(service)
        if _counts(now) == _counts(best):
            return now
        best = now
    return best


def growth(before: Held, after: Held, *, most_memory: int, most_threads: int) -> Iterator[str]:
    """What grew too much; ``most_memory`` in KiB may each worker's memory grow, and it makes its threads as needed."""
    if [worker.pid for worker in before.workers] != [worker.pid for worker in after.workers]:
        yield f"workers died: {before.workers} became {after.workers}"
        return
    for one, other in zip(before.workers, after.workers, strict=True):
        if other.descriptors > one.descriptors:
            yield f"worker {one.pid} had {one.descriptors} files open, and has {other.descriptors}"
        if other.threads > most_threads:
            yield f"worker {one.pid} had {one.threads} threads, and has {other.threads}"
        if other.memory - one.memory > most_memory:
            yield f"worker {one.pid} had {one.memory} KiB, and has {other.memory}"
    if after.leftovers:
        yield f"{after.leftovers} temporary files are left"


def strays(service: Service) -> list[str]:
    """Files that are not where a resource, its sidecar or its history belongs, and what the log tells of faults."""
    beside = [path.name for path in service.data.parent.iterdir() if path not in (service.data, service.log)]
    files = (path.relative_to(service.data) for path in service.data.rglob("*") if not path.is_dir())
    inside = [str(path) for path in files if not _is_in_place(path)]
    log = service.log.read_text(errors="replace").splitlines()
    return [*beside, *inside, *(line for line in log if "Traceback" in line or '"unexpected"' in line)]


def _is_in_place(path: Path) -> bool:
    parts = path.parts
    if parts[0] in _OWN:
        return True
    is_kept = len(parts) == 5 or (len(parts) == 6 and parts[4] == ".history")
    return is_kept and parts[2] in ("form", "data", "draft") and not path.name.startswith(".")


def _held(service: Service) -> Held:
    return Held(tuple(map(_worker, sorted(service.workers()))), len(service.leftovers()))


def _worker(pid: int) -> Worker:
    process = Process(pid)
    return Worker(pid, process.descriptors, process.status("Threads"), process.status("VmRSS"))


def _counts(held: Held) -> tuple[object, ...]:
    return [worker[:3] for worker in held.workers], held.leftovers
