"""A move into a bucket that is killed, or interrupted: no record is without its object, and it goes on afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from persistence.storage.reader import StoreReader
from tests import forkserver, in_process
from tests.imports.archives import tree
from tests.imports.test_interrupted import counting
from tests.s3.moves import fill, move, named, require_whole, run, settings_at, states, swept
from tests.s3.server import BUCKET, Fault, S3Server

_LATE = 0.2
"""Seconds by which the request is late in which the process is killed: the store carries it out all the same."""


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A tree that has its attachments itself; no service has it open, whose threads could be interrupted, too."""
    with in_process.serving(tmp_path / "from", alone=True) as service:
        fill(service)
    return service.data


class _KilledError(BaseException):
    """As if the process ended."""


def _arguments(there: Path, here: Path, config: str) -> list[str]:
    return ["move", "--from", str(there), "--to", str(here), "--attachments", f"s3://{BUCKET}/x", "--config", config]


def _killed(server: S3Server, arguments: list[str], directory: Path, at: int) -> bool:
    """Run a command that is killed in its request of that number; return whether it came so far."""
    fault = Fault(".", seconds=_LATE, after=at, times=1)
    server.faults = [fault]
    with open(os.devnull, "wb") as nowhere:
        streams = {"stdout": nowhere.fileno(), "stderr": nowhere.fileno()}
        process = forkserver.start("persistence.cli", arguments, cwd=directory, env=os.environ, **streams)
    while fault.times and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.wait()
    server.faults = []
    if not fault.times:
        time.sleep(1.5 * _LATE)
    return not fault.times


def _require_bodies(server: S3Server, root: Path) -> None:
    """No record is without its object."""
    for key, size in named(root) if (root / "layout.json").exists() else ():
        assert len(server.objects[f"x/{key}"].data) == size


def _require_goes_on(filled: Path, server: S3Server, to: Path, config: str) -> None:
    _require_bodies(server, to)
    move(filled, to, "x", config=config)
    swept(server, "x", to, StoreReader(str(to)))
    require_whole(server, "x", to)
    assert not list((to / ".bodies").iterdir())
    run("check", "--deep", config=settings_at(to.parent, server, to, "x"))
    assert states(StoreReader(str(to))) == states(StoreReader(str(filled)))


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
def test_a_move_that_is_killed_in_any_request_goes_on(
    filled: Path, server: S3Server, tmp_path: Path, step: int
) -> None:
    config, at = settings_at(tmp_path, server, filled), 0
    while _killed(server, _arguments(filled, tmp_path / str(at), config), tmp_path, at):
        _require_goes_on(filled, server, tmp_path / str(at), config)
        server.objects.clear()
        at += step
    assert at > 8


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.long)])
def test_a_move_that_is_interrupted_at_any_step_on_the_disk_goes_on(
    filled: Path, server: S3Server, tmp_path: Path, step: int
) -> None:
    config = settings_at(tmp_path, server, filled)
    for at in count(1, step):
        to = tmp_path / str(at)
        if not _interrupted(at, lambda to=to: move(filled, to, "x", config=config)):  # type: ignore[misc]
            break
        _require_goes_on(filled, server, to, config)
        server.objects.clear()
    assert at > 20


def test_on_the_way_back_no_object_of_the_source_goes(filled: Path, server: S3Server, tmp_path: Path) -> None:
    there = tmp_path / "there"
    move(filled, there, "x", config=settings_at(tmp_path, server, filled))
    before, config = server.keys_of(), settings_at(tmp_path, server, there, "x")
    for at in count(1, 23):
        back = tmp_path / str(at)
        if not _interrupted(at, lambda back=back: move(there, back, "with-data", config=config)):  # type: ignore[misc]
            break
        move(there, back, "with-data", config=config)
        assert (tree(back), server.keys_of()) == (tree(filled), before)
    assert at > 20


def _interrupted(at: int, work: Callable[[], object]) -> bool:
    def end() -> None:
        raise _KilledError

    try:
        for _ in counting(at, end):
            work()
    except _KilledError:
        return True
    return False
