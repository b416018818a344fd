"""The root of the tree: its format, its own directories, its file system, and small files of keys outside the tree."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import msgspec

from persistence import processes
from persistence.errors import ConflictError, DamagedError, StartupError, as_disk_error, disk_errors
from persistence.limits import LARGEST_SMALL_FILE
from persistence.model.sidecar import fresh_id
from persistence.model.texts import Instant
from persistence.storage import files, owner
from persistence.storage.files import NotOpenedError
from persistence.storage.layout import LAYOUT, LOCKS, OTHERS, OWN_DIRECTORIES, PAGES, SERVICE, SPOOL, is_unfinished_own
from persistence.storage.locks import STRIPES, LockFile, try_lock

FORMAT = 3
"""The format of the tree that this version reads and writes.

1 knew neither ``restoring`` nor ``upgrading_from``: it would serve a tree that is not whole. 2 had sidecars without
checksums and addresses.
"""

LOCK_FILES = (SERVICE, *(f"{LOCKS}/{number:02x}" for number in range(STRIPES)))
_LOOKS = 1000
_COLLECTION_DEPTH, _DOCUMENT_DEPTH = 3, 4
_COLLECTIONS = {"form", "data", "draft"}
_MAIN_SIDECARS = {"data.xml.json", "form.xhtml.json"}


class LayoutFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of ``layout.json``."""

    # Until what ``restoring`` and ``upgrading_from`` say has come to its end, the tree must not be served.
    format: int
    steps: dict[str, Instant] = {}  # the upgrade steps done, with the instant of each
    restoring: str = ""  # the backup that is being restored
    upgrading_from: int = 0  # the format of a tree that is being upgraded


def init(root: str) -> bool:
    """Make a tree of an empty or missing directory; ``False`` where there is one. ``layout.json`` is written last."""
    owner.require_closed(root)
    with disk_errors(f"data directory {root}"):
        if _has_layout(root):
            return False
        if (outer := tree_around(root)) is not None:
            raise StartupError(f"{root} lies in the data directory {outer}, which would take it for an application")
        files.ensure(root)
        if is_left_of_a_tree(root):
            raise missing(root)
        others = set(os.listdir(root)) - {*OWN_DIRECTORIES, LAYOUT, *OTHERS}
        if other := min((name for name in others if not is_unfinished_own(name)), default=""):
            raise StartupError(f"{root} is not empty (it holds {other!r}): a tree is made in an empty directory")
        owner.require(root)
        make_own(root)
        with LockFile(f"{root}/{SERVICE}").shared():  # the labels of a restore must not be replaced
            if _has_layout(root):
                return False
            write_layout(f"{root}/{LAYOUT}", LayoutFile(FORMAT))
    return True


def require(root: str) -> None:
    """Make sure that there is a tree that can be served, and strangers cannot write to it; nothing is changed."""
    owner.require_closed(root)
    require_layout(root)


def require_layout(root: str) -> None:
    """Make sure that there is a tree of this format; who may write to it is not looked at."""
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
    """Return whether a directory without ``layout.json`` has documents or forms; looks into ``_LOOKS`` at most."""
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
        with files.closing(files.open_to_read(path)) as descriptor:
            return msgspec.json.decode(files.read_small(descriptor), type=LayoutFile)
    except FileNotFoundError:
        return None
    except NotOpenedError as error:
        raise StartupError(f"{path} cannot be read: it is a link or a socket") from error
    except (IsADirectoryError, BlockingIOError) as error:
        raise StartupError(f"{path} cannot be read: it is not a file") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StartupError(f"{path} cannot be read: {error} ('persistence check --repair' writes it again)") from error


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
    files.write_durably(path, encode_layout(layout))


def check_layout(path: str, layout: LayoutFile) -> None:
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


def make_own(root: str) -> None:
    for name in OWN_DIRECTORIES:
        path = f"{root}/{name}"
        with _in_the_way(path):
            if not files.make(path):
                files.require(path)
    with os.scandir(f"{root}/{LOCKS}") as entries:  # one call instead of one for each of 257 files
        present = {f"{LOCKS}/{entry.name}" for entry in entries if entry.is_file(follow_symlinks=False)}
    for name in LOCK_FILES:
        if name not in present:
            path = f"{root}/{name}"
            with _in_the_way(path):
                files.ensure_file(path)


def ensure_pages(home: str) -> str:
    """Make the directory for notes beside the data of an existing home directory, and return its path."""
    files.require(f"{home}/{LOCKS}")
    path = f"{home}/{PAGES}"
    files.ensure(path)
    return path


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


T = TypeVar("T")

_PATIENCE = 10.0
_SETTLED = 2_000_000_000


class KeyFile(Generic[T]):
    """A file that the user of ``tree`` can read. One in doubt is never taken for one without keys."""

    def __init__(
        self, path: str, *, tree: str, what: str, nothing: T, decode: Callable[[bytes, os.stat_result], T] | None = None
    ) -> None:
        """``nothing`` is what a file that is missing has; without ``decode``, one that is there is JSON of its type."""
        of_type = msgspec.json.Decoder(type(nothing)).decode
        self._path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        self.name = os.path.basename(path)  # the others must not be shown
        self._tree = os.path.abspath(tree)
        self._what = what
        self._decode = decode or (lambda data, _: of_type(data))
        self._nothing = nothing
        self._seen: tuple[object, T] = (None, nothing)

    def read(self) -> T:
        """Return its content now. Costs one ``stat`` unless the file has changed, and one more where it is a link."""
        is_link = False
        try:
            status = os.lstat(self._path)
            if is_link := stat.S_ISLNK(status.st_mode):
                status = os.stat(self._path)
        except FileNotFoundError:
            if is_link:
                raise DamagedError(f"the {self._what} {self._path} are a link that leads nowhere") from None
            return self._nothing
        except OSError as error:
            raise as_disk_error(error, f"reading the {self._what}") from error
        known, content = self._seen
        if files.state_of(status) == known:
            return content
        with disk_errors(f"reading the {self._what}"):
            return self._load()

    @contextmanager
    def changing(self) -> Iterator[T]:
        """Return its content, with the right to replace it for a block."""
        with disk_errors(f"changing the {self._what}"):
            # A file that root makes would be closed to the service, and so would one that replaces the service's.
            owner.refuse_root(os.path.dirname(self._path))
            if files.exists(self._path):
                owner.require_user(self._path, os.stat(self._path).st_uid)
            elif files.exists(self._tree):
                owner.require(self._tree)
            if os.path.dirname(self._path) == f"{os.path.realpath(self._tree)}/{PAGES}":
                ensure_pages(self._tree)
            else:
                files.ensure(os.path.dirname(self._path))
            lock = f"{self._path}.lock"
            files.ensure_file(lock)
            with LockFile(lock).exclusive(f"another command is changing the {self._what}", timeout=_PATIENCE):
                yield self._load()

    def write(self, content: msgspec.Struct) -> None:
        """Replace it, readable for its user only; within ``changing``."""
        text = msgspec.json.format(msgspec.json.encode(content), indent=2)
        if len(text) >= LARGEST_SMALL_FILE:
            raise ConflictError(f"the {self._what} would take more than {LARGEST_SMALL_FILE} bytes: remove some first")
        files.write_durably(self._path, text + b"\n", 0o600)

    def _load(self) -> T:
        try:
            with files.closing(files.open_linked(self._path)) as descriptor:
                status = os.fstat(descriptor)
                content = self._decode(files.read_small(descriptor), status)
        except FileNotFoundError:
            return self._nothing
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise DamagedError(f"the {self._what} in {self.name} cannot be read: {error}") from error
        # The clock of a file system ticks in milliseconds: a file that has just changed may change again unseen.
        if time.time_ns() - status.st_ctime_ns > _SETTLED:
            self._seen = (files.state_of(status), content)
        return content


# Trials of what the commit needs of a file system, and the room that is left on it.


_LEAST_FREE = 1 << 20
_LEAST_INODES = 64
_FOR_NOW = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


def free_bytes(root: str) -> int:
    """Bytes that an ordinary user may still write into a tree; raises ``OSError`` where it cannot make files."""
    if not os.access(f"{root}/{SERVICE}", os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return free_in(root)


def free_in(directory: str) -> int:
    """Bytes that an ordinary user may still write there; raises ``OSError`` where it cannot make files."""
    status = os.statvfs(directory)
    if status.f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if status.f_files and status.f_favail < _LEAST_INODES:  # some file systems do not count them, and say 0 of 0
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return status.f_bavail * status.f_frsize


def probe(root: str) -> str | None:
    """Try out all that the commit needs of the file system; return why the service cannot write for now."""
    first, second = (f"{root}/{SPOOL}/{fresh_id()}" for _ in range(2))
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("writing and fsync", lambda: _write(first)),
        ("hard links", lambda: files.keep_as(first, second)),
        ("rename", lambda: files.rename(first, second)),
        ("fsync of a directory", lambda: files.sync_directory(f"{root}/{SPOOL}")),
        ("locks between processes", lambda: _lock(second)),
        ("free space", lambda: _space(root)),
    )
    try:
        for what, step in steps:
            try:
                step()
            except OSError as error:
                cause = f"data directory {root}: {what}: {error.strerror or error}"
                if error.errno in _FOR_NOW:
                    return cause
                raise StartupError(cause) from error
        return None
    finally:
        files.remove_quietly(first, second)


def _write(path: str) -> None:
    with files.written(path, b"probe\n") as descriptor:
        files.sync(descriptor)


_LONGEST_TRIAL = 20.0
_LOCKED = 7
_CONTEND = f"import fcntl,sys\nf=open(sys.argv[1])\ntry: fcntl.flock(f,6)\nexcept BlockingIOError: sys.exit({_LOCKED})"
"""Ends with ``_LOCKED`` if the file of its last argument is locked."""


def _contend(path: str) -> int:
    with processes.start("-S", "-c", _CONTEND, path, stderr=subprocess.DEVNULL) as contender:
        return contender.wait(_LONGEST_TRIAL)


def _lock(path: str) -> None:
    with open(path, "rb") as file:
        try_lock(file.fileno())
        status = _contend(os.path.abspath(path))
    if status != _LOCKED:
        raise OSError("a second process was not locked out")


def _space(root: str) -> None:
    if free_bytes(root) < _LEAST_FREE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
