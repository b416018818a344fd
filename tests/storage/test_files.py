"""Single steps on files, where something else happens to them in the middle."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from persistence.storage import files


def test_a_small_file_with_another_name_is_replaced(tmp_path: Path) -> None:
    path, other = tmp_path / "lease", tmp_path / "copy"
    path.write_bytes(b"as it was")
    os.link(path, other)
    files.overwrite(str(path), b"new")
    assert (path.read_bytes(), other.read_bytes()) == (b"new", b"as it was")


def test_a_descriptor_is_closed_once_where_another_replaces_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another thread's by then."""
    path = tmp_path / "lease"
    path.touch()
    os.link(path, tmp_path / "copy")
    unlink = os.unlink
    opened = []

    def too_late(name: str) -> None:
        unlink(name)
        opened.append(os.open(os.devnull, os.O_RDONLY))
        raise FileNotFoundError(name)

    monkeypatch.setattr(os, "unlink", too_late)
    with pytest.raises(FileNotFoundError):
        files.overwrite(str(path), b"new")
    os.close(opened[0])  # raises where it was closed already


def test_nobody_waits_for_the_holder_of_a_lease(tmp_path: Path) -> None:
    """Such as a file server: the kernel lets it keep a file for 45 seconds."""
    path = tmp_path / "data.xml"
    path.touch()
    with path.open("r+b") as held:
        before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        try:
            said = "import sys; from persistence.storage import files; files.open_to_read(sys.argv[1])"
            done = subprocess.run(
                [sys.executable, "-c", said, str(path)], capture_output=True, text=True, check=False, timeout=20
            )
        finally:
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            signal.signal(signal.SIGIO, before)
    assert f"[Errno {errno.EAGAIN}]" in done.stderr
    os.close(files.open_to_read(str(path)))


def test_a_small_file_has_no_name_before_it_is_whole_and_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a kill leaves no copy of keys, which would outlive their retirement; one that is there is removed."""
    path, left, seen = tmp_path / "keys.json", tmp_path / f"keys.json.{os.getpid()}", []

    def sync(descriptor: int) -> None:
        seen.append((sorted(os.listdir(tmp_path)), os.fstat(descriptor).st_size))

    monkeypatch.setattr(files, "sync", sync)
    for text in (b"one", b"three"):
        left.write_bytes(b"older")
        files.write_durably(str(path), text, 0o600)
        assert (os.listdir(tmp_path), path.read_bytes()) == (["keys.json"], text)
    assert seen == [([], 3), (["keys.json"], 5)]
    assert path.stat().st_mode & 0o777 == 0o600
