"""The plain content of an encrypted file, read like a file: in order, or from any position."""

from __future__ import annotations

import io
from abc import abstractmethod
from typing import BinaryIO


class PlainFile(io.RawIOBase):
    """Decrypts while it is read; ``size`` is that of the plain content in bytes. Closing it closes ``file``.

    It has no descriptor: nobody can send the file's own bytes by mistake.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__()
        self.file = file
        self.size = size
        self._at = 0

    @abstractmethod
    def _read_at(self, position: int, most: int) -> bytes:
        """Some bytes from a position before the end, one at least, and not more than ``most``."""

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes, fewer than asked for at times; none at the end.

        Raises:
            DamagedError: the file is not as it was written.
            OSError: it cannot be read.
        """
        wanted = self.size - self._at if size is None or size < 0 else size
        if self._at >= self.size or not wanted:
            return b""
        data = self._read_at(self._at, wanted)
        self._at += len(data)
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any buffer is one
        """The next bytes, into a buffer."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position from the beginning."""
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("only from the beginning")
        self._at = offset
        return offset

    def tell(self) -> int:
        """The position of the next byte."""
        return self._at

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """Close the file too."""
        self.file.close()
        super().close()
