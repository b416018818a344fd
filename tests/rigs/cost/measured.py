"""What a worker process takes, as its system says: from outside, so that nothing in it can hide."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True)
class Process:
    pid: int

    @property
    def seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    @property
    def resident(self) -> int:
        """Bytes in memory."""
        return self._status("VmRSS")

    @property
    def highest(self) -> int:
        """The most bytes in memory since ``forget_highest``."""
        return self._status("VmHWM")

    def forget_highest(self) -> None:
        """Count the highest memory from now on (proc(5), clear_refs)."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def rest(self, quiet: float = 0.5, longest: float = 15.0) -> None:
        """Wait until it has had next to nothing to do for some seconds."""
        end = time.monotonic() + longest
        last, since = self.seconds, time.monotonic()
        while time.monotonic() < end and time.monotonic() < since + quiet:
            time.sleep(0.05)
            now = self.seconds
            if now > last + 2 / _TICKS:
                last, since = now, time.monotonic()

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * _KIB
        raise LookupError(name)
