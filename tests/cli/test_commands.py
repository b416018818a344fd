"""Processes of the command: starts that are refused, a directory for a service, the demonstration."""

import re
import subprocess
from pathlib import Path

import pytest

from persistence import CONFIG_FILES
from persistence.cli.service_directory import COUNT, all_claims
from tests.commands import persistence
from tests.initialised import initialised
from tests.service import running

ROOT = Path(__file__).parents[2]


def gunicorn(*arguments: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run gunicorn's own command to its end."""
    given = (*arguments, "--no-control-socket", "persistence.app:create_app()")
    return persistence(*given, module="gunicorn", cwd=cwd, env=env)


CONFIGURED = ("-c", str(ROOT / "config/gunicorn.conf.py"))
PRELOADED = "preload_app must be false: each worker opens the trees and databases itself"
"""Workers would share the locks and connections that the first process has opened."""


@pytest.mark.parametrize(
    ("arguments", "env", "said"),
    [
        ((), {"DATA": "nope"}, "{here}/nope is not a data directory (no layout.json): 'persistence init --data DIR'"),
        ((), {"DATA": "newer"}, "{here}/newer/layout.json says format 99: a newer version of this service wrote it"),
        ((), {"BIND": "0.0.0.0:0"}, "bind is not a loopback address, and nobody may call: make a key (persistence"),
        (CONFIGURED, {"BINT": "127.0.0.1:0"}, "environment: unknown setting 'bint'; the nearest valid name is 'bind'"),
        (CONFIGURED, {"KEYS": "odd.json"}, "the API keys in odd.json cannot be read: "),
        ((*CONFIGURED, "--preload"), {"DATA": "data", "GUNICORN": "own.py"}, PRELOADED),
    ],
)
def test_gunicorn_says_what_is_wrong_in_one_line_and_gives_up(
    tmp_path: Path, arguments: tuple[str, ...], env: dict[str, str], said: str
) -> None:
    """Under gunicorn's own command a start that cannot succeed must not be tried again for ever."""
    initialised(tmp_path / "data")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer/layout.json").write_text('{"format":99}')
    (tmp_path / "odd.json").write_text("{")
    (tmp_path / "own.py").write_text("preload_app = True\n")
    # Where two workers give up at one time, gunicorn may stumble and exit with another status.
    settings = {f"PERSISTENCE_{name}": text for name, text in {"WORKERS": "1", **env}.items()}
    done = gunicorn(*arguments, "-b", "127.0.0.1:0", cwd=tmp_path, env=settings)
    assert done.returncode == (1 if arguments[2:] or "BINT" in env else 4)
    assert "Traceback" not in done.stderr
    assert f"persistence: {said}".replace("{here}", str(tmp_path)) in done.stderr
    assert not (tmp_path / "nope").exists()


def test_init_makes_a_directory_for_a_service(tmp_path: Path) -> None:
    """Findings of a newcomer: the settings file, closed directories, and keys outside of the data."""
    done = persistence("init", "forms", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    file = tmp_path / "forms/config/persistence.toml"
    assert file.read_text() == (ROOT / "config/persistence.toml").read_text()
    made = [tmp_path / "forms", *(tmp_path / "forms").rglob("*")]
    assert {path.name: path.stat().st_mode & 0o777 for path in made if path.stat().st_mode & 0o027} == {}
    assert persistence("api-key", "new", "runtime", "--config", str(file), cwd=tmp_path).returncode == 0
    assert (tmp_path / "forms/var/keys.json").stat().st_mode & 0o777 == 0o600
    with running(tmp_path / "forms", options=("--config", str(file)), data=tmp_path / "forms/var/data") as service:
        assert service.raw("GET", "/readyz").status == 200


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


def test_config_files_are_written_with_this_command(tmp_path: Path) -> None:
    done = persistence("config-files", "etc", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{tmp_path}/etc/{name}" for name in CONFIG_FILES]
    unit = (tmp_path / "etc/persistence-backup.service").read_text()
    assert re.search(r"(?m)^ExecStart=/.* backup --quiet /backups/forms --config /var/lib/persistence/config/", unit)


# ``persistence demo``: a sample application that is whole, always the same, and can be looked at at once


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo")
    done = persistence("demo", cwd=directory)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("demo/expense-claim: 200 documents, 1 of them deleted, 8 drafts, in ")
    assert "Serve it:     persistence serve --config " in done.stdout
    return directory / "demo"


def lines_of(demo: Path, *arguments: str) -> list[str]:
    done = persistence(*arguments, "--config", str(demo / "config/persistence.toml"), cwd=demo)
    assert done.returncode == 0, done.stderr
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def test_check_forms_and_searches_find_what_is_there(demo: Path) -> None:
    assert lines_of(demo, "check", "--deep") == []
    assert lines_of(demo, "forms", "demo")[-1] == "1 form, 1 version, 199 documents, 1 deleted, 8 drafts"
    assert len(lines_of(demo, "search", "demo/expense-claim", "Lisbon")) > 20
    shown = "\n".join(lines_of(demo, "show", "demo/expense-claim"))
    assert "Spesenabrechnung (de)" in shown
    assert "role accountant: read update delete list" in shown


def test_documents_have_a_history_attachments_and_encrypted_values(demo: Path) -> None:
    claims = list(all_claims())
    assert len({claim.document for claim in claims}) == COUNT
    document = demo / "var/data/demo/expense-claim/data" / claims[19].document
    assert len(list((document / ".history").glob("*.data.xml"))) == 2
    assert (document / claims[19].receipt_name).read_bytes().startswith(b"%PDF-1.4\n")
    assert "keep this between us" not in (document / "data.xml").read_text()
    assert b"keep this between us" in claims[19].xml(0)
    assert (demo / "var/encryption-keys.json").stat().st_mode & 0o777 == 0o600


def test_it_leaves_alone_what_is_there(demo: Path) -> None:
    done = persistence("demo", str(demo), cwd=demo.parent)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not empty" in done.stderr
