"""Building an index aside, from the whole tree, while the one in use goes on being used and changed.

What changes meanwhile is taken down in the one in use. At the end it is taken in, while nobody can change the one in
use, and the new one takes its place. Whoever has changed the old one looks whether it is still the one in use, and if
it is not, changes the new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from persistence.index import connections, facts, identity, tally
from persistence.index.bulk import STAGED, Bulk
from persistence.index.damage import UnusableError
from persistence.index.feeding import Reading, fed
from persistence.index.generations import Generations
from persistence.index.records import Edition
from persistence.index.rows import Name
from persistence.index.sources import Source
from persistence.index.taking import Change, Taking
from persistence.storage import files

Progress = Callable[[int], None]
"""Hears how many documents more have been read."""


@dataclass(frozen=True, slots=True)
class Build:
    """Builds the index of one form in the tree of a root; ``processes`` read it, and if these are several, fork."""

    root: str
    generations: Generations
    source: Source
    processes: int

    def run(self, progress: Progress, *, only: int | None = None) -> None:
        """Build it, while nobody else makes one (``Generations.making``).

        What was cleared (spec search 2.5) stays so, but for the version ``only``; without it, nothing does.

        Raises:
            DiskError: the tree cannot be read.
            sqlite3.Error, OSError: the index cannot be written.
        """
        path = self.generations.fresh()
        try:
            with self._used() as old:
                self._fill(path, _cleared(old, only), progress)
                self._replace(old, path)
        except BaseException:
            if self.generations.current() != path:
                _remove(path)
            raise
        self.generations.sweep()

    @contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        """The index in use, which takes down what changes; where there is none that can be used, one without rows."""
        path = self.generations.current()
        try:
            if path is None:
                raise UnusableError  # noqa: TRY301 - the one way on from here
            connections.check(path)
            connection = connections.opened_to_write(path)
            facts.write(connection, facts.REBUILDING, 1)
        except (UnusableError, sqlite3.DatabaseError):
            path = self.generations.fresh()
            connections.make_empty(path)
            self.generations.use(path)
            connection = connections.opened_to_write(path)
        with closing(connection):
            try:
                yield connection
            finally:
                with suppress(sqlite3.Error):
                    if facts.read(connection, facts.COMPLETE):
                        facts.write(connection, facts.REBUILDING, 0)
                        connection.execute("DELETE FROM missed")

    def _fill(self, path: str, cleared: frozenset[Name], progress: Progress) -> None:
        files.ensure_file(path)
        with closing(connections.connected(path)) as connection:
            bulk = Bulk(path, connection, cleared)
            change = Change(connection, self.source)
            editions: dict[int, Edition] = {}
            definitions = {}
            for version in self.source.versions():
                editions[version], definitions[version] = change.edition(version)
            seen = set(editions)
            with fed(Reading(self.source, editions, definitions), self.processes) as batches:
                for looked_at, batch in batches:
                    for version in {each.version for each in batch} - seen:
                        # Read as not published: looked at again by whoever searches first.
                        connection.execute("INSERT INTO editions (version, mark, round) VALUES (?, '', 1)", (version,))
                        seen.add(version)
                    bulk.add(batch)
                    progress(looked_at)
            bulk.finish(identity.of(self.root))
        connections.sync(path)

    def _replace(self, old: sqlite3.Connection, path: str) -> None:
        with closing(connections.opened_to_write(path)) as connection:
            new = Taking(connection, self.source)
            _take_in(old, new)  # most of it while others can go on
            old.execute("BEGIN IMMEDIATE")
            try:
                _take_in(old, new)
                self.generations.use(path)
            finally:
                old.execute("ROLLBACK")


def _take_in(old: sqlite3.Connection, new: Taking) -> None:
    missed = old.execute("SELECT document FROM missed").fetchall()
    new.take_in(document for (document,) in missed)


def _cleared(old: sqlite3.Connection, only: int | None) -> frozenset[Name]:
    """The documents that are not seen because their definition was deleted, and are to stay so."""
    if only is None:
        return frozenset()
    found = old.execute(
        "SELECT d.document, d.draft FROM documents d JOIN shelves s ON s.number = d.shelf"
        " WHERE s.hidden AND s.version <> ?",
        (only,),
    )
    return frozenset((document, bool(draft)) for document, draft in found)


def _remove(path: str) -> None:
    for suffix in ("", "-wal", "-shm", "-journal", STAGED, tally.BESIDE):
        files.remove(path + suffix)
