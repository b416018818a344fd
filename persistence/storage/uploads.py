"""Uploads: content on its way in, counted and hashed while it is written, without any lock.

An upload is a file without a name (``O_TMPFILE``), so that a client that hangs up, a killed worker or a power cut
leaves nothing behind. Where the file system has no such files it waits in the spool directory under its id.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from types import TracebackType
from typing import Self

from persistence.errors import as_disk_error
from persistence.limits import WRITTEN_AT_ONCE
from persistence.model.sidecar import ClientHash, digest_text, fresh_id
from persistence.storage import directories, files
from persistence.storage.layout import SPOOL
from persistence.storage.locks import try_lock

_SMALL = 1 << 20
ABANDONED_AFTER = 60.0
"""Seconds after which a temporary file that nobody holds belongs to nobody."""


class Upload:
    """One body being received below a root. Use it in a ``with`` block: what was not placed by its end is gone.

    ``size`` is in bytes; ``digest`` is ``sha256:`` and hex digits. Methods raise ``OSError``.
    """

    def __init__(self, root: str) -> None:
        self.id = fresh_id()
        self.size = 0
        self._hash = hashlib.sha256()
        self._begun = 0
        self._path: str | None = None
        try:
            descriptor = files.open_unnamed(root)
            if descriptor is None:
                self._path = f"{root}/{SPOOL}/{self.id}"
                directories.ensure(f"{root}/{SPOOL}")
                descriptor = files.open_new(self._path)
                try_lock(descriptor)  # alive, it says to ``sweep``
        except OSError as error:
            raise as_disk_error(error, "receiving a body") from error
        self._descriptor = descriptor

    def write(self, chunk: bytes) -> None:
        """Append to the content."""
        files.write_all(self._descriptor, chunk)
        self._hash.update(chunk)
        self.size += len(chunk)
        if self.size - self._begun >= WRITTEN_AT_ONCE:
            files.begin_writeback(self._descriptor, self._begun, self.size - self._begun)
            self._begun = self.size

    @property
    def digest(self) -> str:
        """The digest of everything written so far."""
        return digest_text(self._hash.hexdigest())

    def opened(self) -> FileIO:
        """Return the content so far, open to be read from its beginning; it may be kept longer than the upload."""
        file = FileIO(os.dup(self._descriptor))
        file.seek(0)
        return file

    def flush(self) -> None:
        """Make a large content durable now, while no lock is held; a small one waits for ``sync``."""
        if self.size > _SMALL:
            files.sync(self._descriptor)

    def place_at(self, path: str, stamp: int) -> None:
        """Give the content its name, and the revision's stamp as its modification time, in nanoseconds."""
        files.stamp(self._descriptor, stamp)
        if self._path is None:
            files.link_descriptor(self._descriptor, path)
        else:
            files.rename(self._path, path)
            self._path = None
        files.begin_writeback(self._descriptor)

    def sync(self) -> None:
        """Make the content durable under the name it has now."""
        files.sync(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None:
            files.remove_quietly(self._path)
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file that was received to be sent to another server.

    ``client_hash`` is the one that a client gave with it. With ``may_stay`` a file of its name that is there stays.
    """

    name: str
    content_type: str
    upload: Upload
    client_hash: ClientHash | None = None
    may_stay: bool = False


def sweep(root: str) -> None:
    """Remove what killed workers have left in the spool directory."""
    for path in abandoned(f"{root}/{SPOOL}"):
        files.remove_quietly(path)


def abandoned(spool: str, age: float = ABANDONED_AFTER) -> Iterator[str]:
    """Yield the files in the spool that nobody holds, and that are not just being made: older than so many seconds."""
    for entry in os.scandir(spool):
        if not entry.is_file(follow_symlinks=False):
            continue
        try:
            descriptor = os.open(entry.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        try:
            if try_lock(descriptor) and time.time() - os.fstat(descriptor).st_mtime > age:
                yield entry.path
        finally:
            os.close(descriptor)
