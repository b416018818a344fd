"""Locks: exclusive between threads and between processes, with a deadline."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from persistence.errors import BusyError
from persistence.storage.locks import STRIPES, Locks, stripe

SCOPE = ("app", "form", "data", "D")
OTHER = next(("x", str(n)) for n in range(100) if stripe(("x", str(n))) != stripe(SCOPE))
HOLDER = """
import sys, time
from persistence.storage.locks import Locks
with Locks(sys.argv[1], 1).holding(("app", "form", "data", "D")):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_thread_waits_and_gives_up_at_the_deadline(tmp_path: Path) -> None:
    locks = Locks(str(tmp_path), 0.1)
    failures = []

    def contend() -> None:
        began = time.monotonic()
        with pytest.raises(BusyError), locks.holding(SCOPE):
            pass
        failures.append(time.monotonic() - began)

    with locks.holding(SCOPE):
        thread = threading.Thread(target=contend)
        thread.start()
        thread.join()
        with locks.holding(OTHER):
            pass
    assert 0.09 < failures[0] < 5
    with locks.holding(SCOPE):
        pass


def test_a_second_process_waits_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(BusyError), Locks(str(tmp_path), 0.1).holding(SCOPE):
        pass
    holder.kill()
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    with Locks(str(tmp_path), 1).holding(SCOPE):
        pass


def test_scopes_spread_over_the_stripes() -> None:
    used = {stripe(("app", "form", "data", str(number))) for number in range(5000)}
    assert len(used) == STRIPES
