"""No power cut and no kill breaks a promise: every crash that a model allows, at every step of a real request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.rigs import strikes
from tests.rigs.crash.defects import QUICK, Defect
from tests.rigs.crash.runs import RECORDED, Judge, Recording, record, search
from tests.rigs.scenarios import DELETE_DATA, FIRST_REPLACE, PROMOTE, Scenario

pytestmark = pytest.mark.xdist_group("crash-trace")  # a request is recorded once and searched many times

Search = Callable[[Scenario, bool], list[list[str]]]

_LEAST_STATES = 20
_FEW = (FIRST_REPLACE, PROMOTE, DELETE_DATA)
"""Requests that do between them what the others do; the long run takes all."""
_FEW_DEFECTS = [defect for defect in QUICK if defect.ordered and defect.request in _FEW][::2]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trace")
    strikes.require(directory)
    return directory


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Judge]:
    with Judge(tmp_path / "judged") as judge:
        yield judge


@pytest.fixture(scope="module")
def recorded(ground: Path) -> Callable[[Scenario], Recording]:
    return cache(lambda scenario: record(scenario, ground / scenario.name))


@pytest.fixture(scope="module")
def searched(ground: Path, recorded: Callable[[Scenario], Recording]) -> Search:
    def found(scenario: Scenario, ordered: bool) -> list[list[str]]:  # noqa: FBT001 - as Search has it
        with Judge(ground / f"{scenario.name}-{ordered}") as judge:
            return list(search(recorded(scenario), judge, ordered=ordered))

    return cache(found)


@pytest.mark.parametrize(
    "ordered", [pytest.param(True, id="ordered"), pytest.param(False, id="unordered", marks=pytest.mark.long)]
)
@pytest.mark.parametrize(
    "scenario", [pytest.param(each, marks=() if each in _FEW else pytest.mark.long, id=str(each)) for each in RECORDED]
)
def test_every_crash_leaves_a_whole_revision_and_nothing_acknowledged_is_lost(
    scenario: Scenario, searched: Search, *, ordered: bool
) -> None:
    """After any crash the document is as before or as after, with its history, and can be written again."""
    findings = searched(scenario, ordered)
    assert [fault for faults in findings for fault in faults] == []
    assert len(findings) > _LEAST_STATES


@pytest.mark.parametrize(
    "defect", [pytest.param(each, marks=() if each in _FEW_DEFECTS else pytest.mark.long) for each in QUICK], ids=str
)
def test_a_missing_protection_is_noticed(
    defect: Defect, recorded: Callable[[Scenario], Recording], searched: Search, judge: Judge
) -> None:
    """The search that finds nothing in the request as it is finds what each protection is there for."""
    recording = recorded(defect.request)
    planted = defect.planted(recording.operations)
    assert planted != recording.operations
    before = {fault for faults in searched(defect.request, defect.ordered) for fault in faults}
    findings = search(recording.but(planted), judge, ordered=defect.ordered)
    assert any(not before.issuperset(faults) for faults in findings)
