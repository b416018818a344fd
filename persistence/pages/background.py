"""Commands that the pages begin: each runs in a process of its own, and its output is kept for all workers.

The process holds a lock on a file while it lives, also when its worker is replaced: so all workers refuse a second one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from persistence import children
from persistence.children import Child
from persistence.errors import BusyError, disk_errors
from persistence.limits import LONGEST_OUTPUT, LONGEST_OUTPUT_LINE
from persistence.settings import GIVEN, Effective, passed_on
from persistence.storage import files, nofollow, root
from persistence.storage.layout import PAGES, Layout
from persistence.storage.locks import try_lock


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a command: the first lines, at most ``LONGEST_OUTPUT`` bytes, and the last one.

    ``errors`` has what it printed on standard error. ``began`` is in seconds since the epoch.
    """

    is_running: bool
    began: float
    lines: tuple[bytes, ...]
    last: bytes
    errors: str


class BackgroundCommand:
    """One command, in at most one process. ``purpose`` names its files if the command has several purposes."""

    def __init__(self, name: str, effective: Effective, purpose: str = "") -> None:
        self._name = name
        self._effective = effective
        self._directory = Layout(effective.settings.home).own(PAGES)
        self._path = f"{self._directory}/{purpose or name}"
        self._process: Child | None = None

    def begin(self, arguments: Sequence[str]) -> None:
        with disk_errors(f"running persistence {self._name}"):
            root.ensure_pages(self._effective.settings.home)
            lock = files.open_shared(f"{self._path}.lock")
            try:
                if not try_lock(lock):
                    raise BusyError(f"persistence {self._name} is running already: wait for its end")
                self._start(arguments, lock)
            finally:
                os.close(lock)  # the process holds it now

    def output(self) -> Output | None:
        """Return the output of the current or last run; ``None`` if it was never run from here."""
        with disk_errors(f"looking at persistence {self._name}"):
            is_running = self.is_running()
            try:
                descriptor = nofollow.open_to_read(f"{self._path}.out")
            except (FileNotFoundError, NotADirectoryError):
                return None
            with open(descriptor, "rb") as file:
                lines = file.read(LONGEST_OUTPUT + LONGEST_OUTPUT_LINE).splitlines()
            began = os.stat(f"{self._path}.err").st_mtime if is_running else os.stat(f"{self._path}.out").st_mtime
            with open(nofollow.open_to_read(f"{self._path}.err"), "rb") as file:
                errors = file.read(LONGEST_OUTPUT).decode(errors="replace").strip()
            return Output(is_running, began, tuple(lines), lines[-1] if lines else b"", errors)

    def is_running(self) -> bool:
        """Tell whether it runs, also if another worker has begun it."""
        if self._process is not None and self._process.poll() is not None:  # or else it would stay as a zombie
            self._process = None
        try:
            descriptor = nofollow.open_to_read(f"{self._path}.lock")
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            return not try_lock(descriptor)
        finally:
            os.close(descriptor)

    def _start(self, arguments: Sequence[str], lock: int) -> None:
        out, err = (files.open_shared(f"{self._path}.{each}") for each in ("out", "err"))
        try:
            for each in (out, err):
                files.cut(each)
            with tempfile.TemporaryFile() as given:
                given.write(passed_on(self._effective))
                given.seek(0)
                self._process = children.start(
                    *("-m", "persistence.children"),
                    *("-m", "persistence.cli", self._name, "--config", GIVEN, *arguments),
                    stdin=given,
                    stdout=out,
                    stderr=err,
                    pass_fds=(lock,),
                    start_new_session=True,
                )
        finally:
            os.close(out)
            os.close(err)
