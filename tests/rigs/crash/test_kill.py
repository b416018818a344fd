"""A worker killed at any system call of a request leaves the old state or the new one, and nothing in the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs import strikes
from tests.rigs.crash.kill import Killer, Outcome
from tests.rigs.scenarios import CREATE, DELETE, DELETE_ALL, LEASING, PROMOTE, PUBLISH_NEXT, RENEW, REPLACE, Scenario
from tests.rigs.strikes import Point
from tests.rigs.weakened import UNNOTED

pytestmark = pytest.mark.xdist_group("crash-kill")  # one service is killed all the time

_SCENARIOS = (
    *(PROMOTE, DELETE, DELETE_ALL),
    *(pytest.param(each, marks=pytest.mark.long) for each in (CREATE, PUBLISH_NEXT)),
)
_EVERY = 20
_EVERY_OF_ALL = 12
_LEAST_POINTS = 10


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    directory = tmp_path_factory.mktemp("kill")
    strikes.require(directory)
    with strikes.struck_service(directory) as service:
        yield Killer(service, directory)


@pytest.mark.parametrize("scenario", _SCENARIOS, ids=str)
def test_a_kill_leaves_the_old_state_or_the_new_one(scenario: Scenario, killer: Killer) -> None:
    """All reads as before or as after, headers and older revisions too; the next write succeeds and cleans up.

    Here requests are killed where names change or are made durable and at every twentieth of their other calls, and
    the longest, which does one thing three times, at every twelfth. ``make test-crash`` kills every request at every
    call.
    """
    trial = killer.trial(scenario)
    outcomes = killer.then_write(trial, _chosen(scenario, trial.points))
    assert {str(outcome.point): outcome.faults for outcome in outcomes if outcome.faults} == {}
    _assert_that_the_kills_hit(outcomes)


def test_a_repair_leaves_nothing_of_a_kill_and_changes_nothing(killer: Killer) -> None:
    """``persistence check --repair``, beside the running service, clears away what kills have left."""
    trial = killer.trial(PUBLISH_NEXT)
    outcomes = killer.then_check(trial, [point for point in trial.points if point.changes])
    assert {str(outcome.point): outcome.faults for outcome in outcomes if outcome.faults} == {}
    assert any(outcome.left for outcome in outcomes)


def test_a_kill_leaves_the_old_lease_or_the_new_one(tmp_path: Path) -> None:
    """Whoever was told so holds it, nobody else can write, and the next LOCK, UNLOCK and PUT are as ever."""
    strikes.require(tmp_path)
    with strikes.struck_service(tmp_path, properties=LEASING) as service:
        killer = Killer(service, tmp_path)
        trial = killer.trial(RENEW)
        outcomes = killer.then_write(trial, [point for point in trial.points if point.changes])
    assert {str(outcome.point): outcome.faults for outcome in outcomes if outcome.faults} == {}
    assert {tuple(outcome.committed) for outcome in outcomes} == {(False,), (True,)}


def test_a_change_that_was_not_noted_is_noticed(tmp_path: Path) -> None:
    """A search does not find what a worker committed that was killed before the index had heard of it."""
    strikes.require(tmp_path)
    with strikes.struck_service(tmp_path, weakness=UNNOTED) as service:
        killer = Killer(service, tmp_path)
        trial = killer.trial(REPLACE)
        outcomes = killer.then_write(trial, [point for point in trial.points if point.changes])
    faults = [fault for outcome in outcomes for fault in outcome.faults]
    assert any(fault.startswith("a search for 'new' finds []") for fault in faults)


def _chosen(scenario: Scenario, points: tuple[Point, ...]) -> list[Point]:
    if scenario is DELETE_ALL:
        return list(points[::_EVERY_OF_ALL])
    return [point for number, point in enumerate(points) if point.changes or number % _EVERY == 0]


def _assert_that_the_kills_hit(outcomes: list[Outcome]) -> None:
    """On both sides of every moment at which something changes, and with something to clean up."""
    assert len(outcomes) > _LEAST_POINTS
    for committed in zip(*(outcome.committed for outcome in outcomes), strict=True):
        assert list(committed) == sorted(committed)
        assert set(committed) == {True, False}
    assert any(outcome.left for outcome in outcomes)
