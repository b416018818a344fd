"""The root: its format, and the probe at start."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from persistence.errors import DiskError, StartupError
from persistence.store import files, owner
from persistence.store.store import Store
from tests.opened import opened


def test_a_new_root_is_made_and_probed(tmp_path: Path) -> None:
    store = opened(Store(str(tmp_path / "deep" / "root"), lock_timeout=1))
    store.probe()
    assert (tmp_path / "deep/root/layout.json").read_bytes() == b'{"format":3}\n'
    assert len(list((tmp_path / "deep/root/.locks").glob("??"))) == 256
    assert list((tmp_path / "deep/root/.spool").iterdir()) == []
    assert store.free_bytes() > 0


@pytest.mark.parametrize(
    "text",
    [
        '{"format":1}',
        '{"format":2}',
        '{"format":4}',
        '{"format":3,"restoring":"it"}',
        '{"format":3,"upgrading_from":1}',
        "{",
        '{"format":"1"}',
        "{}",
    ],
)
def test_an_unknown_format_refuses_to_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "layout.json").write_text(text)
    with pytest.raises(StartupError, match=r"layout\.json"):
        opened(Store(str(tmp_path), lock_timeout=1))


def test_a_lost_layout_file_is_written_again(tmp_path: Path) -> None:
    """Losing any one file loses at most the resource it belongs to."""
    opened(Store(str(tmp_path), lock_timeout=1))
    (tmp_path / "layout.json").unlink()
    opened(Store(str(tmp_path), lock_timeout=1))
    assert (tmp_path / "layout.json").exists()


def test_a_root_that_is_a_file_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("x")
    with pytest.raises(DiskError, match=r"data directory .*root: "):
        opened(Store(str(tmp_path / "root"), lock_timeout=1))


@pytest.mark.parametrize(
    ("module", "call", "what"),
    [
        (files, "sync", "writing and fsync"),
        (files, "keep_as", "hard links"),
        (files, "rename", "rename"),
        (files, "sync_directory", "fsync of a directory"),
        (os, "statvfs", "free space"),
        (fcntl, "flock", "locks between processes"),
    ],
)
def test_the_probe_names_what_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, call: str, what: str
) -> None:
    store = opened(Store(str(tmp_path), lock_timeout=1))

    def refuse(*_: object) -> None:
        raise OSError(22, os.strerror(22))

    monkeypatch.setattr(module, call, refuse)
    with pytest.raises(StartupError, match=f"{what}: Invalid argument"):
        store.probe()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_cannot_be_written_for_now_is_said_and_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """What is stored can still be read, so a worker that starts anew must not give up."""
    store = opened(Store(str(tmp_path), lock_timeout=1))
    assert store.probe() is None

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files, "sync", refuse)
    assert os.strerror(code) in str(store.probe())


def test_the_probe_notices_locks_that_do_not_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(Store(str(tmp_path), lock_timeout=1))
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    with pytest.raises(StartupError, match="locked out"):
        store.probe()


def test_root_does_not_serve_the_tree_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files would be closed to the service's own user."""
    store = opened(Store(str(tmp_path), lock_timeout=1))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(owner, "of", lambda _: 65534)
    with pytest.raises(StartupError, match="run this as that user"):
        store.probe()


def test_a_tree_whose_locks_are_closed_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(Store(str(tmp_path), lock_timeout=1))
    monkeypatch.setattr(os, "access", lambda path, _: ".locks" not in path)
    with pytest.raises(DiskError, match="Permission denied"):
        store.free_bytes()
