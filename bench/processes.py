"""Figures of /proc about servers: processor time, memory and descriptors of processes and all below them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Time:
    """Processor time in seconds."""

    user: float
    system: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.user + self.system

    def since(self, before: Time) -> Time:
        """Return the difference to an earlier reading."""
        return Time(self.user - before.user, self.system - before.system)


def processor_time(processes: Iterable[int]) -> Time:
    """Return the processor time of processes and all below them, those that have ended included."""
    user = system = 0
    for process in processes:
        for each in (process, *below(process)):
            with suppress(OSError):
                fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
                own = list(map(int, fields[11:15]))  # utime, stime, and those of children that have ended
                user += own[0] + own[2]
                system += own[1] + own[3]
    return Time(user / _TICKS, system / _TICKS)


def memory(processes: Iterable[int]) -> float:
    """Return the resident memory in MB of processes and all below them; shared pages count once (PSS)."""
    total = 0
    for process in processes:
        for each in (process, *below(process)):
            with suppress(OSError):
                lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def resident(process: int) -> float:
    """Return the resident memory of one process in MB."""
    return _status(process, "VmRSS") / 1024


def most_resident(process: int) -> float:
    """Return the most resident memory that one process has had, in MB."""
    return _status(process, "VmHWM") / 1024


def _status(process: int, name: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def descriptors(processes: Iterable[int]) -> int:
    """Return the number of open descriptors of processes and all below them."""
    count = 0
    for process in processes:
        for each in (process, *below(process)):
            with suppress(OSError):
                count += len(os.listdir(f"/proc/{each}/fd"))
    return count


def children(process: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


def below(process: int) -> list[int]:
    """Return all processes below one."""
    found = [process]
    for each in found:
        with suppress(OSError):
            found += children(each)
    return found[1:]
