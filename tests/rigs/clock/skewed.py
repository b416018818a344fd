"""A wall clock of its own for a process tree.

``libfaketime`` 0.9.10 does not do for CPython 3.11: with a false monotonic clock timed locks hang, and without one
``time.sleep`` fails with EINVAL. So ``skew.c`` shifts the wall clock alone, as setting the clock of a machine does.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).with_name("skew.c")
_OFFSET = struct.Struct("=q")
_BILLION = 1_000_000_000


@cache
def refusal() -> str | None:
    if not sys.platform.startswith("linux"):
        return "LD_PRELOAD needs Linux"
    if shutil.which("cc") is None:
        return "cc is not installed: a clock is shifted by a library that is built for it"
    probe = subprocess.run(["cc", "-xc", "-fsyntax-only", str(_SOURCE)], capture_output=True, text=True, check=False)
    return None if probe.returncode == 0 else f"cc cannot build {_SOURCE.name}: {probe.stderr.splitlines()[:1]}"


class Clock:
    """The wall clock of the processes that have ``environment``, as many seconds fast as ``set`` said last."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        library, self._offset = directory / "skew.so", directory / "skew"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE)], check=True)
        self._offset.write_bytes(_OFFSET.pack(0))
        self.environment = {"LD_PRELOAD": str(library), "SKEW": str(self._offset)}

    def set(self, seconds: float) -> None:
        """Set the clock, at once in every process; negative is slow."""
        descriptor = os.open(self._offset, os.O_WRONLY)
        try:
            os.pwrite(descriptor, _OFFSET.pack(int(seconds * _BILLION)), 0)
        finally:
            os.close(descriptor)
