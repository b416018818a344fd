"""No repair makes things worse, whatever was done to the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.maintenance.damage import case
from tests.maintenance.workshop import furnished

_QUICK, _ALL = 10, 80
"""Cases of the short run, and of both together."""


@pytest.mark.parametrize("seeds", [range(_QUICK), pytest.param(range(_QUICK, _ALL), marks=pytest.mark.long)], ids=str)
def test_a_repair_of_random_damage_leaves_nothing_to_repair_and_loses_nothing(tmp_path: Path, seeds: range) -> None:
    """Nothing repairable is left, every content is kept, what was whole is as it was, and all is served and written.

    What a check still reports is excepted.
    """
    with furnished(tmp_path / "pristine") as workshop:
        pristine = workshop.root
    bad = {}
    for seed in seeds:
        inflicted, faults = case(pristine, tmp_path / f"data-{seed}", seed)
        if faults:
            bad[seed] = (inflicted.lines, faults)
    assert bad == {}
