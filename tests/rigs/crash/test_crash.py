"""A short run of kills and of crashes that a model allows; proof that either notices what is wrong."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.rigs import aftermath, scenarios, strikes
from tests.rigs.aftermath import Comparison, View, Views
from tests.rigs.crash.runs import DEFECTS, Defect, Judge, Killer, Outcome, Recording, noticed, record, search
from tests.rigs.scenarios import NEW, OLD, PROMOTE, Resource, Scenario
from tests.rigs.strikes import Point
from tests.rigs.weakened import UNNOTED, UNRECORDED
from tests.service import Service

# A worker that is killed leaves the old state or the new one, and nothing in the way.

_EVERY = 20
_EVERY_OF_ALL = 12
_LEAST_POINTS = 10
_PATIENCE = 900  # seconds in which a busy machine starts some fifty workers
by_kills = pytest.mark.xdist_group("crash-kill")  # one service is killed all the time


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("crash")
    strikes.require(directory)
    return directory


@pytest.fixture(scope="module")
def killed(ground: Path) -> Iterator[Service]:
    with strikes.struck_service(ground) as service:
        yield service


def changing(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if point.changes]


def faults_of(outcomes: Sequence[Outcome]) -> dict[str, tuple[str, ...]]:
    return {str(outcome.point): outcome.faults for outcome in outcomes if outcome.faults}


@by_kills
@pytest.mark.timeout(_PATIENCE)
@pytest.mark.parametrize("scenario", [PROMOTE, scenarios.DELETE, scenarios.DELETE_ALL], ids=str)
def test_a_kill_leaves_the_old_state_or_the_new_one(scenario: Scenario, killed: Service, tmp_path: Path) -> None:
    """All reads as before or as after, headers and older revisions too; the next write succeeds and cleans up.

    Here requests are killed where names change or are made durable and at every twentieth of their other calls, and
    the longest, which does one thing three times, at every twelfth. ``make test-crash`` kills every request at every
    call.
    """
    killer = Killer(killed, tmp_path, scenario)
    chosen = [point for number, point in enumerate(killer.points) if point.changes or number % _EVERY == 0]
    outcomes = killer.then_write(killer.points[::_EVERY_OF_ALL] if scenario is scenarios.DELETE_ALL else chosen)
    assert faults_of(outcomes) == {}
    # The kills hit both sides of every moment at which something changes, and leave something to clean up.
    assert len(outcomes) > _LEAST_POINTS
    for committed in zip(*(outcome.committed for outcome in outcomes), strict=True):
        assert list(committed) == sorted(committed)
        assert set(committed) == {True, False}
    assert any(outcome.left for outcome in outcomes)


@by_kills
@pytest.mark.timeout(_PATIENCE)
def test_a_repair_leaves_nothing_of_a_kill_and_changes_nothing(tmp_path: Path) -> None:
    """``persistence check --repair``, beside the running service, clears away what kills leave; no event is lost."""
    strikes.require(tmp_path)
    with strikes.struck_service(tmp_path, has_events=True) as service:
        killer = Killer(service, tmp_path, scenarios.PUBLISH_NEXT)
        outcomes = killer.then_check(changing(killer.points))
    assert faults_of(outcomes) == {}
    assert any(outcome.left for outcome in outcomes)
    assert any(outcome.is_late for outcome in outcomes)


@by_kills
@pytest.mark.timeout(_PATIENCE)
def test_a_kill_leaves_the_old_lease_or_the_new_one(tmp_path: Path) -> None:
    """Whoever was told so holds it, nobody else can write, and the next LOCK, UNLOCK and PUT are as ever."""
    strikes.require(tmp_path)
    with strikes.struck_service(tmp_path, properties=scenarios.LEASING) as service:
        killer = Killer(service, tmp_path, scenarios.RENEW)
        outcomes = killer.then_write(changing(killer.points))
    assert faults_of(outcomes) == {}
    assert {tuple(outcome.committed) for outcome in outcomes} == {(False,), (True,)}


@by_kills
@pytest.mark.timeout(_PATIENCE)
@pytest.mark.parametrize(("weakness", "says"), [(UNNOTED, "a search for 'new' finds []"), (UNRECORDED, "the events")])
def test_a_change_that_was_not_noted_is_noticed(weakness: str, says: str, tmp_path: Path) -> None:
    """A worker was killed after its commit, before the index had heard of it, or before its event was recorded."""
    strikes.require(tmp_path)
    assert any(fault.startswith(says) for fault in noticed(weakness, tmp_path))


# No power cut breaks a promise: every crash that a model allows, at every step of a real request.

_LEAST_STATES = 20
_FEW = (scenarios.FIRST_REPLACE, PROMOTE, scenarios.DELETE_DATA)
"""Requests that do between them what the others do; the long run takes all, and all defects, in any order of names."""
_FEW_DEFECTS = [defect for defect in DEFECTS if defect.ordered and defect.request in _FEW][::2]
by_traces = pytest.mark.xdist_group("crash-trace")  # a request is recorded once and searched many times


@pytest.fixture(scope="module")
def recorded(ground: Path) -> Callable[[Scenario], Recording]:
    return cache(lambda scenario: record(scenario, ground / scenario.name))


@pytest.fixture(scope="module")
def searched(ground: Path, recorded: Callable[[Scenario], Recording]) -> Callable[[Scenario], list[list[str]]]:
    def found(scenario: Scenario) -> list[list[str]]:
        with Judge(ground / f"judged {scenario}") as judge:
            return list(search(recorded(scenario), judge, ordered=True))

    return cache(found)


@by_traces
@pytest.mark.parametrize("scenario", _FEW, ids=str)
def test_every_crash_leaves_a_whole_revision_and_nothing_acknowledged_is_lost(
    scenario: Scenario, searched: Callable[[Scenario], list[list[str]]]
) -> None:
    """After any crash the document is as before or as after, with its history, and can be written again."""
    findings = searched(scenario)
    assert [fault for faults in findings for fault in faults] == []
    assert len(findings) > _LEAST_STATES


@by_traces
@pytest.mark.parametrize("defect", _FEW_DEFECTS, ids=str)
def test_a_missing_protection_is_noticed(
    defect: Defect, recorded: Callable[[Scenario], Recording], tmp_path: Path
) -> None:
    """The search that finds nothing in the request as it is finds what each protection is there for."""
    recording = recorded(defect.request)
    planted = defect.planted(recording.operations)
    assert planted != recording.operations
    with Judge(tmp_path / "judged") as judge:
        assert any(search(replace(recording, operations=planted), judge, ordered=True))


# The look at what is left sees what it is there for.

_FORM = "app/form"


def _store(directory: Path, name: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(OLD)
    sidecar = {"digest": f"sha256:{hashlib.sha256(OLD).hexdigest()}"}
    (directory / f"{name}.json").write_text(json.dumps(sidecar))


_DOCUMENT, _DELETED = "app/form/data/document", '{"deleted": true}'


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (lambda data: (data / ".trash/1").mkdir(), ".trash/1"),
        (lambda data: (data / ".spool/1").touch(), ".spool/1"),
        (lambda data: (data / "app/form/data/other").mkdir(), "data/other is empty"),
        (lambda data: (data / _DOCUMENT / ".data.xml.json").touch(), ".data.xml.json is temporary"),
        (lambda data: (data / _DOCUMENT / "scan.bin").touch(), "scan.bin has no sidecar"),
        (lambda data: (data / _DOCUMENT / "data.xml").unlink(), "data.xml is missing"),
        (lambda data: (data / _DOCUMENT / "data.xml").write_bytes(NEW), "not what its sidecar describes"),
        (lambda data: (data / _DOCUMENT / "data.xml.json").write_text(_DELETED), "data.xml is deleted and there"),
        (lambda data: (data / "app/form/draft/document/data.xml.json").write_text(_DELETED), "tombstone"),
        (lambda data: next((data / _DOCUMENT / ".history").glob("*.xml")).unlink(), "data.xml is missing"),
    ],
)
def test_leftovers_are_seen(tmp_path: Path, plant: Callable[[Path], None], expected: str) -> None:
    for name in (".spool", ".trash"):
        (tmp_path / name).mkdir()
    _store(tmp_path / _DOCUMENT, "data.xml")
    _store(tmp_path / _DOCUMENT / ".history", "2026-03-04T05-06-07.089Z.data.xml")
    _store(tmp_path / _FORM / "draft/document", "data.xml")
    assert aftermath.left(tmp_path, _FORM) == []
    plant(tmp_path)
    assert any(expected in text for text in aftermath.left(tmp_path, _FORM))


def _views(*, is_new: bool, instant: str, etag: str) -> dict[Resource, View]:
    date = "Wed, 04 Mar 2026 05:06:07 GMT"
    own = {"etag": f'"{etag * 40}"', "svc-last-modified": instant, "last-modified": date}
    own |= {"svc-created": "2026-03-04T05:06:07.089Z", "created": date, "svc-form-definition-version": "1"}
    contents = {one: one.after if is_new else one.before for one in PROMOTE.resources}
    return {one: View(200, body, own) if body else View(404, b"nothing\n", {}) for one, body in contents.items()}


_DATA, *_DRAFT = PROMOTE.resources
_BEFORE = _views(is_new=False, instant="2026-03-04T05:06:07.089Z", etag="a")
_AFTER = _views(is_new=True, instant="2026-03-04T05:06:07.090Z", etag="b")


@pytest.mark.parametrize("found", [_BEFORE, _AFTER, {**_BEFORE, _DATA: _AFTER[_DATA]}], ids=["before", "after", "data"])
def test_whole_states_are_right(found: Views) -> None:
    assert list(Comparison(PROMOTE, _BEFORE, found, _AFTER).faults()) == []


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({**_AFTER, _DATA: _BEFORE[_DATA]}, "has changed before"),
        ({**_AFTER, _DRAFT[1]: _BEFORE[_DRAFT[1]]}, "only a part of"),
        ({**_AFTER, _DATA: replace(_BEFORE[_DATA], body=NEW)}, "the entity tag"),
        ({**_AFTER, _DATA: replace(_AFTER[_DATA], headers=_BEFORE[_DATA].headers)}, "is not younger"),
        ({**_BEFORE, _DATA: replace(_AFTER[_DATA], body=OLD)}, "neither old nor new"),
        ({**_BEFORE, _DATA: replace(_BEFORE[_DATA], body=NEW[:200])}, "neither old nor new"),
        ({**_BEFORE, _DATA: View(500, b"damaged\n", {})}, "neither old nor new"),
        (
            {**_AFTER, _DATA: replace(_AFTER[_DATA], headers={**_AFTER[_DATA].headers, "content-length": "1"})},
            "other headers",
        ),
    ],
)
def test_what_is_neither_old_nor_new_is_seen(found: Views, expected: str) -> None:
    assert any(expected in fault for fault in Comparison(PROMOTE, _BEFORE, found, _AFTER).faults())
