"""What a process takes and holds, as its system says: from outside, so that nothing in it can hide."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
