"""The command: its output, and its message if it cannot start."""

import os
import subprocess
from pathlib import Path

import pytest

from persistence.storage import root
from tests import forkserver
from tests.service import running

PROJECT = Path(__file__).parents[2]


def run(module: str, *arguments: str, cwd: Path, env: dict[str, str] | None) -> subprocess.CompletedProcess[str]:
    """Run a module as a command to its end."""
    return forkserver.run(module, arguments, cwd=cwd, env={**os.environ, **(env or {})})


def persistence(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the service's command to its end."""
    return run("persistence.cli", *arguments, cwd=cwd, env=env)


def test_config_prints_every_setting_and_its_origin(tmp_path: Path) -> None:
    root.init(str(tmp_path / "var/data"))
    done = persistence("config", "--workers", "7", cwd=tmp_path, env={"PERSISTENCE_DIALECT": "orbeon"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "workers = 7  # flag, not 0: " in done.stdout
    assert 'dialect = "orbeon"  # environment, not "svc": ' in done.stdout
    assert f'data = "{tmp_path}/var/data"  # default: ' in done.stdout


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ('data = "none"', "none is not a data directory (no layout.json)"),
        ('audit = "file"\naudit_file = "data/audit.jsonl"', "must not lie in the data directory"),
        ('encryption_keys = "data/keys.json"\n', "must not lie in a data directory, which they protect"),
        ('bind = "0.0.0.0:8080"', "bind is not a loopback address, and nobody may call"),
        ('log_file = "none/log"', "none for the log"),
        (
            '"svc.persistence.provider.*.*.data.attachments" = "b"\n"svc.persistence.b.base-path" = "/none"',
            "there is no directory /none for attachments",
        ),
        ('"svc.persistence.provider.a.*.*" = "b"\n"svc.persistence.b.datasource" = "c"', "'c'"),
    ],
)
def test_config_says_what_serve_would_refuse(tmp_path: Path, line: str, cause: str) -> None:
    root.init(str(tmp_path / "data"))
    (tmp_path / "own.toml").write_text(line if line.startswith("data") else f'data = "data"\n{line}')
    there = sorted(tmp_path.rglob("*"))
    done = persistence("config", "--config", "own.toml", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("persistence: serve would refuse this: ")
    assert cause in done.stderr
    assert sorted(tmp_path.rglob("*")) == there
    assert persistence("serve", "--config", "own.toml", cwd=tmp_path).returncode == 1


def test_config_and_the_start_warn_of_names_that_are_not_those_of_keys(tmp_path: Path) -> None:
    root.init(str(tmp_path / "data"))
    (tmp_path / "own.toml").write_text('data = "data"\nadministrators = ["backup", "trusted"]')
    done = persistence("config", "--config", "own.toml", cwd=tmp_path)
    warning = "the setting administrators names API keys that do not exist: backup"
    assert (done.returncode, done.stderr) == (0, f"persistence: {warning}\n")


@pytest.mark.parametrize(
    ("arguments", "env", "cause"),
    [
        (("--config", "none.toml"), {}, "the settings file none.toml does not exist"),
        ((), {"PERSISTENCE_THREDS": "1"}, "unknown setting 'threds'; the nearest valid name is 'threads'"),
        (("--data", "file/data"), {}, "file/data: Not a directory"),
        (("--workers", "-1"), {}, "flag: workers = -1 is not a whole number from 0 to 100000"),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], env: dict[str, str], cause: str
) -> None:
    (tmp_path / "file").write_text("x")
    done = persistence("serve", "--bind", "127.0.0.1:0", *arguments, cwd=tmp_path, env=env)
    assert done.returncode == 1
    assert cause in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("persistence: ")


def test_an_unknown_layout_refuses_to_start(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/layout.json").write_text('{"format":99}')
    done = persistence("serve", "--data", "data", "--bind", "127.0.0.1:0", cwd=tmp_path)
    assert done.returncode == 1
    assert "format 99" in done.stderr


def gunicorn(*arguments: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run gunicorn's own command to its end."""
    return run("gunicorn", *arguments, "--no-control-socket", "persistence.app:create_app()", cwd=cwd, env=env)


def test_gunicorn_says_the_same_and_gives_up(tmp_path: Path) -> None:
    """Under gunicorn's own command a start that cannot succeed must not be tried again for ever."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/layout.json").write_text('{"format":99}')
    done = gunicorn("-b", "127.0.0.1:0", cwd=tmp_path, env={"PERSISTENCE_DATA": "data"})
    assert done.returncode != 0
    assert "persistence: " in done.stderr
    assert "Traceback" not in done.stderr


def test_gunicorn_with_the_example_configuration_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    configuration = str(PROJECT / "config/gunicorn.conf.py")
    done = gunicorn("-c", configuration, cwd=tmp_path, env={"PERSISTENCE_BINT": "127.0.0.1:0"})
    assert done.returncode != 0
    assert done.stderr.splitlines() == [
        "persistence: environment: unknown setting 'bint'; the nearest valid name is 'bind'"
    ]


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    """The master goes on; what was acknowledged is there."""
    with running(tmp_path) as service:
        service.put("a/b/data/D/data.xml", b"<d>1</d>", Form_Definition_Version=1)
        (worker,) = service.workers()
        os.kill(worker, 9)
        for _ in range(100):
            try:
                answer = service.get("a/b/data/D/data.xml")
            except OSError:
                continue
            break
        assert answer.body == b"<d>1</d>"
        assert service.workers() != [worker]
