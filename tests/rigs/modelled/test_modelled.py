"""A short run of the model, and proof that it notices what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.postgresql.server import requires_postgresql
from tests.rigs.clock import skewed
from tests.rigs.disks import WHOLE_SECONDS, mounted, require
from tests.rigs.modelled.removing import DATABASE, SPLIT, TREE, remove
from tests.rigs.modelled.runs import JUMPS, Plan, run, without
from tests.rigs.server import weak
from tests.rigs.weakened import OF_ANSWERS, OF_REMOVALS, TRUSTING

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


@pytest.mark.long
@pytest.mark.skipif(skewed.refusal() is not None, reason=skewed.refusal() or "")
def test_so_it_is_while_the_clock_jumps(tmp_path: Path) -> None:
    outcome = run(replace(_SHORT, name="clock jumps", clock_jumps=JUMPS), tmp_path)
    assert outcome.violations == []
    assert outcome["clock jumps"] > 0


@pytest.mark.long
@pytest.mark.xdist_group("loop")
def test_so_it_is_on_a_file_system_with_whole_seconds(tmp_path: Path) -> None:
    require(WHOLE_SECONDS, tmp_path)
    with mounted(WHOLE_SECONDS, tmp_path) as made:
        outcome = run(replace(_SHORT, name="whole seconds"), made / "run")
    assert outcome.violations == []


@pytest.mark.long
@pytest.mark.parametrize("weakness", OF_ANSWERS)
def test_a_missing_protection_is_noticed(weakness: str, tmp_path: Path) -> None:
    if weakness == TRUSTING and (reason := skewed.refusal()):
        pytest.skip(reason)
    assert run(without(weakness), tmp_path).violations


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


@pytest.mark.long
@pytest.mark.xdist_group("loop")
def test_so_it_is_with_attachments_apart_on_a_file_system_with_whole_seconds(tmp_path: Path) -> None:
    require(WHOLE_SECONDS, tmp_path)
    with mounted(WHOLE_SECONDS, tmp_path) as made:
        assert remove(SPLIT, made / "run", 10.0).violations == []


@pytest.mark.long
@pytest.mark.parametrize("weakness", OF_REMOVALS)
def test_a_missing_protection_of_what_is_removed_is_noticed(weakness: str, tmp_path: Path) -> None:
    """A slow machine makes so few requests in a round that none may need the protection: there are three."""
    own = weak(weakness)
    assert any(remove(TREE, tmp_path / str(seed), 20.0, seed=seed, variant=own).violations for seed in (1, 2, 3))
