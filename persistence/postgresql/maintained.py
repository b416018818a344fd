"""A database as commands maintain it: opened from what the storage of a service has."""

from __future__ import annotations

from collections.abc import Iterator

from persistence.postgresql.arrivals import DatabaseArrivals
from persistence.postgresql.inspection import RevisionInspection
from persistence.postgresql.storage import DatabaseStorage
from persistence.storage.maintained import MaintainedDatabase, StorageFinding


def maintained(storage: DatabaseStorage) -> MaintainedDatabase:
    """Return the database of a storage that keeps all older revisions."""
    database = storage.database

    def inspect(is_deep: bool) -> Iterator[StorageFinding | None]:  # noqa: FBT001 - as the value has it
        with database.snapshot() as connection:
            yield from RevisionInspection(database, is_deep).run(connection)

    return MaintainedDatabase(
        str(database.address),
        storage,
        DatabaseArrivals(database),
        database.snapshot,
        storage.keeping_writers_out,
        inspect,
    )
