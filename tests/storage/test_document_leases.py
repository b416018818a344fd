"""Leases of documents in a tree: clocks that jump, restarts, full disks, damage, and what is swept."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from persistence.errors import BadRequestError, BusyError, DamagedError, DiskError, DiskFullError, LockedError
from persistence.model.permissions import User
from persistence.model.versions import DocumentLease, LeaseHolder, Moment, parse_timeout
from persistence.storage import document_leases
from persistence.storage.document_leases import DocumentLeases, listed, moment
from persistence.storage.layout import Layout
from persistence.storage.locks import Locks
from persistence.storage.store import Store
from tests.failing import refusing
from tests.initialised import initialised
from tests.rigs import disks
from tests.storage.leases_contract import BOB, LEA, LeasesContract, Leasing, address

DAY = 86_400


@dataclass
class Clocks:
    now: Moment

    def __call__(self) -> Moment:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now = replace(self.now, ticks=self.now.ticks + seconds, wall=self.now.wall + seconds)

    def is_set(self, seconds: float) -> None:
        self.now = replace(self.now, wall=self.now.wall + seconds)

    def restarts(self, seconds: float = 30.0) -> None:
        """Restart the machine, which takes so long."""
        self.now = Moment(self.now.boot + "+", 5.0, self.now.wall + seconds)


@pytest.fixture
def clocks() -> Clocks:
    return Clocks(Moment("boot", 1000.0, 1_700_000_000.0))


@pytest.fixture
def root(tmp_path: Path) -> str:
    return initialised(tmp_path / "data")


@pytest.fixture
def leases(root: str, clocks: Clocks) -> DocumentLeases:
    return DocumentLeases(root, Locks(root, 1.0), lambda: None, clocks)


class TestTree(LeasesContract):
    """Leases in a tree, of which two services have the files open."""

    @pytest.fixture
    def leasing(self, root: str, clocks: Clocks) -> Leasing:
        one, other = (DocumentLeases(root, Locks(root, 0.1), lambda: None, clocks) for _ in range(2))
        return Leasing(one, other, clocks.passes, nullcontext)


def left(leases: DocumentLeases, other: LeaseHolder = BOB, document: str = "D") -> int:
    """How many seconds another user is told; 0 where none, by an UNLOCK, which then has done nothing."""
    try:
        leases.require(address(document), User(name=other.user))
        leases.unlock(address(document), other)
    except LockedError as refused:
        return refused.seconds or -1
    return 0


def test_a_lease_ends_when_its_time_is_over(leases: DocumentLeases, clocks: Clocks) -> None:
    leases.lock(address(), LEA, 600)
    for passed, expected in ((0.0, 600), (0.5, 600), (599.0, 1), (0.49, 1)):
        clocks.passes(passed)
        assert left(leases) == expected
    clocks.passes(0.02)
    leases.lock(address(), BOB, 10)
    assert left(leases, LEA) == 10


@pytest.mark.parametrize("jump", [-10 * DAY, -3600, 3600, 10 * DAY])
def test_a_wall_clock_that_is_set_changes_nothing(leases: DocumentLeases, clocks: Clocks, jump: float) -> None:
    leases.lock(address(), LEA, 600)
    clocks.passes(100)
    clocks.is_set(jump)
    assert left(leases) == 500
    clocks.passes(500)
    assert left(leases) == 0


@pytest.mark.parametrize(
    ("jump", "expected"), [(0, 470), (-10, 480), (-3600, 600), (-10 * DAY, 600), (3600, 0), (10 * DAY, 0)]
)
def test_after_a_restart_of_the_machine_the_wall_clock_decides_within_the_length(
    leases: DocumentLeases, clocks: Clocks, jump: float, expected: int
) -> None:
    """Looked at once, it is measured again: then it ends, however far the wall clock is behind."""
    leases.lock(address(), LEA, 600)
    clocks.passes(100)
    clocks.restarts(30)
    clocks.is_set(jump)
    assert left(leases) == expected
    clocks.is_set(-10 * DAY)
    assert left(leases) == expected
    clocks.passes(expected + 1)
    assert left(leases) == 0


def test_without_a_name_of_the_boot_the_wall_clock_decides(root: str) -> None:
    clocks = Clocks(Moment("", 5.0, 1000.0))
    leases = DocumentLeases(root, Locks(root, 1.0), lambda: None, clocks)
    leases.lock(address(), LEA, 600)
    clocks.is_set(100)
    assert left(leases) == 500


def test_the_clock_here_has_both() -> None:
    first, second = moment(), moment()
    assert first.boot == second.boot
    assert (first.ticks <= second.ticks, first.wall > 1_600_000_000) == (True, True)


def files(root: str) -> list[str]:
    return sorted(path.name for path in Path(root, ".leases").rglob("*") if path.is_file())


def test_expired_leases_are_swept_by_new_ones(leases: DocumentLeases, clocks: Clocks, root: str) -> None:
    """Those in the same directory: about a third as many as live are left."""
    where = Path(Layout(root).lease("D")).parent
    near = [each for each in map(str, range(40_000)) if Path(Layout(root).lease(each)).parent == where]
    for document in near[:60]:
        leases.lock(address(document), LEA, 10)
    clocks.passes(11)
    for document in near[60:120]:
        leases.lock(address(document), LEA, 1000)
    assert 60 <= len(files(root)) <= 75
    assert all(left(leases, document=document) for document in near[60:120])


def test_a_killed_writer_leaves_nothing_that_counts_and_is_swept(leases: DocumentLeases, root: str) -> None:
    leases.lock(address(), LEA, 600)
    (path,) = Path(root, ".leases").rglob("[0-9a-f]" * 64)
    torn = path.with_name(f"{path.name}.next")
    torn.write_bytes(b'{"document')
    assert left(leases) == 600
    leases.lock(address(), LEA, 600)
    assert not torn.exists()
    stray = path.with_name(f"{'0' * 64}.next")
    stray.write_bytes(b"")
    leases.unlock(address(), LEA)
    leases.lock(address(), LEA, 600)
    assert files(root) == [path.name]


_STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "os.listdir", "fcntl.flock", "ctypes.get_errno"}
"""Events of Python before most system calls that change or look at files; the last one follows each ``openat2``."""


def ends_at(step: int, act: Callable[[], None]) -> bool:
    """Act in a process that ends at one of its steps, as by a kill; return whether it came to its end instead."""
    child = os.fork()
    if child == 0:
        left_over = iter(range(step, 0, -1))

        def count(event: str, _: object) -> None:
            if event in _STEPS and next(left_over, 1) == 1:
                os._exit(9)

        try:
            sys.addaudithook(count)
            act()
            os._exit(0)
        finally:
            os._exit(1)  # as after an error; the tests go on in the other process alone
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    ("first", "holder", "seconds", "states"),
    [(None, LEA, 600, {0, 600}), (LEA, LEA, 900, {600, 900}), (LEA, LEA, 0, {600, 0}), (None, LEA, 0, {0})],
    ids=["lease", "renew", "give back", "nothing to give back"],
)
def test_a_kill_at_any_step_leaves_the_lease_before_or_after(
    leases: DocumentLeases, root: str, first: LeaseHolder | None, holder: LeaseHolder, seconds: int, states: set[int]
) -> None:
    seen = set[int]()
    for step in range(1, 100):
        shutil.rmtree(f"{root}/.leases", ignore_errors=True)
        if first is not None:
            leases.lock(address(), first, 600)
        act = partial(leases.lock, address(), holder, seconds) if seconds else partial(leases.unlock, address(), holder)
        is_done = ends_at(step, act)
        after = left(leases, LeaseHolder("nobody"))
        seen.add(after)
        if is_done:
            assert (after, step > 1) == (seconds, True)
            break
        leases.lock(address(), LEA, 300)
        assert (left(leases), len(files(root))) == (300, 1)
    assert seen == states


def test_too_many_leases_of_a_directory_are_busy(
    leases: DocumentLeases, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_leases, "MOST_LEASES_OF_A_DIRECTORY", 1)
    refused = 0
    for number in range(300):
        try:
            leases.lock(address(str(number)), LEA, 10)
        except BusyError:
            refused += 1
    assert 40 < refused < 300
    leases.lock(address("0"), LEA, 20)
    clocks.passes(21)
    leases.lock(address("0"), BOB, 10)


def test_a_file_that_cannot_be_read_is_damage_until_it_is_broken(leases: DocumentLeases, root: str) -> None:
    leases.lock(address(), LEA, 600)
    (path,) = Path(root, ".leases").rglob("[0-9a-f]" * 64)
    path.write_bytes(b"{}")
    for attempt in (
        lambda: leases.lock(address(), LEA, 9),
        lambda: leases.unlock(address(), LEA),
        lambda: left(leases),
    ):
        with pytest.raises(DamagedError, match="check --repair"):
            attempt()
    assert [isinstance(found, DamagedError) for _, found in listed(root)] == [True]
    assert leases.broken("D").user == "unknown"
    leases.lock(address(), BOB, 9)


@pytest.mark.parametrize("link", [".leases", ".leases/3f"])
def test_no_link_is_followed(leases: DocumentLeases, root: str, tmp_path: Path, link: str) -> None:
    """The digest of ``D`` begins with 3f."""
    path, outside = Path(root, link), tmp_path / "outside"
    outside.mkdir()
    assert Layout(root).lease("D").startswith(f"{root}/.leases/3f/")
    if path.is_dir():
        path.rmdir()
    path.symlink_to(outside)
    with pytest.raises(DiskError):
        leases.lock(address(), LEA, 600)
    assert list(outside.rglob("*")) == []


def test_directories_that_are_gone_are_made_again(root: str) -> None:
    with Store(root, lock_timeout=1) as store:
        for name in (".leases", ".locks/leases"):
            for path in sorted(Path(root, name).rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
            Path(root, name).rmdir()
        store.leases.lock(address(), LEA, 600)
        assert left(store.leases) == 600


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    disks.require(disks.TMPFS, tmp_path)
    with disks.mounted(disks.TMPFS, tmp_path) as disk:
        yield disk


@pytest.mark.xdist_group("loop")
def test_a_full_disk_refuses_and_leaves_nothing_half(small: Path, clocks: Clocks) -> None:
    """507; who has a lease keeps it, also where it was to be renewed, and gives it back; then there is room again."""
    root = initialised(small / "data")
    leases = DocumentLeases(root, Locks(root, 1.0), lambda: None, clocks)
    leases.lock(address(), LEA, 600)
    before = files(root)
    disks.fill(small / "filler")
    clocks.passes(100)
    for who, document in ((LEA, "D"), (BOB, "E")):
        with pytest.raises(DiskFullError):
            leases.lock(address(document), who, 900)
    assert files(root) == before
    assert left(leases) == 500
    clocks.restarts(0)
    assert left(leases) == 500
    leases.unlock(address(), LEA)
    (small / "filler").unlink()
    leases.lock(address(), BOB, 600)
    assert left(leases, LEA) == 600


def test_a_file_system_that_is_read_only_refuses(leases: DocumentLeases, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a disk that gave up: who holds the lease is still known."""
    leases.lock(address(), LEA, 600)
    with monkeypatch.context() as broken:
        broken.setattr("persistence.storage.files.written", refusing(errno.EROFS))
        with pytest.raises(DiskError, match="Read-only file system"):
            leases.lock(address(), LEA, 600)
        assert left(leases) == 600
    leases.lock(address(), LEA, 700)
    assert left(leases) == 700


def test_a_lease_is_named_by_a_digest(leases: DocumentLeases, root: str) -> None:
    for document in ("D", "\u00fc" * 120, "a b%c"):
        leases.lock(address(document), LEA, 600)
    kept = {found.document: os.path.basename(path) for path, found in listed(root) if isinstance(found, DocumentLease)}
    assert set(kept) == {"D", "\u00fc" * 120, "a b%c"}
    assert {len(name) for name in kept.values()} == {64}
    with pytest.raises(BadRequestError):
        leases.lock(address(".hidden"), LEA, 600)


def test_timeouts_are_read() -> None:
    assert [parse_timeout(text) for text in ("Second-1", " Second-0600 ", f"Second-{DAY}")] == [1, 600, DAY]


def test_the_stores_leases_survive_it(root: str) -> None:
    for _ in range(2):
        with Store(root, lock_timeout=1) as store:
            store.leases.lock(address(), LEA, 600)
            with pytest.raises(LockedError, match="lea has leased the document D for 600 more seconds"):
                store.leases.lock(address(), BOB, 600)
    with pytest.raises(BusyError):
        store.leases.lock(address(), LEA, 600)
