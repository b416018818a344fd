"""The one module, beside ``copying``, that writes, links, renames and removes files, and makes them durable.

Functions raise ``OSError``; the store's public methods translate it. Nothing here knows what the files mean.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

FILE_MODE = 0o640
DIRECTORY_MODE = 0o750
_READ_AT_ONCE = 1 << 16
_MOST_READ = 1 << 20
_COPIED_AT_ONCE = 1 << 20
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES}
_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync(descriptor: int) -> None:
    """Make a file's content durable.

    After an error the content counts as lost: a second fsync may say yes without having written anything.
    """
    os.fsync(descriptor)


def begin_writeback(descriptor: int) -> None:
    """Let the kernel start writing a file now, without waiting.

    When several small files are fsynced in a row, the blocks of all of them are then allocated before the first
    fsync, and on a journaling file system one journal commit serves them all.
    """
    with suppress(OSError):  # a hint; what counts is the fsync that follows
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def make_directory(path: str) -> bool:
    """Make one directory; ``False`` where it exists already."""
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        return False
    return True


def ensure_directory(path: str) -> None:
    """Make a directory and all above it, where they are missing, with durable names."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    ensure_directory(parent)
    make_directory(path)
    sync_directory(parent)


def ensure_file(path: str) -> None:
    """Make an empty file where there is none; one that is there is not touched, so the disk may be read-only."""
    if not exists(path):
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def open_to_read(path: str) -> int:
    """A file to be read. Whatever else may lie there is opened without waiting: a pipe has nobody who writes."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def read_small(descriptor: int) -> bytes:
    """The whole of a small file; of one that is not small, about the first mebibyte."""
    data = os.read(descriptor, _READ_AT_ONCE)
    if len(data) < _READ_AT_ONCE:
        return data
    chunks = [data]
    while len(chunks) * _READ_AT_ONCE < _MOST_READ and (chunk := os.read(descriptor, _READ_AT_ONCE)):
        chunks.append(chunk)
    return b"".join(chunks)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything: a single ``write`` may stop short when the disk fills up."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def cut(descriptor: int) -> None:
    """Take everything out of an open file."""
    os.ftruncate(descriptor, 0)


@contextmanager
def written(path: str, data: bytes, mode: int = FILE_MODE) -> Iterator[int]:
    """A new file at ``path`` with ``data``, open and not yet synced; whatever was there is replaced."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        write_all(descriptor, data)
        yield descriptor
    finally:
        os.close(descriptor)


def write_durably(path: str, data: bytes, mode: int = FILE_MODE) -> None:
    """A small file of its own, whole and durable or as it was before."""
    fresh = f"{path}.{os.getpid()}"
    with written(fresh, data, mode) as descriptor:
        sync(descriptor)
    os.rename(fresh, path)
    sync_directory(os.path.dirname(path))


def overwrite(path: str, data: bytes) -> None:
    """Write over a small file in place, and make it if it is missing: not durable. Nobody waits for a pipe there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        os.pwrite(descriptor, data, 0)
        if os.fstat(descriptor).st_size > len(data):
            os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


def append(path: str, data: bytes) -> None:
    """Add a line to a file that is made where it is missing, durably."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        write_all(descriptor, data)
        sync(descriptor)
    finally:
        os.close(descriptor)


def open_log(path: str) -> int:
    """A new file at a path that nobody else uses, at whose end is written."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)


def open_unnamed(directory: str) -> int | None:
    """An open file without a name, which vanishes with its last descriptor; ``None`` where there is no such thing."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        if error.errno in _NO_UNNAMED and os.path.isdir(directory):
            return None
        raise


def open_new(path: str) -> int:
    """A new file at a path that nobody else uses, for reading and writing."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)


def link_descriptor(descriptor: int, path: str) -> None:
    """Give an open file a name; an unnamed one too."""
    # linkat follows /proc/self/fd only with AT_SYMLINK_FOLLOW, which Python sets when a directory is passed;
    # the path is absolute, so which one does not matter.
    os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)


def keep_as(source: str, target: str) -> None:
    """Give a file a second name, which survives what happens to the first; a copy where links are refused.

    The name may be there already, when a crash stopped the same step. If it is another file (the first name was given
    to a new one by hand since), that one is moved aside: neither is anybody else's to delete.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        if not os.path.samefile(source, target):
            os.rename(target, f"{target}~{time.time_ns()}")
            os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _copy(source, target)


def separate(path: str, temporary: str) -> None:
    """Make a file one of its own, if it has other names: what is done to it then is not done to those.

    Its content goes through a file at ``temporary``.
    """
    if not has_other_names(path):
        return
    remove(temporary)
    _copy(path, temporary)
    os.rename(temporary, path)


def _copy(source: str, target: str) -> None:
    shutil.copy2(source, target)
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def copied(source: str, target: str) -> tuple[int, str]:
    """Copy a file over whatever is at ``target``, not durably.

    Returns the size in bytes and the SHA-256 in hex digits of what was copied, whatever happens to the source.
    """
    hashing, size = hashlib.sha256(), 0
    with open(open_to_read(source), "rb") as file, written(target, b"") as descriptor:
        while chunk := file.read(_COPIED_AT_ONCE):
            write_all(descriptor, chunk)
            hashing.update(chunk)
            size += len(chunk)
    return size, hashing.hexdigest()


def stamp(file: int | str, nanoseconds: int) -> None:
    """Set the modification time of a file, open or by its path, in nanoseconds since 1970."""
    os.utime(file, ns=(nanoseconds, nanoseconds))


def stamp_durably(path: str, nanoseconds: int) -> None:
    """The same, and make the file's content and time durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        stamp(descriptor, nanoseconds)
        sync(descriptor)
    finally:
        os.close(descriptor)


def set_mode(path: str, mode: int) -> None:
    """Set the permissions of a file or directory; a symbolic link has none, and what it leads to is not touched."""
    if not os.path.islink(path):
        os.chmod(path, mode)


def move_away(source: str, target: str) -> str:
    """Move a file or directory to a path whose directories are made, or beside what is there already.

    Returns the path it has now. Both names are durable.
    """
    ensure_directory(os.path.dirname(target))
    free = target if not exists(target) else f"{target}~{time.time_ns()}"
    os.rename(source, free)
    sync_directory(os.path.dirname(free))
    sync_directory(os.path.dirname(source))
    return free


def rename(source: str, target: str) -> None:
    """Rename over whatever is at ``target``, atomically."""
    os.rename(source, target)


def remove(path: str) -> bool:
    """Remove a file; ``False`` where there is none."""
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


def remove_tree(path: str) -> None:
    """Remove a directory with everything in it, as far as that goes: it is garbage either way."""
    with suppress(OSError):  # it does not ignore all of them
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def empty(path: str) -> None:
    """Remove everything in a directory, as far as that goes; what others are removing just now is theirs as well."""
    with suppress(OSError):
        for name in os.listdir(path):
            remove_tree(f"{path}/{name}")


def exists(path: str) -> bool:
    """Whether there is something at a path."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def has_other_names(path: str) -> bool:
    """Whether the file at a path has a second hard link; ``False`` where there is no file."""
    try:
        return os.lstat(path).st_nlink > 1
    except FileNotFoundError:
        return False


def remove_if_empty(path: str) -> None:
    """Remove a directory that nothing was put into."""
    with suppress(OSError):
        os.rmdir(path)
