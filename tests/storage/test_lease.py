"""The lease of a tree, with a second machine played by another name for this one."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from persistence.errors import BusyError, DiskError, StartupError
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.storage import files
from persistence.storage.layout import CREATIONS, ELSEWHERE_LOCKS, LEASE_LOCKS, LOCKS
from persistence.storage.locks import STRIPES, Lease, Locks, Machine, stripe
from persistence.storage.store import Store
from tests.failing import refusing
from tests.initialised import initialised
from tests.waiting import at_once

HERE = Machine("here", "1" * 32, "boot-1")
THERE = Machine("there", "2" * 32, "boot-2")
DOCUMENT = DocumentAddress(Form("a", "b"), Collection.DATA, "D", DATA_XML)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return initialised(tmp_path / "data")


@contextmanager
def taken(root: str, machine: Machine) -> Iterator[Lease]:
    own = Lease(root, machine=machine, interval=0.1)
    try:
        yield own
    finally:
        own.close()


def said(root: str) -> dict[str, object] | None:
    text = Path(root, ".locks/lease").read_text()
    assert len(text) == 512
    return json.loads(text) if text.strip() else None  # type: ignore[no-any-return]


def leave(root: str, content: bytes, seconds: float) -> None:
    """Let a machine have left a lease that was written some seconds ago."""
    path = Path(root, ".locks/lease")
    path.write_bytes(content)
    os.utime(path, (time.time() - seconds,) * 2)


def test_a_machine_says_that_it_has_a_tree_until_it_has_not(root: str) -> None:
    with taken(root, HERE):
        first = said(root)
        assert (first["host"], first["boot"]) == ("here", "boot-1")
        os.utime(f"{root}/.locks/lease", (0, 0))
        time.sleep(0.35)
        assert said(root) == first
        assert time.time() - os.stat(f"{root}/.locks/lease").st_mtime < 5
    assert said(root) is None


def test_another_machine_is_refused_while_it_is_renewed(root: str) -> None:
    with taken(root, HERE):
        with pytest.raises(StartupError, match=r"is open on machine here since \d.*: one machine at a time"):
            Lease(root, machine=THERE)
        assert said(root) == said(root) | {"host": "here"}  # type: ignore[operator]
    with taken(root, THERE) as own:
        own.require()


def test_what_a_machine_has_left_behind_is_taken_over_after_a_while(root: str) -> None:
    leave(root, _of(HERE), 40)
    with pytest.raises(StartupError, match="renewed its lease in the last 45 seconds"):
        Lease(root, machine=THERE)
    leave(root, _of(HERE), 50)
    with taken(root, THERE) as own:
        own.require()
        assert said(root)["host"] == "there"  # type: ignore[index]


def test_a_machine_that_was_restarted_need_not_wait(root: str) -> None:
    leave(root, _of(HERE), 1)
    with taken(root, Machine(HERE.host, HERE.machine, "boot-3")):
        assert said(root)["boot"] == "boot-3"  # type: ignore[index]
    for other in (Machine("clone", HERE.machine, "boot-3"), Machine(HERE.host, "", "boot-3")):
        leave(root, _of(HERE), 1)
        with pytest.raises(StartupError, match="is open on machine here"):
            Lease(root, machine=other)
    leave(root, _of(Machine("", "", "boot-1")), 1)
    with pytest.raises(StartupError, match="is open on machine"):
        Lease(root, machine=Machine("", "", "boot-2"))


def test_services_of_one_machine_share_it_and_the_last_gives_it_back(root: str) -> None:
    """Containers too: they have one kernel, whose locks they share."""
    with taken(root, HERE), taken(root, Machine("container", "", HERE.boot)):
        assert said(root)["host"] == "here"  # type: ignore[index]
    assert said(root) is None
    first, second = Lease(root, machine=HERE), Lease(root, machine=HERE)
    first.close()
    assert said(root) is not None
    second.close()
    second.close()
    assert said(root) is None


def test_it_goes_on_being_renewed_whichever_process_ends(root: str) -> None:
    with taken(root, HERE):
        first = Lease(root, machine=HERE, interval=0.1)
        first.close()
        os.utime(f"{root}/.locks/lease", (0, 0))
        time.sleep(0.4)
        assert os.stat(f"{root}/.locks/lease").st_mtime > 0


def test_a_machine_whose_lease_was_taken_over_stops_writing(root: str) -> None:
    """It slept, or was cut off from the disk, and wakes up: the next write looks first."""
    store = Store(root, lock_timeout=1)
    with store.writing(DOCUMENT):
        pass
    files.overwrite(f"{root}/.locks/lease", _of(THERE))
    for refused in (lambda: store.writing(DOCUMENT).__enter__(), store.free_bytes):
        with pytest.raises(BusyError, match=r"was taken over by machine there since .* until a restart"):
            refused()
    store.close()
    assert said(root)["host"] == "there", "it is not this machine's to give back"  # type: ignore[index]


def test_a_takeover_is_noticed_without_a_write(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    with taken(root, HERE) as own:
        files.overwrite(f"{root}/.locks/lease", _of(THERE))
        time.sleep(0.4)
        assert own.lost
        assert said(root)["host"] == "there", "it is not taken back"  # type: ignore[index]
    assert capsys.readouterr().err.count("was taken over") == 1


def test_a_disk_that_refuses_keeps_nobody_from_starting_or_writing(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the lease of another machine cannot be replaced: then nothing can be written there."""
    leave(root, _of(THERE), 50)
    monkeypatch.setattr(files, "overwrite", refusing(errno.EROFS))
    with taken(root, HERE) as own:
        time.sleep(0.3)
        own.require()
    Path(root, ".locks/lease").unlink()
    monkeypatch.setattr(files, "ensure_file", refusing(errno.EROFS))
    with taken(root, HERE) as own:
        own.require()


@pytest.mark.parametrize("call", ["open_to_read", "read_small"])
def test_a_lease_that_cannot_be_read_is_not_taken_for_ones_own(
    call: str, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written then, nor is the tree opened, nor the lease replaced: it may be another machine's."""
    with taken(root, Machine.this()) as own, Store(root, lock_timeout=1) as store:
        files.overwrite(f"{root}/.locks/lease", _of(THERE))
        with monkeypatch.context() as patched:
            patched.setattr(files, call, refusing())
            time.sleep(0.35)
            with pytest.raises(OSError, match="Input/output error"):
                own.require()
            for refused in (lambda: store.writing(DOCUMENT).__enter__(), store.free_bytes):
                with pytest.raises(DiskError, match="Input/output error"):
                    refused()
            with pytest.raises(OSError, match="Input/output error"):
                Lease(root)
        assert said(root)["host"] == "there"  # type: ignore[index]
        with pytest.raises(BusyError, match="was taken over by machine there"):
            own.require()


def test_a_lease_file_that_was_removed_is_written_again(root: str) -> None:
    with taken(root, HERE) as own:
        Path(root, ".locks/lease").unlink()
        own.require()
        time.sleep(0.4)
        assert said(root)["host"] == "here"  # type: ignore[index]


def test_of_two_machines_that_take_over_at_once_one_writes(root: str) -> None:
    leave(root, _of(Machine("gone", "3" * 32, "boot-0")), 50)
    with taken(root, HERE) as first:
        files.overwrite(f"{root}/.locks/lease", _of(THERE))  # which had looked before, and writes last
        with pytest.raises(BusyError, match="was taken over by machine there"):
            first.require()


def test_stores_that_are_closed_leave_no_thread_and_no_descriptor(root: str) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    Store(root, lock_timeout=1).close()
    threads, opened = set(threading.enumerate()), descriptors()
    for _ in range(50):
        store = Store(root, lock_timeout=1)
        store.close()
        store.close()
    assert set(threading.enumerate()) <= threads  # those of a test before may end meanwhile, with what they have open
    assert descriptors() <= opened


def _of(machine: Machine) -> bytes:
    instant = "2026-03-04T05:06:07.089Z"
    values = {"host": machine.host, "machine": machine.machine, "boot": machine.boot, "count": 7}
    return json.dumps(values | {"since": instant, "renewed": instant}).encode().ljust(511) + b"\n"


@pytest.mark.parametrize(
    "garbage",
    [*(b"", b"{", b'{"host": 1}', b"\xff" * 512, b"x" * 600, b"x" * 100_000), *(b"{" * 3000, b'{"x":' + b"[" * 60_000)],
    ids=len,
)
def test_a_file_that_says_nothing_is_nobodys_lease_and_written_over(root: str, garbage: bytes) -> None:
    """What is left behind the block would otherwise make every lease unreadable, and two machines would write."""
    Path(root, ".locks/lease").write_bytes(garbage)
    with taken(root, HERE) as own:
        own.require()
        assert said(root) is not None
        with pytest.raises(StartupError), taken(root, THERE):
            pass


def test_nobody_waits_for_a_pipe_in_the_place_of_the_lease(root: str) -> None:
    Path(root, ".locks/lease").unlink(missing_ok=True)
    os.mkfifo(Path(root, ".locks/lease"))
    with taken(root, HERE) as lease:
        lease.require()


# Locks: exclusive between threads and between processes, with a deadline.

SCOPE = ("app", "form", "data", "D")
OTHER = next(("x", str(n)) for n in range(100) if stripe(("x", str(n))) != stripe(SCOPE))
_HOLDER_CODE = """
import sys
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

    with locks.holding(LOCKS, stripe(SCOPE)), locks.holding(LOCKS, stripe(OTHER)):
        assert 0.09 < at_once(contend)[0] < 5


def test_a_second_process_waits_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / ".locks").mkdir()
    command = [sys.executable, "-c", _HOLDER_CODE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BusyError), _locks(tmp_path, 0.1).holding(LOCKS, stripe(SCOPE)):
            pass
        holder.kill()
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
