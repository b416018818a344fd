"""Second names and copies of files: of one in the steps of a commit, and of many in backups.

Functions raise ``OSError``, as those of ``files`` do, which make every change.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from persistence.storage import files, nofollow

_COPIED_AT_ONCE = 1 << 20
_BLOCK = 1 << 12
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES}
_libc = ctypes.CDLL(None, use_errno=True)


def keep_as(source: str, target: str) -> None:
    """Give a file a second name, which survives what happens to the first; a copy where links are refused.

    The name may be there already, when a crash stopped the same step. If it is another file (the first name was given
    to a new one by hand since), that one is moved aside: the service deletes neither.
    """
    try:
        files.link(source, target)
    except FileExistsError:
        if not os.path.samestat(os.lstat(source), os.lstat(target)):
            files.rename(target, f"{target}~{time.time_ns()}")
            files.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _copy(source, target)


def separate(path: str, temporary: str) -> None:
    """Give a file with other names a copy of its own: changes then do not affect the other names.

    Its content goes through a file at ``temporary``.
    """
    if not files.has_other_names(path):
        return
    files.remove(temporary)
    _copy(path, temporary)
    files.rename(temporary, path)


def _copy(source: str, target: str) -> None:
    with open(nofollow.open_file(source), "rb") as file, files.written(target, b"") as descriptor:
        while chunk := file.read(_COPIED_AT_ONCE):
            files.write_all(descriptor, chunk)
        status = os.fstat(file.fileno())
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
        files.stamp(descriptor, status.st_mtime_ns)
        files.sync(descriptor)


def copied(source: str, target: str) -> tuple[int, str]:
    """Copy a file over ``target``, not durably.

    Returns the size in bytes and the SHA-256 in hex digits of the copied bytes, even if the source changes meanwhile.
    """
    hashing, size = hashlib.sha256(), 0
    with open(nofollow.open_file(source), "rb") as file, files.written(target, b"") as descriptor:
        while chunk := file.read(_COPIED_AT_ONCE):
            files.write_all(descriptor, chunk)
            hashing.update(chunk)
            size += len(chunk)
    return size, hashing.hexdigest()


def write_new(path: str, chunks: Iterable[bytes], nanoseconds: int) -> None:
    """A new file with a modification time, not synced: one of many of a copy.

    Chunks of nothing but zeros take no room: a file in a backup may say that it is larger than any disk.
    """
    descriptor = files.open_new(path)
    size = 0
    try:
        for chunk in chunks:
            if len(chunk) >= _BLOCK and not chunk.strip(b"\0"):
                files.set_size(descriptor, size + len(chunk))
                os.lseek(descriptor, 0, os.SEEK_END)
            else:
                files.write_all(descriptor, chunk)
            size += len(chunk)
        files.stamp(descriptor, nanoseconds)
    finally:
        os.close(descriptor)


@contextmanager
def synced(directory: str) -> Iterator[None]:
    """Make everything durable that a block writes to the file system of a directory: for copies of many files.

    What could not be written since the block began is an ``OSError``, which ``os.sync`` would keep to itself.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield
        if _libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)
