"""The newest answers with a status from 500, in one file of all workers, for the overview; the log has all of them.

A line that cannot be written is lost, because the disk may be the fault.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from persistence.limits import ERRORS_KEPT, LARGEST_ERRORS, LONGEST_CAUSE, LONGEST_DETAIL
from persistence.storage import files, nofollow, root
from persistence.storage.layout import PAGES, Layout


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
        """Add an answer, as the log has it."""
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
            descriptor = nofollow.open_to_read(self._path)
        except FileNotFoundError:
            return []
        try:
            return nofollow.read_small(descriptor).splitlines()
        finally:
            os.close(descriptor)
