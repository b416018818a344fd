"""The lease of a tree: which machine has it open, so that a second machine does not write into it as well.

Locks exclude processes of one machine; over NFS or on a cluster file system, processes of another machine may not see
them. So a process that opens a tree to write says so in a file in the tree, and renews that every ``INTERVAL`` seconds.
All processes of a machine share one lease. Clocks of two machines are never compared: a lease that is not renewed for
``WATCH`` seconds was left behind.

The file is of one length and is written in place: that needs no room on a disk that is full. It is not synced: after a
power cut it is the lease of a machine that has been restarted, in every case.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import msgspec

from persistence.errors import BusyError, StartupError
from persistence.model.instants import Instant, next_after
from persistence.storage import files, nofollow
from persistence.storage.layout import LEASE
from persistence.storage.locks import LockFile

INTERVAL = 15.0
"""Seconds between two renewals by one process."""
WATCH = 45.0
"""Seconds without a renewal after which the lease of another machine counts as left behind."""

_PAUSE = 0.25
_SETTLING = 2.0
_PATIENCE = 2.0
_LENGTH = 512
_LONGEST_NAME = 100
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID = Path("/etc/machine-id")


@dataclass(frozen=True, slots=True)
class Machine:
    """A running kernel: ``boot`` names one boot of it, ``machine`` the installation (empty where it has no name).

    Containers of one machine have its ``boot``, and its locks exclude them from each other.
    """

    host: str
    machine: str
    boot: str

    @classmethod
    def this(cls) -> Machine:
        """Return the one that this process runs on. Without a boot id (no Linux) every boot is taken for the same."""
        return cls(socket.gethostname()[:_LONGEST_NAME], _line(_MACHINE_ID), _line(_BOOT_ID))

    def was_restarted(self, before: Content) -> bool:
        """Return whether a lease is of this machine, before its last restart: nothing of that runs any more."""
        return bool(self.machine) and (before.machine, before.host) == (self.machine, self.host)


class Content(msgspec.Struct, frozen=True):
    """The content of the file: the machine that has the tree, since when, and when and how often it was renewed."""

    host: str
    machine: str
    boot: str
    since: Instant
    renewed: Instant
    count: int

    @property
    def holder(self) -> str:
        """The machine and since when it has the tree, for a message."""
        return f"machine {self.host} since {self.since}"


class Lease:
    """The part that one process, or one opened store, has in the lease of its machine.

    ``lost`` says who has taken it over, once that was noticed. A disk that refuses to write the lease fails no write.
    One that refuses to read it does: it may be another machine's. ``interval`` and ``watch`` are in seconds.
    """

    def __init__(
        self, root: str, *, machine: Machine | None = None, interval: float = INTERVAL, watch: float = WATCH
    ) -> None:
        self.lost = ""
        self._root = root
        self._path = f"{root}/{LEASE}"
        self._machine = machine or Machine.this()
        self._interval, self._watch = interval, watch
        self._seen = -1
        self._left: Content | None = None
        self._guard = threading.Lock()
        self._ends = threading.Event()
        self._process = os.getpid()
        self._held: FileIO | None = None
        with suppress(OSError):  # a disk that is full or read-only: then nothing is written there either
            self._held = _shared(self._path)
        try:
            self._take()
        except BaseException:
            self._let_go()
            raise
        self._thread = threading.Thread(target=self._renewing, name="tree-lease", daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Make sure, before something is written, that no other machine has taken the lease over.

        Reads the file each time, which costs some microseconds: a machine that slept looks before it writes again.
        """
        with self._guard:
            self._look()
        if self.lost:
            raise BusyError(self.lost, retry_after=60)

    def close(self) -> None:
        """End taking part; the last process of a machine says that it has the tree no longer. May be called again."""
        with self._guard:
            if self._ends.is_set():
                return
            self._ends.set()
            self._let_go()
            if not self.lost:
                with suppress(OSError):
                    self._release()
        if self._process == os.getpid():  # otherwise the thread belongs to the process that has forked
            self._thread.join()

    def _take(self) -> None:
        content = self._read()
        if content is None or self._is_ours(content):
            self._write(content)
            return
        was_restarted = self._machine.was_restarted(content)
        if not was_restarted:
            self._outwait(content)
        self._left = content  # a disk that is read-only keeps it
        self._write(content)
        if not was_restarted:
            time.sleep(min(_SETTLING, self._watch / 4))  # of two that take it over at once, the last one has it
            now = self._read()
            if now is not None and not self._is_ours(now):
                raise StartupError(_refusal(self._root, now))

    def _outwait(self, content: Content) -> None:
        sys.stderr.write(
            f"persistence: {self._root} was last opened by {content.holder}: waiting {self._watch:g} seconds to see"
            " whether it still is\n"
        )
        end = time.monotonic() + self._watch
        while time.monotonic() < end:
            time.sleep(min(_PAUSE, self._watch / 8))
            now = self._read()
            if now is None or self._is_ours(now):
                return
            if (now.boot, now.count) != (content.boot, content.count):
                raise StartupError(_refusal(self._root, now))

    def _renewing(self) -> None:
        while not self._ends.wait(self._interval):
            with self._guard, suppress(OSError):  # what cannot be read is not replaced
                if not self._ends.is_set():
                    self._look(renew=True)

    def _look(self, *, renew: bool = False) -> None:
        if self.lost:
            return
        content = self._read()
        if content is not None and not self._is_ours(content):
            self.lost = f"{self._root} was taken over by {content.holder}: nothing is written here until a restart"
            sys.stderr.write(f"persistence: {self.lost}\n")
        elif renew and (content is None or content.count == self._seen):
            self._write(content)
        elif renew and content is not None:
            self._seen = content.count

    def _is_ours(self, content: Content) -> bool:
        return content.boot == self._machine.boot or content == self._left

    def _read(self) -> Content | None:
        try:
            descriptor = nofollow.open_to_read(self._path)
        except FileNotFoundError:
            return None
        try:
            text = nofollow.read_small(descriptor)[:_LENGTH].strip()
            return msgspec.json.decode(text, type=Content) if text else None
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        finally:
            os.close(descriptor)

    def _write(self, before: Content | None) -> None:
        now = next_after(None)
        since = before.since if before is not None and before.boot == self._machine.boot else now
        own = self._machine
        count = before.count + 1 if before is not None else 1
        with suppress(OSError):
            files.overwrite(self._path, _padded(Content(own.host, own.machine, own.boot, since, now, count)))
            self._seen = count

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _release(self) -> None:
        with _alone(self._path) as is_alone:
            content = self._read() if is_alone else None
            if content is not None and self._is_ours(content):
                files.overwrite(self._path, _padded(None))


@contextmanager
def held(root: str) -> Iterator[None]:
    """Have the lease of a tree for a block. Raises as ``Lease`` does."""
    lease = Lease(root)
    try:
        yield
    finally:
        lease.close()


def _refusal(root: str, content: Content) -> str:
    return (
        f"{root} is open on {content.holder}, which renews its lease: one machine at a time may write into a tree; stop"
        " the service there first"
    )


def _shared(path: str) -> FileIO:
    files.ensure_file(path)
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return LockFile(path).shared()
        except BusyError:  # for the moment that it takes to write one block
            if time.monotonic() > deadline:
                raise OSError(f"{path} is locked") from None
            time.sleep(0.001)


@contextmanager
def _alone(path: str) -> Iterator[bool]:
    try:
        with LockFile(path).exclusive("others take part"):
            yield True
    except BusyError:
        yield False


def _padded(content: Content | None) -> bytes:
    text = b"" if content is None else msgspec.json.encode(content)
    return text.ljust(_LENGTH - 1) + b"\n"


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()[:_LONGEST_NAME]
    except (OSError, ValueError):
        return ""
