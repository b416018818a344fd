"""A worker killed at any system call of a request leaves a whole revision, and nothing in the way of the next one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import strace
from tests.crash.kill import CREATE, DELETE, REPLACE, Killer, Request
from tests.service import running

_LEAST_POINTS = 20


@pytest.fixture
def killer(tmp_path: Path) -> Iterator[Killer]:
    strace.require(tmp_path)
    with running(tmp_path, workers=1, threads=1) as service:
        yield Killer(service, tmp_path)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(CREATE, id="PUT of new data"),
        pytest.param(REPLACE, id="PUT over data"),
        pytest.param(DELETE, id="DELETE"),
    ],
)
def test_a_worker_killed_at_any_call_leaves_a_whole_revision(request_: Request, killer: Killer) -> None:
    """The document reads as before or as after, with the headers of that, and the next write succeeds and cleans up."""
    outcomes = [killer.kill(request_, point) for point in killer.points(request_)]
    assert [(outcome.point, outcome.faults) for outcome in outcomes if outcome.faults] == []
    # The kills did hit: on both sides of the commit, which is one moment, and with something to clean up.
    committed = [outcome.committed for outcome in outcomes]
    assert committed == sorted(committed)
    assert set(committed) == {True, False}
    assert any(outcome.leftovers for outcome in outcomes)
    assert len(outcomes) > _LEAST_POINTS
