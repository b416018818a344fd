"""Whether there is room for SQLite to write.

It keeps an index's shared memory in a file that it maps. Where the disk is too full for the next page of that, the
system does not say so: it kills the process (SIGBUS). And where there is no inode for that file, SQLite says the same
as of a damaged index.
"""

from __future__ import annotations

import errno
import os

_LEAST = 1 << 20
"""Bytes that must be free: much more than SQLite maps at a time."""

_LEAST_INODES = 16
"""Files that can still be made: an index has four, and another one may be made beside it."""


def require(root: str) -> None:
    """Make sure that there is room.

    Raises:
        OSError: ``ENOSPC``, there is not.
    """
    status = os.statvfs(root)
    is_short_of_inodes = status.f_files and status.f_favail < _LEAST_INODES  # some file systems do not count them
    if is_short_of_inodes or status.f_bavail * status.f_frsize < _LEAST:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
