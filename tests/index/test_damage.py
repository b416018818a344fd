"""An index that is damaged is rebuilt, wherever that can be told; the long run counts where it cannot."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.index.damaging import NOTICED, RIGHT, UNNOTICED, WRONG, counted, filled, tried

_TIMES = 8


@pytest.mark.parametrize("times", [3, pytest.param(_TIMES, marks=pytest.mark.long)])
@pytest.mark.parametrize("is_open", [False, True], ids=["opened afterwards", "open"])
@pytest.mark.parametrize("way", NOTICED)
def test_searches_are_right_after_damage_that_can_be_noticed(
    way: str, times: int, tmp_path: Path, *, is_open: bool
) -> None:
    assert counted(filled(), way, range(times), tmp_path, is_open=is_open) == Counter({RIGHT: times})


@pytest.mark.parametrize("way", UNNOTICED)
def test_other_damage_is_no_failure_of_the_service(way: str, tmp_path: Path) -> None:
    """A search is answered, and what is noticed is mended at once."""
    found = Counter(tried(filled(), way, seed, tmp_path, is_open=seed % 2 == 1) for seed in range(_TIMES))
    assert found[RIGHT] + found[WRONG] == _TIMES
    assert found[RIGHT] > found[WRONG]
