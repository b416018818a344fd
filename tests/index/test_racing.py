"""Whoever has stored something finds it, while others write, indexes are rebuilt and forms are published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.index.racing import Racer, plant, reindexing, republishing
from tests.published import Planter
from tests.service import Service, running

_SECONDS = 2.0
_WRITES = 6


@pytest.mark.parametrize(
    ("disturbance", "documents"),
    [(None, 10), (reindexing, 10), (republishing, 100)],
    ids=["writers", "reindexing", "republishing"],
)
def test_no_search_is_late(
    disturbance: Callable[[Service], Callable[[], None]] | None, documents: int, tmp_path: Path
) -> None:
    plant(Planter(tmp_path / "data"), documents)
    with running(tmp_path, workers=2) as service:
        raced = Racer(service).run(_SECONDS, 3, disturbance(service) if disturbance else None, least=_WRITES)
    assert raced.violations == []
    assert raced["writes"] >= _WRITES
