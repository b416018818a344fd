"""The revisions of a resource in a tree, the older ones by the names in its ``.history``.

There may be tens of thousands of names, so little is done for each, and the instants are kept as one text. A list is
cached for the state of its directory, which changes with every name in it. Sidecars are read a page at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from persistence.bounded_cache import BoundedCache
from persistence.errors import DamagedError
from persistence.limits import HISTORIES_KEPT, HISTORIES_KEPT_BYTES
from persistence.model.history import ListedRevision
from persistence.model.instants import Instant, is_in_calendar
from persistence.model.sidecar import Sidecar
from persistence.storage.integrity import SETTLED
from persistence.storage.layout import SIDECAR_SUFFIX, FilePaths, instant_of
from persistence.storage.storage import RevisionList, count_since

_SHAPE = b"0000-00-00T00-00-00.000Z\n"
_STEP = len(_SHAPE)
_LENGTH = _STEP - 1
_DIGITS = bytes.maketrans(b"0123456789", b"0000000000")
_COLONS = (13, 16)
_TENS = ((11, b"2"), (14, b"5"), (17, b"5"))
"""The highest tens of hours, minutes and seconds, by their places."""
_HOUR = slice(11, 13)
_LAST_HOUR = b"23"
_DAY = slice(10)
_MIDNIGHT = "T00:00:00.000Z"


@dataclass(frozen=True, slots=True)
class OlderInstants:
    """Instants, newest first, without the first ones that were left out; ``text`` has each on a line."""

    text: str = ""
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.text) // _STEP - self.left_out

    def __getitem__(self, position: int) -> Instant:
        begin = (position + self.left_out) * _STEP
        return Instant(self.text[begin : begin + _LENGTH])

    def before(self, instant: Instant) -> OlderInstants:
        newer = 0
        while newer < len(self) and self[newer] >= instant:
            newer += 1
        return OlderInstants(self.text, self.left_out + newer)


@dataclass(frozen=True, slots=True)
class StoredRevisions(RevisionList):
    """The revisions in a tree: ``current`` has been read, ``older`` are the instants of the others.

    ``read_older`` reads the sidecar of an older one; ``None`` where it is gone.
    """

    current: Sidecar
    older: OlderInstants
    read_older: Callable[[Instant], Sidecar | None]

    @property
    def total(self) -> int:
        return 1 + len(self.older)

    def instant(self, position: int) -> Instant:
        return self.older[position - 1] if position else self.current.modified

    def since(self, instant: Instant) -> int:
        return count_since(self, instant)

    def revision(self, position: int) -> ListedRevision | None:
        instant = self.instant(position)
        if position == 0:
            return ListedRevision(instant, self.current)
        try:
            sidecar = self.read_older(instant)
        except DamagedError:
            return ListedRevision(instant, None)
        return None if sidecar is None else ListedRevision(instant, sidecar)

    def page(self, begin: int, end: int) -> list[ListedRevision]:
        found = (self.revision(position) for position in range(begin, min(end, self.total)))
        return [each for each in found if each is not None]


class OlderRevisionLists:
    """The lists that were asked for last, for all threads."""

    def __init__(self) -> None:
        self._texts = BoundedCache[str](HISTORIES_KEPT, HISTORIES_KEPT_BYTES)

    def of(self, paths: FilePaths) -> OlderInstants:
        """Return the instants of the older revisions of a file now; none without a history. Raises ``OSError``.

        A directory that was changed within the last two seconds may change again under the same times.
        """
        try:
            state = os.stat(paths.history)
        except (FileNotFoundError, NotADirectoryError):
            return OlderInstants()
        changed = max(state.st_mtime_ns, state.st_ctime_ns)
        if time.time_ns() - changed <= SETTLED:
            return OlderInstants(_listed(paths))
        key = (paths.content, state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns)
        return OlderInstants(self._texts.get(key, lambda: _listed(paths)))


def _listed(paths: FilePaths) -> str:
    try:
        names = os.listdir(os.fsencode(paths.history))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return instants_text(names, os.fsencode(paths.name))


def instants_text(names: Iterable[bytes], name: bytes) -> str:
    """Return the instants of the older revisions of a file whose sidecars are among these names: see above."""
    end = b".%s%s" % (name, SIDECAR_SUFFIX.encode())
    length = _LENGTH + len(end)
    found = sorted((each[:_LENGTH] for each in names if len(each) == length and each.endswith(end)), reverse=True)
    lines = _lines(found)
    if not _are_instants(lines, found):
        found = [each for each in found if each.isascii() and instant_of(each.decode()) is not None]
        lines = _lines(found)
    for at in _COLONS:
        lines[at::_STEP] = b":" * len(found)
    return lines.decode("ascii")


def _lines(found: list[bytes]) -> bytearray:
    return bytearray(b"".join(each + b"\n" for each in found))


def _are_instants(lines: bytearray, found: list[bytes]) -> bool:
    if lines.translate(_DIGITS) != _SHAPE * len(found):
        return False
    if any(max(lines[at::_STEP], default=0) > highest[0] for at, highest in _TENS):
        return False
    is_late = _TENS[0][1] in lines[_HOUR.start :: _STEP]
    if is_late and max(each[_HOUR] for each in found) > _LAST_HOUR:
        return False
    days = {each[_DAY] for each in found}
    return all(is_in_calendar(Instant(f"{day.decode()}{_MIDNIGHT}")) for day in days)
