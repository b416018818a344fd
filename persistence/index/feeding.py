"""Reading the documents of a form for a new index, by several processes at once."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.queues import Queue

import msgspec

from persistence.errors import DiskError
from persistence.index.records import Edition, Prepared, prepared
from persistence.index.sources import UNKNOWN, Definition, Source

Batch = list[Prepared]

_BATCH = 500
_LARGEST_BATCH = 1 << 20
"""Characters of documents after which a batch is full, however few they are: it is held as a whole."""
_AHEAD = 4
"""Batches of each process that wait to be written."""
_PATIENCE = 1.0
"""Seconds after which it is looked whether a process that says nothing still lives."""


@dataclass(frozen=True, slots=True)
class Reading:
    """By what documents are read: the editions and definitions of the versions that there are."""

    source: Source
    editions: Mapping[int, Edition]
    definitions: Mapping[int, Definition]

    def prepared(self, part: int, parts: int) -> Iterator[tuple[int, Batch]]:
        """One part of the documents in batches, each with how many names have been looked at for it."""
        batch: Batch = []
        looked_at = characters = 0
        for document, is_draft in self.source.documents():
            if parts > 1 and zlib.crc32(document.encode()) % parts != part:
                continue
            looked_at += 1
            mark = self.source.mark(document, is_draft=is_draft)
            record = self.source.read(document, is_draft=is_draft, mark=mark, definitions=self._definition)
            if record is not None:
                batch.append(prepared(record, self._edition(record.version)))
                characters += len(batch[-1].card) + len(batch[-1].rest)
            if len(batch) == _BATCH or characters > _LARGEST_BATCH:
                yield looked_at, batch
                batch, looked_at, characters = [], 0, 0
        yield looked_at, batch

    def _definition(self, version: int) -> Definition:
        return self.definitions.get(version, UNKNOWN)

    def _edition(self, version: int) -> Edition:
        return self.editions.get(version) or Edition(version, 1, {})


@contextmanager
def fed(reading: Reading, processes: int) -> Iterator[Iterator[tuple[int, Batch]]]:
    """All documents in batches, read by some processes, or by this one if there is to be one; they end with the block.

    The processes are forks: this one must have no other threads.
    """
    if processes == 1:
        yield reading.prepared(0, 1)
        return
    context = multiprocessing.get_context("fork")
    batches: Queue[bytes] = context.Queue(_AHEAD * processes)
    readers = [
        context.Process(target=_read, args=(reading, part, processes, batches, os.getpid()), daemon=True)
        for part in range(processes)
    ]
    try:
        # Ctrl-C while one is being made would be told of by the half-made process.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for reader in readers:
                reader.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        yield _received(batches, readers)
    finally:
        for reader in readers:
            if reader.pid is not None:
                reader.terminate()
                reader.join()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, list[Prepared]] | str).decode


def _read(reading: Reading, part: int, parts: int, batches: Queue[bytes], parent: int) -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches every process of the terminal: the parent ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # so the parent does; an end in order would wait for the queue
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        for batch in reading.prepared(part, parts):
            batches.put(_encode(batch))
        batches.put(_encode(""))
    except Exception as error:  # noqa: BLE001 - whatever it is, the other process is to know
        batches.put(_encode(f"{type(error).__name__}: {error}"))


def _end_with(parent: int) -> None:
    """End this process when its parent has: it would wait for ever for somebody to take what it has read."""
    while os.getppid() == parent:
        time.sleep(_PATIENCE)
    os._exit(1)


def _received(batches: Queue[bytes], readers: list[multiprocessing.context.ForkProcess]) -> Iterator[tuple[int, Batch]]:
    reading = len(readers)
    while reading:
        try:
            received = _decode(batches.get(timeout=_PATIENCE))
        except queue.Empty:
            if all(reader.is_alive() or reader.exitcode == 0 for reader in readers):
                continue
            raise DiskError("a process that was reading documents for the index was killed") from None
        if isinstance(received, tuple):
            yield received
        elif received:
            raise DiskError(f"reading documents for the index: {received}")
        else:
            reading -= 1
