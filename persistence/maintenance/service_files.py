"""The service's own files in the root: ``layout.json``, lock files, and temporary files."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress

from persistence.errors import DamagedError, StartupError
from persistence.maintenance.findings import Finding, FindingKind
from persistence.maintenance.folder_files import list_folder
from persistence.maintenance.tree import Folder, FolderTree
from persistence.storage import document_leases, root, stored_revision, uploads
from persistence.storage.layout import (
    CHECKED,
    INDEX,
    LAYOUT,
    LEASE,
    LEASES,
    LOCKS,
    PAGES,
    QUARANTINE,
    SERVE,
    SPOOL,
    TRASH,
    Layout,
    is_unfinished_own,
)
from persistence.storage.store import outdated_links


def require_tree(tree: FolderTree) -> None:
    """Check that this is a tree of the service at all, before anything in it is changed."""
    if any(os.path.lexists(tree.layout.own(name)) for name in (LAYOUT, LOCKS)):
        return
    for item in tree.walk() if os.path.isdir(tree.root) else ():
        if isinstance(item, Folder) and any(_is_sidecar(item, name) for name in list_folder(item.path).sidecars):
            return
    raise root.missing(tree.root)


def _is_sidecar(folder: Folder, name: str) -> bool:
    try:
        return stored_revision.read_sidecar(folder.paths(name)) is not None
    except (DamagedError, OSError):
        return False


def check_format(layout: Layout) -> Iterator[Finding]:
    """Find fault with ``layout.json``."""
    path = layout.own(LAYOUT)
    try:
        found = root.read_layout(path)
    except StartupError as error:
        yield FindingKind.LAYOUT.at(path, str(error).partition("cannot be read: ")[2])
        return
    if found is None:
        yield FindingKind.LAYOUT.at(path, "it is missing: is this the right directory, and its disk mounted?")
    else:
        root.check_layout(path, found)


def missing(layout: Layout) -> Iterator[Finding]:
    """Find the service's own directories and lock files that are missing, for example after ``git clean``."""
    for path in map(layout.own, root.NEEDED):
        if not os.path.lexists(path):
            what = "it was removed, or not copied; the service makes it when it needs it"
            yield FindingKind.OWN_MISSING.at(path, what)


def obstacles(layout: Layout) -> Iterator[Finding]:
    """Find links, pipes and the like with the names of the service's own files or directories.

    A directory that is none is not entered. Raises ``OSError``.
    """
    wrong = list[str]()
    quarantine, index = layout.own(QUARANTINE), layout.own(INDEX)
    # The quarantine comes first, because the others are moved there.
    others = (each for each in root.own_directories(layout.root) if each != quarantine)
    directories = ((each, stat.S_ISDIR) for each in (quarantine, *others, layout.own(PAGES)))
    own = (*root.own_files(layout.root), layout.own(LEASE), layout.own(CHECKED))
    for each, is_right in (*directories, *((each, stat.S_ISREG) for each in own)):
        if any(each.startswith(f"{above}/") for above in wrong):
            continue
        with suppress(FileNotFoundError, NotADirectoryError):
            if not is_right(os.lstat(each).st_mode):
                wrong.append(each)
    below = (
        each
        for top in (index, layout.own(LEASES), layout.own(PAGES))
        if top not in wrong
        for each in _special_files(top)
    )
    for each in (*wrong, *below):
        yield FindingKind.NOT_A_FILE.at(each, "a link, a pipe or a device, where the service has a file or a directory")


def _special_files(path: str) -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _special_files(entry.path)
            elif not entry.is_file(follow_symlinks=False):
                yield entry.path


def strays(layout: Layout) -> Iterator[Finding]:
    """Find the temporary files of killed workers, and leases that cannot be read. Raises ``OSError``."""
    for stray in _strays(layout):
        yield FindingKind.STRAY_OWN.at(stray, "left by a worker that was killed")
    for path, found in document_leases.listed(layout.root):
        if isinstance(found, DamagedError):
            yield FindingKind.LEASE_UNREADABLE.at(path, "it does not say who has leased a document: LOCK is refused")


def _strays(layout: Layout) -> Iterator[str]:
    with os.scandir(layout.root) as entries:
        unfinished = (each for each in entries if is_unfinished_own(each.name))
        yield from (each.path for each in unfinished if each.is_file(follow_symlinks=False) and _is_old(each))
    with suppress(FileNotFoundError):
        yield from uploads.abandoned(_directory(layout, SPOOL))
    with suppress(FileNotFoundError), os.scandir(_directory(layout, TRASH)) as entries:
        yield from (entry.path for entry in entries if _is_old(entry))
    yield from (entry.path for entry in document_leases.unfinished(layout.root) if _is_old(entry))
    with suppress(FileNotFoundError):
        yield from outdated_links(_directory(layout, SERVE))


def _directory(layout: Layout, name: str) -> str:
    path = layout.own(name)
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise FileNotFoundError(path)
    return path


def _is_old(entry: os.DirEntry[str]) -> bool:
    try:
        return time.time() - entry.stat(follow_symlinks=False).st_ctime > uploads.ABANDONED_AFTER
    except FileNotFoundError:
        return False
