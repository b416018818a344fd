"""A ZIP archive that is written as it is sent: of any size, in bounded memory, to an output without seek.

The standard library keeps some 700 bytes of each entry until the archive ends: here these go to a temporary file.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import IO, Any, Self
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from persistence.limits import CHUNK, SPOOLED_DIRECTORY
from persistence.model.archives import extended_timestamps
from persistence.model.instants import Instant, to_datetime

_FIRST_YEAR, _LAST_YEAR = 1980, 2107
_FACTS = tuple(name for name in ZipInfo.__slots__ if not name.startswith("_"))


class _Sink:
    """Collects the bytes of the archive until they are taken, or passes them on to a file."""

    def __init__(self) -> None:
        self.held = bytearray()
        self.file: IO[bytes] | None = None

    def write(self, data: bytes) -> int:
        if self.file is None:
            self.held += data
        else:
            self.file.write(data)
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def taken(self) -> bytes:
        data, self.held = bytes(self.held), bytearray()
        return data


class _Directory(list[ZipInfo]):
    """The entries of an archive in a temporary file, in the place of the list that ``ZipFile`` keeps."""

    def __init__(self) -> None:
        super().__init__()
        self._file = SpooledTemporaryFile(SPOOLED_DIRECTORY)  # noqa: SIM115 - closed with the archive
        self._count = 0

    def append(self, entry: ZipInfo) -> None:
        pickle.dump(tuple(getattr(entry, name, None) for name in _FACTS), self._file, pickle.HIGHEST_PROTOCOL)
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ZipInfo]:
        self._file.seek(0)
        for _ in range(self._count):
            entry = ZipInfo()
            facts = pickle.load(self._file)  # noqa: S301 - of a file that nobody else has
            for name, value in zip(_FACTS, facts, strict=True):
                setattr(entry, name, value)
            yield entry

    def close(self) -> None:
        self._count = 0
        self._file.close()


class ZipStream:
    """An archive. Use it in a ``with`` block: one that ends early leaves nothing behind, and no valid archive."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._directory = _Directory()
        self._zip = ZipFile(self._sink, "w")
        self._zip.filelist = self._directory

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._directory.close()
        with suppress(ValueError):  # in the middle of an entry
            self._zip.close()

    def add(
        self, name: str, times: tuple[Instant, Instant], pieces: Iterable[bytes], size: int | None, *, compresses: bool
    ) -> Iterator[bytes]:
        """Add an entry, and yield the finished bytes; without a ``size`` it may be larger than 4 GiB.

        ``times`` are those of modification and creation. Without compression it is deflated at level 0: Java cannot
        read stored entries from a stream if their sizes come after their contents.
        """
        entry = ZipInfo(name, _date_time(times[0]))
        entry.extra, in_directory = extended_timestamps(*times)
        entry.compress_type = ZIP_DEFLATED
        entry._compresslevel = None if compresses else 0  # type: ignore[attr-defined]  # noqa: SLF001 - the only way
        entry.file_size = size or 0
        with self._zip.open(entry, "w", force_zip64=size is None) as file:
            entry.extra = in_directory  # the other header is written
            for piece in pieces:
                file.write(piece)
                if len(self._sink.held) >= CHUNK:
                    yield self._sink.taken()
        self._zip.NameToInfo.clear()
        if len(self._sink.held) >= CHUNK:
            yield self._sink.taken()

    def end(self) -> Iterator[bytes]:
        """Write the directory, and yield the rest of the archive."""
        yield self._sink.taken()
        with SpooledTemporaryFile(SPOOLED_DIRECTORY) as rest:
            self._sink.file = rest
            self._zip.close()
            rest.seek(0)
            while piece := rest.read(CHUNK):
                yield piece


def _date_time(instant: Instant) -> tuple[int, int, int, int, int, int]:
    moment = to_datetime(instant)
    if moment.year < _FIRST_YEAR:
        return (_FIRST_YEAR, 1, 1, 0, 0, 0)
    found: Any = min(moment.timetuple()[:6], (_LAST_YEAR, 12, 31, 23, 59, 58))
    result: tuple[int, int, int, int, int, int] = found
    return result
