"""The contract of an index, kept by the one in a database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from persistence.model.addresses import Form
from tests.index.contract import IndexContract, Subject
from tests.postgresql.indexed import IndexedDatabase


class TestDatabaseIndex(IndexContract):
    """The index in PostgreSQL, written in the transactions of the storage."""

    @pytest.fixture
    def subject(self, database_uri: str, tmp_path: Path) -> Iterator[Subject]:
        node = IndexedDatabase(database_uri, tmp_path)
        yield node.of(Form("acme", "order")).subject
        node.close()
