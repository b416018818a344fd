"""Storages in a database for tests."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from persistence.postgresql.database import Database
from persistence.postgresql.database_storage import CommitListener, DatabaseStorage
from persistence.storage.storage import KeepsHistory, keeps_all
from tests.opened import opened

_unique = count(1)


def storage_at(
    uri: str,
    local: Path,
    *,
    lock_timeout: float = 5,
    keeps_history: KeepsHistory = keeps_all,
    is_locked: bool = True,
    most_connections: int = 64,
    listener: CommitListener | None = None,
) -> DatabaseStorage:
    """A storage in a database, closed at the end of the test; without locks, each has a lock of its own."""
    database = opened(Database(uri, lock_timeout=lock_timeout, most_connections=most_connections))
    local.mkdir(exist_ok=True)
    storage = DatabaseStorage(database, str(local), listener=listener, keeps_history=keeps_history)
    if not is_locked:
        storage._key = lambda *_: next(_unique)  # type: ignore[method-assign]  # noqa: SLF001 - a lock that is lost
    return storage


def rows(storage: DatabaseStorage) -> set[str]:
    """Return the names of all rows: current revisions, older ones, and contents in pieces that no revision has."""
    with storage.database.apart("looking") as connection:
        found = connection.execute("SELECT kind, folder, name, modified, is_current FROM revision").fetchall()
        pieces = connection.execute(
            "SELECT id FROM unclaimed UNION SELECT id FROM piece WHERE id NOT IN (SELECT id FROM revision)"
        ).fetchall()
    revisions = {
        f"{kind}/{folder}/{name}{'' if is_current else f'/{modified}'}"
        for kind, folder, name, modified, is_current in found
    }
    return revisions | {f".spool/{content}" for (content,) in pieces}
