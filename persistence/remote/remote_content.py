"""Contents that another service has as files: read as they are needed, in the ranges that a client wants."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, BinaryIO

from persistence import client_request
from persistence.errors import RemoteError
from persistence.remote.answers import RemoteAnswer
from persistence.remote.headers import HeaderField

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

FOUND = (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT)

MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
"""For what was never there, or was deleted."""

_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})?", re.ASCII)


class _RemoteContent(io.RawIOBase):
    """A content of ``size`` bytes that is read as it is needed. Reading raises ``RemoteError``.

    ``ask`` returns the answer from an offset on; it is called when something is read that does not follow. ``answer``
    is one that has all of it, where that is known already.
    """

    def __init__(self, size: int, ask: Callable[[int], RemoteAnswer], answer: RemoteAnswer | None) -> None:
        super().__init__()
        self._size = size
        self._ask = ask
        self._answer = answer
        self._pieces: Iterator[bytes] = iter(()) if answer is None else iter(answer)
        self._held = memoryview(b"")
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self._at < self._size and not self._held:
            piece = next(self._pieces, None)
            if piece is None:  # nothing was requested yet, or only a part
                self._release()
                self._answer = self._ask(self._at)
                self._pieces = iter(self._answer)
                piece = next(self._pieces, b"")
            self._held = memoryview(piece)
        room = memoryview(buffer)
        taken, self._held = self._held[: len(room)], self._held[len(room) :]
        room[: len(taken)] = taken
        self._at += len(taken)
        return len(taken)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        target = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if target < 0:
            raise ValueError(f"{-target} bytes before the beginning is not a valid position")
        if target != self._at:
            self._release()
            self._at, self._held = target, memoryview(b"")
        return target

    def close(self) -> None:
        self._release()
        super().close()

    def _release(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._answer, self._pieces = None, iter(())


def opened_remotely(size: int, ask: Callable[[int], RemoteAnswer], answer: RemoteAnswer | None = None) -> BinaryIO:
    """Return a content elsewhere as a file that can seek; the reader closes it."""
    return io.BufferedReader(_RemoteContent(size, ask, answer))


def range_from(at: int, size: int) -> list[HeaderField]:
    """Return the field that asks for a content from an offset on, as far as the client wants it."""
    asked = _RANGE.fullmatch((client_request.current().field_of("Range") or "").strip())
    last = size - 1
    if asked is not None and asked[2] is not None and int(asked[1]) == at:
        last = min(int(asked[2]), last)
    return [("Range", f"bytes={at}-{last}".encode())] if (at, last) != (0, size - 1) else []


def go_to(at: int, answer: RemoteAnswer) -> None:
    """Make an answer go on from an offset; ranges are optional (spec crud 11)."""
    try:
        if at and answer.status == HTTPStatus.OK:
            answer.skip(at)
        elif at and not (answer.field("Content-Range") or "").startswith(f"bytes {at}-"):
            raise RemoteError("a provider does not send the range that it was asked for")  # noqa: TRY301
    except RemoteError:
        answer.close()
        raise
