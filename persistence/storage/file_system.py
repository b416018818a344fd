"""Trials of what the commit needs of a file system, and the room that is left on it."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable

from persistence import processes
from persistence.errors import StartupError
from persistence.model.sidecar import fresh_id
from persistence.storage import files
from persistence.storage.layout import SERVICE, SPOOL
from persistence.storage.locks import try_lock

_LEAST_FREE = 1 << 20
_LEAST_INODES = 64
_FOR_NOW = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


def free_bytes(root: str) -> int:
    """Bytes that an ordinary user may still write into a tree; raises ``OSError`` where it cannot make files."""
    if not os.access(f"{root}/{SERVICE}", os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return free_in(root)


def free_in(directory: str) -> int:
    """Bytes that an ordinary user may still write there; raises ``OSError`` where it cannot make files."""
    status = os.statvfs(directory)
    if status.f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if status.f_files and status.f_favail < _LEAST_INODES:  # some file systems do not count them, and say 0 of 0
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return status.f_bavail * status.f_frsize


def probe(root: str) -> str | None:
    """Try out all that the commit needs of the file system; return why the service cannot write for now."""
    first, second = (f"{root}/{SPOOL}/{fresh_id()}" for _ in range(2))
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("writing and fsync", lambda: _write(first)),
        ("hard links", lambda: files.keep_as(first, second)),
        ("rename", lambda: files.rename(first, second)),
        ("fsync of a directory", lambda: files.sync_directory(f"{root}/{SPOOL}")),
        ("locks between processes", lambda: _lock(second)),
        ("free space", lambda: _space(root)),
    )
    try:
        for what, step in steps:
            try:
                step()
            except OSError as error:
                cause = f"data directory {root}: {what}: {error.strerror or error}"
                if error.errno in _FOR_NOW:
                    return cause
                raise StartupError(cause) from error
        return None
    finally:
        files.remove_quietly(first, second)


def _write(path: str) -> None:
    with files.written(path, b"probe\n") as descriptor:
        files.sync(descriptor)


_LONGEST_TRIAL = 20.0
_LOCKED = 7
_CONTEND = f"import fcntl,sys\nf=open(sys.argv[1])\ntry: fcntl.flock(f,6)\nexcept BlockingIOError: sys.exit({_LOCKED})"
"""Ends with ``_LOCKED`` if the file of its last argument is locked."""


def _contend(path: str) -> int:
    with processes.start("-S", "-c", _CONTEND, path, stderr=subprocess.DEVNULL) as contender:
        return contender.wait(_LONGEST_TRIAL)


def _lock(path: str) -> None:
    with open(path, "rb") as file:
        try_lock(file.fileno())
        status = _contend(os.path.abspath(path))
    if status != _LOCKED:
        raise OSError("a second process was not locked out")


def _space(root: str) -> None:
    if free_bytes(root) < _LEAST_FREE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
