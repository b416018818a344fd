"""Reading the documents of a form for a new index, by several processes at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice

import msgspec

from persistence.errors import DiskError
from persistence.index.sources import UNKNOWN, DocumentName, IndexedDefinition, Source
from persistence.index.sqlite.engine import PreparedDocument, VersionKeys, prepared

_BATCH = 200
_LARGEST_BATCH = 1 << 20
"""Characters of the texts of documents after which no more are read at once, however few they are: they are held."""
_AHEAD = 4
"""Chunks of each process that are read before they are written."""
_LOOK = 1.0
"""Seconds after which a process looks whether the one that needs it still lives."""


@dataclass(frozen=True, slots=True)
class DocumentReader:
    """Reads the documents of a source by the keys and definitions of the ``versions`` that there are."""

    source: Source
    versions: Mapping[int, tuple[VersionKeys, IndexedDefinition]]

    def chunks(self) -> Iterator[list[DocumentName]]:
        """Yield the names of all documents, some at a time."""
        names = self.source.documents()
        while chunk := list(islice(names, _BATCH)):
            yield chunk

    def read(self, names: list[DocumentName]) -> tuple[int, list[PreparedDocument]]:
        """Read the first documents of some names, as many as may be held, without those that are deleted or damaged.

        Return how many names were looked at, too.
        """
        found = []
        size = 0
        for at, name in enumerate(names, 1):
            read = self.source.read(name, self.source.fingerprint(name), lambda version: self._version(version)[1])
            if read is not None:
                document = prepared(read, self._version(read.hit.facts.version)[0])
                found.append(document)
                size += len(document.rest) + len(document.card)
                if size > _LARGEST_BATCH:
                    return at, found
        return len(names), found

    def _version(self, version: int) -> tuple[VersionKeys, IndexedDefinition]:
        return self.versions.get(version) or (VersionKeys(version, 1, {}), UNKNOWN)


def read_all(reader: DocumentReader, processes: int) -> Generator[tuple[int, list[PreparedDocument]], None, None]:
    """Yield all documents in batches, each with the number of names that were looked at for it.

    With one process, this one reads, and so it does if there is only one chunk. Several are forks, which end with the
    generator: this process must have no other threads, and must close the generator.
    """
    chunks = reader.chunks()
    first = list(islice(chunks, 2))
    chunks = chain(first, chunks)
    if processes == 1 or len(first) <= 1:
        for chunk in chunks:
            left = chunk
            while left:
                looked_at, batch = reader.read(left)
                left = left[looked_at:]
                yield looked_at, batch
        return
    context = multiprocessing.get_context("fork")
    executor = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(reader, os.getpid()))
    running: deque[tuple[list[DocumentName], Future[bytes]]] = deque()
    try:
        while True:
            for chunk in islice(chunks, _AHEAD * processes - len(running)):
                running.append((chunk, _submitted(executor, chunk)))
            if not running:
                return
            chunk, future = running.popleft()
            looked_at, batch = _received(future)
            if looked_at < len(chunk):
                running.append((chunk[looked_at:], _submitted(executor, chunk[looked_at:])))
            yield looked_at, batch
    except BrokenProcessPool:
        raise DiskError("a process that was reading documents for the index was killed") from None
    finally:
        executor.shutdown(cancel_futures=True)


def _submitted(executor: ProcessPoolExecutor, chunk: list[DocumentName]) -> Future[bytes]:
    # The first call starts the processes. Ctrl-C during that would be reported by a half-made process.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return executor.submit(_read, chunk)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _received(future: Future[bytes]) -> tuple[int, list[PreparedDocument]]:
    received: tuple[int, list[PreparedDocument]] | str = _decode(future.result())
    if isinstance(received, str):
        raise DiskError(f"reading documents for the index: {received}")
    return received


# In the processes that read.

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, list[PreparedDocument]] | str).decode

_readers: list[DocumentReader] = []
"""The reader of this process."""


def _begin(reader: DocumentReader, parent: int) -> None:
    # Ctrl-C reaches every process of the terminal: the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _readers.append(reader)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent was killed: it would wait for ever for more to read."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)


def _read(chunk: list[DocumentName]) -> bytes:
    try:
        return _encode(_readers[-1].read(chunk))
    except Exception as error:  # noqa: BLE001 - every error is reported to the other process
        return _encode(f"{type(error).__name__}: {error}")
