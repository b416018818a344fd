"""The one module that opens, writes, links, renames and removes files and directories, and makes them durable."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import stat
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial

from persistence.limits import LARGEST_SMALL_FILE
from persistence.metrics.observations import FSYNCS

_OPENAT2 = 437  # The number of the system call, the same on all architectures
_AT_FDCWD = -100
_RESOLVE_NO_SYMLINKS = 0x04
_SIZE_OF_HOW = struct.calcsize("=3Q")
_READ_AT_ONCE = 1 << 16
_ALWAYS = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


# Opening files and directories without following a symbolic link, in the last name or in any before it.
#
# Linux does that in one system call (openat2 with RESOLVE_NO_SYMLINKS, Linux 5.6), which Python does not have: it costs
# a microsecond or two more than open. Where the kernel or a sandbox refuses the call, only the last name is not
# followed (O_NOFOLLOW).
#
# The root of a tree is opened by its real path, so a link that an administrator has put in its place is no obstacle.


_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)


class NotOpenedError(OSError):
    """A link, or a socket, is where a file was to be opened, or a link on the way to it."""


_KINDS: dict[int | None, type[OSError]] = {errno.ELOOP: NotOpenedError, errno.ENXIO: NotOpenedError}
"""Errors of a kind of their own. Of all others ``OSError`` finds the usual kind by their number."""


def open_to_read(path: str, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of the file at an absolute path; a pipe or a device does not block."""
    flags |= os.O_CLOEXEC if flags & os.O_PATH else _ALWAYS
    if not _has_openat2():
        try:
            return os.open(path, flags | os.O_NOFOLLOW)
        except OSError as refused:
            raise _KINDS.get(refused.errno, OSError)(*refused.args, path) from refused
    encoded = os.fsencode(path)
    if 0 in encoded:  # C would take the text before it for the path
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    while True:
        descriptor: int = _syscall(_OPENAT2, _AT_FDCWD, encoded, _how(flags), _SIZE_OF_HOW)
        if descriptor >= 0:
            return descriptor
        error = ctypes.get_errno()
        if error != errno.EINTR:
            raise _KINDS.get(error, OSError)(error, os.strerror(error), path)


@cache
def _how(flags: int) -> bytes:
    """Return ``struct open_how`` of ``linux/openat2.h``: flags, mode and how to resolve the path."""
    return struct.pack("=3Q", flags | os.O_NOFOLLOW, 0, _RESOLVE_NO_SYMLINKS)


@cache
def _has_openat2() -> bool:
    descriptor: int = _syscall(_OPENAT2, _AT_FDCWD, b"/", _how(os.O_PATH | os.O_CLOEXEC), _SIZE_OF_HOW)
    if descriptor < 0:
        return False
    os.close(descriptor)
    return True


open_directory = partial(open_to_read, flags=os.O_RDONLY | os.O_DIRECTORY)
"""Returns a directory at an absolute path without links; raises as ``open_to_read``."""


def open_file(path: str) -> int:
    """Return a regular file to be read, at an absolute path without links."""
    return _regular(open_to_read(path), path)


def open_linked(path: str) -> int:
    """Return a regular file to be read that an administrator has named, perhaps by a link."""
    return _regular(os.open(path, os.O_RDONLY | _ALWAYS), path)


def read_file(path: str) -> bytes:
    """Return the whole of a small regular file, as ``open_file`` opens it."""
    descriptor = open_to_read(path)
    try:
        require_file(os.fstat(descriptor), path)
        return read_small(descriptor)
    finally:
        os.close(descriptor)


def _regular(descriptor: int, path: str) -> int:
    try:
        require_file(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def require_file(status: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)


def state_of(status: os.stat_result) -> tuple[int, ...]:
    """Return numbers that no other state of a file has, once it has settled."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_small(descriptor: int) -> bytes:
    """Return the whole of a small file; of one that is not small, about the first mebibyte."""
    data = os.read(descriptor, _READ_AT_ONCE)
    if len(data) < _READ_AT_ONCE:
        return data
    chunks = [data]
    while len(chunks) * _READ_AT_ONCE < LARGEST_SMALL_FILE and (chunk := os.read(descriptor, _READ_AT_ONCE)):
        chunks.append(chunk)
    return b"".join(chunks)


DIRECTORY_MODE = 0o750
_REMEMBERED = 4096


def sync_directory(path: str) -> None:
    with closing(open_directory(path)) as descriptor:
        sync_open(descriptor)


# Making and removing directories, so that they are sure to survive a power cut.
#
# A file is only as durable as the names above it. A new directory's name is made durable in its parent before anything
# below it is acknowledged, also when another process made it and was killed before it could do so.


def sync_open(descriptor: int) -> None:
    """Make the names in an open directory durable, or the content of an open file."""
    began = time.perf_counter()
    os.fsync(descriptor)
    FSYNCS.append(time.perf_counter() - began)


def make(path: str) -> bool:
    """Make one directory; ``False`` where it exists already."""
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        return False
    return True


def ensure(path: str) -> None:
    """Make a directory and all above it, where they are missing, with durable names. Refuses a link there."""
    try:
        require(path)
    except FileNotFoundError:
        parent = os.path.dirname(path)
        ensure(parent)
        make(path)
        sync_directory(parent)


def require(path: str) -> None:
    """Make sure that there is a directory at an absolute path without links; raises ``OSError``."""
    os.close(open_directory(path))


def remove_tree(path: str) -> None:
    """Remove a directory with everything in it, as far as that goes: it is garbage either way."""
    with suppress(OSError):  # it does not ignore all of them
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def empty(path: str) -> None:
    """Remove everything in a directory, which is no link, as far as that goes; others may do so, too."""
    with suppress(OSError):
        for name in os.listdir(path):
            remove_tree(f"{path}/{name}")


def remove_if_empty(path: str) -> None:
    with suppress(OSError):
        os.rmdir(path)


def make_all(path: str) -> None:
    """Make a directory and all above it: for copies of many files, synced together."""
    # Each has the mode, which `os.makedirs` gives to the last one only.
    try:
        make(path)
    except FileNotFoundError:
        make_all(os.path.dirname(path))
        make(path)


class DurableDirectories:
    """Makes directories below a root and remembers which of them are durable already."""

    def __init__(self, root: str) -> None:
        self._durable = {root}

    def make(self, path: str) -> None:
        """Make a directory and its missing parents; to be called under the lock of the files that go into it."""
        try:
            make(path)
        except FileNotFoundError:
            parent = os.path.dirname(path)
            self._durable.discard(parent)
            self.make(parent)
            make(path)

    def settle(self, path: str) -> None:
        """Make the name of a directory durable, and the names of those above it."""
        parent = os.path.dirname(path)
        sync_directory(parent)
        if parent not in self._durable:
            self.settle(parent)
            if len(self._durable) < _REMEMBERED:
                self._durable.add(parent)


FILE_MODE = 0o640
_LONGEST_NAME = 255
_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}

sync = sync_open
"""Makes the content of an open file durable.

After an error the content counts as lost: a second fsync may say yes without having written anything.
"""


# Functions raise OSError; the store's public methods translate it. Nothing here knows what the files mean. No file is
# opened through a symbolic link, and none is written to that has another name: only new ones are.


def begin_writeback(descriptor: int, begin: int = 0, size: int = 0) -> None:
    """Let the kernel start writing a file now, or so many bytes of it, without waiting."""
    # When several small files are fsynced in a row, all blocks are then allocated before the first fsync, and on a
    # journaling file system one journal commit serves them all.
    with suppress(OSError):  # a hint; what counts is the fsync that follows
        os.posix_fadvise(descriptor, begin, size, os.POSIX_FADV_DONTNEED)


def ensure_file(path: str) -> None:
    """Make an empty file if it is missing; an existing one is not touched, so the disk may be read-only."""
    try:
        require_file(os.lstat(path), path)
    except FileNotFoundError:
        flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        os.close(os.open(path, flags, FILE_MODE))


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything: a single ``write`` may stop short when the disk fills up."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def reserve(descriptor: int, size: int) -> None:
    """Take room for so many bytes of an open file, which get no content. Raises ``OSError``."""
    os.posix_fallocate(descriptor, 0, size)


set_size = os.ftruncate  # Gives an open file a size in bytes; added bytes are zeros, which take no room
write_at = os.pwrite  # Writes bytes at a place of an open file, not durably


@contextmanager
def written(path: str, data: bytes, mode: int = FILE_MODE) -> Iterator[int]:
    """A new file at ``path`` with ``data``, open and not yet synced; a file that was there loses that name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, mode)
    except FileExistsError:  # not truncated: it may be another name of something else
        os.unlink(path)
        descriptor = os.open(path, flags, mode)
    with closing(descriptor):
        write_all(descriptor, data)
        yield descriptor


def write_durably(path: str, data: bytes, mode: int = FILE_MODE) -> None:
    """Replace a small file, as ``replacing`` does: keys that a kill leaves behind would outlive their retirement."""
    with replacing(path, mode) as descriptor:
        write_all(descriptor, data)


@contextmanager
def replacing(path: str, mode: int = FILE_MODE) -> Iterator[int]:
    """A new file that has ``path`` when the block has ended, durably and whole; after an error, the old one is."""
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
        sync_directory(directory)
    except BaseException:
        remove_quietly(fresh)
        raise
    finally:
        os.close(descriptor)


def overwrite(path: str, data: bytes) -> None:
    """Write over a small file, not durably. A pipe does not block; one with another name, a hard link, is replaced."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        status = os.fstat(descriptor)
        if status.st_nlink > 1:
            os.unlink(path)
            shared, descriptor = descriptor, os.open(path, flags | os.O_EXCL, FILE_MODE)
            os.close(shared)
            status = os.fstat(descriptor)
        require_file(status, path)
        os.pwrite(descriptor, data, 0)
        if status.st_size > len(data):
            os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


def append(path: str, data: bytes) -> None:
    """Add a line to a file that is made where it is missing, durably."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with closing(os.open(path, flags, FILE_MODE)) as descriptor:
        status = os.fstat(descriptor)
        require_file(status, path)
        if status.st_nlink > 1:
            raise OSError(errno.EMLINK, "it has another name", path)
        write_all(descriptor, data)
        sync(descriptor)
    sync_directory(os.path.dirname(path))


def open_shared(path: str, flags: int = 0) -> int:
    """Return a file that several processes write, made if it is missing; a link there is refused."""
    always = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    return _regular(os.open(path, always | flags, FILE_MODE), path)


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
    with closing(open_file(path)) as descriptor:
        stamp(descriptor, nanoseconds)
        sync(descriptor)


def set_mode(path: str, mode: int) -> None:
    """Set the permissions of a file or directory at an absolute path without links."""
    with closing(open_to_read(path, os.O_PATH)) as descriptor:
        status = os.fstat(descriptor)
        if not stat.S_ISDIR(status.st_mode):
            require_file(status, path)
            if status.st_nlink > 1:
                raise OSError(errno.EMLINK, "it has another name, to which its permissions belong, too", path)
        os.chmod(f"/proc/self/fd/{descriptor}", mode)  # fchmod wants one that may be read or written


def move_away(source: str, target: str) -> str:
    """Move a file or directory to a path, or beside an existing one there; return the durable path it has now."""
    ensure(os.path.dirname(target))
    free = target
    if exists(target):
        beside = f"~{time.time_ns()}"
        free = f"{target}{beside}"
        if len(os.fsencode(os.path.basename(free))) > _LONGEST_NAME:
            free = f"{os.path.dirname(target)}/{beside}/{os.path.basename(target)}"
            ensure(os.path.dirname(free))
    os.rename(source, free)
    sync_directory(os.path.dirname(free))
    sync_directory(os.path.dirname(source))
    return free


rename = os.rename  # Gives a file or directory another name, over a file that has it, atomically
link = os.link  # Gives a file a second name


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


def names_in(directory: str) -> list[str]:
    """Return the names in a directory; none where there is no directory."""
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def below(directory: str) -> Iterator[str]:
    """Yield the paths of all files below a directory, sorted. Links are not followed, and the directory may be one."""
    if os.path.islink(directory):
        yield directory
        return
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                yield from below(entry.path)
            else:
                yield entry.path


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


_COPIED_AT_ONCE = 1 << 20
_BLOCK = 1 << 12
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES}
_libc = ctypes.CDLL(None, use_errno=True)


def keep_as(source: str, target: str) -> None:
    """Give a file a second name, which survives what happens to the first; a copy where links are refused."""
    # The name may be there already, when a crash stopped the same step. If it is another file, that one is moved aside:
    # the service deletes neither.
    try:
        link(source, target)
    except FileExistsError:
        if not os.path.samestat(os.lstat(source), os.lstat(target)):
            rename(target, f"{target}~{time.time_ns()}")
            link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        copied(source, target, is_exact=True)


def separate(path: str, temporary: str) -> None:
    """Give a file a copy of its own through ``temporary``: changes then do not affect its other names."""
    if has_other_names(path):
        remove(temporary)
        copied(path, temporary, is_exact=True)
        rename(temporary, path)


def copied(source: str, target: str, *, is_exact: bool = False) -> tuple[int, str]:
    """Copy a file over ``target``, with ``is_exact`` its mode and time, too, and durably; return size and SHA-256."""
    hashing, size = hashlib.sha256(), 0
    with open(open_file(source), "rb") as file, written(target, b"") as descriptor:
        while chunk := file.read(_COPIED_AT_ONCE):
            write_all(descriptor, chunk)
            hashing.update(chunk)
            size += len(chunk)
        if is_exact:
            status = os.fstat(file.fileno())
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
            stamp(descriptor, status.st_mtime_ns)
            sync(descriptor)
    return size, hashing.hexdigest()


def write_new(path: str, chunks: Iterable[bytes], nanoseconds: int) -> None:
    """Write a new file, not synced. Zeros take no room: a file may say that it is larger than any disk."""
    size = 0
    with closing(open_new(path)) as descriptor:
        for chunk in chunks:
            if len(chunk) >= _BLOCK and not chunk.strip(b"\0"):
                set_size(descriptor, size + len(chunk))
                os.lseek(descriptor, 0, os.SEEK_END)
            else:
                write_all(descriptor, chunk)
            size += len(chunk)
        stamp(descriptor, nanoseconds)


@contextmanager
def synced(directory: str) -> Iterator[None]:
    """Make everything durable that a block writes to the file system of a directory, or raise ``OSError``."""
    # What could not be written since the block began is an error, which `os.sync` would keep to itself.
    with closing(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        yield
        if _libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
