"""A small file of keys outside the tree: commands change it, and a service that runs sees that at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import msgspec

from persistence.errors import ConflictError, DamagedError, as_disk_error, disk_errors
from persistence.limits import LARGEST_SMALL_FILE
from persistence.storage import directories, files, nofollow, owner, root
from persistence.storage.layout import PAGES
from persistence.storage.locks import LockFile

T = TypeVar("T")

_MODE = 0o600
_PATIENCE = 10.0
_SETTLED = 2_000_000_000


class KeyFile(Generic[T]):
    """One file. ``tree`` is the data directory, whose user must be able to read it; ``what`` names it in errors.

    ``decode`` reads its bytes, given its status too, and ``nothing`` stands for a file that is not there. Methods raise
    ``DiskError`` for errors of the operating system, and ``DamagedError`` for a file that cannot be decoded: a file
    in doubt is never taken for one without keys.
    """

    def __init__(
        self, path: str, *, tree: str, what: str, decode: Callable[[bytes, os.stat_result], T], nothing: T
    ) -> None:
        self._path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        self._tree = os.path.abspath(tree)
        self._what = what
        self._decode = decode
        self._nothing = nothing
        self._seen: tuple[object, T] = (None, nothing)

    @property
    def name(self) -> str:
        """The last name of its path: the others must not be shown."""
        return os.path.basename(self._path)

    def read(self) -> T:
        """Return its content now. Costs one ``stat`` unless the file has changed."""
        try:
            version = _version(os.stat(self._path))
        except FileNotFoundError:
            if os.path.islink(self._path):
                raise DamagedError(f"the {self._what} {self._path} are a link that leads nowhere") from None
            return self._nothing
        except OSError as error:
            raise as_disk_error(error, f"reading the {self._what}") from error
        known, content = self._seen
        if version == known:
            return content
        with disk_errors(f"reading the {self._what}"):
            return self._load()

    @contextmanager
    def changing(self) -> Iterator[T]:
        """Return its content, with the right to replace it for a block."""
        with disk_errors(f"changing the {self._what}"):
            self._require_owner()
            if os.path.dirname(self._path) == f"{os.path.realpath(self._tree)}/{PAGES}":
                root.ensure_pages(self._tree)
            else:
                directories.ensure(os.path.dirname(self._path))
            lock = f"{self._path}.lock"
            files.ensure_file(lock)
            with LockFile(lock).exclusive(f"another command is changing the {self._what}", timeout=_PATIENCE):
                yield self._load()

    def write(self, content: msgspec.Struct) -> None:
        """Replace it, readable for its user only; within ``changing``."""
        text = msgspec.json.format(msgspec.json.encode(content), indent=2)
        if len(text) >= LARGEST_SMALL_FILE:
            raise ConflictError(f"the {self._what} would take more than {LARGEST_SMALL_FILE} bytes: remove some first")
        files.write_durably(self._path, text + b"\n", _MODE)

    def _require_owner(self) -> None:
        """A file that root makes would be closed to the service, and so would the one that replaces the service's."""
        owner.refuse_root(os.path.dirname(self._path))
        if files.exists(self._path):
            owner.require_user(self._path, os.stat(self._path).st_uid)
        elif files.exists(self._tree):
            owner.require(self._tree)

    def _load(self) -> T:
        try:
            descriptor = nofollow.open_linked(self._path)
        except FileNotFoundError:
            return self._nothing
        try:
            status = os.fstat(descriptor)
            content = self._decode(nofollow.read_small(descriptor), status)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise DamagedError(f"the {self._what} in {self.name} cannot be read: {error}") from error
        finally:
            os.close(descriptor)
        # The clock of a file system ticks in milliseconds: a file that has just changed may change again unseen.
        if time.time_ns() - status.st_ctime_ns > _SETTLED:
            self._seen = (_version(status), content)
        return content


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
