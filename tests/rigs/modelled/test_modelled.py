"""A short run of the model. The long run has clocks that jump and whole seconds, too, and takes protections away."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgresql.server import requires_postgresql
from tests.rigs.modelled.removing import DATABASE, SPLIT, TREE, remove
from tests.rigs.modelled.runs import Plan, run

_SHORT = Plan("short", 4.0, worker_kills=(0.3, 1.0), service_kills=(1.5, 3.0), commands=(0.1, 0.5))


def test_everything_is_as_the_model_says(tmp_path: Path) -> None:
    """The issue: all operations, kills of workers and of the service, commands beside, a backup restored."""
    outcome = run(_SHORT, tmp_path)
    assert outcome.violations == []
    assert outcome["writes"] > 20
    assert outcome["workers killed"] > 0
    assert outcome["services killed"] > 0
    assert outcome["backups restored"] == 1
    assert outcome["states read back"] > outcome["writes"] // 4


@pytest.mark.parametrize("kind", [TREE, SPLIT, pytest.param(DATABASE, marks=requires_postgresql)])
def test_what_is_removed_and_brought_back_is_as_the_model_says(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Purges, retention, erasures and reverts beside saves, killed now and then."""
    uri = request.getfixturevalue("database_uri") if kind == DATABASE else ""
    outcome = remove(kind, tmp_path, 6.0, uri=uri)
    assert outcome.violations == []
    assert outcome["workers killed"] > 0
    assert outcome["save"] > 0
