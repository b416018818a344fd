"""Marks of the states of documents and definitions: cheap to list, and others after each change.

So whoever has seen a state finds out what has changed since without reading anything again.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from persistence.model.addresses import Address, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.storage.storage import Readable

_SETTLED_AFTER = 2.0
"""Seconds after which a directory that changes again has another time: clocks of file systems have ticks."""

_HASHED = 8
"""Bytes of the number of a revision."""


@dataclass(frozen=True, slots=True)
class StateMark:
    """A mark of the state of a document with its draft, or of a version of a definition, by its main resource.

    With ``is_sum`` it is ``sum_of_revisions`` of the state. Otherwise it is of the times of directories, and the state
    may be read after the mark: if nothing was saved or no draft there before, none must be in the state either. It is
    empty if the directories are so young that the next state could have the same times.
    """

    main: Address
    value: str
    is_sum: bool
    has_saved: bool = True
    has_draft: bool = True


class StateMarks(Readable, Protocol):
    """Revisions of which the states are marked."""

    def marks(self, form: Form) -> Iterator[StateMark]:
        """Yield a mark for each version of a form's definition, and for each document and draft.

        They are listed without reading all at once. What is made or removed meanwhile may be among them or not.
        """

    def sidecars(self, main: Address) -> Iterator[tuple[str, Instant, Sidecar]]:
        """Yield file name, instant and sidecar of each revision of all that is beside a ``data.xml`` or ``form.xhtml``.

        Those of a file come the oldest first.

        Raises:
            DamagedError: a sidecar cannot be read.
        """


def sum_of_revisions(found: Iterable[tuple[bool, str, Instant, str, bool]]) -> int:
    """Return a number that hardly any other revisions have, as databases calculate it, too.

    Each revision has whether it is a draft's, the name of its file, its instant, its content id, and whether it is the
    current one.
    """
    return sum(map(_number, found))


def _number(revision: tuple[bool, str, Instant, str, bool]) -> int:
    is_draft, name, instant, content, is_current = revision
    line = f"{int(is_draft)} {name} {instant} {content} {int(is_current)}"
    digest = hashlib.sha256(line.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:_HASHED], signed=True)


def mark_of_directories(main: Address, directory: str, history: str, draft: str | None) -> StateMark:
    """Return the mark of a state by its directories, of which some may be missing; raises ``OSError``.

    Every commit puts a sidecar in place by renaming it, and so changes the times of its directory. A purge of older
    revisions changes those of the history alone.
    """
    times = [_times(path) for path in (directory, history, *filter(None, [draft]))]
    newest = max((each.st_ctime_ns for each in times if each is not None), default=0)
    is_settled = newest < (time.time() - _SETTLED_AFTER) * 1e9
    value = " ".join("-" if each is None else _text(each) for each in times)
    return StateMark(
        main,
        value if is_settled else "",
        is_sum=False,
        has_saved=times[0] is not None,
        has_draft=draft is not None and times[-1] is not None,
    )


def _times(path: str) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _text(found: os.stat_result) -> str:
    return f"{found.st_dev}.{found.st_ino}.{found.st_mtime_ns}.{found.st_ctime_ns}"
