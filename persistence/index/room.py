"""Whether there is room for SQLite to write.

It keeps an index's shared memory in a file that it maps. Where the disk is too full for the next page of that, the
system does not say so: it kills the process (SIGBUS). And where there is no inode for that file, SQLite says the same
as of a damaged index.
"""

from __future__ import annotations

import errno
import os

from persistence.storage import files
from persistence.storage.layout import SPOOL

_LEAST = 1 << 20
"""Bytes that must be free: much more than SQLite maps at a time."""

_LEAST_INODES = 16
"""Files that can still be made: an index has four, and another one may be made beside it."""


_TRIAL = 1 << 16
"""Bytes that are written where the numbers of the file system may not tell the truth."""

_USED_UP = (errno.ENOSPC, errno.EDQUOT)


def require(root: str) -> None:
    """Make sure that there is room.

    Raises:
        OSError: ``ENOSPC``, there is not.
    """
    status = os.statvfs(root)
    is_short_of_inodes = status.f_files and status.f_favail < _LEAST_INODES  # some file systems do not count them
    if is_short_of_inodes or status.f_bavail * status.f_frsize < _LEAST:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def is_used_up(root: str) -> bool:
    """Try whether there is no room, whatever the file system says: some count otherwise, or keep to a quota.

    SQLite tells this as any other error of the disk.
    """
    try:
        descriptor = files.open_unnamed(f"{root}/{SPOOL}")
        if descriptor is None:
            return False
        try:
            files.write_all(descriptor, bytes(_TRIAL))
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno in _USED_UP
    return False
