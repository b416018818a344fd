"""A backup of several trees and a directory of attachments: whole, laid out to be copied by hand, and restored."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest

from persistence.errors import DiskError
from persistence.maintenance.backup_files import directory_of
from persistence.maintenance.restore import Restore
from persistence.services.moves import Move
from persistence.storage import files
from tests.cli.command_runner import Command
from tests.cli.several import HERE, SCAN, THERE, Several, files_below
from tests.failing import ending
from tests.maintenance.test_backup import is_as_listed
from tests.postgresql.server import Server, fresh_schema, requires_postgresql

NAMES = {"data": "data", "disk2": "datasource/disk2", "big": "attachments/big"}


@pytest.fixture
def place(tmp_path: Path, command: Command) -> Several:
    return Several(tmp_path, command)


def backup(place: Several, *options: str, status: int = 0) -> Path:
    done = place.run("backup", str(place.directory / "backups"), *options)
    assert done.status == status, done
    return max((place.directory / "backups").glob("2*Z"))


def test_everything_is_saved_and_restored_to_where_other_settings_say(place: Several) -> None:
    saved = backup(place, "--verify")
    assert is_as_listed(saved)
    for name, part in NAMES.items():
        assert files_below(saved / part) == files_below(place.directory / name)
        assert files_below(saved / part)
    assert (saved / ".backup/settings.toml").read_bytes() == place.file.read_bytes()
    other = place.settings_for(place.directory / "other")
    done = place.run("restore", str(place.directory / "backups"), file=other)
    assert (done.status, done.out) == (0, ""), done
    for name in NAMES:
        assert files_below(other.parent / name) == files_below(place.directory / name)
    assert (place.run("check", "--deep", file=other).status, place.run("check", file=other).out) == (0, "")
    assert not (other.parent / "big/.restoring").exists()


def test_the_next_backup_links_what_has_not_changed_and_bodies_that_are_older_now(place: Several) -> None:
    first = backup(place)
    place.put(f"{THERE}/{SCAN}", b"third scan")
    second = backup(place)
    assert is_as_listed(second)
    here, there = (f"attachments/big/{document}/1" for document in (HERE, THERE))
    assert (first / here / SCAN).samefile(second / here / SCAN)
    assert (second / there / SCAN).read_bytes() == b"third scan"
    older = max((second / there / ".history").iterdir())
    assert (first / there / SCAN).samefile(older)


@pytest.mark.parametrize("at", [1, 4, 9, 12])
def test_an_interrupted_restore_of_all_goes_on(place: Several, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    saved = backup(place)
    other = place.settings_for(place.directory / "other")
    full = OSError(errno.ENOSPC, "No space left on device")
    with monkeypatch.context() as patched:
        patched.setattr(files, "write_new", ending(at - 1, files.write_new, full))
        done = place.run("restore", str(saved), file=other)
        assert "No space left on device" in done.errors[-1]
    for name in ("data", "disk2"):
        assert "has not finished" in place.run("forms", "--data", str(other.parent / name), file=other).errors[-1]
    done = place.run("restore", str(saved), file=other)
    assert (done.status, done.out) == (0, ""), done
    for name in NAMES:
        assert files_below(other.parent / name) == files_below(place.directory / name)


@pytest.mark.parametrize("marked", [1, 2, 3])
def test_a_restore_that_was_killed_between_its_marks_goes_on(place: Several, marked: int) -> None:
    """At its end the marks go one after the other: those that are whole then are left alone."""
    saved = backup(place)
    other = place.settings_for(place.directory / "other")
    assert place.run("restore", str(saved), file=other).status == 0
    (other.parent / "big/.restoring").write_text(str(saved))
    for name in ("disk2", "data")[: marked - 1]:
        layout = other.parent / name / "layout.json"
        layout.write_text(json.dumps(json.loads(layout.read_text()) | {"restoring": str(saved)}))
    done = place.run("restore", str(saved), file=other)
    assert done.status == 0, done
    assert place.run("check", "--deep", file=other).status == 0
    assert "holds a tree already" in place.run("restore", str(saved), file=other).errors[-1]


@requires_postgresql
@pytest.mark.parametrize(
    ("owner", "name"), [(Move, "first"), (Move, "last"), (Restore, "end")], ids=["filling", "filled", "ending"]
)
def test_an_interrupted_restore_into_a_database_goes_on_beside_the_directories(
    place: Several, database_server: Server, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """They are whole before the database is filled, whose index is made by the definitions in them."""
    saved = backup(place)
    other = place.settings_for(place.directory / "other")
    uri, text = database_server.uri(fresh_schema()), other.read_text()
    text = text.replace("provider.*.*.data.attachments", "provider.hr.*.data.attachments")
    other.write_text(text.replace(f"{other.parent}/disk2", uri))
    arguments = "restore", str(saved)

    def failing(*_: object) -> object:
        raise DiskError("no more")

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, failing)
        assert "no more" in place.run(*arguments, file=other).errors[-1]
    changed = other.parent / "big/hr/leave/data/H/1" / SCAN
    changed.write_bytes(b"a service has been there meanwhile")
    done = place.run(*arguments, file=other)
    assert done.status == 0, done
    assert changed.read_bytes() == b"a service has been there meanwhile"
    assert files_below(other.parent / "data") == files_below(place.directory / "data")
    assert not [path for part in ("data", "big") for path in (other.parent / part).glob(".restor*")]
    back = place.directory / "back"
    assert place.run("move", "--from", uri, "--to", str(back), "--prepare", file=other).status == 0
    assert (back / THERE / "data.xml").read_bytes() == (place.directory / "disk2" / THERE / "data.xml").read_bytes()
    assert "destination is not empty" in place.run(*arguments, file=other).errors[-1]


def test_keys_are_saved_and_restored_on_request_only_and_never_overwritten(place: Several) -> None:
    assert place.run("api-key", "new", "runtime").status == 0
    assert place.run("encryption-key", "new").status == 0
    names = ("keys.json", "encryption-keys.json")
    without = backup(place)
    assert not any((without / ".backup" / name).exists() for name in names)
    other = place.settings_for(place.directory / "other")
    done = place.run("restore", str(without), "--keys", file=other)
    assert (done.status, done.errors[-1]) == (1, f"persistence: {without} holds no keys: it was made without --keys")
    done = place.run("backup", str(place.directory / "backups"), "--keys")
    assert "the backup holds keys: everybody who can read it can read all data" in done.errors
    saved = max((place.directory / "backups").glob("2*Z"))
    for name in names:
        kept = saved / ".backup" / name
        assert kept.read_bytes() == (place.directory / name).read_bytes()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    (other.parent / "keys.json").write_text("mine")
    done = place.run("restore", str(saved), "--keys", file=other)
    assert "is there already, and is never overwritten" in done.errors[-1]
    assert not (other.parent / "data").exists()
    (other.parent / "keys.json").unlink()
    done = place.run("restore", str(saved), "--keys", "--settings", str(other.parent / "found"), file=other)
    assert done.status == 0, done
    for name in names:
        assert (other.parent / name).read_bytes() == (place.directory / name).read_bytes()
        assert stat.S_IMODE((other.parent / name).stat().st_mode) == 0o600
    assert (other.parent / "found/persistence.toml").read_bytes() == place.file.read_bytes()


def test_keys_of_the_environment_are_in_no_file_and_that_is_said(
    place: Several, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSISTENCE_ENCRYPTION_KEY", "one:" + "5" * 64)
    done = place.run("backup", str(place.directory / "backups"), "--keys")
    assert "the encryption keys of the environment are not saved: they are in no file" in done.errors


def test_names_of_datasources_become_names_of_directories() -> None:
    names = ("data", "datasource/disk2", "datasource/../up", "datasource/.hidden", "datasource/a/b", "attachments/é%")
    directories = [directory_of(name) for name in names]
    assert directories[:2] == ["data", "datasource/disk2"]
    assert len(set(directories)) == len(names)
    for directory in directories[1:]:
        assert directory.count("/") == 1
        assert not os.path.basename(directory).startswith(".")
