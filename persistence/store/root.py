"""The root of the tree: its format, its own directories, and whether the file system does what the commit needs."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable

import msgspec

from persistence.errors import StartupError
from persistence.model.sidecar import fresh_id
from persistence.store import files
from persistence.store.layout import CREATIONS, LAYOUT, LOCKS, SERVE, SPOOL, TRASH
from persistence.store.locks import STRIPES, try_lock

FORMAT = 1
"""The format of the tree that this version reads and writes."""

_LEAST_FREE = 1 << 20
_FOR_NOW = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class _LayoutFile(msgspec.Struct):
    format: int


def prepare(root: str) -> None:
    """Make the root's own files where they are missing.

    Raises:
        StartupError: the tree has an unknown format.
        OSError: something cannot be made.
    """
    files.ensure_directory(root)
    _check_format(f"{root}/{LAYOUT}")
    for name in (LOCKS, CREATIONS, SPOOL, TRASH, SERVE):
        files.make_directory(f"{root}/{name}")
    for number in range(STRIPES):
        files.ensure_file(f"{root}/{LOCKS}/{number:02x}")


def _check_format(path: str) -> None:
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=_LayoutFile).format
    except FileNotFoundError:
        files.write_durably(path, msgspec.json.encode(_LayoutFile(FORMAT)) + b"\n")
        return
    except msgspec.DecodeError as error:
        raise StartupError(f"{path} cannot be read: {error}") from error
    if found != FORMAT:
        raise StartupError(f"{path} says format {found}; this version knows format {FORMAT} only")


def free_bytes(root: str) -> int:
    """Bytes that an ordinary user may still write; raises ``OSError`` where the root is not writable."""
    status = os.statvfs(root)
    if status.f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    if not os.access(root, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return status.f_bavail * status.f_frsize


def probe(root: str) -> str | None:
    """Try out, in the spool, everything the commit needs of the file system.

    Returns what keeps the service from writing for now: a disk that is full or read-only may still be read from, and
    is not for ever.

    Raises:
        StartupError: names the first thing that does not work.
    """
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


_CONTENDER = "import fcntl,sys\nf=open(sys.argv[1])\ntry: fcntl.flock(f,6)\nexcept BlockingIOError: sys.exit(7)"


def _lock(path: str) -> None:
    with open(path, "rb") as file:
        try_lock(file.fileno())
        contender = subprocess.run(  # noqa: S603 - our own interpreter, our own text
            [sys.executable, "-S", "-E", "-c", _CONTENDER, path], check=False, capture_output=True, timeout=20
        )
    if contender.returncode != 7:  # noqa: PLR2004 - the contender's own code for "locked", two lines above
        raise OSError("a second process was not locked out")


def _space(root: str) -> None:
    if free_bytes(root) < _LEAST_FREE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
