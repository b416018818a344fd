"""No repair makes things worse, whatever was done to the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.maintenance.damage import case
from tests.maintenance.workshop import furnished

CASES = 40


@pytest.mark.parametrize("first", [0, pytest.param(CASES, marks=pytest.mark.long)])
def test_a_repair_of_random_damage_leaves_nothing_to_repair_and_loses_nothing(tmp_path: Path, first: int) -> None:
    """Nothing repairable is left, every content is kept, what was whole is as it was, and all is served and written.

    What a check still reports is excepted.
    """
    with furnished(tmp_path / "pristine") as workshop:
        pristine = workshop.root
    bad = {}
    for seed in range(first, first + CASES):
        inflicted, faults = case(pristine, tmp_path / f"data-{seed}", seed)
        if faults:
            bad[seed] = (inflicted.lines, faults)
    assert bad == {}
