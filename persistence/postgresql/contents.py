"""Contents in a database: small ones in the row of their revision, larger ones in pieces, streamed up and down.

Pieces are written before any lock is held. Ids that no revision has are *unclaimed*; a sweep removes old ones, so
readers can finish.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, cast

from persistence.errors import DiskError, OutcomeUnknownError, PersistenceError, ReplacedError
from persistence.limits import INLINE, MOST_SWEPT, PIECE, SWEPT_AT_ONCE, UNCLAIMED_SECONDS
from persistence.postgresql.database import Database
from persistence.storage.uploads import Upload

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BEGIN = "INSERT INTO unclaimed (id, form, folder) VALUES (%s, %s, %s)"
_PIECE = "INSERT INTO piece (id, number, bytes) VALUES (%s, %s, %b)"
_GIVE_UP = (
    "WITH own AS (DELETE FROM unclaimed WHERE id = %s RETURNING id) DELETE FROM piece USING own WHERE piece.id = own.id"
)
_SWEEP = """
WITH old AS (
    SELECT id FROM unclaimed WHERE since < now() - make_interval(secs => %s)
    ORDER BY since LIMIT %s FOR UPDATE SKIP LOCKED
), gone AS (DELETE FROM unclaimed USING old WHERE unclaimed.id = old.id RETURNING unclaimed.id),
pieces AS (DELETE FROM piece USING gone WHERE piece.id = gone.id)
SELECT count(*) FROM gone
"""
_READ = "SELECT bytes FROM piece WHERE id = %s AND number = %s"


def sweep(database: Database, seconds: float = UNCLAIMED_SECONDS, most: int = SWEPT_AT_ONCE) -> int:
    """Remove some contents that no revision has had for so many seconds; return how many."""
    with database.apart("removing old contents") as connection:
        row = connection.execute(_SWEEP, (seconds, most)).fetchone()
    return 0 if row is None else int(row[0])


def sweep_all(database: Database) -> None:
    """Remove the contents that no revision has had for long, up to a limit."""
    for _ in range(MOST_SWEPT // SWEPT_AT_ONCE):
        if not sweep(database):
            return


def opened_content(database: Database, content: str, size: int, body: bytes | None) -> BinaryIO:
    if body is not None:
        return io.BytesIO(body)
    return cast("BinaryIO", io.BufferedReader(_Pieces(database, content, size)))


class DatabaseUpload(Upload):
    """A body on its way into a database. ``flush`` stores a large one before any lock is held."""

    def __init__(self, local: str, database: Database, folder: Callable[[], tuple[int | None, str]]) -> None:
        super().__init__(local)
        self._database = database
        self._folder = folder
        self._has_pieces = False
        self._is_stored = False

    @property
    def is_large(self) -> bool:
        """True if the content is stored in pieces."""
        return self.size > INLINE

    def flush(self) -> None:
        """Write a large content to the database, in pieces; a small one waits for its row."""
        if not self.is_large or self._is_stored:
            return
        if self._has_pieces:
            raise DiskError("storing a body: it failed before, and only some pieces are there")
        with suppress(PersistenceError):
            sweep(self._database)
        number, folder = self._folder()
        self._has_pieces = True  # from now on there is something to give up
        self._database.require_committing()
        with self._database.apart("storing", "a body") as connection:
            connection.execute(_BEGIN, (self.id, number, folder))
        with self.opened() as file:
            for at in range(-(-self.size // PIECE)):
                piece = file.read(PIECE)
                self._database.require_committing()
                with self._database.apart("storing", "a body") as connection:  # briefly: others wait for connections
                    connection.execute(_PIECE, (self.id, at, piece))
        self._is_stored = True

    def body(self) -> bytes | None:
        """Return a small content for its row, and ``None`` for one in pieces."""
        self.flush()
        if self.is_large:
            return None
        with self.opened() as file:
            return file.read()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # Those of a stored content are not unclaimed any more; one that nobody knows of is left to the sweep.
            if self._has_pieces and not isinstance(error, OutcomeUnknownError):
                with suppress(PersistenceError):
                    self._database.require_committing()
                    with self._database.apart("giving up", "a body") as connection:
                        connection.execute(_GIVE_UP, (self.id,))
        finally:
            super().__exit__(kind, error, trace)


class _Pieces(io.RawIOBase):
    """A content in pieces, one in memory at a time."""

    def __init__(self, database: Database, content: str, size: int) -> None:
        self._database = database
        self._content = content
        self._size = size
        self._at = 0
        self._number = -1
        self._piece = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("a position before the beginning")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        target = memoryview(buffer).cast("B")
        if self._at >= self._size:
            return 0
        number, begin = divmod(self._at, PIECE)
        if number != self._number:
            self._number, self._piece = number, self._read(number)
        found = memoryview(self._piece)[begin : begin + len(target)]
        target[: len(found)] = found
        self._at += len(found)
        return len(found)

    def _read(self, number: int) -> bytes:
        with self._database.reading("reading", "a content") as connection:
            row = connection.execute(_READ, (self._content, number), binary=True).fetchone()
        expected = min(PIECE, self._size - number * PIECE)
        if row is None or len(row[0]) != expected:
            raise ReplacedError("the content was replaced while it was read, and is gone")
        return bytes(row[0])
