"""Files in which the pages note something for all workers: the newest errors, and the last use of each key.

A line that cannot be written is lost, because the disk may be the fault.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from persistence.errors import PersistenceError
from persistence.limits import ERRORS_KEPT, KEY_USE_NOTED, LARGEST_ERRORS, LONGEST_CAUSE, LONGEST_DETAIL
from persistence.storage import files, root
from persistence.storage.layout import PAGES, Layout
from persistence.storage.root import KeyFile


class RecentError(msgspec.Struct, frozen=True):
    """An answer as in the log; ``at`` is in seconds since the epoch."""

    at: float
    id: str
    method: str
    path: str
    status: int
    cause: str = ""


_decode_error = msgspec.json.Decoder(RecentError).decode


class RecentErrors:
    """The file of the newest errors, at most ``LARGEST_ERRORS`` bytes and a line."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._path = f"{Layout(home).own(PAGES)}/errors.jsonl"

    def add(self, facts: Mapping[str, object]) -> None:
        method, path, cause = (str(facts.get(name, "")) for name in ("method", "path", "cause"))
        status = int(str(facts.get("status", 0)))
        error = RecentError(
            time.time(), str(facts["id"]), method[:16], path[:LONGEST_DETAIL], status, cause[:LONGEST_CAUSE]
        )
        with suppress(OSError):
            root.ensure_pages(self._home)
            descriptor = files.open_shared(self._path, os.O_APPEND)
            try:
                files.write_all(descriptor, msgspec.json.encode(error) + b"\n")
                is_large = os.fstat(descriptor).st_size > LARGEST_ERRORS
            finally:
                os.close(descriptor)
            if is_large:  # two workers may do so at once, and lose a line
                kept = self._lines()[-ERRORS_KEPT:]
                files.write_durably(self._path, b"".join(line + b"\n" for line in kept))

    def newest(self) -> list[RecentError]:
        """Return the answers, the newest first; empty if they cannot be read."""
        found = []
        with suppress(OSError):
            for line in reversed(self._lines()[-ERRORS_KEPT:]):
                with suppress(msgspec.DecodeError, UnicodeError):  # two lines may have been written at once
                    found.append(_decode_error(line))
        return found

    def _lines(self) -> list[bytes]:
        try:
            return files.read_file(self._path).splitlines()
        except FileNotFoundError:
            return []


class _Uses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds since the epoch by the name of a key."""

    used: dict[str, float] = {}


_decode = msgspec.json.Decoder(_Uses).decode


class KeyUses:
    """The file in a home directory, and the uses that this worker has not written yet.

    After a failure it tries again a minute later.
    """

    def __init__(self, home: str) -> None:
        path = f"{Layout(home).own(PAGES)}/key-uses.json"
        self._file: KeyFile[_Uses] = KeyFile(
            path, tree=home, what="uses of keys", decode=lambda data, _: _decode(data), nothing=_Uses()
        )
        self._due: dict[str, float] = {}
        self._next = 0.0

    def use(self, name: str) -> None:
        self._due[name] = time.time()

    def note(self, known: frozenset[str]) -> None:
        """Write the uses if that is due; called about once a second. Only ``known`` keys are kept."""
        now = time.monotonic()
        if not self._due or now < self._next:
            return
        self._next = now + KEY_USE_NOTED
        due, self._due = self._due, {}
        try:
            with self._file.changing() as noted:
                newest = {name: max(at, noted.used.get(name, 0.0)) for name, at in due.items()}
                used = {**noted.used, **newest}
                self._file.write(_Uses({name: at for name, at in used.items() if name in known}))
        except PersistenceError:
            for name, at in due.items():
                self._due.setdefault(name, at)

    def last(self) -> dict[str, float]:
        """Return the last use of each key in seconds since the epoch, with those that this worker has not written."""
        return {**self._file.read().used, **self._due}
