"""Disks of a database that are full, or hang: what is refused says so in time, and what was acknowledged is there."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.orders import named
from tests.postgresql import server as postgresql
from tests.postgresql.server import Server
from tests.postgresql.test_faults import ServedDatabase, becomes_ready, recovers, served, unavailable
from tests.rigs import disks
from tests.service import Answer
from tests.waiting import at_once

pytestmark = pytest.mark.xdist_group("database-disks")

_DATA = disks.Kind("tmpfs", (), 110)
_LOG = disks.Kind("tmpfs", (), 52)
_SMALL_LOG = "-c min_wal_size=32MB -c max_wal_size=32MB"
_SAVES = 60
_REFUSALS = 10


@dataclass
class OnDisk:
    """A server that has its data, or only its log, on a disk of its own; ``options`` are for its start."""

    server: Server
    disk: Path
    options: str

    def start_again(self) -> None:
        if not (self.server.directory / "data/postmaster.pid").exists():
            self.server = postgresql.start(self.server.directory, options=self.options, port=self.server.port)


@contextmanager
def on_disk(kind: disks.Kind, *, is_log: bool, fsync: bool = False) -> Iterator[OnDisk]:
    """A server on a small disk for the length of a block, which ends before that does."""
    with ExitStack() as stack:
        place = postgresql.new_place()
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        disk = stack.enter_context(disks.mounted(kind, place))
        own = disk / "own"
        own.mkdir()
        own.chmod(0o755)
        if (owner := postgresql.owner()) is not None:
            shutil.chown(own, owner)
        options = _SMALL_LOG + (" -c full_page_writes=on" if is_log else "")
        server = postgresql.start(place if is_log else own, fsync=fsync, options=options, wal=own if is_log else None)
        running = OnDisk(server, disk, options)
        stack.callback(lambda: postgresql.end(running.server))
        postgresql.make_database(server)
        yield running


@dataclass
class Saved:
    answers: list[Answer] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)

    def save_on(self, asked: ServedDatabase) -> None:
        """Save documents with attachments, one after the other, until some are refused."""
        for number in range(len(self.answers), len(self.answers) + _SAVES):
            folder = f"acme/order/data/d{number}"
            began = time.monotonic()
            answer = asked.service.put(f"{folder}/data.xml", named(str(number)), Form_Definition_Version=1)
            large = asked.service.put(f"{folder}/large.bin", secrets.token_bytes(700_000))
            assert time.monotonic() - began < 2 * 6
            self.answers += [answer, large]
            if answer.status == 201:
                self.acknowledged.append(number)
            if len(self.refused) > _REFUSALS:
                break

    @property
    def refused(self) -> list[Answer]:
        return [each for each in self.answers if each.status != 201]

    def are_there(self, asked: ServedDatabase) -> None:
        for number in self.acknowledged:
            assert asked.service.get(f"acme/order/data/d{number}/data.xml").body == named(str(number))


@pytest.mark.parametrize(("kind", "is_log"), [(_DATA, False), (_LOG, True)], ids=["data", "log"])
@pytest.mark.long
def test_on_a_full_disk_nothing_acknowledged_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: disks.Kind, *, is_log: bool
) -> None:
    """Without room for its log the server may end; it goes on when there is some again, as a crashed one."""
    disks.require(kind, tmp_path)
    monkeypatch.setattr("persistence.postgresql.connections.CONNECT_SECONDS", 1)
    with on_disk(kind, is_log=is_log) as small, served(tmp_path, small.server, monkeypatch) as asked:
        saved = Saved()
        disks.fill(small.disk / "fill")
        saved.save_on(asked)
        assert {each.status for each in saved.answers} <= {201, 507, 503}
        assert 507 in {each.status for each in saved.refused}
        for each in saved.refused:
            unavailable(each, "", each.status)
        (small.disk / "fill").unlink()
        small.start_again()
        recovers(asked)
        becomes_ready(asked)
        assert asked.put("Bob").status == 204
        saved.are_there(asked)


@contextmanager
def hanging(disk: Path) -> Iterator[None]:
    """Let everybody who writes to a file system wait for a block."""
    subprocess.run(["fsfreeze", "--freeze", str(disk)], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", str(disk)], check=True)


def test_a_disk_that_hangs_costs_a_request_one_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it would commit besides; others are then refused at once, and reads go on."""
    kind = disks.Kind("ext4", disks.EXT4.command, 64)
    disks.require(kind, tmp_path)
    if shutil.which("fsfreeze") is None:
        pytest.skip("fsfreeze is not installed")
    for name in (
        "connections.STATEMENT_SECONDS",
        "connections.STATEMENT_ANSWER_SECONDS",
        "connections.CONFIRMING_SECONDS",
    ):
        monkeypatch.setattr(f"persistence.postgresql.{name}", 1)
    with on_disk(kind, is_log=True, fsync=True) as small, served(tmp_path, small.server, monkeypatch) as asked:
        large = "acme/order/data/D/large.bin"
        kinds: list[Callable[[], Answer]] = [
            lambda: asked.put("Bob"),
            lambda: asked.service.put(large, b"x" * 3_000_000),
            lambda: asked.service.put("acme/new/data/D/data.xml", named("Cid")),
        ]
        with hanging(small.disk):
            began = time.monotonic()
            for answer in at_once(*kinds):
                unavailable(answer, "")
            assert time.monotonic() - began < 2 + 2 + 2
            began = time.monotonic()
            for answer in at_once(*kinds, asked.is_ready):
                unavailable(answer, "no commit succeeds")
            assert time.monotonic() - began < 2 + 2
            assert asked.get().status == 200
        becomes_ready(asked)
        assert [each().status for each in kinds] == [204, 201, 201]
