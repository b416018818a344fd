"""Whether there is room for SQLite to work.

It keeps an index's shared memory in a file that it maps. Where the disk is too full for the next page of that, the
system does not say so: it kills the process (SIGBUS).
"""

from __future__ import annotations

import errno
import os

_LEAST = 1 << 20
"""Bytes that must be free: much more than SQLite maps at a time."""


def require(root: str) -> None:
    """Make sure that there is room.

    Raises:
        OSError: ``ENOSPC``, there is not.
    """
    status = os.statvfs(root)
    if status.f_bavail * status.f_frsize < _LEAST:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
