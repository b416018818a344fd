"""Damage is never taken for an edit: whether a content that is not its sidecar's may be served.

A content has the size, and by its stamp the time, that its sidecar says. Any other is looked at once per state of the
file: with the right digest it is the same content under another time; else the policy decides whether it is an edit
by hand, or damage.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum
from functools import partial
from io import FileIO
from typing import BinaryIO

from persistence.errors import DamagedError, MalformedXmlError
from persistence.limits import CHUNK
from persistence.model.instants import epoch_seconds
from persistence.model.sidecar import DIGEST_ALGORITHM, Sidecar, digest_text
from persistence.storage import nofollow, sidecars
from persistence.storage.layout import FilePaths, revision_of
from persistence.xml.streaming import XmlCheck

_REMEMBERED = 4096
"""Verdicts that are kept: one is a few hundred bytes."""
SETTLED = 2_000_000_000
"""Nanoseconds after its last change in which a file may change again under the same time."""


class HandEdits(Enum):
    """The contents, of those that are not their sidecar's, that count as edits by hand."""

    XML = "xml"
    """Well-formed XML in the place of XML."""
    NONE = "none"
    ALL = "all"


class Verdict(Enum):
    """How a content that differs by size or time from what its sidecar says is to be taken."""

    SAME = "the right content under another time"
    EDITED = "edited by hand"


class Integrity:
    """Judges contents by one policy, for all threads. ``verify_up_to`` is in bytes: 0 verifies no digest on reading."""

    def __init__(self, hand_edits: HandEdits = HandEdits.XML, *, verify_up_to: int = 0) -> None:
        self.hand_edits = hand_edits
        self.verify_up_to = verify_up_to
        self._verdicts: OrderedDict[tuple[object, ...], Verdict | str] = OrderedDict()
        self._lock = threading.Lock()

    def of_attachments(self) -> Integrity:
        """Return the policy for contents that are never XML of the service's own."""
        hand_edits = HandEdits.ALL if self.hand_edits is HandEdits.ALL else HandEdits.NONE
        return Integrity(hand_edits, verify_up_to=self.verify_up_to)

    def judge(self, paths: FilePaths, sidecar: Sidecar, file: str | int, status: os.stat_result) -> Verdict:
        """Judge a file, by path or descriptor, with ``status``: a content that does not match its sidecar."""
        state = (*_state(status), file, sidecar.id)
        with self._lock:
            known = self._verdicts.get(state)
        if known is None:
            known = self._looked_at(paths, sidecar, file, status)
            if time.time_ns() - status.st_ctime_ns > SETTLED:
                with self._lock:
                    self._verdicts[state] = known
                    if len(self._verdicts) > _REMEMBERED:
                        self._verdicts.popitem(last=False)
        if isinstance(known, str):
            raise DamagedError(known)
        return known

    def verify(self, paths: FilePaths, sidecar: Sidecar, descriptor: int) -> None:
        """Compare the digest of an open content that looks as its sidecar says, where the policy wants that."""
        if sidecar.digest is None or not 0 < sidecar.size <= self.verify_up_to:
            return
        if _digest(_pieces(descriptor)) != sidecar.digest:
            raise DamagedError(f"the content {_name(paths)} is damaged: its digest is not the one its sidecar says")

    def _looked_at(self, paths: FilePaths, sidecar: Sidecar, file: str | int, status: os.stat_result) -> Verdict | str:
        try:
            descriptor = nofollow.open_file(file) if isinstance(file, str) else os.dup(file)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StateChangedError from error
        try:
            if _state(os.fstat(descriptor)) != _state(status):
                raise StateChangedError
            if status.st_size == sidecar.size and _digest(_pieces(descriptor)) == sidecar.digest:
                return Verdict.SAME
            cause = self._fault(paths, status, descriptor)
        finally:
            os.close(descriptor)
        if cause is None:
            return Verdict.EDITED
        return f"the content {_name(paths)} is damaged: it is not that of {sidecar.modified}, and {cause}"

    def _fault(self, paths: FilePaths, status: os.stat_result, descriptor: int) -> str | None:
        if self.hand_edits is HandEdits.ALL:
            return None
        if self.hand_edits is HandEdits.NONE:
            return "edits by hand are not served (hand_edits)"
        if not paths.must_be_xml:
            return "only XML may be edited by hand" if not paths.is_older else "an older revision is never edited"
        older = _older_content(paths, status, descriptor)
        if older is not None:
            return f"it is that of an older revision, {older}"
        with XmlCheck() as parser:
            try:
                parser.read(_pieces(descriptor))
            except MalformedXmlError as error:
                return f"no edit by hand: {error}"
        return None


class StateChangedError(Exception):
    """A file is not in the state in which it was looked at."""


def digest_of_file(path: str) -> str:
    """Return the digest of a regular file's content, not through a link; raises ``OSError``."""
    with open(nofollow.open_file(path), "rb") as file:
        return digest_of_open(file)


def digest_of_open(file: BinaryIO) -> str:
    """Return the digest of an open file's content, read from where it is to its end; raises ``OSError``."""
    return _digest(iter(partial(file.read, CHUNK), b""))


def _older_content(paths: FilePaths, status: os.stat_result, descriptor: int) -> str | None:
    """The instant of an older revision whose content a file is, with size and time; ``None`` where it is of none.

    A copy that was made while the file was written, or a disk that went back, leaves it so. Raises ``OSError``.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in os.listdir(paths.history):
            revision = revision_of(name) if name.endswith(paths.name) else None
            if revision is None or revision[1] != paths.name:
                continue
            if abs(epoch_seconds(revision[0]) - status.st_mtime_ns // 1_000_000_000) > 1:
                continue
            with suppress(FileNotFoundError), FileIO(nofollow.open_to_read(f"{paths.history}/{name}")) as file:
                kept = os.fstat(file.fileno())
                is_same = (kept.st_size, kept.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
                if is_same and _digest(_pieces(file.fileno())) == _digest(_pieces(descriptor)):
                    return revision[0]
    return None


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _pieces(descriptor: int) -> Iterator[bytes]:
    at = 0
    while piece := os.pread(descriptor, CHUNK, at):
        yield piece
        at += len(piece)


def _digest(pieces: Iterable[bytes]) -> str:
    hashing = hashlib.new(DIGEST_ALGORITHM)
    for piece in pieces:
        hashing.update(piece)
    return digest_text(hashing.hexdigest())


def _name(paths: FilePaths) -> str:
    return sidecars.last_names(paths.content)
