"""The service's own files in the root: its format, its temporary files, and the root itself."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress

from persistence.errors import DamagedError, StartupError
from persistence.maintenance import listing
from persistence.maintenance.findings import Finding, Kind
from persistence.maintenance.tree import Folder, Tree
from persistence.storage import formats, root, serving, stored_revision, uploads
from persistence.storage.layout import (
    CHECKED,
    INDEX,
    LAYOUT,
    LEASE,
    LOCKS,
    QUARANTINE,
    SERVE,
    SPOOL,
    TRASH,
    Place,
    is_unfinished_layout,
)


def require_tree(tree: Tree) -> None:
    """Make sure that this is a tree of the service at all, before anything in it is touched.

    Raises:
        StartupError: there is no such directory, or it has no layout.json, no locks, and not one sidecar.
        OSError: it cannot be looked at.
    """
    if any(os.path.lexists(tree.layout.own(name)) for name in (LAYOUT, LOCKS)):
        return
    for item in tree.walk() if os.path.isdir(tree.root) else ():
        if isinstance(item, Folder) and any(_is_sidecar(item, name) for name in listing.folder(item.path).sidecars):
            return
    raise root.missing(tree.root)


def _is_sidecar(folder: Folder, name: str) -> bool:
    try:
        return stored_revision.read_sidecar(Place(folder.path, name)) is not None
    except (DamagedError, OSError):
        return False


def format_of(path: str) -> Iterator[Finding]:
    """What is to say about the format of the tree.

    Raises:
        StartupError: it is another one, or the tree is not whole: then nothing else can be said.
        OSError: it cannot be looked at.
    """
    file = f"{path}/{LAYOUT}"
    try:
        layout = formats.read(file)
    except StartupError as error:
        yield Finding(Kind.LAYOUT, file, str(error).partition("cannot be read: ")[2])
    else:
        if layout is None:
            yield Finding(Kind.LAYOUT, file, "it is missing: is this the right directory, and its disk mounted?")
        else:
            formats.check(file, layout)


def missing(path: str) -> Iterator[Finding]:
    """The service's own directories and lock files that are not there, as after a ``git clean``."""
    for name in root.NEEDED:
        if not os.path.lexists(f"{path}/{name}"):
            what = "it was removed, or not copied; the service makes it when it needs it"
            yield Finding(Kind.OWN_MISSING, f"{path}/{name}", what)


def obstacles(path: str) -> Iterator[Finding]:
    """Find what has the name of one of the service's own files or directories, and is none: a link, a pipe.

    What is in a directory that is none is not looked at. Raises ``OSError``.
    """
    wrong = list[str]()
    quarantine = f"{path}/{QUARANTINE}"  # first: the others are moved there
    others = (each for each in root.own_directories(path) if each != quarantine)
    directories = ((each, stat.S_ISDIR) for each in (quarantine, *others))
    own = (*root.own_files(path), f"{path}/{LEASE}", f"{path}/{CHECKED}")
    for each, is_right in (*directories, *((each, stat.S_ISREG) for each in own)):
        if any(each.startswith(f"{above}/") for above in wrong):
            continue
        with suppress(FileNotFoundError, NotADirectoryError):
            if not is_right(os.lstat(each).st_mode):
                wrong.append(each)
                yield _obstacle(each)
    if f"{path}/{INDEX}" not in wrong:
        yield from map(_obstacle, _no_files(f"{path}/{INDEX}"))


def _obstacle(path: str) -> Finding:
    return Finding(Kind.NOT_A_FILE, path, "a link, a pipe or a device, where the service has a file or a directory")


def _no_files(path: str) -> Iterator[str]:
    """Find what is neither a file nor a directory, wherever it is below one."""
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _no_files(entry.path)
            elif not entry.is_file(follow_symlinks=False):
                yield entry.path


def strays(path: str) -> Iterator[Finding]:
    """What killed workers have left of the service's own; raises ``OSError``."""
    for stray in _strays(path):
        yield Finding(Kind.STRAY_OWN, stray, "left by a worker that was killed")


def _strays(path: str) -> Iterator[str]:
    with os.scandir(path) as entries:
        yield from (entry.path for entry in entries if _is_unfinished(entry) and _is_old(entry))
    with suppress(FileNotFoundError):
        yield from uploads.abandoned(_own(path, SPOOL))
    with suppress(FileNotFoundError), os.scandir(_own(path, TRASH)) as entries:
        yield from (entry.path for entry in entries if _is_old(entry))
    with suppress(FileNotFoundError):
        yield from serving.outdated(_own(path, SERVE))


def _own(path: str, name: str) -> str:
    """One of the service's own directories; raises ``FileNotFoundError`` where it is none, but a link, say."""
    directory = f"{path}/{name}"
    if not stat.S_ISDIR(os.lstat(directory).st_mode):
        raise FileNotFoundError(directory)
    return directory


def _is_unfinished(entry: os.DirEntry[str]) -> bool:
    return is_unfinished_layout(entry.name) and entry.is_file(follow_symlinks=False)


def _is_old(entry: os.DirEntry[str]) -> bool:
    """By the time of its rename to where it is: its content may be much older."""
    try:
        return time.time() - entry.stat(follow_symlinks=False).st_ctime > uploads.ABANDONED_AFTER
    except FileNotFoundError:
        return False
