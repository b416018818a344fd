"""The audit: its lines and the chain of digests over them, the files in which they stand, and streams to other places.

A line is ``{"n":NUMBER,"at":"INSTANT",...,"prev":"DIGEST","digest":"DIGEST"}``. ``digest`` is the SHA-256 of everything
before ``,"digest"``, or its HMAC-SHA-256 by a signing key, whose id is then in ``seal``. Numbers begin with 1 and have
no gaps, also across files.

Several processes append lines to one file, and rotate it. The lock file ``NAME.lock`` has the head of the chain: the
last line, and where it ends, noted after the line is written. If the file ends elsewhere (a crash, another program),
the next writer recovers the chain and removes nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import logging.handlers
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec.structs import replace

from persistence.closable import Closable, PeriodicThread
from persistence.errors import BusyError, DiskError, PersistenceError, StartupError, as_disk_error
from persistence.keys import Keys
from persistence.limits import CHUNK, LONGEST_AUDIT_EVENT, LONGEST_AUDIT_LINE
from persistence.metrics.observations import AUDIT_FAULTS
from persistence.model.network_addresses import host_of
from persistence.model.texts import Instant, json_line, next_after
from persistence.settings import Settings
from persistence.storage import files
from persistence.storage.locks import LogLock

_PURPOSE = b"audit"
_TAIL = b',"digest":"'
_DIGITS = 64
_TAIL_LENGTH = len(_TAIL) + _DIGITS + len('"}')
_RECORD_LENGTH = 160
ORIGIN = "0" * _DIGITS
"""The digest before the first line."""


@dataclass(frozen=True, slots=True)
class Seal:
    """How lines are digested: keyed by a signing key if there is an id, else plainly."""

    key_id: str = ""
    key: bytes = b""

    @classmethod
    def by(cls, key_id: str, secret: bytes) -> Seal:
        """Return the seal of a signing key. Its secret signs access tokens, so a key is derived from it."""
        return cls(key_id, hmac.digest(secret, _PURPOSE, "sha256"))

    def digest(self, text: bytes) -> str:
        return (hmac.digest(self.key, text, "sha256") if self.key_id else hashlib.sha256(text).digest()).hex()


UNSEALED = Seal()
SealOf = Callable[[str], Seal | None]
"""Finds the seal of a signing key by its id; ``None`` if the key is gone."""


class Head(NamedTuple):
    """The last line: its number and digest; the bytes of the file that it ends, and when that began (epoch seconds)."""

    number: int
    digest: str
    size: int
    began: int

    def record(self) -> bytes:
        """Return its record in the lock file, which has a fixed length."""
        return f"{self.number} {self.digest} {self.size} {self.began} ".ljust(_RECORD_LENGTH).encode()


START = Head(0, ORIGIN, 0, 0)
"""The head before the first line."""


def head_of(record: bytes) -> Head | None:
    """Read a record; ``None`` if it is empty or damaged."""
    parts = record.split()
    if len(parts) != len(Head._fields) or len(parts[1]) != _DIGITS:
        return None
    try:
        return Head(int(parts[0]), parts[1].decode("ascii"), int(parts[2]), int(parts[3]))
    except ValueError:
        return None


class ChainedLine(msgspec.Struct, frozen=True):
    """The fields of a line that the chain needs."""

    n: int
    at: str
    prev: str
    digest: str
    action: str
    seal: str = ""
    phase: str = ""
    begun: int = 0
    length: int = 0
    sha256: str = ""
    last: int = 0
    lost: int = 0


_decode = msgspec.json.Decoder(ChainedLine).decode


def chained(event: bytes, head: Head, at: Instant, seal: Seal) -> tuple[bytes, str]:
    """Return the line of an event that follows ``head``, with its line break, and its digest."""
    sealed = f',"seal":"{seal.key_id}"' if seal.key_id else ""
    text = b"".join(
        (f'{{"n":{head.number + 1},"at":"{at}",'.encode(), event[1:-1], f',"prev":"{head.digest}"{sealed}'.encode())
    )
    digest = seal.digest(text)
    return b"".join((text, _TAIL, digest.encode(), b'"}\n')), digest


def parsed(line: bytes, seal_of: SealOf) -> ChainedLine | None:
    """Read a line without its line break; ``None`` if it is damaged, or its digest differs.

    If its signing key is missing, the digest is not compared: ``verify`` reports such lines.
    """
    if line[-_TAIL_LENGTH : -_TAIL_LENGTH + len(_TAIL)] != _TAIL:
        return None
    try:
        found = _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    seal = seal_of(found.seal) if found.seal else UNSEALED
    if seal is not None and not hmac.compare_digest(seal.digest(line[:-_TAIL_LENGTH]), found.digest):
        return None
    return found


BEGIN = "begin"
"""The phase of a line that is written before a change, when changes need one."""

REPAIRED, DISCARDED = "repaired", "discarded"
"""Actions of the audit itself: it closed a line that a crash had torn; it removed an old file by the settings."""


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The facts of a line; those that do not apply are left out.

    Of a request there are its ``id``, the other end of the connection (``peer``), the address that a proxy names
    (``forwarded``, which nobody has verified), the names of the API key and of a second one, the ``user`` that the
    caller names, and the ``status``. ``revision`` is the entity tag of what was read or stored. ``documents`` counts
    those of a request for many. Of a command there are its ``command``, the user of the system who runs it, ``outcome``
    and ``details``. ``begun`` is the number of the line of the phase ``BEGIN``. ``lost`` counts lines that could not be
    written before.
    """

    action: str
    phase: str = ""
    begun: int = 0
    id: str = ""
    app: str = ""
    form: str = ""
    collection: str = ""
    document: str = ""
    name: str = ""
    version: int = 0
    revision: str = ""
    documents: int | None = None
    status: int = 0
    user: str = ""
    key: str = ""
    second_key: str = ""
    peer: str = ""
    forwarded: str = ""
    token: bool = False
    command: str = ""
    system_user: str = ""
    outcome: str = ""
    details: dict[str, object] = {}
    length: int = 0
    sha256: str = ""
    file: str = ""
    last: int = 0
    lost: int = 0

    def encoded(self) -> bytes:
        """Return it as JSON on one line that is safe for a terminal. Details that are too long are left out."""
        line = json_line(self)
        return line if len(line) <= LONGEST_AUDIT_EVENT else json_line(replace(self, details={"left_out": len(line)}))


@dataclass(frozen=True, slots=True)
class Remains:
    """A file that does not end where the head says: its last line that counts, and a ``torn`` piece behind it."""

    last: Head | None
    size: int
    torn: TornPiece | None = None


@dataclass(frozen=True, slots=True)
class TornPiece:
    """Bytes of a damaged line: their length and SHA-256, both without a line break at their end (``ends_line``)."""

    length: int
    sha256: str
    ends_line: bool


def examined(file: BinaryIO, head: Head | None, seal_of: SealOf) -> Remains:
    """Examine an open file from the end of the head's line on, or all of it if it is shorter.

    Lines that follow the head count: their process was killed before it noted them. Without a head the last whole line
    counts; damage before it stays for ``verify`` to find.
    """
    size = file.seek(0, 2)
    is_known = head is not None and head.size <= size
    last = head if is_known else None
    at = end = head.size if head is not None and is_known else 0
    file.seek(at)
    for line in lines_of(file):
        at += len(line)
        found = parsed(line[:-1], seal_of) if line.endswith(b"\n") else None
        if is_known and (found is None or last is None or (found.n, found.prev) != (last.number + 1, last.digest)):
            break
        if found is not None:
            last, end = Head(found.n, found.digest, at, 0), at
    return Remains(last, size, None if end == size else piece_of(file, end, size))


def piece_of(file: BinaryIO, start: int, end: int) -> TornPiece:
    file.seek(end - 1)
    ends_line = file.read(1) == b"\n"
    left = length = end - start - ends_line
    hashing = hashlib.sha256()
    file.seek(start)
    while left and (chunk := file.read(min(CHUNK, left))):
        hashing.update(chunk)
        left -= len(chunk)
    return TornPiece(length, hashing.hexdigest(), ends_line)


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines with their line breaks; one that is too long comes in pieces, which do not parse."""
    while line := file.readline(LONGEST_AUDIT_LINE):
        yield line


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


@dataclass(eq=False)
class AuditTrail(Closable):
    """Appends lines to the file at ``path``, whose directory exists, and has no links.

    With ``syncs_lines`` each line is durable before ``append`` returns, else within a second, by a thread. ``on_fault``
    hears of faults that no caller hears of. ``seal`` is for new lines, ``seal_of`` for those that are there.
    """

    path: str
    rotation: Rotation = Rotation()
    syncs_lines: bool = False
    seal: Callable[[], Seal] = lambda: UNSEALED
    seal_of: SealOf = lambda _: None
    on_fault: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self._seal = UNSEALED
        self._lock = LogLock(lock_path(self.path), _PATIENCE)
        self._descriptor = -1
        self._guard = threading.Lock()  # of the descriptor, against the thread that syncs it
        self._identity = (0, 0)
        self._head, self._noted = START, b""
        self._rotates_after = 0.0
        self._is_unsynced = False
        self._syncing: PeriodicThread | None = None

    def append(self, event: bytes) -> int:
        """Append the line of an event, and return its number. Raises ``DiskError`` and ``BusyError``, as all sinks."""
        try:
            with self._lock.holding(_BUSY) as record:
                head = self._write(record, self._current(record), event)
                if not self.syncs_lines:
                    self._sync_later()
            if self.syncs_lines:
                self._sync()
        except OSError as error:
            raise as_disk_error(error, "writing the audit") from error
        return head.number

    def try_out(self) -> None:
        try:
            for each in (self.path, lock_path(self.path)):
                os.close(files.open_shared(each, os.O_APPEND))
            if not os.access(os.path.dirname(self.path), os.W_OK, effective_ids=True):
                raise PermissionError("rotation needs a directory that it can write to")
        except OSError as error:
            raise StartupError(f"the audit file {self.path} cannot be used: {error.strerror or error}") from error

    def close(self) -> None:
        """Make the last lines durable, and close the files, after a line that is being written."""
        self._lock.close()
        if self._syncing is not None:
            self._syncing.close()
        self._is_unsynced = True  # also where it could not be synced before
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
            status = os.lstat(self.path)
            is_open = self._descriptor >= 0 and self._identity == (status.st_dev, status.st_ino)
        except FileNotFoundError:
            is_open = False
        if not is_open:
            status = self._open()
        else:
            with suppress(PersistenceError):  # while the keys cannot be read, the seal of before counts
                self._seal = self.seal()
        if head is None or head.size != status.st_size or head.number < self._head.number:
            head = self._recovered(record, head)
        is_shared = status.st_nlink > 1 and head.size > 0  # a backup has linked it: leave that one as it is
        if is_shared or self.rotation.is_due(head, time.time()):
            head = self._rotated(record, head)
        return head

    def _open(self) -> os.stat_result:
        descriptor = files.open_shared(self.path, os.O_APPEND)
        with self._guard:
            old, self._descriptor = self._descriptor, descriptor
        if old >= 0:
            os.close(old)
        self._seal = self.seal()
        status = os.fstat(descriptor)
        self._identity = (status.st_dev, status.st_ino)
        return status

    def _write(self, record: int, head: Head, event: bytes) -> Head:
        line, digest = chained(event, head, next_after(None), self._seal)
        files.write_all(self._descriptor, line)
        return self._note(record, Head(head.number + 1, digest, head.size + len(line), head.began or int(time.time())))

    def _recovered(self, record: int, head: Head | None) -> Head:
        with open(self.path, "rb") as file:
            remains = examined(file, head, self.seal_of)
        last = remains.last or head
        for _, path in reversed(rotated(self.path)) if last is None else ():
            with open(path, "rb") as file:
                last = examined(file, None, self.seal_of).last
            if last is not None:
                break
        last = last or START
        for known in (head, self._head):  # its own last line is known where the lock file was removed or set back
            if known is not None and known.number > last.number:
                last = known  # the gap in the numbers shows for ever that lines are missing
        began = (head.began if head is not None else 0) or int(time.time())
        found = Head(last.number, last.digest, remains.size, began)
        if (torn := remains.torn) is None:
            return found
        ending = b"" if torn.ends_line else b"\n"
        files.write_all(self._descriptor, ending)
        event = AuditEvent(action=REPAIRED, length=torn.length, sha256=torn.sha256)
        return self._write(record, found._replace(size=found.size + len(ending)), event.encoded())

    def _rotated(self, record: int, head: Head) -> Head:
        now = time.monotonic()
        if now < self._rotates_after:
            return head
        target = f"{self.path}.{head.number:012d}"
        try:
            files.sync(self._descriptor)
            files.rename(self.path, f"{target}~{time.time_ns()}" if files.exists(target) else target)
            self._open()
            files.sync_directory(os.path.dirname(self.path))
        except OSError as error:
            self._rotates_after = now + _ROTATION_PAUSE
            self.on_fault(str(as_disk_error(error, "rotating the audit")))
            return head._replace(size=os.fstat(self._descriptor).st_size)
        return self._discard(record, self._note(record, head._replace(size=0, began=int(time.time()))))

    def _discard(self, record: int, head: Head) -> Head:
        for last, path in rotated(self.path)[: -self.rotation.keep] if self.rotation.keep else ():
            event = AuditEvent(action=DISCARDED, file=os.path.basename(path), last=last)
            head = self._write(record, head, event.encoded())
            try:
                files.sync(self._descriptor)
                files.remove(path)
            except OSError as error:
                self.on_fault(str(as_disk_error(error, "removing an old file of the audit")))
        return head

    def _note(self, record: int, head: Head) -> Head:
        self._head, self._noted = head, head.record()
        with suppress(OSError):
            files.write_at(record, self._noted, 0)
        return head

    def _sync_later(self) -> None:
        self._is_unsynced = True
        if self._syncing is None:

            def failed(error: Exception) -> None:
                self.on_fault(str(error))

            self._syncing = PeriodicThread("audit-sync", _SYNC_PAUSE, [self._sync_or_report], failed)

    def _sync_or_report(self) -> None:
        if self._is_unsynced:
            self._is_unsynced = False  # before: a line that is written meanwhile waits for the next time
            try:
                self._sync()
            except OSError as error:
                self.on_fault(str(as_disk_error(error, "making the audit durable")))

    def _sync(self) -> None:
        with self._guard:
            descriptor = os.dup(self._descriptor) if self._descriptor >= 0 else -1
        if descriptor >= 0:
            with files.closing(descriptor):
                files.sync(descriptor)


def prepare(path: str) -> str:
    """Make the directory of an audit file where it is missing; return the path without links to the directory."""
    real = _in_real_directory(path)
    try:
        files.ensure(os.path.dirname(real))
    except OSError as error:
        raise StartupError(f"the audit file {path} cannot be made: {error.strerror or error}") from error
    return real


def _in_real_directory(path: str) -> str:
    return f"{os.path.realpath(os.path.dirname(path))}/{os.path.basename(path)}"


def require_outside(path: str, places: Iterable[str]) -> None:
    """Make sure that an audit file is not in one of ``places``, the data directories."""
    real = _in_real_directory(path)  # a link in the directory does not lead its rotated files out
    for place in places:
        if os.path.commonpath((real, os.path.realpath(place))) == os.path.realpath(place):
            raise StartupError(
                f"the audit file {real} must not lie in the data directory {place}: a restore would replace it"
            )


_SYSLOG_PATIENCE = 2.0


def _line(event: bytes) -> bytes:
    return b"".join((f'{{"at":"{next_after(None)}",'.encode(), event[1:]))


class _RaisingHandler(logging.handlers.SysLogHandler):
    """Raises if a line was not sent."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - as logging has it
        error = sys.exc_info()[1]
        raise error if error is not None else OSError("the line was not sent")


class SyslogAudit:
    """Sends lines, without numbers, to syslog: to the socket of a path, or to ``HOST:PORT`` by UDP, as ``authpriv``."""

    def __init__(self, address: str) -> None:
        host, port = host_of(address), address.rpartition(":")[2]
        to = address if address.startswith("/") else (host, int(port))
        try:
            self._handler = _RaisingHandler(to, logging.handlers.SysLogHandler.LOG_AUTHPRIV)
        except OSError as error:
            raise StartupError(f"audit_syslog = {address!r} cannot be reached: {error.strerror or error}") from error
        self._handler.ident = "persistence: "
        self._handler.append_nul = False
        connected: object = getattr(self._handler, "socket", None)
        if not isinstance(connected, socket.socket) or connected.fileno() < 0:  # the library hides that at first
            raise StartupError(f"audit_syslog = {address!r} cannot be reached: nothing listens there")
        connected.settimeout(_SYSLOG_PATIENCE)

    def append(self, event: bytes) -> int:
        text = _line(event).decode()
        record = logging.LogRecord("audit", logging.INFO, "", 0, "%s", (text,), None)
        try:
            self._handler.handle(record)
        except OSError as error:
            raise DiskError(f"syslog does not take the line: {error.strerror or error}") from error
        return 0

    def close(self) -> None:
        self._handler.close()


class OutputAudit:
    """Writes lines, without numbers, to standard output, each by one call of the system."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._descriptor = os.dup(1)

    def append(self, event: bytes) -> int:
        with self._turn:
            try:
                files.write_all(self._descriptor, _line(event) + b"\n")
            except OSError as error:
                raise as_disk_error(error, "writing the audit to standard output") from error
        return 0

    def close(self) -> None:
        with self._turn:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


_DAY = 86_400


# The audit log: requests and commands report their actions to it. The next line counts those that were lost.
#
# If changes *need* a line, they have two: one before (the phase begin), without which nothing is changed, and one with
# the outcome. If the second cannot be written, the change is made, its client hears so, and it has no outcome.


class AuditLog(Closable):
    """Writes events to a sink, if there is one.

    With ``is_required`` each change needs a line. ``on_fault`` hears of lines that are lost.
    """

    def __init__(
        self, sink: AuditTrail | SyslogAudit | OutputAudit | None, *, is_required: bool, on_fault: Callable[[str], None]
    ) -> None:
        self._sink = sink
        self.is_on = sink is not None
        self.is_required = is_required and self.is_on
        self._on_fault = on_fault
        self._lost = 0
        self._counting = threading.Lock()

    def begin(self, event: AuditEvent) -> int:
        """Write the line before a change, where changes need one; return its number, else 0."""
        return self._write(replace(event, phase=BEGIN)) if self.is_required else 0

    def require(self, event: AuditEvent) -> None:
        """Write the line of a read; if lines are needed, raise if that fails: the read must not be answered."""
        if self.is_required:
            self._write(event)
        else:
            self.record(event)

    def record(self, event: AuditEvent) -> None:
        """Write the line of something that has happened. One that cannot be written is lost, and counted."""
        try:
            self._write(event)
        except (DiskError, BusyError) as error:
            with self._counting:
                self._lost += 1
            self._on_fault(f"a line is lost ({event.action}, request {event.id or 'none'}): {error}")

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()

    def _write(self, event: AuditEvent) -> int:
        if self._sink is None:
            return 0
        lost = self._lost
        try:
            number = self._sink.append((replace(event, lost=lost) if lost else event).encoded())
        except (DiskError, BusyError):
            AUDIT_FAULTS.append(1)
            raise
        if lost:
            with self._counting:
                self._lost -= lost
        return number


def open_audit(settings: Settings, keys: Keys, places: Iterable[str], on_fault: Callable[[str], None]) -> AuditLog:
    """Return the audit log of the settings, whose file must be outside of ``places``, the data directories."""

    def newest_seal() -> Seal:
        signing = keys.signing()
        if not signing:
            keys.add_signing(only_first=True)
            signing = keys.signing()
        return Seal.by(signing[-1].id, bytes.fromhex(signing[-1].secret))

    sink: AuditTrail | SyslogAudit | OutputAudit | None = None
    if settings.audit == "syslog":
        sink = SyslogAudit(settings.audit_syslog)
    elif settings.audit == "stdout":
        sink = OutputAudit()
    elif settings.audit != "off":
        require_outside(settings.audit_file, places)
        sink = AuditTrail(
            prepare(settings.audit_file),
            rotation=Rotation(settings.audit_size, settings.audit_days * _DAY, settings.audit_keep),
            syncs_lines=settings.audit_sync == "line",
            seal=newest_seal if settings.audit_signed else lambda: UNSEALED,
            seal_of=seals(keys),
            on_fault=on_fault,
        )
        sink.try_out()
    return AuditLog(sink, is_required=settings.audit_required, on_fault=on_fault)


def seals(keys: Keys) -> Callable[[str], Seal | None]:
    """Return a function that finds the seal of a signing key by its id."""

    def seal_of(key_id: str) -> Seal | None:
        found = next((key for key in keys.signing() if key.id == key_id), None)
        return None if found is None else Seal.by(found.id, bytes.fromhex(found.secret))

    return seal_of
