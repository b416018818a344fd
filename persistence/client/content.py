"""Contents on their way to the service: sent in pieces, and sent again only where they can be read again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from io import SEEK_END, BytesIO, TextIOBase
from pathlib import Path
from typing import BinaryIO, cast

from persistence.limits import CHUNK

Content = bytes | bytearray | memoryview | str | Path | BinaryIO | Iterable[bytes]
"""A content to be sent: bytes, a text (sent as UTF-8), the path of a file, an open binary file, or pieces of bytes."""


class OutgoingContent:
    """A content to be sent, with at most a piece in memory, unless it is bytes or a text.

    ``length`` is in bytes. It is ``None`` of pieces, and of files that cannot seek: these are sent in chunks.
    ``is_repeatable`` says whether it can be sent a second time.

    Raises:
        TypeError: it is a file that was opened for text.
        OSError: there is no such file.
    """

    def __init__(self, content: Content) -> None:
        self._path: Path | None = None
        self._file: BinaryIO | None = None
        self._pieces: Iterable[bytes] = ()
        self._start = 0
        self.length: int | None = None
        if isinstance(content, Path):
            self._path = content
            self.length = os.stat(content).st_size
        elif isinstance(content, bytes | bytearray | memoryview | str):
            self._keep_file(BytesIO(content.encode() if isinstance(content, str) else content))
        elif isinstance(content, TextIOBase):
            raise TypeError("a file to be sent must be opened in binary mode")
        elif hasattr(content, "read"):
            self._keep_file(cast("BinaryIO", content))
        else:
            self._pieces = content
        self.is_repeatable = self.length is not None

    def __iter__(self) -> Iterator[bytes]:
        if self._path is not None:
            with self._path.open("rb") as file:
                yield from _read(file)
        elif self._file is not None:
            if self.is_repeatable:
                self._file.seek(self._start)
            yield from _read(self._file)
        else:
            yield from self._pieces

    def _keep_file(self, file: BinaryIO) -> None:
        self._file = file
        if file.seekable():
            self._start = file.tell()
            self.length = file.seek(0, SEEK_END) - self._start


def _read(file: BinaryIO) -> Iterator[bytes]:
    yield from iter(partial(file.read, CHUNK), b"")
