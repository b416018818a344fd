"""Form versions as they are indexed: the state of a definition by which an index reads documents of a version.

A publication replaces the state in its transaction, and begins a new round where other controls are indexed. Documents
are in partitions by round: totals of partitions show which documents were read by an older state, and no save waits for
a publication.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import msgspec
from psycopg import Cursor
from psycopg.rows import TupleRow

from persistence.bounded_cache import BoundedCache
from persistence.index.sources import DefinitionState, IndexedDefinition, Source
from persistence.limits import DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES, PARTITIONS_KEPT
from persistence.model.addresses import Form
from persistence.model.versions import IndexKey
from persistence.postgresql.database import Database, Rows
from persistence.postgresql.places import FormNumbers

SourceOf = Callable[[Form], Source]

_VERSION = "SELECT round, state, data_format, fingerprint, keys FROM indexed_version WHERE form = %s AND version = %s"
_KEEP_VERSION = """
INSERT INTO indexed_version (form, version, round, state, data_format, fingerprint, keys)
VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (form, version) DO NOTHING
"""
_REPLACE_VERSION = """
UPDATE indexed_version SET round = %s, state = %s, data_format = %s, fingerprint = %s, keys = %s
WHERE form = %s AND version = %s
"""
_PARTITION = "SELECT number FROM partition WHERE form = %s AND version = %s AND draft = %s AND round = %s"
_MAKE_PARTITION = """
INSERT INTO partition (form, version, draft, round) VALUES (%s, %s, %s, %s)
ON CONFLICT (form, version, draft, round) DO NOTHING
"""
_CONTROLS = "SELECT path, number FROM control WHERE form = %s AND path = ANY(%s)"
_MAKE_CONTROLS = """
INSERT INTO control (form, path) SELECT %s, path FROM unnest(%s::text[]) AS path
ON CONFLICT (form, path) DO NOTHING
"""


class NumberedKey(msgspec.Struct, frozen=True):
    """An indexed control and its number, which it keeps for as long as the form has an index."""

    number: int
    key: IndexKey


_decoder = msgspec.json.Decoder(tuple[NumberedKey, ...])


@lru_cache(DEFINITIONS_KEPT)
def keys_of(text: str) -> tuple[NumberedKey, ...]:
    """Return the indexed controls of an indexed version, which has them as JSON."""
    return _decoder.decode(text)


@dataclass(frozen=True, slots=True)
class VersionState:
    """The state of a form version by which documents are read; ``keys`` are its indexed controls, as JSON.

    In another ``round`` the same document has other entries.
    """

    round: int
    state: DefinitionState
    data_format: str
    fingerprint: str
    keys: str

    @classmethod
    def of_row(cls, row: tuple[int, str, str, str, str]) -> VersionState:
        return cls(row[0], DefinitionState[row[1]], *row[2:])

    @property
    def row(self) -> tuple[int, str, str, str, str]:
        """The columns beside the key."""
        return self.round, self.state.name, self.data_format, self.fingerprint, self.keys

    @property
    def numbers(self) -> Mapping[str, int]:
        """The numbers of the indexed controls by path."""
        return {each.key.path: each.number for each in keys_of(self.keys)}

    @property
    def definition(self) -> IndexedDefinition:
        """The definition by which documents are read."""
        return IndexedDefinition(self.fingerprint, self.state, tuple(each.key for each in keys_of(self.keys)))

    def following(self, now: VersionState) -> VersionState:
        """Return the next state, with the definition of ``now``.

        A version that is deleted begins a new round too: what was read before is hidden (spec search 2.5).
        """
        is_same = self._indexed == now._indexed
        return replace(now, round=self.round if is_same else self.round + 1)

    @property
    def _indexed(self) -> str | None:
        return self.keys if self.state is DefinitionState.PUBLISHED else None


_NEVER = VersionState(0, DefinitionState.UNKNOWN, "", "", "[]")


class PartitionKey(NamedTuple):
    """The number of a form, the version of documents, and the round in which they were read."""

    form: int
    version: int
    is_draft: bool
    round: int


class IndexedVersions:
    """The indexed versions and partitions in a database."""

    def __init__(self, database: Database, numbers: FormNumbers, source_of: SourceOf) -> None:
        self._database = database
        self._numbers = numbers
        self._source_of = source_of
        self._partitions: dict[PartitionKey, int] = {}
        self._definitions: BoundedCache[IndexedDefinition] = BoundedCache(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)
        self._lock = threading.Lock()

    def ask(self, connection: Rows, form: int, version: int) -> Cursor[TupleRow]:
        """Ask for a version of a form with a number, without waiting in a pipeline."""
        return connection.execute(_VERSION, (form, version))

    def current(
        self, connection: Rows, form: Form, version: int, asked: Cursor[TupleRow] | None = None
    ) -> VersionState:
        """Return a version as it is indexed, and store it first where its definition is kept elsewhere."""
        number = self._numbers.require(form)
        row = (asked or self.ask(connection, number, version)).fetchone()
        if row is None:
            with self._database.apart("indexing", form) as other:
                made = self._read(other, form, version)
                other.execute(_KEEP_VERSION, (number, version, *made.row))
            row = connection.execute(_VERSION, (number, version)).fetchone()
        indexed = made if row is None else VersionState.of_row(row)
        # Once it was read in this process, values are extracted while a body is received.
        key = form, version, indexed.fingerprint
        self._definitions.get(key, lambda: self._source_of(form).definition(version))
        return indexed

    def renew(self, connection: Rows, form: Form, version: int) -> None:
        """Bring an indexed version up to date with its definition, in the transaction of a connection."""
        number = self._numbers.require(form)
        connection.execute(_KEEP_VERSION, (number, version, *_NEVER.row))  # there is a row to lock
        row = connection.execute(f"{_VERSION} FOR UPDATE", (number, version)).fetchone()
        if row is None:
            raise LookupError("an indexed version was not made")
        now = VersionState.of_row(row).following(self._read(connection, form, version))
        if now.row != row:
            connection.execute(_REPLACE_VERSION, (*now.row, number, version))

    def is_current(self, form: Form, version: int, indexed: VersionState) -> bool:
        """Return whether a version is indexed by its definition as it is now."""
        source = self._source_of(form)
        if indexed.data_format != source.data_format or not source.is_by_rules(indexed.fingerprint):
            return False
        if source.has_own_definitions:
            return True
        return indexed.fingerprint == source.definition_fingerprint(version)

    def partition(self, key: PartitionKey) -> int:
        """Return the number of a partition, made in a transaction of its own where it is missing."""
        known = self._partitions.get(key)
        if known is not None:
            return known
        with self._database.apart("indexing", f"version {key.version}") as connection:
            row = connection.execute(_PARTITION, key).fetchone()
            if row is None:
                connection.execute(_MAKE_PARTITION, key)
                row = connection.execute(_PARTITION, key).fetchone()
        if row is None:
            raise LookupError("a partition was not made")
        with self._lock:
            if len(self._partitions) >= PARTITIONS_KEPT:
                self._partitions.clear()
            self._partitions[key] = int(row[0])
        return int(row[0])

    def _read(self, connection: Rows, form: Form, version: int) -> VersionState:
        source = self._source_of(form)
        definition = source.definition(version)
        number, wanted = self._numbers.require(form), sorted(set(definition.paths))  # so publications never deadlock
        numbers: dict[str, int] = dict(connection.execute(_CONTROLS, (number, wanted)).fetchall()) if wanted else {}
        if len(numbers) < len(wanted):
            connection.execute(_MAKE_CONTROLS, (number, wanted))
            numbers = dict(connection.execute(_CONTROLS, (number, wanted)).fetchall())
        keys = [NumberedKey(numbers[key.path], key) for key in definition.keys]
        text = msgspec.json.encode(keys).decode()
        return VersionState(1, definition.state, source.data_format, definition.fingerprint, text)
