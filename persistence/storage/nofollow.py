"""Opening files and directories without following a symbolic link, in the last name or in any before it.

Linux does that in one system call (``openat2`` with ``RESOLVE_NO_SYMLINKS``, Linux 5.6), which Python does not have: it
costs a microsecond or two more than ``open``. Where the kernel or a sandbox refuses the call, only the last name is not
followed (``O_NOFOLLOW``).

The root of a tree is opened by its real path, so a link that an administrator has put in its place is no obstacle.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from functools import cache, partial

from persistence.limits import LARGEST_SMALL_FILE

_OPENAT2 = 437
"""The number of the system call, the same on all architectures."""
_AT_FDCWD = -100
_RESOLVE_NO_SYMLINKS = 0x04
_READ_AT_ONCE = 1 << 16
_ALWAYS = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class _How(ctypes.Structure):
    """``struct open_how`` of ``linux/openat2.h``."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


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
        descriptor: int = _syscall(_OPENAT2, _AT_FDCWD, encoded, *_how(flags))
        if descriptor >= 0:
            return descriptor
        error = ctypes.get_errno()
        if error != errno.EINTR:
            raise _KINDS.get(error, OSError)(error, os.strerror(error), path)


@cache
def _how(flags: int) -> tuple[ctypes.c_void_p, int]:
    """Return the address and the size of ``struct open_how``; made once for each set of flags, and never changed."""
    how = _How(flags | os.O_NOFOLLOW, 0, _RESOLVE_NO_SYMLINKS)
    _kept.append(how)
    return ctypes.c_void_p(ctypes.addressof(how)), ctypes.sizeof(how)


_kept: list[_How] = []
"""Keeps in memory what ``_how`` has made."""


@cache
def _has_openat2() -> bool:
    descriptor: int = _syscall(_OPENAT2, _AT_FDCWD, b"/", *_how(os.O_PATH | os.O_CLOEXEC))
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
    return _regular(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY), path)


def _regular(descriptor: int, path: str) -> int:
    try:
        require_file(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require_file(status: os.stat_result, path: str) -> None:
    """Make sure that a status is of a regular file; raises ``OSError``."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)


def read_small(descriptor: int) -> bytes:
    """Return the whole of a small file; of one that is not small, about the first mebibyte."""
    data = os.read(descriptor, _READ_AT_ONCE)
    if len(data) < _READ_AT_ONCE:
        return data
    chunks = [data]
    while len(chunks) * _READ_AT_ONCE < LARGEST_SMALL_FILE and (chunk := os.read(descriptor, _READ_AT_ONCE)):
        chunks.append(chunk)
    return b"".join(chunks)
