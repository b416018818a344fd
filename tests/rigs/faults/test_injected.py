"""One fault in each request: a refusal that names it, the old content, and nothing left; a sample of the long run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.rigs import strikes
from tests.rigs.faults.runs import ERRORS, noticed, read_all, strike_all
from tests.rigs.faults.trial import WRITING
from tests.rigs.scenarios import CREATE, PROMOTE, REPLACE, UNINDEXED, Scenario
from tests.rigs.strikes import Point
from tests.rigs.weakened import CUT_SHORT, FORGIVEN, NOT_CLEANED, UNHEARD

_TIMES = 8


def each_in_turn(points: Sequence[Point]) -> Iterable[tuple[Point, Sequence[str]]]:
    """Every second point with one error, the errors in turn."""
    changing = [point for point in points if point.call in WRITING]
    return ((point, [ERRORS[number % len(ERRORS)]]) for number, point in enumerate(changing[::2]))


def of_the_index(points: Sequence[Point]) -> Iterable[tuple[Point, Sequence[str]]]:
    """Every call on the files of the index, the errors in turn."""
    chosen = [point for point in points if point.is_for_the_index]
    return ((point, [ERRORS[number % len(ERRORS)]]) for number, point in enumerate(chosen))


def unstruck(points: Sequence[Point]) -> Iterable[tuple[Point, Sequence[str]]]:
    """Every fifth point, to be struck in a row only."""
    return ((point, []) for point in points[::5])


@pytest.mark.parametrize(
    "scenario", [pytest.param(CREATE, id=str(CREATE)), pytest.param(PROMOTE, id=str(PROMOTE), marks=pytest.mark.long)]
)
def test_an_error_at_any_call_is_a_refusal_that_leaves_the_old_content(scenario: Scenario, tmp_path: Path) -> None:
    """507 or 500 in one line, the old revision with its headers, no leftover, and the next write succeeds."""
    strikes.require(tmp_path)
    run = strike_all(scenario, tmp_path, choose=each_in_turn)
    assert run.violations == []
    assert {error for error, kind in run.kinds if kind == "refused"} == set(ERRORS)
    assert run["refused"] > run["open"] > 0


def test_an_error_where_the_index_is_told_costs_neither_the_change_nor_a_search(tmp_path: Path) -> None:
    """Acknowledged, and found by the next search, whichever call on the files of the index fails."""
    strikes.require(tmp_path)
    run = strike_all(UNINDEXED, tmp_path, choose=of_the_index)
    assert run.violations == []
    assert set(run.kinds) == {(error, "tolerated") for error in ERRORS}
    assert {call.split()[0] for call, *_ in run.after_commit} >= {"mkdir", "fsync", "openat", "flock", "write"}


def test_the_same_error_again_and_again_leaves_nothing_that_grows(tmp_path: Path) -> None:
    strikes.require(tmp_path)
    run = strike_all(REPLACE, tmp_path, choose=unstruck, times=_TIMES)
    assert run.violations == []
    assert run["in a row"] > _TIMES


def test_an_error_while_reading_is_a_refusal_and_never_half_a_content(tmp_path: Path) -> None:
    """500 in one line; where the answer has begun, or the content ends early, the connection breaks."""
    strikes.require(tmp_path)
    runs = read_all(tmp_path, ["GET data", "HEAD data", "GET relevant data", "GET large attachment"])
    assert [violation for run in runs for violation in run.violations] == []
    kinds = {kind for run in runs for _, kind in run.kinds}
    assert kinds == {"refused", "cut off", "whole"}


@pytest.mark.parametrize(
    "weakness", [FORGIVEN, *(pytest.param(each, marks=pytest.mark.long) for each in (NOT_CLEANED, UNHEARD, CUT_SHORT))]
)
def test_a_missing_protection_is_noticed(weakness: str, tmp_path: Path) -> None:
    strikes.require(tmp_path)
    assert noticed(weakness, tmp_path) != []
