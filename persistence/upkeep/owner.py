"""Whose the tree is: files that another user makes in it would be closed to the service."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress

from persistence.errors import StartupError


def require(root: str) -> None:
    """Make sure that this process runs as the user to whom the data directory belongs.

    Raises:
        StartupError: it does not, and names the user.
        OSError: the directory cannot be looked at.
    """
    owner = os.stat(root).st_uid
    if owner != os.geteuid():
        name = str(owner)
        with suppress(KeyError):
            name = pwd.getpwuid(owner).pw_name
        raise StartupError(f"{root} belongs to user {name}: run this as that user (sudo -u {name} ...)")
