"""What the service starts and prints: no module of the current directory, and no password of an address."""

import io
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import click
import msgspec
import pytest

from persistence import processes
from persistence.cli import main
from persistence.cli.service_directory import make_service_directory
from persistence.errors import StartupError
from persistence.index.sync.rebuild import IndexJob
from persistence.keys import Keys
from persistence.model.texts import json_line
from persistence.pages.health_page import BackgroundCommand
from persistence.properties.property_table import Address
from persistence.settings import Effective, load
from persistence.storage import root
from tests import cheap
from tests.docs.commands import leaves
from tests.initialised import initialised
from tests.service import PUBLIC, running

SECRET = "Tr0ub4dor"  # noqa: S105 - as a person would have it
ADDRESS = f"postgresql://keeper:{SECRET}@127.0.0.1:1/forms?schema=hr"
NOBODY = 65534
PAGES = ("/admin/", "/admin/settings", "/admin/health", "/admin/forms", "/admin/keys", "/admin/audit")


@pytest.fixture
def effective(tmp_path: Path) -> Effective:
    """The settings of a service with a tree, and a database that nobody reaches, with a password."""
    initialised(tmp_path / "data")
    (tmp_path / "own.toml").write_text(
        'data = "data"\nlocal = "local"\nkeys = "keys.json"\nencryption_keys = "encryption-keys.json"\n'
        'audit = "file"\naudit_file = "audit/audit.jsonl"\n'
        f'[datasource.second]\ndata = "{ADDRESS}"\n'
        f'[svc.persistence.far]\nuri = "http://u:{SECRET}@127.0.0.1:1/svc"\n'
    )
    return load(str(tmp_path / "own.toml"), environment={})


def with_address(command: click.Command) -> list[str]:
    """The arguments of a command, with the address wherever an option may have a place."""
    given = ["--revisions", "--older-than", "30d"] if command.name == "purge" else []
    for parameter in command.params:
        places = {"data": ADDRESS, "destination": ADDRESS, "to": f"data={ADDRESS}"}
        places["source"] = ADDRESS.replace("=hr", "=old")
        if isinstance(parameter, click.Option) and parameter.name in places and not parameter.is_flag:
            given += [parameter.opts[0], places[parameter.name]]
        elif parameter.name == "document" and isinstance(parameter, click.Argument):
            given.append("D")
        elif parameter.name in {"yes", "repair"}:
            given.append(parameter.opts[0])
        elif parameter.required and isinstance(parameter, click.Argument):
            given.append("hr/leave" if parameter.name != "source" else ADDRESS)
    return given


WITH_ADDRESS = {"backup", "check", "move", "purge", "reencrypt", "reindex", "upgrade"}
"""Commands whose lines in the audit have the address among their details."""

COMMANDS = {" ".join(names): command for names, command in leaves()}


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"serve", "completion", "check-runtime", "demo"}))
def test_no_command_prints_a_password_or_writes_it_into_the_audit(
    effective: Effective, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [*name.split(), *with_address(COMMANDS[name])]
    if any(option.name == "file" for option in COMMANDS[name].params):
        arguments += ["--config", effective.file]
    monkeypatch.setattr(sys, "argv", ["persistence", *arguments])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(SystemExit) as ended:
        main()
    audit = tmp_path / "audit/audit.jsonl"
    written = audit.read_text() if audit.exists() else ""
    for text in (*capsys.readouterr(), written):
        assert SECRET not in text
    assert name not in WITH_ADDRESS or ended.value.code != 2, "a usage error has no line"
    assert name not in WITH_ADDRESS or f"persistence {name}" in written


def test_settings_are_passed_on_whole_and_show_no_password(effective: Effective, tmp_path: Path) -> None:
    """The command of a page has the settings of its service, whatever the current directory and the environment say."""
    make_service_directory(str(tmp_path / "elsewhere"))
    (tmp_path / "data/hr/leave/data/D").mkdir(parents=True)
    (tmp_path / "data/hr/leave/data/D/stray").write_text("x")
    before = Path.cwd()
    os.chdir(tmp_path / "elsewhere")
    try:
        check = BackgroundCommand("check", effective)
        check.begin(["--json"])
        seen = []
        while check.is_running():
            seen += [each for each in command_lines() if effective.file not in each]
            time.sleep(0.005)
    finally:
        os.chdir(before)
    output = check.output()
    assert b"hr/leave/data/D/stray" in b"".join(output.lines)
    assert "datasource/second: " in output.text
    assert SECRET not in b"".join(output.lines).decode()
    assert any("persistence.cli" in each for each in seen)
    assert not [each for each in seen if SECRET in each]


def command_lines() -> Iterator[str]:
    """The arguments and the environment of every process that a command of the pages has."""
    for each in Path("/proc").glob("[0-9]*"):
        try:
            line = (each / "cmdline").read_bytes()
            if b"persistence.c" in line and b"pytest" not in line:
                yield (line + (each / "environ").read_bytes()).decode(errors="replace")
        except OSError:
            continue


def test_nothing_of_the_current_directory_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write there would have a service, which root may have started."""
    evil = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__)\n"
    for name in ("fcntl", "subprocess", "tempfile", "msgspec/__init__", "lxml/__init__", "persistence/__init__"):
        file = tmp_path / f"cwd/{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(evil)
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "cwd"))
    (tmp_path / "locked").touch()
    assert cheap.CONTEND(str(tmp_path / "locked")) != root._LOCKED  # noqa: SLF001
    for arguments in (("-m", "persistence.cli", "--version"), ("-m", "persistence.processes", "-c", "import lxml")):
        assert processes.start(*arguments).wait() == 0
    (tmp_path / "job").write_bytes(msgspec.json.encode(IndexJob(root=initialised(tmp_path / "data"))))
    with open(tmp_path / "job", "rb") as job:
        assert processes.start("-m", "persistence.index", stdin=job).wait() == 0
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_settings_of_another_user_are_refused(effective: Effective, tmp_path: Path) -> None:
    os.chown(effective.file, NOBODY, NOBODY)
    with pytest.raises(StartupError, match=f"belongs to another user .uid {NOBODY}.: it must belong to root"):
        load(effective.file, environment={})
    os.chown(tmp_path / "data", NOBODY, NOBODY)  # as whom root serves then
    assert load(effective.file, environment={}).file == effective.file


def test_an_address_is_masked_in_every_text() -> None:
    address = Address(ADDRESS)
    for text in (str(address), repr(address), f"{address}", f"{address!s}", "%s" % address):  # noqa: UP031
        assert SECRET not in text
    assert address.full == ADDRESS == Address(address).full
    other = Address(ADDRESS.replace(SECRET, "another"))
    assert (str(other), other == address, len({other, address})) == (str(address), False, 2)
    assert json_line({"place": address}) == f'{{"place":"{address}"}}'.encode()


def test_no_page_answer_or_line_of_the_log_has_a_password(tmp_path: Path) -> None:
    """Of the address of a provider that nobody reaches."""
    (tmp_path / "own.toml").write_text(
        f'keys = "{tmp_path}/keys.json"\nadministrators = ["ada"]\n'
        f'"svc.persistence.far.uri" = "http://keeper:{SECRET}@127.0.0.1:1/svc"\n'
        '"svc.persistence.provider.far.*.form" = "far"\n"svc.persistence.provider.far.*.data" = "far"\n'
    )
    keys = Keys(str(tmp_path / "keys.json"), tree=str(tmp_path / "data"))
    key = keys.add("ada")
    with running(tmp_path, options=("--config", str(tmp_path / "own.toml"))) as service:
        called = {"Authorization": f"Bearer {key}", "Svc-Form-Definition-Version": "1"}
        answers = [
            service.raw("PUT", f"{PUBLIC}/crud/far/f/data/D/data.xml", called, b"<d/>"),
            *(
                service.raw("GET", path, called)
                for path in (f"{PUBLIC}/crud/far/f/form/form.xhtml", "/readyz", "/metrics")
            ),
        ]
        assert {answer.status for answer in answers[:2]} <= {502, 503, 504}
        body = urlencode({"name": "ada", "secret": key}).encode()
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        cookie = (service.raw("POST", "/admin/login", form, body)["Set-Cookie"] or "").partition(";")[0]
        pages = [service.raw("GET", path, {"Cookie": cookie}) for path in PAGES]
        assert {page.status for page in pages} <= {200, 502}  # the list of forms asks the provider, too
        for text in (*(each.body.decode() for each in (*answers, *pages)), service.log.read_text()):
            assert SECRET not in text
            assert key not in text
        assert any("127.0.0.1:1" in page.body.decode() for page in pages)
