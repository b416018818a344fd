"""No power cut and no kill breaks a promise: every crash that a model allows, at every step of a real request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.crash import strace
from tests.crash.defects import QUICK, Defect
from tests.crash.judge import Judge
from tests.crash.runs import Recording, Request, record, search

pytestmark = pytest.mark.xdist_group("crash-trace")  # a request is recorded once and searched many times

Search = Callable[[Request, bool], list[list[str]]]

_LEAST_STATES = 20
_FEW = (Request.REPLACE, Request.PROMOTE, Request.DELETE)
"""Requests that do between them what the others do; the long run takes all."""
_FEW_DEFECTS = [defect for defect in QUICK if defect.ordered and defect.request in _FEW][::2]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trace")
    strace.require(directory)
    return directory


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Judge]:
    with Judge(tmp_path / "judged") as judge:
        yield judge


@pytest.fixture(scope="module")
def recorded(ground: Path) -> Callable[[Request], Recording]:
    return cache(lambda request: record(request, ground / request.name.lower()))


@pytest.fixture(scope="module")
def searched(ground: Path, recorded: Callable[[Request], Recording]) -> Search:
    def found(request: Request, ordered: bool) -> list[list[str]]:  # noqa: FBT001 - as Search has it
        with Judge(ground / f"{request.name}-{ordered}".lower()) as judge:
            return list(search(recorded(request), judge, ordered=ordered))

    return cache(found)


@pytest.mark.parametrize(
    "ordered", [pytest.param(True, id="ordered"), pytest.param(False, id="unordered", marks=pytest.mark.long)]
)
@pytest.mark.parametrize(
    "request_", [pytest.param(each, marks=() if each in _FEW else pytest.mark.long, id=each.value) for each in Request]
)
def test_every_crash_leaves_a_whole_revision_and_nothing_acknowledged_is_lost(
    request_: Request, searched: Search, *, ordered: bool
) -> None:
    """After any crash the document is as before or as after, with its history, and can be written again."""
    findings = searched(request_, ordered)
    assert [fault for faults in findings for fault in faults] == []
    assert len(findings) > _LEAST_STATES


@pytest.mark.parametrize(
    "defect", [pytest.param(each, marks=() if each in _FEW_DEFECTS else pytest.mark.long) for each in QUICK], ids=str
)
def test_a_missing_protection_is_noticed(
    defect: Defect, recorded: Callable[[Request], Recording], searched: Search, judge: Judge
) -> None:
    """The search that finds nothing in the request as it is finds what each protection is there for."""
    recording = recorded(defect.request)
    planted = defect.planted(recording.operations)
    assert planted != recording.operations
    before = {fault for faults in searched(defect.request, defect.ordered) for fault in faults}
    findings = search(recording.but(planted), judge, ordered=defect.ordered)
    assert any(not before.issuperset(faults) for faults in findings)
