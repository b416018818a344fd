"""The tree that imports go into."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from persistence.storage.store import Store
from tests.initialised import initialised


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(initialised(tmp_path / "data"), lock_timeout=5) as store:
        yield store
