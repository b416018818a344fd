"""Leases under eight processes that are killed: each document has at most one holder at every moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.initialised import initialised
from tests.rigs.linear.leasing import PROCESSES, Leased, is_linear, read

_ROOT = Path(__file__).parents[3]


def histories(directory: Path, seconds: float, *weak: str) -> dict[str, list[Leased]]:
    command = [sys.executable, "-m", "tests.rigs.linear.leasing", initialised(directory / "data"), str(seconds), *weak]
    done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True, timeout=60 + seconds)
    return read(done.stdout.splitlines())


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
