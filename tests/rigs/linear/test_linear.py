"""The checker itself: histories that are known to be good or bad, and every small one against plain enumeration."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.initialised import initialised
from tests.rigs.linear.checker import Kind, Operation, State, Verdict, check, resolved, step
from tests.rigs.linear.leasing import PROCESSES, Leased, is_linear, read_leases
from tests.rigs.linear.runs import Load, run


def put(start: int, end: int, token: str, status: int = 204, **more: object) -> Operation:
    """An acknowledged PUT of a content; its tag is its name in capitals, its instant its place in the alphabet."""
    known = {"tag": token.upper(), "instant": token} if status < 400 else {}
    return Operation(Kind.PUT, start, end, status, token, **{**known, **more})  # type: ignore[arg-type]


def put_if(tag: str, start: int, end: int, token: str, status: int = 204) -> Operation:
    return put(start, end, token, status, if_match=tag)


def create(start: int, end: int, token: str, status: int) -> Operation:
    return put(start, end, token, status, if_absent=True)


def lost_put(start: int, token: str, **more: object) -> Operation:
    return Operation(Kind.PUT, start, None, None, token, **more)  # type: ignore[arg-type]


def read(start: int, end: int, token: str) -> Operation:
    return Operation(Kind.READ, start, end, 200, token, token.upper(), token)


def none(start: int, end: int) -> Operation:
    return Operation(Kind.READ, start, end, 404)


def delete(start: int, end: int, status: int = 204, **more: object) -> Operation:
    return Operation(Kind.DELETE, start, end, status, **more)  # type: ignore[arg-type]


def lost_delete(start: int) -> Operation:
    return Operation(Kind.DELETE, start, None, None)


FIRST = put(0, 1, "a", 201)

GOOD = {
    "nothing at all": [],
    "nothing stored": [none(0, 1), delete(2, 3, 404)],
    "created and read": [FIRST, read(2, 3, "a")],
    "a read beside a write sees the old one": [FIRST, put(2, 9, "b"), read(3, 4, "a"), read(5, 6, "b")],
    "two reads beside a write, in no order": [FIRST, put(2, 9, "b"), read(3, 8, "b"), read(4, 7, "a")],
    "writes beside each other": [put(0, 9, "b"), put(1, 8, "a", 201), read(10, 11, "b")],
    "If-Match that holds": [FIRST, put_if("A", 2, 3, "b"), read(4, 5, "b")],
    "If-Match that does not": [FIRST, put(2, 3, "b"), put_if("A", 4, 5, "c", 412)],
    "If-Match where nothing is": [put_if("Z", 0, 1, "a", 412), put(2, 3, "b", 201), read(4, 5, "b")],
    "one creation of two": [create(0, 9, "a", 201), create(1, 8, "b", 412), read(10, 11, "a")],
    "deleted": [FIRST, delete(2, 3, instant="b"), none(4, 5), delete(6, 7, 410), put(8, 9, "c", 201)],
    "deletion beside a conditional write": [FIRST, delete(2, 9, instant="b"), put_if("A", 3, 8, "c", 412)],
    "deletion after a conditional write": [FIRST, delete(2, 9, instant="d"), put_if("A", 3, 8, "c")],
    "unknown: it happened": [FIRST, lost_put(2, "b"), read(4, 5, "b")],
    "unknown: it did not": [FIRST, lost_put(2, "b"), read(4, 5, "a"), put_if("A", 6, 7, "c")],
    "unknown: it shows up late": [FIRST, lost_put(2, "b"), read(4, 5, "a"), read(6, 7, "b")],
    "unknown: what it must match comes later": [FIRST, lost_put(2, "c", if_match="B"), put(4, 5, "b"), read(6, 7, "c")],
    "unknown: overwritten before it was read": [FIRST, lost_put(2, "b"), put_if("A", 4, 5, "c", 412), put(6, 7, "d")],
    "unknown: created, so 204": [lost_put(0, "a"), put(2, 3, "b", 204)],
    "unknown: its tag was read": [lost_put(0, "a"), read(2, 3, "a"), put_if("A", 4, 5, "b")],
    "unknown: a deletion that happened": [FIRST, lost_delete(2), none(4, 5), delete(6, 7, 410)],
    "unknown: a deletion that did not": [FIRST, lost_delete(2), read(4, 5, "a")],
}

BAD = {
    "a lost update": [FIRST, put_if("A", 2, 9, "b"), put_if("A", 3, 8, "c")],
    "a lost write": [FIRST, put(2, 3, "b"), read(4, 5, "a")],
    "a stale read": [FIRST, put(2, 3, "b"), read(4, 5, "b"), read(6, 7, "a")],
    "back and forth": [FIRST, put(2, 9, "b"), read(3, 4, "b"), read(5, 6, "a")],
    "read before it was written": [FIRST, read(2, 3, "b"), put(4, 5, "b")],
    "read and never written": [FIRST, read(2, 3, "b")],
    "resurrected after its deletion": [FIRST, delete(2, 3, instant="b"), none(4, 5), read(6, 7, "a")],
    "still there after its deletion": [FIRST, delete(2, 3, instant="b"), read(4, 5, "a")],
    "absent without a deletion": [FIRST, none(2, 3)],
    "If-Match let through": [FIRST, put(2, 3, "b"), put_if("A", 4, 5, "c")],
    "If-Match let through where nothing is": [FIRST, delete(2, 9, instant="b"), put_if("A", 3, 8, "c", 201)],
    "If-Match refused though it holds": [FIRST, put_if("A", 2, 3, "b", 412)],
    "a deletion let through": [FIRST, put(2, 3, "b"), delete(4, 5, instant="c", if_match="A")],
    "created twice": [create(0, 9, "a", 201), create(1, 8, "b", 201)],
    "overwritten in spite of If-None-Match": [FIRST, create(2, 3, "b", 204)],
    "deleted twice": [FIRST, delete(2, 9, instant="b"), delete(3, 8, instant="c")],
    "never stored, it says of what was deleted": [FIRST, delete(2, 3, instant="b"), delete(4, 5, 404)],
    "201 for what is there": [FIRST, put(2, 3, "b", 201)],
    "an instant that goes back": [put(0, 1, "b", 201), put(2, 3, "a")],
    "an instant twice": [FIRST, put(2, 3, "b", instant="a")],
    "an instant that goes back over a deletion": [FIRST, delete(2, 3, instant="c"), put(4, 5, "b", 201)],
    "unknown: it shows up twice": [
        FIRST,
        lost_put(2, "b"),
        read(4, 5, "b"),
        put(6, 7, "c"),
        read(8, 9, "c"),
        read(10, 11, "b"),
    ],
    "unknown: before it began": [FIRST, read(2, 3, "b"), lost_put(4, "b")],
    "unknown: over what it should not match": [FIRST, put(2, 3, "b"), lost_put(4, "c", if_match="A"), read(6, 7, "c")],
    "unknown: deleted twice by one": [FIRST, lost_delete(2), none(4, 5), put(6, 7, "b", 201), none(8, 9)],
    "another tag than the answer said": [FIRST, replace(read(2, 3, "a"), tag="X")],
    "another instant than the answer said": [FIRST, replace(read(2, 3, "a"), instant="x")],
    "two contents under one tag": [FIRST, put(2, 3, "b", tag="A")],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_may_be_is_accepted(name: str) -> None:
    assert check(GOOD[name], State()).verdict is Verdict.LINEAR


@pytest.mark.parametrize("name", BAD)
def test_what_must_not_be_is_rejected(name: str) -> None:
    finding = check(BAD[name], State())
    assert finding.verdict is Verdict.VIOLATED
    assert finding.why


def test_a_history_goes_on_where_it_was_cut() -> None:
    state = State("A", True, "a")
    assert check([read(0, 1, "a"), put(2, 3, "b", if_match="A")], state).verdict is Verdict.LINEAR
    assert check([put(2, 3, "b", 201)], state).verdict is Verdict.VIOLATED
    assert check([delete(0, 1, 410), put(2, 3, "b", 201)], State(None, True, "a")).verdict is Verdict.LINEAR


def test_a_search_that_takes_too_long_is_undecided() -> None:
    lost = [lost_put(0, f"x{number}") for number in range(12)]
    finding = check([put(0, 1, "a", 201), *lost, none(100, 101)], State(), most=1000)
    assert finding.verdict is Verdict.UNDECIDED


def _by_enumeration(operations: Sequence[Operation]) -> bool:
    """Whether any order of the operations, with or without each unknown one, explains the answers."""
    known, faults = resolved(operations)
    return not faults and any(
        _is_an_explanation(order, known) for length in range(len(known) + 1) for order in permutations(known, length)
    )


def _is_an_explanation(order: Iterable[Operation], operations: Iterable[Operation]) -> bool:
    order, state = list(order), State()
    if any(operation.end is not None and not any(operation is taken for taken in order) for operation in operations):
        return False
    for number, operation in enumerate(order):
        if any(later.end is not None and later.end < operation.start for later in order[number + 1 :]):
            return False
        after = step(state, operation)
        if after is None:
            return False
        state = after
    return True


@st.composite
def _any_operation(draw: st.DrawFn) -> Operation:
    """An operation out of a world so small that half of the histories make sense."""
    start = draw(st.integers(0, 8))
    end = start + draw(st.integers(1, 6))
    token = draw(st.sampled_from("abc"))
    conditions: list[dict[str, object]] = [{}, {"if_match": "A"}, {"if_match": "B"}, {"if_absent": True}]
    condition = draw(st.sampled_from(conditions))
    kind = draw(st.sampled_from(["put", "put", "lost put", "read", "read", "none", "delete", "lost delete"]))
    match kind:
        case "put":
            return put(start, end, token, draw(st.sampled_from([201, 204, 412])), **condition)
        case "lost put":
            return lost_put(start, token, **condition)
        case "read":
            return read(start, end, token)
        case "none":
            return none(start, end)
        case "delete":
            return delete(start, end, draw(st.sampled_from([204, 404, 410])), instant=draw(st.sampled_from("abc")))
        case _:
            return lost_delete(start)


@given(st.lists(_any_operation(), max_size=5))
@settings(max_examples=300, deadline=None)
def test_the_search_says_what_enumeration_says(operations: list[Operation]) -> None:
    """Every order of a small history, tried one by one, gives the same verdict."""
    expected = Verdict.LINEAR if _by_enumeration(operations) else Verdict.VIOLATED
    assert check(operations, State()).verdict is expected


# A short run of the load on the real service; the long run takes protections away, too.


def test_documents_behave_as_registers_while_workers_are_killed(tmp_path: Path) -> None:
    """The issue: concurrent GET, PUT and DELETE with If-Match; one document in segments, and several whole."""
    rounds = (*("one",) * 4, "two", "three", "four", "five")
    report = run(Load("short", rounds, operations=400, kills=(0.3, 0.9)), tmp_path)
    assert report.violations == []
    assert report["operations"] > 350
    assert report["kills"] > 0


# Leases under eight processes that are killed: each document has at most one holder at every moment.

_ROOT = Path(__file__).parents[3]


def histories(directory: Path, seconds: float, *weak: str) -> dict[str, list[Leased]]:
    command = [sys.executable, "-m", "tests.rigs.linear.leasing", initialised(directory / "data"), str(seconds), *weak]
    done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True, timeout=60 + seconds)
    return read_leases(done.stdout.splitlines())


@pytest.mark.parametrize("seconds", [1.0, pytest.param(20.0, marks=pytest.mark.long)])
def test_leases_are_linearizable_while_processes_are_killed(tmp_path: Path, seconds: float) -> None:
    found = histories(tmp_path, seconds)
    requests = [each for history in found.values() for each in history]
    assert len(requests) > 100
    assert sum(each.end is None for each in requests) > PROCESSES // 2
    assert any(each.holder for each in requests)
    assert {document for document, history in found.items() if not is_linear(history)} == set()
    assert len(list((tmp_path / "data/.leases").rglob("[0-9a-f]" * 64))) <= len(found)


@pytest.mark.long
def test_leases_without_a_lock_are_found_out(tmp_path: Path) -> None:
    """Proof of the rig; a process may also fail, because another one has renamed its file."""
    try:
        found = histories(tmp_path, 5.0, "weak")
    except ValueError:  # a fault, which is no line of a history
        return
    assert not all(map(is_linear, found.values()))


def of(user: str, locks: bool, start: int, end: int | None, holder: str | None = None) -> Leased:  # noqa: FBT001
    return Leased("1", user, locks, start, end, holder)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([of("a", True, 1, 2), of("b", True, 3, 4)], False),
        ([of("a", True, 1, 2), of("b", True, 3, 4, "a")], True),
        ([of("a", True, 1, 4), of("b", True, 2, 3, "a")], True),
        ([of("a", True, 1, 2), of("a", False, 3, None), of("b", True, 4, 5), of("a", True, 6, 7, "b")], True),
        ([of("a", True, 1, 2), of("a", False, 3, 4), of("b", True, 5, 6, "a")], False),
        ([of("a", True, 1, None), of("b", True, 2, 3), of("c", True, 4, 5, "a")], False),
        ([of("a", True, 1, None), of("b", True, 2, 3), of("b", False, 4, 5), of("c", True, 6, 7, "a")], True),
    ],
)
def test_the_judge(history: list[Leased], expected: bool) -> None:  # noqa: FBT001
    assert is_linear(history) is expected
