"""A short run of the load on the real service, and on services that lack a protection."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.linear.load import NOT_LINEAR, Load, run
from tests.rigs.server import weak
from tests.rigs.weakened import OF_CONCURRENCY

_KILLS = (0.3, 0.9)
_NO_KILLS = (60.0, 60.0)


@pytest.mark.parametrize("operations", [400, pytest.param(800, marks=pytest.mark.long)])
def test_documents_behave_as_registers_while_workers_are_killed(operations: int, tmp_path: Path) -> None:
    """The issue: concurrent GET, PUT and DELETE with If-Match; one document in segments, and several whole."""
    rounds = (*("one",) * 4, "two", "three", "four", "five")
    report = run(Load("short", rounds, operations=operations, kills=_KILLS), tmp_path)
    assert report.violations == []
    assert report["operations"] > operations * 7 // 8
    assert report["kills"] > 0


@pytest.mark.long
@pytest.mark.parametrize("weakness", OF_CONCURRENCY)
def test_a_service_without_a_protection_is_found_out(weakness: str, tmp_path: Path) -> None:
    """Proof of the rig: the judge says so, not only a failed request."""
    load = Load(weakness, ("one", "two", "three"), operations=300, kills=_NO_KILLS)
    assert run(load, tmp_path, weak(weakness))[NOT_LINEAR]
