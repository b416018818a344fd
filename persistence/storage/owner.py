"""The user to whom a tree belongs, as whom alone services and commands work on it.

Root is refused on the tree of another user: files that it makes would be closed to the service, and what the owner has
planted there, a link or a name, must not lead root anywhere.
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
import sys
from collections import deque

from persistence.errors import StartupError, disk_errors
from persistence.storage.layout import LAYOUT

_ROOT = 0
_MOST_LINKS = 40  # Symbolic links on the way to a directory, as the kernel has it


def of(root: str) -> int:
    """Return the number of the user as whom the service runs: the owner of the directory, or of ``layout.json``."""
    # A disk that is mounted may belong to root, and its tree to the service. Only root could have put the file there.
    directory = os.stat(root)
    if directory.st_uid != _ROOT:
        return directory.st_uid
    try:
        layout = os.lstat(f"{root}/{LAYOUT}")
    except FileNotFoundError:
        return _ROOT
    return layout.st_uid if stat.S_ISREG(layout.st_mode) else _ROOT


def name(user: int) -> str:
    """Return the name of a user, or the number of one without."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def require(root: str) -> None:
    require_user(root, of(root))


def require_user(path: str, user: int) -> None:
    if user != os.geteuid():
        known = name(user)
        as_user = f"#{user}" if known == str(user) else known
        called = sys.argv if os.access(sys.argv[0], os.X_OK) else sys.orig_argv  # the latter has python -m
        command = shlex.join(["sudo", "-u", as_user, *called])
        raise StartupError(f"{path} belongs to user {known}: run this as that user ({command})")


def refuse_root(path: str) -> None:
    """Refuse root where a directory belongs to another user, or the one in which a missing one would be made."""
    if os.geteuid() != _ROOT:
        return
    with disk_errors(f"data directory {path}"):
        there = os.path.realpath(path)
        if os.path.lexists(there):
            require(there)
            return
        while not os.path.lexists(there):
            there = os.path.dirname(there)
        require_user(there, os.stat(there).st_uid)


def require_closed(path: str) -> None:
    """Refuse a directory that every user may write to, and to root all that ``refuse_root`` and this module name."""
    refuse_root(path)
    with disk_errors(f"data directory {path}"):
        there = os.path.realpath(path)
        try:
            status = os.stat(there)
        except (FileNotFoundError, PermissionError):  # the latter refuses all further calls
            status = None
        if status is not None and status.st_mode & stat.S_IWOTH:
            raise StartupError(f"every user of the machine may write to {there}: chmod o-w, and look what is in it")
        if os.geteuid() != _ROOT:
            return
        if status is not None and status.st_mode & stat.S_IWGRP and status.st_gid != _ROOT:
            raise StartupError(f"a group may write to {there}: root does not work there (chmod g-w)")
        _require_closed_way(path)


def _require_closed_way(path: str) -> None:
    due, at, links = deque(os.path.abspath(path).split("/")), "", 0
    while due:
        directory = os.lstat(at or "/")
        part = due.popleft()
        if part in {"", "."}:
            continue
        if part == "..":
            at = os.path.dirname(at)
            continue
        try:
            found = os.lstat(f"{at}/{part}")
        except FileNotFoundError:
            return
        is_shared = bool(directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH)) and not (
            directory.st_gid == _ROOT and not directory.st_mode & stat.S_IWOTH
        )
        is_sticky = bool(directory.st_mode & stat.S_ISVTX) and found.st_uid == _ROOT
        if directory.st_uid != _ROOT or (is_shared and not is_sticky):
            raise StartupError(
                f"others than root may write to {at or '/'}, on the way to {path}: root does not work there"
            )
        if not stat.S_ISLNK(found.st_mode):
            at = f"{at}/{part}"
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(f"{at}/{part}")
        at = "" if target.startswith("/") else at
        due.extendleft(reversed(target.split("/")))
