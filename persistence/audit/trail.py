"""The files of the audit: several processes append chained lines to one, and rotate it, under one lock.

The lock file ``NAME.lock`` has the head of the chain: the last line, and where it ends, noted after the line is
written. If the file ends elsewhere (a crash, another program), the next writer recovers the chain and removes nothing.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from persistence.audit.chain import START, UNSEALED, Head, Seal, SealOf, chained, head_of
from persistence.audit.events import DISCARDED, REPAIRED, AuditEvent
from persistence.audit.recovery import TornPiece, examined
from persistence.closable import Closable
from persistence.errors import PersistenceError, StartupError, as_disk_error
from persistence.model.instants import next_after
from persistence.storage import directories, files
from persistence.storage.locks import OpenLock

_PATIENCE = 2.0
"""Seconds for which a line waits for its turn: each takes some 20 microseconds."""
_SYNC_PAUSE = 1.0
_ROTATION_PAUSE = 60.0
"""Seconds before a rotation is tried again that failed."""
_RECORD = 256
_BUSY = "others have been writing the audit for 2 seconds"
_ROTATED = re.compile(r"\.([0-9]{12,18})(?:~[0-9]+)?", re.ASCII)


def lock_path(path: str) -> str:
    return f"{path}.lock"


def rotated(path: str) -> list[tuple[int, str]]:
    """Return the files that the service has rotated, oldest first, each with the number of its last line."""
    directory, name = os.path.split(path)
    found = ((_ROTATED.fullmatch(each.removeprefix(name)), each) for each in os.listdir(directory))
    return sorted((int(match[1]), f"{directory}/{each}") for match, each in found if match and each.startswith(name))


@dataclass(frozen=True, slots=True)
class Rotation:
    """The size in bytes and age in seconds that rotate a file (0: never), and how many are kept (0: all)."""

    size: int = 0
    age: int = 0
    keep: int = 0

    def is_due(self, head: Head, now: float) -> bool:
        """Tell whether a file with lines is large or old enough. A clock that jumps far rotates it once."""
        return head.size > 0 and (0 < self.size <= head.size or 0 < self.age <= abs(now - head.began))


class AuditTrail(Closable):
    """Appends lines to the file at ``path``, whose directory exists, and has no links.

    With ``syncs_lines`` each line is durable before ``append`` returns, else within a second, by a thread. ``on_fault``
    hears of faults that no caller hears of. ``seal`` is for new lines, ``seal_of`` for those that are there.
    """

    def __init__(  # noqa: PLR0913 - each is a setting
        self,
        path: str,
        *,
        rotation: Rotation = Rotation(),
        syncs_lines: bool = False,
        seal: Callable[[], Seal] = lambda: UNSEALED,
        seal_of: SealOf = lambda _: None,
        on_fault: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._rotation = rotation
        self._syncs_lines = syncs_lines
        self._new_seal = seal
        self._seal = UNSEALED
        self._seal_of = seal_of
        self._on_fault = on_fault
        self._lock = OpenLock(lock_path(path), _PATIENCE)
        self._descriptor = -1
        self._guard = threading.Lock()  # of the descriptor, against the thread that syncs it
        self._identity = (0, 0)
        self._head, self._noted = START, b""
        self._rotates_after = 0.0
        self._unsynced = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def append(self, event: bytes) -> int:
        """Append the line of an event, and return its number."""
        try:
            record = self._lock.take(_BUSY)
            try:
                head = self._write(record, self._current(record), event)
            finally:
                self._lock.release()
            self._settle()
        except OSError as error:
            raise as_disk_error(error, "writing the audit") from error
        return head.number

    def try_out(self) -> None:
        try:
            for each in (self._path, lock_path(self._path)):
                os.close(files.open_shared(each, os.O_APPEND))
            if not os.access(os.path.dirname(self._path), os.W_OK, effective_ids=True):
                raise PermissionError("rotation needs a directory that it can write to")
        except OSError as error:
            raise StartupError(f"the audit file {self._path} cannot be used: {error.strerror or error}") from error

    def close(self) -> None:
        """Make the last lines durable, and close the files, after a line that is being written."""
        self._lock.close()
        self._ending.set()
        self._unsynced.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._sync_or_report()
        with self._guard:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _current(self, record: int) -> Head:
        noted = os.pread(record, _RECORD, 0)
        is_own = bool(noted) and noted == self._noted  # nobody else has written meanwhile
        head = self._head if is_own else head_of(noted)
        try:
            status = os.lstat(self._path)
            is_open = self._descriptor >= 0 and self._identity == (status.st_dev, status.st_ino)
        except FileNotFoundError:
            is_open = False
        if not is_open:
            status = self._open()
        else:
            with suppress(PersistenceError):  # while the keys cannot be read, the seal of before counts
                self._seal = self._new_seal()
        if head is None or head.size != status.st_size or head.number < self._head.number:
            head = self._recovered(record, head)
        is_shared = status.st_nlink > 1 and head.size > 0  # a backup has linked it: leave that one as it is
        if is_shared or self._rotation.is_due(head, time.time()):
            head = self._rotated(record, head)
        return head

    def _open(self) -> os.stat_result:
        descriptor = files.open_shared(self._path, os.O_APPEND)
        with self._guard:
            old, self._descriptor = self._descriptor, descriptor
        if old >= 0:
            os.close(old)
        self._seal = self._new_seal()
        status = os.fstat(descriptor)
        self._identity = (status.st_dev, status.st_ino)
        return status

    def _write(self, record: int, head: Head, event: bytes) -> Head:
        line, digest = chained(event, head, next_after(None), self._seal)
        files.write_all(self._descriptor, line)
        return self._note(record, Head(head.number + 1, digest, head.size + len(line), head.began or int(time.time())))

    def _recovered(self, record: int, head: Head | None) -> Head:
        with open(self._path, "rb") as file:
            remains = examined(file, head, self._seal_of)
        last = remains.last or head or self._newest_rotated()
        for known in (head, self._head):  # its own last line is known where the lock file was removed or set back
            if known is not None and known.number > last.number:
                last = known  # the gap in the numbers shows for ever that lines are missing
        began = (head.began if head is not None else 0) or int(time.time())
        found = Head(last.number, last.digest, remains.size, began)
        return found if remains.torn is None else self._closed(record, found, remains.torn)

    def _newest_rotated(self) -> Head:
        for _, path in reversed(rotated(self._path)):
            with open(path, "rb") as file:
                remains = examined(file, None, self._seal_of)
            if remains.last is not None:
                return remains.last
        return START

    def _closed(self, record: int, head: Head, torn: TornPiece) -> Head:
        ending = b"" if torn.ends_line else b"\n"
        files.write_all(self._descriptor, ending)
        event = AuditEvent(action=REPAIRED, length=torn.length, sha256=torn.sha256)
        return self._write(record, head._replace(size=head.size + len(ending)), event.encoded())

    def _rotated(self, record: int, head: Head) -> Head:
        now = time.monotonic()
        if now < self._rotates_after:
            return head
        target = f"{self._path}.{head.number:012d}"
        try:
            files.sync(self._descriptor)
            files.rename(self._path, f"{target}~{time.time_ns()}" if files.exists(target) else target)
            self._open()
            directories.sync(os.path.dirname(self._path))
        except OSError as error:
            self._rotates_after = now + _ROTATION_PAUSE
            self._on_fault(str(as_disk_error(error, "rotating the audit")))
            return head._replace(size=os.fstat(self._descriptor).st_size)
        return self._discard(record, self._note(record, head._replace(size=0, began=int(time.time()))))

    def _discard(self, record: int, head: Head) -> Head:
        for last, path in rotated(self._path)[: -self._rotation.keep] if self._rotation.keep else ():
            event = AuditEvent(action=DISCARDED, file=os.path.basename(path), last=last)
            head = self._write(record, head, event.encoded())
            try:
                files.sync(self._descriptor)
                files.remove(path)
            except OSError as error:
                self._on_fault(str(as_disk_error(error, "removing an old file of the audit")))
        return head

    def _note(self, record: int, head: Head) -> Head:
        self._head, self._noted = head, head.record()
        with suppress(OSError):
            files.write_at_start(record, self._noted)
        return head

    def _settle(self) -> None:
        if self._syncs_lines:
            self._sync()
        elif not self._unsynced.is_set():
            self._unsynced.set()
            if self._thread is None:
                with self._guard:
                    if self._thread is None:
                        self._thread = threading.Thread(target=self._sync_always, name="audit-sync", daemon=True)
                        self._thread.start()

    def _sync_always(self) -> None:
        while True:
            self._unsynced.wait()
            if self._ending.wait(_SYNC_PAUSE):
                return
            self._unsynced.clear()
            self._sync_or_report()
            if self._ending.is_set():  # it may have come before ``clear``, which has taken its wake-up
                return

    def _sync_or_report(self) -> None:
        try:
            self._sync()
        except OSError as error:
            self._on_fault(str(as_disk_error(error, "making the audit durable")))

    def _sync(self) -> None:
        with self._guard:
            descriptor = os.dup(self._descriptor) if self._descriptor >= 0 else -1
        if descriptor >= 0:
            try:
                files.sync(descriptor)
            finally:
                os.close(descriptor)


def prepare(path: str) -> str:
    """Make the directory of an audit file where it is missing; return the path without links in it."""
    directory = os.path.realpath(os.path.dirname(path))
    try:
        directories.ensure(directory)
    except OSError as error:
        raise StartupError(f"the audit file {path} cannot be made: {error.strerror or error}") from error
    return f"{directory}/{os.path.basename(path)}"
