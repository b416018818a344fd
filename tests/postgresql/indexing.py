"""An index in a database of what is in memory: whoever changes that calls the index within the same transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from persistence.model.addresses import Form
from persistence.postgresql import schema
from persistence.postgresql.database import Database, FormNumbers
from persistence.postgresql.database_index import DatabaseIndex
from persistence.postgresql.index_rows import IndexRows
from tests.index.memory import FORM, Content, Memory
from tests.postgresql.server import Server, fresh_schema


def fail(form: Form | None, error: Exception) -> None:
    raise AssertionError(f"{form}: {error}")


@dataclass
class IndexedMemory:
    """Documents in memory with their index in a database, and changes of both."""

    memory: Memory
    database: Database
    rows: IndexRows
    index: DatabaseIndex

    def publish(self, version: int, paths: tuple[str, ...]) -> None:
        with self.database.transaction("publishing"):
            self.memory.publish(version, paths)
            self.rows.published(self.memory.form, version)

    def unpublish(self, version: int) -> None:
        with self.database.transaction("unpublishing"):
            self.memory.unpublish(version)
            self.rows.published(self.memory.form, version)

    def save(self, document: str, content: Content | None, *, is_draft: bool = False) -> None:
        with self.database.transaction("saving"):
            self.memory.save(document, content, is_draft=is_draft)
            self.rows.changed(self.memory.form, document)


@contextmanager
def indexed_memory(server: Server) -> Iterator[IndexedMemory]:
    """Nothing in memory, and its index in a schema of its own."""
    name = fresh_schema()
    try:
        with Database(server.uri(name), lock_timeout=10) as database:
            schema.init(database)
            yield of_memory(database)
    finally:
        server.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def of_memory(database: Database, form: Form = FORM) -> IndexedMemory:
    """Nothing of a form in memory, and its index in the schema of a database."""
    memory, numbers = Memory(form), FormNumbers(database)
    rows = IndexRows(database, numbers, lambda _: memory)  # type: ignore[arg-type, return-value]
    index = DatabaseIndex(database, numbers, rows, lambda _: memory, fail)  # type: ignore[arg-type, return-value]
    return IndexedMemory(memory, database, rows, index)
