"""The root of the tree: its format and its own directories."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from persistence.errors import StartupError, disk_errors
from persistence.model.addresses import DATA_XML, FORM_XHTML
from persistence.model.instants import Instant
from persistence.storage import directories, files, nofollow, owner
from persistence.storage.layout import (
    CREATIONS,
    ELSEWHERE_LOCKS,
    INDEX,
    LAYOUT,
    LEASE_LOCKS,
    LEASES,
    LOCKS,
    OTHERS,
    PAGES,
    QUARANTINE,
    SERVE,
    SERVICE,
    SIDECAR_SUFFIX,
    SPOOL,
    TRASH,
    is_unfinished_own,
)
from persistence.storage.locks import STRIPES, LockFile
from persistence.storage.nofollow import NotOpenedError

FORMAT = 3
"""The format of the tree that this version reads and writes.

1 knew neither ``restoring`` nor ``upgrading_from``: it would serve a tree that is not whole. 2 had sidecars without
checksums and addresses.
"""

_OWN = (LOCKS, CREATIONS, ELSEWHERE_LOCKS, LEASE_LOCKS, LEASES, SPOOL, TRASH, SERVE, QUARANTINE, INDEX)
_LOCK_FILES = (os.path.basename(SERVICE), *(f"{number:02x}" for number in range(STRIPES)))
_LOOKS = 1000
_COLLECTION_DEPTH, _DOCUMENT_DEPTH = 3, 4
_COLLECTIONS = {"form", "data", "draft"}
_MAIN_SIDECARS = {f"{name}{SIDECAR_SUFFIX}" for name in (DATA_XML, FORM_XHTML)}


class LayoutFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of ``layout.json``.

    ``steps`` holds the upgrade steps done, with the instant of each. ``restoring`` names the backup that is being
    restored, ``upgrading_from`` the format of a tree that is being upgraded: until that has come to its end, the tree
    must not be served.
    """

    format: int
    steps: dict[str, Instant] = {}
    restoring: str = ""
    upgrading_from: int = 0


def init(root: str) -> bool:
    """Make a tree of a directory that has nothing in it, and the directory with all above it if it is missing.

    Returns ``False`` where there is a tree already, which is not changed. ``layout.json`` is written last: an
    interrupted call leaves a directory that the next one completes.
    """
    owner.require_closed(root)
    with disk_errors(f"data directory {root}"):
        directories.ensure(root)
        if _has_layout(root):
            return False
        _require_empty(root)
        owner.require(root)
        make_own(root)
        with LockFile(f"{root}/{SERVICE}").shared():  # the labels of a restore must not be replaced
            if _has_layout(root):
                return False
            write_layout(f"{root}/{LAYOUT}", LayoutFile(FORMAT))
    return True


def open_tree(root: str) -> None:
    """Make sure that there is a tree that can be served, and make own directories of it that are missing."""
    require(root)
    make_own(root)


def require(root: str) -> None:
    """Make sure that there is a tree that can be served, and strangers cannot write to it; nothing is changed."""
    owner.require_closed(root)
    if not _has_layout(root):
        raise missing(root)


def missing(root: str) -> StartupError:
    """Return the error for a directory without ``layout.json``; its text says what to do."""
    if is_left_of_a_tree(root):
        return StartupError(
            f"{root} has lost its {LAYOUT}, and there are forms in it: 'persistence check --repair' writes it again"
        )
    return StartupError(
        f"{root} is not a data directory (no {LAYOUT}): 'persistence init --data DIR' makes one; is the disk mounted?"
    )


def is_left_of_a_tree(root: str) -> bool:
    """Return whether a directory without ``layout.json`` was a tree: it has documents or forms, each with a sidecar.

    Looks into ``_LOOKS`` directories at most: any directory of the machine may have been named.
    """
    due, looks = [(root, 0)], 0
    while due and looks < _LOOKS:
        path, depth = due.pop()
        looks += 1
        try:
            with os.scandir(path) as entries:
                found = [entry for entry in entries if not entry.name.startswith(".") and entry.name not in OTHERS]
        except OSError as error:
            if path == root and not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise
            continue
        if depth == _DOCUMENT_DEPTH:
            if any(entry.name in _MAIN_SIDECARS for entry in found):
                return True
            continue
        is_form = depth == _COLLECTION_DEPTH - 1
        below = (each for each in found if not is_form or each.name in _COLLECTIONS)
        due += [(each.path, depth + 1) for each in below if each.is_dir(follow_symlinks=False)]
    return False


def _has_layout(root: str) -> bool:
    path = f"{root}/{LAYOUT}"
    layout = read_layout(path)
    if layout is not None:
        check_layout(path, layout)
    return layout is not None


def read_layout(path: str) -> LayoutFile | None:
    try:
        descriptor = nofollow.open_to_read(path)
    except FileNotFoundError:
        return None
    except NotOpenedError as error:
        raise StartupError(f"{path} cannot be read: it is a link or a socket") from error
    try:
        return msgspec.json.decode(nofollow.read_small(descriptor), type=LayoutFile)
    except (IsADirectoryError, BlockingIOError) as error:
        raise StartupError(f"{path} cannot be read: it is not a file") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StartupError(f"{path} cannot be read: {error} ('persistence check --repair' writes it again)") from error
    finally:
        os.close(descriptor)


def encode_layout(layout: LayoutFile) -> bytes:
    return msgspec.json.encode(layout) + b"\n"


def tree_around(path: str) -> str | None:
    """Return the root of the tree in which a file lies, or would lie; ``None`` where that is no tree."""
    folder = os.path.dirname(os.path.realpath(path))
    while not os.path.lexists(f"{folder}/{LAYOUT}"):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return None
    return folder


def write_layout(path: str, layout: LayoutFile) -> None:
    """Replace the file, durably; raises ``OSError``."""
    files.write_durably(path, encode_layout(layout))


def check_layout(path: str, layout: LayoutFile) -> None:
    """Make sure that the tree can be served."""
    if layout.format > FORMAT:
        raise StartupError(
            f"{path} says format {layout.format}: a newer version of this service wrote it; this one knows {FORMAT}"
        )
    if layout.restoring:
        raise StartupError(
            f"{path} says that restoring {layout.restoring} has not finished: 'persistence restore' again"
        )
    if layout.upgrading_from:
        raise StartupError(f"{path} says that an upgrade has not finished: 'persistence upgrade' again")
    if layout.format < FORMAT:
        raise StartupError(f"{path} says format {layout.format}; 'persistence upgrade' brings it to {FORMAT}")


def _require_empty(root: str) -> None:
    if is_left_of_a_tree(root):
        raise missing(root)
    own = {name for name in (*_OWN, LAYOUT) if "/" not in name}
    others = sorted(
        name for name in os.listdir(root) if name not in own and name not in OTHERS and not is_unfinished_own(name)
    )
    if others:
        raise StartupError(f"{root} is not empty (it holds {others[0]!r}): a tree is made in an empty directory")


NEEDED = (LOCKS, CREATIONS, ELSEWHERE_LOCKS, SPOOL, TRASH, SERVE, SERVICE)
"""The service's own names in a root without which requests have to make them first."""


def make_own(root: str) -> None:
    """Make the service's own directories and lock files where they are missing."""
    for name in _OWN:
        path = f"{root}/{name}"
        with _in_the_way(path):
            if not directories.make(path):
                directories.require(path)
    with os.scandir(f"{root}/{LOCKS}") as entries:  # one call instead of one for each of 257 files
        present = {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
    for name in _LOCK_FILES:
        if name not in present:
            path = f"{root}/{LOCKS}/{name}"
            with _in_the_way(path):
                files.ensure_file(path)


def ensure_pages(home: str) -> str:
    """Make the directory for notes beside the data of an existing home directory, and return its path."""
    directories.require(f"{home}/{LOCKS}")
    path = f"{home}/{PAGES}"
    directories.ensure(path)
    return path


def own_directories(root: str) -> Iterator[str]:
    """Yield the paths of the service's own directories in a root, outer ones first."""
    return (f"{root}/{name}" for name in _OWN)


def own_files(root: str) -> Iterator[str]:
    """Yield the paths of the service's lock files in a root."""
    return (f"{root}/{LOCKS}/{name}" for name in _LOCK_FILES)


@contextmanager
def _in_the_way(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL}:
            raise
        raise StartupError(
            f"{path} is not a directory that the service made: 'persistence check --repair' moves it away"
        ) from error
