"""Locks: exclusive between threads and between processes, with a deadline."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from persistence.errors import BusyError
from persistence.storage.layout import CREATIONS, ELSEWHERE_LOCKS, LEASE_LOCKS, LOCKS
from persistence.storage.locks import STRIPES, Locks, stripe
from tests.waiting import at_once

SCOPE = ("app", "form", "data", "D")
OTHER = next(("x", str(n)) for n in range(100) if stripe(("x", str(n))) != stripe(SCOPE))
HOLDER = """
import sys, time
from tests.waiting import at_once
from persistence.storage.locks import Locks, stripe
with Locks(sys.argv[1], 1).holding(".locks", stripe(("app", "form", "data", "D"))):
    print("held", flush=True)
    sys.stdin.read()
"""


def _locks(root: Path, timeout: float) -> Locks:
    (root / ".locks").mkdir(exist_ok=True)
    return Locks(str(root), timeout)


def test_a_second_thread_waits_and_gives_up_at_the_deadline(tmp_path: Path) -> None:
    locks = _locks(tmp_path, 0.1)

    def contend() -> float:
        began = time.monotonic()
        with pytest.raises(BusyError), locks.holding(LOCKS, stripe(SCOPE)):
            pass
        return time.monotonic() - began

    with locks.holding(LOCKS, stripe(SCOPE)):
        assert 0.09 < at_once(contend)[0] < 5
        with locks.holding(LOCKS, stripe(OTHER)):
            pass
    with locks.holding(LOCKS, stripe(SCOPE)):
        pass


def test_a_second_process_waits_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / ".locks").mkdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(BusyError), _locks(tmp_path, 0.1).holding(LOCKS, stripe(SCOPE)):
        pass
    holder.kill()
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    with _locks(tmp_path, 1).holding(LOCKS, stripe(SCOPE)):
        pass


def test_each_kind_of_stripe_is_held_by_itself(tmp_path: Path) -> None:
    """A creation is held while a document is; a document elsewhere keeps none here from being written."""
    for kind in (LOCKS, CREATIONS, ELSEWHERE_LOCKS, LEASE_LOCKS):
        (tmp_path / kind).mkdir()
    locks, others, number = Locks(str(tmp_path), 0.1), Locks(str(tmp_path), 0.1), stripe(SCOPE)
    with locks.holding(LOCKS, number), locks.holding(CREATIONS, number), locks.holding(ELSEWHERE_LOCKS, number):
        for kind in (LOCKS, CREATIONS, ELSEWHERE_LOCKS):
            with pytest.raises(BusyError), others.holding(kind, number):
                pass
        with others.holding(LEASE_LOCKS, number):
            pass


def test_scopes_spread_over_the_stripes() -> None:
    used = {stripe(("app", "form", "data", str(number))) for number in range(5000)}
    assert len(used) == STRIPES
