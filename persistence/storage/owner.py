"""The user to whom a tree belongs: files that another user makes in it would be closed to the service.

Root works on a directory as the user to whom it belongs. No matter what the owner has planted there, a link or a name,
root then does no more than the owner could.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from persistence.errors import StartupError, disk_errors
from persistence.storage import nofollow
from persistence.storage.layout import LAYOUT

_ROOT = 0
_MOST_LINKS = 40
"""Symbolic links on the way to a directory, as the kernel has it."""

T = TypeVar("T")


def of(root: str) -> int:
    """Return the user as whom the service runs, by number: whose the directory is.

    In a directory of root's it is who wrote ``layout.json``: a disk that is mounted may belong to root, and its tree to
    the service. Only root could have put the file there.
    """
    return _owner_of(os.stat(root), f"{root}/{LAYOUT}")


def name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def require(root: str) -> None:
    """Make sure that this process runs as the service's user."""
    require_user(root, of(root))


def require_user(path: str, user: int) -> None:
    """Make sure that this process runs as ``user``, to whom ``path`` belongs."""
    if user != os.geteuid():
        raise StartupError(f"{path} belongs to user {name(user)}: run this as that user (sudo -u {name(user)} ...)")


@dataclass(frozen=True, slots=True)
class Identity:
    """The user, the group and the further groups as whom a process works."""

    user: int
    group: int
    groups: tuple[int, ...]

    @classmethod
    def current(cls) -> Identity:
        """Return the identity of this process now."""
        return cls(os.geteuid(), os.getegid(), tuple(sorted(os.getgroups())))


def identity_of(path: str, *, trusting: bool = False) -> Identity:
    """Return the identity with which to work in a directory: its owner's if this is root, else this process's.

    With ``trusting`` it does not matter who else may write there: a backup that is read is not believed anyway.

    For a missing directory, the first one above it counts. ``of`` says who the owner is.
    """
    with disk_errors(f"data directory {path}"):
        return _identity_of(path, trusting=trusting)


def _identity_of(path: str, *, trusting: bool) -> Identity:
    there = os.path.realpath(path)
    while True:
        try:
            descriptor = nofollow.open_directory(there)
            break
        except FileNotFoundError:
            there = os.path.dirname(there)
        except PermissionError:
            return Identity.current()  # all further calls are refused
    try:
        status = os.fstat(descriptor)
        is_it = not trusting and there == os.path.realpath(path)
        if is_it and status.st_mode & stat.S_IWOTH:
            raise StartupError(f"every user of the machine may write to {there}: chmod o-w, and look what is in it")
        if os.geteuid() != _ROOT:
            return Identity.current()
        if is_it and status.st_mode & stat.S_IWGRP and status.st_gid != _ROOT:
            raise StartupError(f"a group may write to {there}: root does not work there (chmod g-w)")
        user = _owner_of(status, LAYOUT, descriptor)
    finally:
        os.close(descriptor)
    if not trusting:
        _require_closed_way(path, user)
    return _identity(user, status.st_gid)


def _owner_of(directory: os.stat_result, layout: str, descriptor: int | None = None) -> int:
    if directory.st_uid != _ROOT:
        return directory.st_uid
    try:
        layout_status = os.stat(layout, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return _ROOT
    return layout_status.st_uid if stat.S_ISREG(layout_status.st_mode) else _ROOT


def _identity(user: int, group: int) -> Identity:
    if user == os.geteuid():
        return Identity.current()
    try:
        known = pwd.getpwuid(user)
    except KeyError:
        return Identity(user, group, (group,))
    return Identity(user, known.pw_gid, tuple(sorted(os.getgrouplist(known.pw_name, known.pw_gid))))


def _require_closed_way(path: str, user: int) -> None:
    trusted = {_ROOT, user}
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
        is_sticky = bool(directory.st_mode & stat.S_ISVTX) and found.st_uid in trusted
        if directory.st_uid not in trusted or (is_shared and not is_sticky):
            raise StartupError(
                f"others than {name(user)} may write to {at or '/'}, on the way to {path}: root does not work there"
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


def identity_for(path: str, root: str) -> Identity:
    """The identity with which to work on a file that is outside of a tree, for its service: the directory's.

    In a directory of root's it is the file's owner, and the tree's where there is no file. Raises as ``identity_of``.
    """
    identity = identity_of(os.path.dirname(os.path.abspath(path)))
    if identity.user != _ROOT:
        return identity
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return identity_of(root)
    return _identity(status.st_uid, status.st_gid) if stat.S_ISREG(status.st_mode) else identity


@contextmanager
def being(identity: Identity) -> Iterator[None]:
    """Work with an identity for a block; only root can have another one, and gets its own back at the end.

    All threads of the process have it. A process that is started meanwhile keeps it for good.
    """
    before = Identity.current()
    if identity == before:
        yield
        return
    _take_on(identity)
    try:
        yield
    except (ImportError, LookupError) as error:  # a codec that is missing is the latter
        if os.access(os.__file__, os.R_OK, effective_ids=True):
            raise
        raise StartupError(
            f"root works as user {name(identity.user)} here, who cannot read the Python of this command: {sys.prefix}"
            " is to be where every user can read it"
        ) from error
    finally:
        _take_on(before)


def _take_on(identity: Identity, saved: int = _ROOT) -> None:
    try:
        if os.geteuid() != _ROOT:
            os.setresuid(_ROOT, _ROOT, _ROOT)  # which the saved id allows
        os.setgroups(identity.groups)
        os.setresgid(identity.group, identity.group, identity.group)
        os.setresuid(identity.user, identity.user, saved)
    except PermissionError as error:  # root of a container that was denied it
        raise StartupError(f"root cannot work as user {name(identity.user)} here: run this as that user") from error


@contextmanager
def acting(path: str) -> Iterator[None]:
    """Work in a directory with the identity that ``identity_of`` has, for a block; raises as it does."""
    with being(identity_of(path)):
        yield


def each_as(identity: Identity, items: Iterable[T]) -> Iterator[T]:
    """Yield items, each being found with an identity; the caller keeps its own."""
    iterator = iter(items)
    while True:
        with being(identity):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


def become(paths: Iterable[str]) -> None:
    """Take on, for good, the identity of the user to whom directories belong; nothing where that is this user.

    Where the user is known by number only, and the directories have several groups, the first one's counts.
    """
    identities = {path: identity_of(path) for path in paths}
    if len({identity.user for identity in identities.values()}) > 1:
        whose = ", ".join(f"{path} to {name(identity.user)}" for path, identity in identities.items())
        raise StartupError(f"one service works as one user, and {whose}")
    first = next(iter(identities.values()), None)
    if first is not None and first != Identity.current():
        _take_on(first, saved=first.user)
