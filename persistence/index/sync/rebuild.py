"""The index files of a form: which one is in use, and the making of another.

A small file names the index in use. An index file is never replaced by another of the same name: a process that has it
open goes on reading it until another one is in use. A new one is built beside it, from the whole tree, while that one
goes on being used and changed (``staleness``, 8).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice

from persistence.errors import BusyError, DiskError
from persistence.index.protocol import RebuildAim
from persistence.index.sources import DocumentName, Source
from persistence.index.sqlite import engine
from persistence.index.sync.staleness import (
    CHANGES,
    IndexCondition,
    Refresh,
    changes_beside,
    condition_of,
    reconcile_changes,
    tree_identity,
)
from persistence.model.addresses import Form
from persistence.model.sidecar import fresh_id
from persistence.storage import directories, files, nofollow
from persistence.storage.layout import Layout
from persistence.storage.locks import LockFile
from persistence.storage.nofollow import NotOpenedError

SMALL = 1_000
"""Documents up to which an index is made at once, by the process that needs it."""

_SMALL_BYTES = 16 << 20
"""Bytes of all documents of a small form."""

_BATCH = 200
_LARGEST_BATCH = 1 << 20
"""Characters of the texts of documents after which a batch of them is written."""

Progress = Callable[[int], None]
"""Hears how many more documents have been read."""

_SUFFIX = ".sqlite"
_NAME = re.compile(rf"[0-9a-f]{{40}}{re.escape(_SUFFIX)}")
_UNFINISHED = re.compile(r"current\.\d+")
"""The remains that ``files.write_durably`` leaves of the small file, if it is killed."""
_BUSY = "the index of the form is being made"


class Generations:
    """The index files of a form. Methods raise ``OSError``."""

    def __init__(self, layout: Layout, form: Form) -> None:
        self._directory = layout.index(form)
        self._pointer = layout.current_index(form)
        self._lock = f"{self._directory}/lock"

    def current(self) -> str | None:
        """Return the path of the file in use; ``None`` where none is named."""
        try:
            descriptor = nofollow.open_to_read(self._pointer)
        except (FileNotFoundError, NotADirectoryError, NotOpenedError):  # a link is replaced by the next index's
            return None
        try:
            name = nofollow.read_small(descriptor).decode(errors="replace")
        finally:
            os.close(descriptor)
        return f"{self._directory}/{name}" if _NAME.fullmatch(name) else None

    def fresh(self) -> str:
        """Return a path for a new file."""
        return f"{self._directory}/{fresh_id()}{_SUFFIX}"

    def use(self, path: str) -> None:
        files.write_durably(self._pointer, os.path.basename(path).encode())

    def invalidate(self, path: str) -> None:
        """Use a file no longer, if it is the one in use."""
        if self.current() == path:
            files.remove(self._pointer)

    def sweep(self) -> None:
        """Remove the files that are not in use; only while no other process makes one."""
        for path in self._others():
            with suppress(OSError):
                files.remove(path)

    def stray_files(self) -> list[str]:
        """Return the files beside the one in use that a killed rebuild left.

        Where no file is in use, the process that makes the next one removes the others.
        """
        try:
            with LockFile(self._lock).exclusive(_BUSY):
                return self._others() if self.current() else []
        except (FileNotFoundError, BusyError):
            return []

    def _others(self) -> list[str]:
        current = os.path.basename(self.current() or "")
        return [f"{self._directory}/{name}" for name in os.listdir(self._directory) if _is_stray(name, current)]

    @contextmanager
    def rebuilding(self, *, timeout: float) -> Iterator[None]:
        """Keep others from making an index of the form for a block; wait for them up to ``timeout`` seconds."""
        directories.ensure(self._directory)
        files.ensure_file(self._lock)
        with LockFile(self._lock).exclusive(_BUSY, timeout=timeout):
            yield


def _is_stray(name: str, current: str) -> bool:
    base = name.partition(_SUFFIX)[0] + _SUFFIX
    return (_NAME.fullmatch(base) is not None and base != current) or _UNFINISHED.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Makes the index of one form usable. Methods raise ``DiskError``, ``OSError`` and the errors of the engine."""

    root: str
    generations: Generations
    source: Source

    @property
    def is_small(self) -> bool:
        """Return whether the form has few documents, and none of them is large."""
        first = islice(self.source.documents(), SMALL + 1)
        sizes = [self.source.size(name) for name in first]
        return len(sizes) <= SMALL and sum(sizes) <= _SMALL_BYTES

    def run(
        self,
        aim: RebuildAim,
        *,
        timeout: float,
        progress: Progress = lambda _: None,
        only: int | None = None,
    ) -> None:
        """Bring the index into a condition; build it if it is missing or unusable.

        With ``REBUILT``, documents that are hidden because their definition was deleted (spec search 2.5) come back,
        all or those of the version ``only``.
        """
        with self.generations.rebuilding(timeout=timeout), engine.domain_errors(f"the index of {self.source.form}"):
            condition = IndexCondition.NONE if aim is RebuildAim.REBUILT else self.condition()
            if condition is IndexCondition.NONE:
                self._build(progress, only)
            elif aim is RebuildAim.VERIFIED or condition is IndexCondition.EARLIER:
                self._verify(progress)

    def condition(self) -> IndexCondition:
        """Return how far the index in use can be trusted."""
        path = self.generations.current()
        if path is None:
            return IndexCondition.NONE
        try:
            changes = changes_beside(path)
            with engine.IndexFile(path, f"the index of {self.source.form}") as file, file.reading() as index:
                return condition_of(index, tree_identity(self.root), changes)
        except (engine.UnusableError, DiskError, BusyError):
            return IndexCondition.NONE

    def _verify(self, progress: Progress) -> None:
        tree = tree_identity(self.root)
        path = self.generations.current()
        if path is None:
            return
        with engine.IndexWriter(path) as index:
            for compared in Refresh(index, self.source).everything():
                progress(compared)
            with index.changing():
                index.tree = tree
                reconcile_changes(index)

    def _build(self, progress: Progress, only: int | None) -> None:
        path = self.generations.fresh()
        try:
            with self._in_use() as old:
                self._fill(path, frozenset() if only is None else old.hidden(but=only), progress)
                self._replace(old, path)
        except BaseException:
            if self.generations.current() != path:
                engine.remove_index(path)
                files.remove(path + CHANGES)
            raise
        self.generations.sweep()

    @contextmanager
    def _in_use(self) -> Iterator[engine.IndexWriter]:
        path = self.generations.current()
        if path is None or self._is_unusable(path):
            path = self.generations.fresh()
            engine.make_empty(path)
            self.generations.use(path)
        with engine.IndexWriter(path) as index:
            try:
                yield index
            finally:
                with suppress(DiskError, BusyError), engine.domain_errors(path):
                    index.end_rebuild()

    def _is_unusable(self, path: str) -> bool:
        try:
            with engine.IndexFile(path, path) as file, file.writing() as index:
                index.begin_rebuild()
        except (engine.UnusableError, DiskError, BusyError):
            return True
        return False

    def _fill(self, path: str, hidden: frozenset[DocumentName], progress: Progress) -> None:
        with engine.NewIndex(path, hidden) as index:
            refresh = Refresh(index, self.source)
            for version in self.source.versions():
                refresh.keys(version)
            names = self.source.documents()
            while batch := list(self._read(refresh, islice(names, _BATCH))):
                index.add(each for each in batch if each is not None)
                progress(len(batch))
            index.finish(tree_identity(self.root))

    def _read(self, refresh: Refresh, names: Iterable[DocumentName]) -> Iterator[engine.PreparedDocument | None]:
        """Yield the document of each name, and ``None`` for one that is deleted or damaged.

        End early where their texts are large: a batch is held in memory.
        """
        size = 0
        for name in names:
            read = self.source.read(name, self.source.fingerprint(name), lambda version: refresh.keys(version)[1])
            if read is None:
                yield None
                continue
            document = engine.prepared(read, refresh.keys(read.hit.facts.version)[0])
            yield document
            size += len(document.rest) + len(document.card)
            if size > _LARGEST_BATCH:
                return

    def _replace(self, old: engine.IndexWriter, path: str) -> None:
        with engine.IndexWriter(path) as index:
            new = Refresh(index, self.source)
            new.documents(old.missed())  # most of it while others can go on
            with old.keeping_others_out():
                new.documents(old.missed())
                self.generations.use(path)
