"""Damage of every kind is found by ``check --deep``, or listed as not noticed; no client takes it for the truth."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.maintenance.damage import case
from tests.maintenance.kills import copied
from tests.maintenance.planted import KINDS, Kind, Whole, furnished, served, views
from tests.maintenance.workshop import Workshop
from tests.maintenance.workshop import furnished as pristine_tree

_SEEDS = 1
_SEEDS_OF_ALL = 8


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(furnished(tmp_path_factory.mktemp("planted") / "data"))


@pytest.fixture(scope="module")
def not_noticed() -> str:
    """Return the paragraph of the documentation about damage that no check finds."""
    text = (Path(__file__).parents[2] / "docs" / "maintenance.md").read_text()
    found = re.search(r"^Not noticed: .*?\n\n", text, re.MULTILINE | re.DOTALL)
    return " ".join(found[0].split())


@pytest.mark.parametrize("seeds", [_SEEDS, pytest.param(_SEEDS_OF_ALL, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_it_is_found_or_listed_and_never_served(
    kind: Kind, seeds: int, whole: Whole, not_noticed: str, tmp_path: Path
) -> None:
    if "another user" in kind.name and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    faults = []
    for seed in range(seeds):
        copy = copied(whole.root, tmp_path / f"data-{seed}")
        faults += whole.faults(kind, copy, Random(seed), not_noticed)
        shutil.rmtree(copy)
    assert faults == []


def test_the_whole_tree_is_in_order(whole: Whole, tmp_path: Path) -> None:
    """Proof of the rig: without damage nothing is found, and every answer is the same."""
    copy = copied(whole.root, tmp_path / "data")
    with served(copy) as workshop:
        assert views(workshop, whole.instants) == whole.views
    checked = Workshop(copy).check("--deep")
    assert (checked.status, checked.findings) == (0, [])


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 80), marks=pytest.mark.long)], ids=str)
def test_a_repair_of_random_damage_leaves_nothing_to_repair_and_loses_nothing(tmp_path: Path, seeds: range) -> None:
    """What was whole is as it was, and all is served and written, but for what a check still reports."""
    pristine, bad = pristine_tree(tmp_path / "pristine").root, {}
    for seed in seeds:
        inflicted, faults = case(pristine, tmp_path / f"data-{seed}", seed)
        if faults:
            bad[seed] = (inflicted.lines, faults)
    assert bad == {}
