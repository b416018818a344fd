"""A content that is read from another service as it is needed, as if it were a file here."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import BinaryIO, Self, cast

from persistence.remote.client import Answer


class RemoteContent:
    """``size`` bytes; ``ask`` gives the answer that has them from an offset on.

    It is asked when something is read, and again where that is not what follows. Reading raises ``RemoteError``.
    """

    def __init__(self, size: int, ask: Callable[[int], Answer], answer: Answer | None = None) -> None:
        """``answer`` is one that has all of it, where that is known already."""
        self._size = size
        self._ask = ask
        self._answer = answer
        self._pieces: Iterator[bytes] = iter(()) if answer is None else iter(answer)
        self._held = b""
        self._begin = self._at = 0

    def read(self, size: int = -1) -> bytes:
        """So many bytes, fewer only at the end; all that are left without ``size``."""
        wanted = self._size - self._at if size < 0 else size
        data = bytearray()
        while len(data) < wanted and self._holds_more():
            begin = self._at - self._begin
            piece = self._held[begin : begin + wanted - len(data)]
            data += piece
            self._at += len(piece)
        return bytes(data)

    def _holds_more(self) -> bool:
        """Whether there is anything from here on in the piece that is held, once the next one is, if need be."""
        if self._at < self._begin + len(self._held):
            return True
        if self._at >= self._size:
            return False
        piece = next(self._pieces, None)
        if piece is None:  # nothing was asked for yet, or only a part of what is wanted
            self._let_go()
            self._answer = self._ask(self._at)
            self._pieces = iter(self._answer)
            piece = next(self._pieces, b"")
        self._begin, self._held = self._at, piece
        return bool(piece)

    def tell(self) -> int:
        """The offset of the next byte."""
        return self._at

    def seek(self, offset: int) -> int:
        """Go to an offset from the beginning, without asking again where the piece that is held has it."""
        if not self._begin <= offset <= self._begin + len(self._held):
            self._let_go()
            self._begin, self._held = offset, b""
        self._at = offset
        return offset

    def fileno(self) -> int:
        """There is none."""
        raise io.UnsupportedOperation("a content of another service is no file")

    def close(self) -> None:
        """Ask for no more."""
        self._let_go()

    def _let_go(self) -> None:
        if self._answer is not None:
            self._answer.close()
        self._answer, self._pieces = None, iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_file(content: RemoteContent) -> BinaryIO:
    """The content where a file is asked for that is read, sought in from its beginning, and closed."""
    return cast("BinaryIO", content)
