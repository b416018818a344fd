"""An index in a database: of a storage that is changed as services do it, and of what is in memory.

Who changes what is in memory calls the index within the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from persistence.catalog import Catalog
from persistence.forms.flat_tables import FlatNaming
from persistence.index.protocol import Budget, RequestedRebuilds
from persistence.index.sources import ExtractionCache, Source, SourceDescription
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.queries import Hits, Query, Scope
from persistence.postgresql import schema
from persistence.postgresql.database import Database, FormNumbers
from persistence.postgresql.database_index import DatabaseIndex
from persistence.postgresql.database_storage import DatabaseStorage
from persistence.postgresql.index_rows import IndexRows
from persistence.xml import Streaming
from tests.index.contract import Subject
from tests.index.memory import FORM, Content, Memory
from tests.postgresql.server import Server, fresh_schema
from tests.storage.contract import delete, next_sidecar


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
    memory, numbers = Memory(form), FormNumbers(database)
    rows = IndexRows(database, numbers, lambda _: memory)  # type: ignore[arg-type, return-value]
    index = DatabaseIndex(database, numbers, rows, lambda _: memory, fail)  # type: ignore[arg-type, return-value]
    return IndexedMemory(memory, database, rows, index)


NAMING = FlatNaming("svc_f_", 63, prefixes_in_main=False)


class IndexedDatabase:
    """A node: its storage, its index, and what it has of both in memory."""

    def __init__(self, uri: str, local: Path, definitions: Catalog | None = None) -> None:
        self.database = Database(uri, lock_timeout=10)
        numbers = FormNumbers(self.database)
        self.rows = IndexRows(self.database, numbers, self.source_of)
        self.storage = DatabaseStorage(self.database, str(local), listener=self.rows)
        self.catalog = definitions or Catalog(self.storage)
        self.cache = ExtractionCache()
        self.index = DatabaseIndex(self.database, numbers, self.rows, self.source_of, fail)
        self.reindexer = RequestedRebuilds(self.storage, self.index.rebuild, self.index.status)
        self.source_of = cache(self.source_of)  # type: ignore[method-assign]

    def close(self) -> None:
        self.index.close()
        self.database.close()

    def source_of(self, form: Form) -> Source:
        described = SourceDescription(form, "4.0.0", is_designer=False, naming=NAMING, definitions="")
        return Source(described, self.storage, self.catalog, self.cache)

    def of(self, form: Form) -> FormInDatabase:
        return FormInDatabase(self, form)


class FormInDatabase:
    def __init__(self, node: IndexedDatabase, form: Form) -> None:
        self.node = node
        self.form = form

    @property
    def subject(self) -> Subject:
        return Subject(self.node.index, self.node.catalog, self.node.reindexer, self, self.form)

    def search(self, query: Query, scope: Scope | None = None, budget: Budget | None = None) -> Hits:
        return self.node.index.search(self.form, scope or Scope(), query, budget)

    def publish(self, definition: bytes, version: int = 1) -> None:
        self._put(DefinitionAddress(self.form, version, FORM_XHTML), definition, version)

    def unpublish(self, version: int = 1) -> None:
        delete(self.node.storage, DefinitionAddress(self.form, version, FORM_XHTML))

    def save(
        self,
        document: str,
        body: bytes,
        user: str = "ann",
        group: str = "",
        version: int = 1,
        *,
        is_draft: bool = False,
    ) -> None:
        collection = Collection.DRAFT if is_draft else Collection.DATA
        address = DocumentAddress(self.form, collection, document, DATA_XML)
        with self.node.index.checking(self.node.catalog.of(self.form, version)) as check:
            self._put(address, body, version, user, group, check)

    def delete(self, document: str) -> None:
        delete(self.node.storage, DocumentAddress(self.form, Collection.DATA, document, DATA_XML))

    def _put(
        self,
        address: Address,
        body: bytes,
        version: int,
        user: str = "ann",
        group: str = "",
        check: Streaming | None = None,
    ) -> None:
        with ExitStack() as stack:
            upload = stack.enter_context(self.node.storage.upload(address))
            upload.write(body)
            if check is not None:
                check.read([body])
                check.keep(upload.id)
            upload.flush()
            writer = stack.enter_context(self.node.storage.writing(address))
            over = writer.current(address)
            before = over.sidecar if over and not over.sidecar.deleted else None
            creation = {"creator": user, "group": group or None}
            if before is not None:
                creation = {name: getattr(before, name) for name in creation}
            sidecar = next_sidecar(upload, over, version=version, modifier=user, **creation)
            writer.commit(address, sidecar, upload, over=over)
            if isinstance(address, DocumentAddress) and not address.is_draft:
                writer.discard_draft(self.form, address.document)
