"""Whoever has stored something finds it, while others write, indexes are rebuilt and forms are published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.index.racing import RACE, reindexing, republishing
from tests.rigs.modelled.runs import Plan, run


@pytest.mark.parametrize(
    "race",
    [RACE, replace(RACE, beside=reindexing), replace(RACE, beside=republishing, documents=100)],
    ids=["writers", "reindexing", "republishing"],
)
def test_no_search_is_late(race: Plan, tmp_path: Path) -> None:
    outcome = run(race, tmp_path)
    assert outcome.violations == []
    assert outcome["writes"] > race.documents + race.clients
