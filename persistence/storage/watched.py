"""Values read from directories, kept for as long as nothing in these directories changes (inotify(7)).

Before a system call returns that changes a file or a name, in whichever process, the kernel has queued an event for who
watches its directory. So one look at the queue finds what a ``stat`` of every file would find. Nothing is watched where
that does not hold: on a file system that other machines may change, or where the kernel grants no more watches. There
values are read each time.

Not noticed at once are a write through a memory map, one through a link to the file in another directory, and a mount
over a directory inside. The service makes none of these, and no value is kept for longer than ``LONGEST_WATCHED``.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from persistence.limits import LONGEST_WATCHED, WATCHED_DIRECTORIES

T = TypeVar("T")

Watch = Callable[[str], None]
"""Begins to watch a directory; to be called before anything in it is looked at."""

_LOCAL = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010})
"""File systems of one machine, as statfs(2) numbers them: ext, XFS, btrfs, tmpfs, F2FS. ZFS can be rolled back."""

_CHANGES = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
"""Writes and the end of writing, attributes, names that come, go or move, and the directory itself gone or moved."""
_ONLY_DIRECTORIES = 0x01000000 | 0x02000000
_OVERFLOW = 0x4000
_EVENT = struct.Struct("iIII")
_READ_AT_ONCE = 1 << 16
_STATFS_BYTES = 256

_c = ctypes.CDLL(None, use_errno=True)


class _Kept(Generic[T]):
    """A value, and the watches on the directories that it was read from."""

    __slots__ = ("directory", "identity", "is_outdated", "since", "value", "watches")

    value: T

    def __init__(self, directory: str, identity: tuple[int, int]) -> None:
        self.directory = directory
        self.identity = identity
        self.watches: list[int] = []
        self.is_outdated = False
        self.since = time.monotonic()


class WatchedValues(Generic[T]):
    """Values by the directory that they are read from, with others in it. For all threads, and after a fork."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._queue: int | None = None
        self._arrived = select.poll()
        self._process: int | None = None
        self._device: int | None = None
        self._kept: dict[str, _Kept[T]] = {}
        self._watched: dict[int, _Kept[T]] = {}
        self._reading: set[str] = set()
        self._refused_until = 0.0
        self._close: Callable[[], object] = lambda: None

    def close(self) -> None:
        """Watch nothing any more; values are read each time."""
        with self._lock:
            self._stop()
            self._process = os.getpid()

    def get(self, directory: str, read: Callable[[Watch], T]) -> T:
        """Return the value of a directory, which ``read`` makes where it is not known; ``OSError`` comes from it."""
        identity = _identity(directory)
        with self._lock:
            queue = self._opened()
            if queue is None or identity is None or identity[0] != self._device:
                queue = None
            else:
                self._take_events(queue)
                known, now = self._kept.get(directory), time.monotonic()
                if known is not None and known.identity == identity and now < known.since + LONGEST_WATCHED:
                    return known.value
                if known is not None:
                    self._forget(known)
                if directory in self._reading or now < self._refused_until:  # two would take each other's watches
                    queue = None
                else:
                    self._reading.add(directory)
        if queue is None or identity is None:
            return read(lambda _: None)
        try:
            return self._made(directory, identity, read)
        finally:
            with self._lock:
                self._reading.discard(directory)

    def _made(self, directory: str, identity: tuple[int, int], read: Callable[[Watch], T]) -> T:
        made = _Kept[T](directory, identity)
        try:
            value = made.value = read(lambda each: self._watch(made, each))
            is_same = _identity(directory) == identity
        except BaseException:
            with self._lock:
                self._forget(made)
            raise
        with self._lock:
            if made.is_outdated or not is_same:
                self._forget(made)
            else:
                self._kept[directory] = made
        return value

    def _opened(self) -> int | None:
        """Return the queue of this process; ``None`` where it cannot have one. A fork must not share its parent's."""
        if self._process != os.getpid():
            self._stop()
            self._process = os.getpid()
            if file_system_of(self._root) in _LOCAL:
                queue: int = _c.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
                if queue >= 0:
                    with suppress(OSError):
                        self._device = os.stat(self._root).st_dev
                    self._queue = queue
                    self._arrived = select.poll()
                    self._arrived.register(queue, select.POLLIN)
                    self._close = weakref.finalize(self, os.close, queue)
        return self._queue

    def _stop(self) -> None:
        self._close()
        self._queue = None
        self._kept.clear()
        self._watched.clear()
        self._reading.clear()

    def _watch(self, made: _Kept[T], directory: str) -> None:
        with self._lock:
            if made.is_outdated:
                return
            number = -1
            if self._queue is not None and len(self._watched) < WATCHED_DIRECTORIES:
                number = _c.inotify_add_watch(self._queue, os.fsencode(directory), _CHANGES | _ONLY_DIRECTORIES)
            if number < 0:
                made.is_outdated = True
                self._refused_until = time.monotonic() + LONGEST_WATCHED
                return
            before = self._watched.get(number)
            self._watched[number] = made
            made.watches.append(number)
            if before is not None and before is not made:
                self._forget(before)

    def _take_events(self, queue: int) -> None:
        while self._arrived.poll(0):
            for number, mask in _events(os.read(queue, _READ_AT_ONCE)):
                outdated = self._watched.values() if mask & _OVERFLOW else (self._watched.get(number),)
                for each in list(outdated):
                    if each is not None:
                        self._forget(each)

    def _forget(self, kept: _Kept[T]) -> None:
        kept.is_outdated = True
        if self._kept.get(kept.directory) is kept:
            del self._kept[kept.directory]
        for number in kept.watches:
            if self._watched.get(number) is kept:
                del self._watched[number]
                _c.inotify_rm_watch(self._queue, number)
        kept.watches.clear()


def _identity(directory: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(directory)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def file_system_of(path: str) -> int:
    """Return the number of the type of a file system; 0 where it cannot be found out."""
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if _c.statfs(os.fsencode(path), buffer) != 0:
        return 0
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF


def _events(data: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(data):
        number, mask, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size + length
        yield number, mask
