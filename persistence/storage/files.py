"""The one module that writes, links, renames and removes files, and makes them durable.

Functions raise ``OSError``; the store's public methods translate it. Nothing here knows what the files mean. No file is
opened through a symbolic link (``nofollow``), and none is written to that has another name: only new ones are.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from persistence.storage import directories, nofollow

FILE_MODE = 0o640
_LONGEST_NAME = 255
_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}

sync = directories.sync_open
"""Makes the content of an open file durable.

After an error the content counts as lost: a second fsync may say yes without having written anything.
"""


def begin_writeback(descriptor: int, begin: int = 0, size: int = 0) -> None:
    """Let the kernel start writing a file now, or so many bytes of it, without waiting.

    When several small files are fsynced in a row, the blocks of all of them are then allocated before the first
    fsync, and on a journaling file system one journal commit serves them all.
    """
    with suppress(OSError):  # a hint; what counts is the fsync that follows
        os.posix_fadvise(descriptor, begin, size, os.POSIX_FADV_DONTNEED)


def ensure_file(path: str) -> None:
    """Make an empty file if it is missing; an existing one is not touched, so the disk may be read-only.

    Raises ``OSError`` where something else has the name, a link too.
    """
    try:
        nofollow.require_file(os.lstat(path), path)
    except FileNotFoundError:
        flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        os.close(os.open(path, flags, FILE_MODE))


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything: a single ``write`` may stop short when the disk fills up."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def cut(descriptor: int) -> None:
    """Take everything out of an open file."""
    os.ftruncate(descriptor, 0)


def reserve(descriptor: int, size: int) -> None:
    """Take room for so many bytes of an open file, which get no content. Raises ``OSError``."""
    os.posix_fallocate(descriptor, 0, size)


def set_size(descriptor: int, size: int) -> None:
    """Give an open file a size in bytes; added bytes are zeros, which take no room."""
    os.ftruncate(descriptor, size)


@contextmanager
def written(path: str, data: bytes, mode: int = FILE_MODE) -> Iterator[int]:
    """A new file at ``path`` with ``data``, open and not yet synced; a file that was there loses that name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, mode)
    except FileExistsError:  # not truncated: it may be another name of something else
        os.unlink(path)
        descriptor = os.open(path, flags, mode)
    try:
        write_all(descriptor, data)
        yield descriptor
    finally:
        os.close(descriptor)


def write_durably(path: str, data: bytes, mode: int = FILE_MODE) -> None:
    """Replace a small file, as ``replacing`` does: keys that a kill leaves behind would outlive their retirement."""
    with replacing(path, mode) as descriptor:
        write_all(descriptor, data)


@contextmanager
def replacing(path: str, mode: int = FILE_MODE) -> Iterator[int]:
    """A new file, open to be written, that has ``path`` when the block has ended, durably and whole.

    After an error, what was there is as it was. A kill leaves nothing where the file system has unnamed files.
    """
    path = os.path.abspath(path)
    directory, fresh = os.path.dirname(path), f"{path}.{os.getpid()}"
    remove_quietly(fresh)  # of a process with this number, which was killed
    unnamed = open_unnamed(directory, mode)
    descriptor = open_new(fresh, mode) if unnamed is None else unnamed
    try:
        yield descriptor
        sync(descriptor)
        if unnamed is not None:
            link_descriptor(descriptor, fresh)
        os.rename(fresh, path)
        directories.sync(directory)
    except BaseException:
        remove_quietly(fresh)
        raise
    finally:
        os.close(descriptor)


def overwrite(path: str, data: bytes) -> None:
    """Write over a small file in place, and make it if it is missing: not durable. A pipe in its place does not block.

    One that has another name, as after a copy with hard links, is replaced.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        status = os.fstat(descriptor)
        if status.st_nlink > 1:
            os.unlink(path)
            shared, descriptor = descriptor, os.open(path, flags | os.O_EXCL, FILE_MODE)
            os.close(shared)
            status = os.fstat(descriptor)
        nofollow.require_file(status, path)
        os.pwrite(descriptor, data, 0)
        if status.st_size > len(data):
            os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


def append(path: str, data: bytes) -> None:
    """Add a line to a file that is made where it is missing, durably."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        status = os.fstat(descriptor)
        nofollow.require_file(status, path)
        if status.st_nlink > 1:
            raise OSError(errno.EMLINK, "it has another name", path)
        write_all(descriptor, data)
        sync(descriptor)
    finally:
        os.close(descriptor)
    directories.sync(os.path.dirname(path))


def open_shared(path: str, flags: int = 0) -> int:
    """Return a file that several processes write, for reading too, and make it if it is missing.

    With ``os.O_APPEND`` in ``flags`` each write goes to its end. Raises ``OSError`` where something else has the name,
    a link too.
    """
    always = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, always | flags, FILE_MODE)
    try:
        nofollow.require_file(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_at_start(descriptor: int, data: bytes) -> None:
    """Write over the beginning of an open file: not durable."""
    os.pwrite(descriptor, data, 0)


def open_log(path: str) -> int:
    """Return a new file, for appending, at a path that no other process uses."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)


def open_unnamed(directory: str, mode: int = FILE_MODE) -> int | None:
    """An open file without a name, which vanishes with its last descriptor; ``None`` where the file system has none."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in _NO_UNNAMED and os.path.isdir(directory):
            return None
        raise


def open_new(path: str, mode: int = FILE_MODE) -> int:
    """Return a new file, for reading and writing, at a path that no other process uses."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def link_descriptor(descriptor: int, path: str) -> None:
    """Give an open file a name; an unnamed one too."""
    # linkat follows /proc/self/fd only with AT_SYMLINK_FOLLOW, which Python sets when a directory is passed;
    # the path is absolute, so which one does not matter.
    os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)


def stamp(descriptor: int, nanoseconds: int) -> None:
    """Set the modification time of an open file, in nanoseconds since 1970."""
    os.utime(descriptor, ns=(nanoseconds, nanoseconds))


def stamp_durably(path: str, nanoseconds: int) -> None:
    """Set the modification time of a file, in nanoseconds since 1970, and make its content and time durable."""
    descriptor = nofollow.open_file(path)
    try:
        stamp(descriptor, nanoseconds)
        sync(descriptor)
    finally:
        os.close(descriptor)


def set_mode(path: str, mode: int) -> None:
    """Set the permissions of a file or directory at an absolute path without links."""
    descriptor = nofollow.open_to_read(path, os.O_PATH)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISDIR(status.st_mode):
            nofollow.require_file(status, path)
            if status.st_nlink > 1:
                raise OSError(errno.EMLINK, "it has another name, to which its permissions belong, too", path)
        os.chmod(f"/proc/self/fd/{descriptor}", mode)  # fchmod wants one that may be read or written
    finally:
        os.close(descriptor)


def move_away(source: str, target: str) -> str:
    """Move a file or directory to a path whose directories are made, or beside an existing one there.

    Returns the path it has now. Both names are durable.
    """
    directories.ensure(os.path.dirname(target))
    free = target
    if exists(target):
        beside = f"~{time.time_ns()}"
        free = f"{target}{beside}"
        if len(os.fsencode(os.path.basename(free))) > _LONGEST_NAME:
            free = f"{os.path.dirname(target)}/{beside}/{os.path.basename(target)}"
            directories.ensure(os.path.dirname(free))
    os.rename(source, free)
    directories.sync(os.path.dirname(free))
    directories.sync(os.path.dirname(source))
    return free


rename = os.rename
"""Gives a file or directory another name, over a file that has it, atomically."""

link = os.link
"""Gives a file a second name."""


def remove(path: str) -> bool:
    """Remove a file; return ``False`` if it does not exist."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def remove_quietly(*paths: str) -> None:
    """Clean up after a failure, which is the news, not what happens here."""
    for path in paths:
        with suppress(OSError):
            os.unlink(path)


def exists(path: str) -> bool:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def has_other_names(path: str) -> bool:
    """Return whether the file at a path has a second hard link; ``False`` where there is no file."""
    try:
        return os.lstat(path).st_nlink > 1
    except FileNotFoundError:
        return False
