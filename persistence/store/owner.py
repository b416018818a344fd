"""Whose the tree is: files that another user makes in it would be closed to the service."""

from __future__ import annotations

import os
import pwd

from persistence.errors import StartupError
from persistence.store.layout import LAYOUT


def of(root: str) -> int:
    """The user as whom the service runs, by number: who wrote ``layout.json``, else whose the directory is."""
    try:
        return os.stat(f"{root}/{LAYOUT}").st_uid
    except FileNotFoundError:
        return os.stat(root).st_uid


def name(user: int) -> str:
    """The name of a user, else the number."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def require(root: str) -> None:
    """Make sure that this process runs as the service's user.

    Raises:
        StartupError: it does not, and names the user.
        OSError: the directory cannot be looked at.
    """
    require_user(root, of(root))


def require_user(path: str, user: int) -> None:
    """Make sure that this process runs as ``user``, to whom ``path`` belongs.

    Raises:
        StartupError: it does not, and names the user.
    """
    if user != os.geteuid():
        raise StartupError(f"{path} belongs to user {name(user)}: run this as that user (sudo -u {name(user)} ...)")
