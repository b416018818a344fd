"""The contract of a storage, asked of a database."""

from __future__ import annotations

from pathlib import Path

import pytest

from persistence.postgresql import revision_rows
from persistence.postgresql.database_storage import DatabaseStorage
from tests.postgresql.server import requires_postgresql
from tests.postgresql.storages import rows, storage_at
from tests.storage.contract import StorageContract, Subject

pytestmark = requires_postgresql
_TIMEOUT = 0.2


class TestDatabase(StorageContract):
    """A PostgreSQL database."""

    @pytest.fixture(autouse=True)
    def _of_this_schema(self, storage_uri: str) -> None:
        self._uri = storage_uri

    def constructed(self, tmp_path: Path) -> Subject:  # type: ignore[override]
        """A storage in a schema of its own."""
        storage = storage_at(self._uri, tmp_path / "local", lock_timeout=_TIMEOUT)
        unlocked = storage_at(self._uri, tmp_path / "local", lock_timeout=_TIMEOUT, is_locked=False)
        return Subject(storage, unlocked, lambda: self.files(storage))

    def files(self, storage: DatabaseStorage) -> set[str]:
        """Return the names of all rows."""
        return rows(storage)


@pytest.mark.usefixtures("large_bodies")
class TestDatabaseWithPieces(TestDatabase):
    """A PostgreSQL database, where every content is in pieces of some bytes."""

    @pytest.fixture
    def large_bodies(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("persistence.postgresql.revision_rows.INLINE", 0)
        monkeypatch.setattr("persistence.postgresql.revision_rows.PIECE", 100_000)

    def files(self, storage: DatabaseStorage) -> set[str]:
        """Return the names of all rows after a sweep."""
        revision_rows.sweep(storage.database, 0, 1000)
        return rows(storage)
