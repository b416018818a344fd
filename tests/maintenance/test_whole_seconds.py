"""Backups on a real ext4 that keeps whole seconds: contents of one size and time are not taken for one another.

Only root can mount it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from persistence.app import create_app
from persistence.settings import Settings
from tests import encrypted_form
from tests.initialised import initialised
from tests.maintenance.test_backup import FRESH, backup, command, is_as_listed, set_clock, tree
from tests.maintenance.workshop import Workshop
from tests.opened import opened
from tests.rigs import disks

EXT4 = disks.Kind("ext4, 128-byte inodes", ("mkfs.ext4", "-q", "-m", "0", "-I", "128", "-N", "8192"), 64)
DOCUMENTS = 20
PREFIX = "/fr/service/persistence/crud/app/form"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    disks.require(EXT4, tmp_path)
    with disks.mounted(EXT4, tmp_path) as point:
        yield point


def test_two_puts_in_one_second_with_a_backup_between_them(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = Workshop(disk / "data")
    set_clock(monkeypatch, 100)
    workshop.put(FRESH, b"<d>A</d>")
    monkeypatch.undo()
    first = backup(workshop, disk / "backups")
    set_clock(monkeypatch, 900)
    workshop.put(FRESH, b"<d>B</d>")
    monkeypatch.undo()
    status = [(root / FRESH).stat() for root in (first, workshop.root)]
    assert (status[0].st_size, status[0].st_mtime_ns) == (status[1].st_size, status[1].st_mtime_ns)
    for _ in range(2):  # what was wrong once was linked again
        saved = backup(workshop, disk / "backups")
        assert (saved / FRESH).read_bytes() == b"<d>B</d>"
        assert is_as_listed(saved)
    done = command("restore", str(disk / "backups"), "--data", str(disk / "restored"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert tree(disk / "restored") == tree(workshop.root)


def test_another_key_between_two_backups(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Re-encrypted, every document keeps its instant and its size."""
    keys = disk / "encryption-keys.json"
    monkeypatch.setenv("PERSISTENCE_ENCRYPTION_KEYS", str(keys))
    workshop = Workshop(disk / "data")
    options = ("--data", str(workshop.root))
    initialised(workshop.root)
    assert command("encryption-key", "new", *options).exit_code == 0
    client = opened(create_app(Settings(data=initialised(workshop.root), encryption_keys=str(keys)))).test_client()
    assert client.put(f"{PREFIX}/form/form.xhtml", data=encrypted_form.DEFINITION).status_code == 201
    for number in range(DOCUMENTS):
        body = encrypted_form.data().replace(
            encrypted_form.OPEN.encode(), f"{encrypted_form.OPEN} {number:02}".encode()
        )
        headers = {"Svc-Form-Definition-Version": "1"}
        assert client.put(f"{PREFIX}/data/{number}/data.xml", data=body, headers=headers).status_code == 201
    first = backup(workshop, disk / "backups")
    initialised(workshop.root)
    assert command("encryption-key", "new", *options).exit_code == 0
    assert command("reencrypt", *options).exit_code == 0
    second = backup(workshop, disk / "backups")
    same = 0
    for number in range(DOCUMENTS):
        contents = [root / f"app/form/data/{number}/data.xml" for root in (first, second, workshop.root)]
        status = [path.stat() for path in contents]
        same += (status[0].st_size, status[0].st_mtime_ns) == (status[1].st_size, status[1].st_mtime_ns)
        assert contents[0].read_bytes() != contents[1].read_bytes() == contents[2].read_bytes()
    assert same == DOCUMENTS
    assert is_as_listed(second)
    done = command("restore", str(disk / "backups"), "--data", str(disk / "restored"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert tree(disk / "restored") == tree(workshop.root)
