"""Deep checks in slices: what is looked at, how old the oldest look is, and that every part has its turn."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from persistence.maintenance import check as checking
from persistence.maintenance.check import ALL_SLICES, Slices, within
from persistence.storage.layout import CHECKED
from persistence.storage.locks import STRIPES
from tests.cli.test_commands import persistence
from tests.maintenance.workshop import DATA, Workshop


def rot(path: Path) -> None:
    """Change a byte, and keep size and time."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def said(workshop: Workshop, *arguments: str) -> tuple[int, str]:
    done = persistence("check", "--data", str(workshop.root), *arguments, cwd=workshop.root.parent)
    return done.returncode, done.stdout


def test_a_budget_that_is_long_enough_covers_the_tree_and_finds_what_a_deep_check_finds(workshop: Workshop) -> None:
    rot(workshop.file(DATA))
    checked = workshop.check("--deep", "--budget", "1m")
    assert checked.kinds == [("digest-wrong", DATA)]
    assert checked.status == 4
    assert checked.summary["folders"] == workshop.check("--deep").summary["folders"]
    assert "parts never" not in said(workshop, "--status")[1]


def test_a_budget_that_is_over_leaves_the_rest_to_the_next_run_the_oldest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least one slice is looked at, whatever it takes, so that every one has its turn."""
    clock = iter(range(0, 10**9, 100))
    monkeypatch.setattr(checking.time, "monotonic", lambda: next(clock))
    seen: list[frozenset[int]] = []

    def check(batch: frozenset[int]):  # type: ignore[no-untyped-def]
        seen.append(batch)
        yield None

    for number in range(1, STRIPES + 1):
        list(within(50, Slices(str(tmp_path)), check))
        coverage = Slices(str(tmp_path)).coverage()
        assert (coverage.never, coverage.oldest is None) == (STRIPES - number, False)
    assert frozenset().union(*seen) == ALL_SLICES
    assert [len(batch) for batch in seen] == [1] * STRIPES
    list(within(50, Slices(str(tmp_path)), check))
    assert seen[-1] == seen[0]


def test_a_batch_that_does_not_come_to_its_end_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(checking.time, "monotonic", lambda: now[0])
    sizes: list[int] = []

    def check(batch: frozenset[int]):  # type: ignore[no-untyped-def]
        sizes.append(len(batch))
        for _ in range(10):
            now[0] += 0.1 if len(sizes) == 1 else 100
            yield None

    list(within(60, Slices(str(tmp_path)), check))
    assert sizes[0] == 1
    assert sizes[1] > 1
    assert Slices(str(tmp_path)).coverage().never == STRIPES - 1


def test_a_file_that_says_nothing_is_as_none(tmp_path: Path) -> None:
    for text in (b"", b"{", b"[]", b'{"slices":["2026-01-01T00:00:00.000Z"]}'):
        (tmp_path / CHECKED).write_bytes(text)
        assert Slices(str(tmp_path)).coverage().oldest is None


def test_nobody_else_leaves_a_file_in_the_tree(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(workshop.root).st_uid + 1)
    workshop.check("--deep")
    assert not workshop.file(CHECKED).exists()
