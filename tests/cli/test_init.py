"""Only ``init`` makes trees: every other command refuses a directory that is none, and makes nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from persistence import CONFIG_FILES
from tests.cli.test_commands import gunicorn, persistence
from tests.initialised import initialised
from tests.service import running

COMMANDS = [
    ("serve", "--bind", "127.0.0.1:0"),
    ("forms",),
    ("show", "hr/leave"),
    ("search", "hr/leave"),
    ("check",),
    ("check", "--repair", "--adopt", "--all"),
    ("reindex",),
    ("reencrypt",),
    ("reencrypt", "--dry-run"),
    ("backup", "backups"),
    ("upgrade",),
    ("upgrade", "--dry-run"),
]
ROOT = Path(__file__).parents[2]
REFUSAL = "is not a data directory (no layout.json): 'persistence init --data DIR' makes one; is the disk mounted?"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_refuses_what_is_no_tree_and_makes_nothing(tmp_path: Path, command: tuple[str, ...]) -> None:
    """The issue: ``reencrypt --data /nope`` made a tree; and an unmounted disk is an empty directory."""
    (tmp_path / "unmounted").mkdir()
    for data in ("nope/deep", "unmounted"):
        done = persistence(*command, "--data", data, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"persistence: {tmp_path}/{data} {REFUSAL}\n"
    assert [path.name for path in tmp_path.rglob("*")] == ["unmounted"]


def test_gunicorn_stops_at_what_is_no_tree(tmp_path: Path) -> None:
    done = gunicorn("--bind", "127.0.0.1:0", cwd=tmp_path, env={"PERSISTENCE_DATA": "nope"})
    assert done.returncode != 0
    assert f"persistence: {tmp_path}/nope {REFUSAL}" in done.stderr.splitlines()
    assert list(tmp_path.iterdir()) == []


def test_init_makes_a_tree_once(tmp_path: Path) -> None:
    for said in ("is a data directory now", "is a data directory already"):
        done = persistence("init", "--data", "deep/data", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"{tmp_path}/deep/data {said}\n")
    assert (tmp_path / "deep/data").stat().st_mode & 0o777 == 0o750
    assert persistence("forms", "--data", "deep/data", cwd=tmp_path).returncode == 0
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/mine").write_text("x")
    done = persistence("init", "--data", "letters", cwd=tmp_path)
    assert done.returncode == 1
    assert (
        done.stderr == f"persistence: {tmp_path}/letters is not empty (it holds 'mine'): a tree is made in an empty"
        " directory\n"
    )
    assert persistence("init", "x", "--data", "y", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("init", "mysql://u:secret@h/d"),
        ("init", "--data", "PostgreSQL://u:secret@h/d"),
        ("serve", "--init", "--data", "s3://u:secret@h"),
        ("config", "--data", "mysql://u:secret@h/d"),
        ("move", "--to", "mysql://u:secret@h/d"),
        ("move", "--to", "x", "--from", "mysql://u:secret@h/d"),
    ],
    ids=" ".join,
)
def test_an_address_of_something_else_is_no_directory(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """The password would be in the name of the directory."""
    done = persistence(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "persistence: forms are in a directory, or in a database whose address begins with postgresql://\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_init_makes_a_directory_for_a_service(tmp_path: Path) -> None:
    """Findings of a newcomer: the settings file, closed directories, and keys outside of the data."""
    done = persistence("init", "forms", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    file = tmp_path / "forms/config/persistence.toml"
    assert done.stdout.splitlines() == [
        f"settings:        {file}",
        f"data directory:  {tmp_path}/forms/var/data",
        f"start it with:   persistence serve --config {file}",
    ]
    assert file.read_text() == (ROOT / "config/persistence.toml").read_text()
    made = [tmp_path / "forms", *(tmp_path / "forms").rglob("*")]
    assert {path.name: path.stat().st_mode & 0o777 for path in made if path.stat().st_mode & 0o027} == {}
    assert persistence("api-key", "new", "runtime", "--config", str(file), cwd=tmp_path).returncode == 0
    assert (tmp_path / "forms/var/keys.json").stat().st_mode & 0o777 == 0o600
    with running(tmp_path / "forms", options=("--config", str(file)), data=tmp_path / "forms/var/data") as service:
        assert service.raw("GET", "/readyz").status == 200


def test_init_leaves_a_directory_as_it_is_that_holds_something(tmp_path: Path) -> None:
    for name in ("notes.txt", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("mine")
        before = sorted(tmp_path.rglob("*"))
        done = persistence("init", name, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(
            f"persistence: {tmp_path}/{name} is not empty (it holds {name!r}): a service directory "
        )
        assert len(done.stderr.splitlines()) == 1
        assert sorted(tmp_path.rglob("*")) == before
    assert persistence("init", "again", cwd=tmp_path).returncode == 0
    assert persistence("init", "again", cwd=tmp_path).returncode == 1
    (tmp_path / "disk/lost+found").mkdir(parents=True)
    assert persistence("init", "disk", cwd=tmp_path).returncode == 0


def test_init_makes_the_trees_of_the_settings_or_one(tmp_path: Path) -> None:
    text = 'data = "data"\n[datasource.second]\ndata = "disk2"\n[datasource.third]\ndata = "disk3"\n'
    (tmp_path / "own.toml").write_text(text)
    done = persistence("init", "--config", "own.toml", "--datasource", "third", cwd=tmp_path)
    assert done.stdout == f"{tmp_path}/disk3 is a data directory now\n"
    done = persistence("init", "--config", "own.toml", cwd=tmp_path)
    assert done.stdout.splitlines() == [
        f"{tmp_path}/data is a data directory now",
        f"{tmp_path}/disk2 is a data directory now",
        f"{tmp_path}/disk3 is a data directory already",
    ]
    shutil.rmtree(tmp_path / "disk2")
    done = persistence("serve", "--config", "own.toml", "--bind", "127.0.0.1:0", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, f"persistence: {tmp_path}/disk2 {REFUSAL}\n")


def test_serve_makes_a_tree_only_when_it_is_told_to_and_only_where_there_is_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as service:  # with --init, as in `make run`
        assert service.put("a/b/data/D/data.xml", Form_Definition_Version=1).status == 201
    (tmp_path / "data/layout.json").unlink()
    done = persistence("serve", "--init", "--data", "data", "--bind", "127.0.0.1:0", cwd=tmp_path)
    assert done.returncode == 1
    assert "has lost its layout.json, and there are forms in it: 'persistence check --repair'" in done.stderr
    done = persistence("check", "--repair", "--data", "data", cwd=tmp_path)
    assert done.returncode == 3, done.stdout
    with running(tmp_path) as service:
        assert service.get("a/b/data/D/data.xml").status == 200


def test_directories_of_attachments_are_not_made(tmp_path: Path) -> None:
    initialised(tmp_path / "data")
    (tmp_path / "own.toml").write_text(
        'data = "data"\n"svc.persistence.provider.*.*.*.attachments" = "big"\n"svc.persistence.big.base-path" = "big"\n'
    )
    done = persistence("serve", "--init", "--config", "own.toml", "--bind", "127.0.0.1:0", cwd=tmp_path)
    assert done.returncode == 1
    assert f"{tmp_path}/big" in done.stderr
    assert not (tmp_path / "big").exists()


def test_config_files_are_written_with_this_command_and_replace_nothing(tmp_path: Path) -> None:
    done = persistence("config-files", "etc", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{tmp_path}/etc/{name}" for name in CONFIG_FILES]
    unit = (tmp_path / "etc/persistence-backup.service").read_text()
    assert re.search(r"(?m)^ExecStart=/.* backup --quiet /backups/forms --config /var/lib/persistence/config/", unit)
    again = persistence("config-files", "etc", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"persistence: {tmp_path}/etc/persistence.service is there already: no file is replaced\n"
