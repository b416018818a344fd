"""The only module that locks: lock files between threads and processes, and the lease of a tree by one machine.

A tree has one ``Locks``. A scope (a document, or a form's definitions) maps to one of 256 files of its kind, a stripe.
Readers take none of them. The files are never deleted: a lock on a deleted file excludes no one.

A process that holds several takes them in this order, so that no two can wait for each other:

1. ``service``, shared for as long as a tree is open, or exclusive while it is restored or upgraded;
2. the lock file of a job of the whole tree (rebuilding an index, re-encryption, a backup);
3. the stripe of a document, in this tree or elsewhere;
4. the stripe of a document's lease;
5. the stripe of a creation, by the first document of a form that has only one.

Before all of them comes ``read-only``, by whoever keeps writers out. Writers look at it when they have the stripe, and
hold it for no longer than that.

Two stripes of one kind are never held at once: their scopes may have the same file.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

import msgspec

from persistence.closable import PeriodicThread, closed, taking
from persistence.errors import BusyError, StartupError
from persistence.metrics.observations import LOCK_TIMEOUTS, LOCK_WAITS
from persistence.model.texts import Instant, next_after
from persistence.storage import files
from persistence.storage.layout import CREATIONS, ELSEWHERE_LOCKS, LEASE, LEASE_LOCKS, LOCKS, READ_ONLY, SERVICE

STRIPES = 256


def stripe(scope: tuple[str, ...]) -> int:
    return zlib.crc32("\0".join(scope).encode()) % STRIPES


def try_lock(descriptor: int) -> bool:
    """Lock an open file for as long as it is open; ``False`` where another descriptor holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for(descriptor: int, deadline: float, is_ending: Callable[[], bool] = lambda: False) -> bool:
    pause = 0.0005
    while not try_lock(descriptor):
        if time.monotonic() >= deadline or is_ending():
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.01)
    return True


class LockFile:
    """One lock file, which is there. Methods raise ``OSError`` where it cannot be opened."""

    def __init__(self, path: str) -> None:
        self._path = path

    def shared(self) -> FileIO:
        """Take a shared lock, until the result is closed."""
        file = FileIO(files.open_file(self._path))
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise BusyError("the data directory is being restored or upgraded") from None
        return file

    @contextmanager
    def exclusive(
        self, otherwise: str, *, timeout: float = 0.0, is_ending: Callable[[], bool] = lambda: False
    ) -> Iterator[None]:
        """Take an exclusive lock for a block, within ``timeout`` seconds, unless the caller ``is_ending``."""
        with files.closing(files.open_file(self._path)) as descriptor:
            if not _wait_for(descriptor, time.monotonic() + timeout, is_ending):
                raise BusyError(otherwise)
            yield


class LogLock:
    """A lock that is taken for every line of a log. Its file has a small record of what it guards."""

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._thread = threading.Lock()
        self._is_closed = False

    @contextmanager
    def holding(self, otherwise: str) -> Iterator[int]:
        """Take the lock for a block, and lend its file, which is made if it is missing."""
        deadline = time.monotonic() + self._timeout
        with taking(self._thread, BusyError(otherwise), timeout=self._timeout):
            if self._is_closed:
                raise closed(self._path)
            while True:
                with files.closing(files.open_shared(self._path)) as descriptor:
                    if not _wait_for(descriptor, deadline):
                        raise BusyError(otherwise)
                    if os.fstat(descriptor).st_nlink:  # a lock on a removed file excludes no one
                        yield descriptor
                        return

    def close(self) -> None:
        """Let nobody take the lock any more, after a thread that holds it has released it."""
        with self._thread:
            self._is_closed = True


class Locks:
    """The locks of one tree; ``timeout`` in seconds is how long a writer waits for a stripe."""

    # Without ``create`` a missing lock file is not made: it would belong to the user who makes it. ``missing`` makes
    # their directory again, as after a ``git clean``. Documents that another service has are locked by
    # ``ELSEWHERE_LOCKS``, so that a slow service there blocks no writer here.
    def __init__(
        self, root: str, timeout: float, *, create: bool = True, missing: Callable[[], None] | None = None
    ) -> None:
        self._timeout = timeout
        self._create = create
        self._missing = missing
        self.service = LockFile(f"{root}/{SERVICE}")
        self._read_only = f"{root}/{READ_ONLY}"
        self._root = root
        kinds = (LOCKS, ELSEWHERE_LOCKS, LEASE_LOCKS, CREATIONS)
        self._threads = {kind: tuple(threading.Lock() for _ in range(STRIPES)) for kind in kinds}

    def require_writable(self) -> None:
        """Make sure that nobody keeps writers out. The stripe of what is to be written must be held."""
        try:
            with suppress(FileNotFoundError), files.closing(files.open_to_read(self._read_only)) as descriptor:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError("the data is being moved and can only be read for now", retry_after=5) from None

    @contextmanager
    def keeping_writers_out(self) -> Iterator[Callable[[], None]]:
        """Keep everybody from writing for a block; yields what raises ``BusyError`` if that does not hold any more."""
        files.ensure_file(self._read_only)
        with files.closing(files.open_to_read(self._read_only)) as descriptor:
            if not _wait_for(descriptor, time.monotonic() + self._timeout):
                raise BusyError("somebody else keeps writers out of the data directory")
            for number in range(STRIPES):  # a writer that has looked before holds one of them
                with self.holding(LOCKS, number):
                    pass

            def require() -> None:
                if not os.fstat(descriptor).st_nlink:
                    raise BusyError(f"{self._read_only} was removed meanwhile, so that writers were not kept out")

            yield require

    @contextmanager
    def holding(self, kind: str, number: int) -> Iterator[None]:
        """Hold a stripe for a block; ``BusyError`` where it was not to be had before the deadline."""
        began = time.monotonic()
        deadline = began + self._timeout
        thread = self._threads[kind][number]
        if not thread.acquire(timeout=self._timeout):
            raise self._busy()
        try:
            # Opened each time: a descriptor inherited by a forked worker would share its lock with the parent.
            path = f"{self._root}/{kind}/{number:02x}"
            try:
                descriptor = files.open_to_read(path)
            except FileNotFoundError:
                if not self._create:
                    raise
                if self._missing is not None:
                    self._missing()
                files.ensure_file(path)
                descriptor = files.open_to_read(path)
            with files.closing(descriptor):
                if not _wait_for(descriptor, deadline):
                    raise self._busy()
                LOCK_WAITS.append(time.monotonic() - began)
                yield
        finally:
            thread.release()

    def _busy(self) -> BusyError:
        LOCK_TIMEOUTS.append(self._timeout)
        return BusyError(f"another request has been writing here for {self._timeout:g} seconds")


INTERVAL, WATCH, _LENGTH = 15.0, 45.0, 512
_IDS = (Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id"))


# The lease of a tree: which machine has it open, so that a second machine does not write into it as well.
#
# Locks exclude processes of one machine; over NFS or on a cluster file system, those of another one may not see them.
# So a process that opens a tree to write says so in a file, and writes that again every INTERVAL seconds: in place, for
# a disk may be full. All processes of a machine share the lease, and lock its file shared. The lease of another machine
# is refused for WATCH seconds after it was written.


class Machine(msgspec.Struct, frozen=True):
    """A running kernel: its host name, the id of its installation, and that of its boot, which containers share."""

    host: str
    machine: str
    boot: str
    since: Instant | None = None

    @classmethod
    def this(cls) -> Machine:
        machine, boot = (each.read_text().strip() if each.exists() else "" for each in _IDS)
        return cls(socket.gethostname(), machine, boot)


class Lease:
    """The part that one process, or opened store, has in the lease of its machine; ``lost`` says who took it over."""

    # A disk that refuses to write the lease fails no write. One that refuses to read it does: it may be another's.
    def __init__(self, root: str, *, machine: Machine | None = None, interval: float = INTERVAL) -> None:
        self._root, self._path = root, f"{root}/{LEASE}"
        self.lost, self._guard, self._is_closed = "", threading.Lock(), False
        own = self._own = msgspec.structs.replace(machine or Machine.this(), since=next_after(None))
        self._left = found = self._read()  # a disk that is read-only keeps it
        if found is not None and found.boot == own.boot:
            self._own = found
        elif found is not None and (found.host, found.machine) == (own.host, own.machine or None):
            pass  # nothing runs any more of what ran before the last restart
        elif found is not None and os.stat(self._path).st_mtime > time.time() - WATCH:
            raise StartupError(
                f"{root} is open on machine {found.host} since {found.since}, which renewed its lease in the last"
                f" {WATCH:g} seconds: one machine at a time may write into a tree; stop the service there first"
            )
        self._held = None
        with suppress(OSError, BusyError):  # a disk that is read-only; or another process is just giving it back
            files.ensure_file(self._path)
            self._held = LockFile(self._path).shared()
        self._write()
        self._renewals = PeriodicThread("tree-lease", interval, (self._renew,), lambda _: None)

    def require(self) -> None:
        """Make sure, before something is written, that no other machine has taken over: this one may have slept."""
        with self._guard:
            self._look()
        if self.lost:
            raise BusyError(self.lost, retry_after=60)

    def close(self) -> None:
        """End taking part; the last process of a machine says that it has the tree no longer. May be called again."""
        with self._guard:
            if self._is_closed:
                return
            self._is_closed = True
            if self._held is not None:
                self._held.close()
            with suppress(OSError, BusyError), LockFile(self._path).exclusive("others take part"):
                self._look()
                if not self.lost:
                    files.overwrite(self._path, b"\n".rjust(_LENGTH))
        self._renewals.close()

    def _renew(self) -> None:
        with self._guard:
            self._look()  # what cannot be read is not replaced
            if not (self.lost or self._is_closed):
                self._write()

    def _look(self) -> None:
        found = self._read()
        if not self.lost and found is not None and found.boot != self._own.boot and found != self._left:
            holder = f"machine {found.host} since {found.since}"
            self.lost = f"{self._root} was taken over by {holder}: nothing is written here until a restart"
            sys.stderr.write(f"persistence: {self.lost}\n")

    def _read(self) -> Machine | None:
        try:
            with files.closing(files.open_to_read(self._path)) as descriptor:
                return msgspec.json.decode(files.read_small(descriptor)[:_LENGTH], type=Machine)
        except (FileNotFoundError, msgspec.DecodeError, ValueError, RecursionError):  # blank if no machine has the tree
            return None

    def _write(self) -> None:
        with suppress(OSError):
            files.overwrite(self._path, msgspec.json.encode(self._own).ljust(_LENGTH - 1) + b"\n")
