"""The lease of a tree: which machine has it open, so that a second machine does not write into it as well.

Locks exclude processes of one machine; over NFS or on a cluster file system, those of another one may not see them. So
a process that opens a tree to write says so in a file, and writes that again every ``INTERVAL`` seconds: in place, for
a disk may be full. All processes of a machine share the lease, and lock its file shared. The lease of another machine
is refused for ``WATCH`` seconds after it was written.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path

import msgspec

from persistence.errors import BusyError, StartupError
from persistence.model.instants import Instant, next_after
from persistence.storage import files, nofollow
from persistence.storage.layout import LEASE
from persistence.storage.locks import LockFile

INTERVAL, WATCH, _LENGTH = 15.0, 45.0, 512
_IDS = (Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id"))


class Machine(msgspec.Struct, frozen=True):
    """A running kernel: its host name, the id of its installation, and that of its boot, which containers share."""

    host: str
    machine: str
    boot: str
    since: Instant | None = None

    @classmethod
    def this(cls) -> Machine:
        """Return the one that this process runs on."""
        machine, boot = (each.read_text().strip() if each.exists() else "" for each in _IDS)
        return cls(socket.gethostname(), machine, boot)


class Lease:
    """The part that one process, or one opened store, has in the lease of its machine.

    ``lost`` says who has taken it over, once that was noticed. A disk that refuses to write the lease fails no write.
    One that refuses to read it does: it may be another machine's. ``interval`` is in seconds.
    """

    def __init__(self, root: str, *, machine: Machine | None = None, interval: float = INTERVAL) -> None:
        self._root, self._path, self._interval = root, f"{root}/{LEASE}", interval
        self.lost, self._guard, self._ends = "", threading.Lock(), threading.Event()
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
        self._thread = threading.Thread(target=self._renewing, name="tree-lease", daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Make sure, before something is written, that no other machine has taken over: this one may have slept."""
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
            if self._held is not None:
                self._held.close()
            with suppress(OSError, BusyError), LockFile(self._path).exclusive("others take part"):
                self._look()
                if not self.lost:
                    files.overwrite(self._path, b"\n".rjust(_LENGTH))
        self._thread.join()

    def _renewing(self) -> None:
        while not self._ends.wait(self._interval):
            with self._guard, suppress(OSError):  # what cannot be read is not replaced
                self._look()
                if not (self.lost or self._ends.is_set()):
                    self._write()

    def _look(self) -> None:
        found = self._read()
        if not self.lost and found is not None and found.boot != self._own.boot and found != self._left:
            holder = f"machine {found.host} since {found.since}"
            self.lost = f"{self._root} was taken over by {holder}: nothing is written here until a restart"
            sys.stderr.write(f"persistence: {self.lost}\n")

    def _read(self) -> Machine | None:
        try:
            with FileIO(nofollow.open_to_read(self._path)) as file:
                return msgspec.json.decode(nofollow.read_small(file.fileno())[:_LENGTH], type=Machine)
        except (FileNotFoundError, msgspec.DecodeError, ValueError, RecursionError):  # blank if no machine has the tree
            return None

    def _write(self) -> None:
        with suppress(OSError):
            files.overwrite(self._path, msgspec.json.encode(self._own).ljust(_LENGTH - 1) + b"\n")
