"""The lease of a tree, with a second machine played by another name for this one."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from persistence.errors import BusyError, DiskError, StartupError
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.storage import files, nofollow
from persistence.storage.lease import Lease, Machine
from persistence.storage.store import Store
from tests.initialised import initialised

HERE = Machine("here", "1" * 32, "boot-1")
THERE = Machine("there", "2" * 32, "boot-2")
DOCUMENT = DocumentAddress(Form("a", "b"), Collection.DATA, "D", DATA_XML)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return initialised(tmp_path / "data")


@contextmanager
def taken(root: str, machine: Machine, interval: float = 0.1, watch: float = 0.5) -> Iterator[Lease]:
    own = Lease(root, machine=machine, interval=interval, watch=watch)
    try:
        yield own
    finally:
        own.close()


def said(root: str) -> dict[str, object] | None:
    text = Path(root, ".locks/lease").read_text()
    assert len(text) == 512
    return json.loads(text) if text.strip() else None  # type: ignore[no-any-return]


def test_a_machine_says_that_it_has_a_tree_until_it_has_not(root: str) -> None:
    with taken(root, HERE):
        first = said(root)
        assert first is not None
        assert (first["host"], first["boot"]) == ("here", "boot-1")
        time.sleep(0.35)
        later = said(root)
        assert later is not None
        assert later["since"] == first["since"]
        assert int(str(later["count"])) > int(str(first["count"]))
    assert said(root) is None


def test_another_machine_is_refused_while_it_is_renewed(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    with taken(root, HERE):
        began = time.monotonic()
        with pytest.raises(StartupError, match=r"is open on machine here since \d.*: one machine at a time"):
            Lease(root, machine=THERE, interval=0.1, watch=5)
        assert time.monotonic() - began < 2, "it need not wait longer than until the next renewal"
        assert said(root) == said(root) | {"host": "here"}  # type: ignore[operator]
    with taken(root, THERE) as own:
        own.require()
    assert "was last opened by machine here" in capsys.readouterr().err


def test_what_a_machine_has_left_behind_is_taken_over_after_a_while(root: str) -> None:
    with taken(root, HERE):
        left = Path(root, ".locks/lease").read_bytes()
    Path(root, ".locks/lease").write_bytes(left)
    began = time.monotonic()
    with taken(root, THERE) as own:
        assert time.monotonic() - began >= 0.5
        own.require()
        assert said(root)["host"] == "there"  # type: ignore[index]


def test_a_machine_that_was_restarted_need_not_wait(root: str) -> None:
    with taken(root, HERE):
        left = Path(root, ".locks/lease").read_bytes()
    Path(root, ".locks/lease").write_bytes(left)
    began = time.monotonic()
    with taken(root, Machine(HERE.host, HERE.machine, "boot-3"), watch=30):
        assert time.monotonic() - began < 5
    for other in (Machine("clone", HERE.machine, "boot-3"), Machine(HERE.host, "", "boot-3")):
        Path(root, ".locks/lease").write_bytes(left)
        began = time.monotonic()
        with taken(root, other):
            assert time.monotonic() - began >= 0.5, "a copy of the machine, or one without a name, may be another"


def test_services_of_one_machine_share_it_and_the_last_gives_it_back(root: str) -> None:
    """Containers too: they have one kernel, whose locks they share."""
    with taken(root, HERE), taken(root, Machine("container", "", HERE.boot), watch=30):
        pass
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
        before = said(root)
        time.sleep(0.4)
        assert said(root) != before


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


@pytest.mark.parametrize("left", [b"", b"{", b'{"host": 1}', b"\xff" * 512, b"x" * 100_000])
def test_a_file_that_says_nothing_is_nobodys_lease(root: str, left: bytes) -> None:
    Path(root, ".locks/lease").write_bytes(left)
    began = time.monotonic()
    with taken(root, HERE, watch=30) as own:
        own.require()
    assert time.monotonic() - began < 5


def test_a_disk_that_refuses_keeps_nobody_from_starting_or_writing(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the lease of another machine cannot be replaced: then nothing can be written there."""
    files.overwrite(f"{root}/.locks/lease", _of(THERE))

    def refuse(*_: object) -> None:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(files, "overwrite", refuse)
    with taken(root, HERE) as own:
        time.sleep(0.3)
        own.require()
    Path(root, ".locks/lease").unlink()
    monkeypatch.setattr(files, "ensure_file", refuse)
    with taken(root, HERE) as own:
        own.require()


@pytest.mark.parametrize(("module", "call"), [(nofollow, "open_to_read"), (nofollow, "read_small")])
def test_a_lease_that_cannot_be_read_is_not_taken_for_ones_own(
    module: ModuleType, call: str, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written then, nor is the tree opened, nor the lease replaced: it may be another machine's."""

    def refuse(*_: object) -> None:
        raise OSError(5, os.strerror(5))

    with taken(root, Machine.this()) as own, Store(root, lock_timeout=1) as store:
        files.overwrite(f"{root}/.locks/lease", _of(THERE))
        with monkeypatch.context() as patched:
            patched.setattr(module, call, refuse)
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


def test_of_two_machines_that_take_over_at_once_one_has_it(root: str) -> None:
    files.overwrite(f"{root}/.locks/lease", _of(Machine("gone", "3" * 32, "boot-0")))
    leases: list[Lease] = []
    refused: list[StartupError] = []

    def take(machine: Machine) -> None:
        try:
            leases.append(Lease(root, machine=machine, interval=0.1, watch=0.8))
        except StartupError as error:
            refused.append(error)

    threads = [threading.Thread(target=take, args=(machine,)) for machine in (HERE, THERE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(leases), len(refused)) == (1, 1)
    leases[0].require()
    leases[0].close()


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


@pytest.mark.parametrize("garbage", [b"x" * 600, b"{" * 3000, b'{"x":' + b"[" * 60_000])
def test_garbage_of_any_length_is_written_over(root: str, garbage: bytes) -> None:
    """What is left behind the block would otherwise make every lease unreadable, and two machines would write."""
    Path(root, ".locks/lease").write_bytes(garbage)
    with taken(root, HERE):
        assert said(root) is not None
        with pytest.raises(StartupError), taken(root, THERE):
            pass


def test_nobody_waits_for_a_pipe_in_the_place_of_the_lease(root: str) -> None:
    Path(root, ".locks/lease").unlink(missing_ok=True)
    os.mkfifo(Path(root, ".locks/lease"))
    with taken(root, HERE) as lease:
        lease.require()
