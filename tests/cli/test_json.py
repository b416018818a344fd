"""``--json``: every command that prints facts has it, and prints the objects that docs/json.md describes."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from persistence.cli import commands
from persistence.cli.terminal import json_text, safe
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.instants import next_after
from persistence.model.write_conditions import LeaseHolder
from persistence.storage.store import Store
from tests.cli.command_runner import Place, ended
from tests.docs.commands import leaves
from tests.docs.markdown import DOCS, rows, spans
from tests.published import definition
from tests.sidecars import of_format_2

WITHOUT = {
    "demo": "it prints commands for people to try",
    "serve": "its log has a format of its own",
    "help": "it prints pages for people",
    "password set": "nothing but that it was done",
    "password remove": "nothing",
    "api-key retire": "nothing",
    "signing-key retire": "nothing",
}
"""The commands that print no facts, and what they print."""

NOT_PRINTED = {
    "check-runtime: a step": "needs a service; test_check_runtime.py",
    "check-runtime: the summary": "needs a service; test_check_runtime.py",
    "restore: a database": "needs a server; tests/postgresql/test_commands.py",
    "encryption-key retire: a form that needs the key": "needs encrypted data; test_encryption_key.py",
}
"""Objects that no sample here prints."""

D = "hr/leave/data/d"
_FIELD = re.compile(r"[a-z_]+\??")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_INSTANTS = frozenset({"saved", "modified", "created", "made", "expires", "last_used", "until", "oldest", "comes_back"})


class Kind(NamedTuple):
    """An object of a command as the page describes it."""

    name: str
    required: frozenset[str]
    optional: frozenset[str]

    def fits(self, found: dict[str, object]) -> bool:
        return self.required <= found.keys() and (
            found.keys() <= self.required | self.optional or self.name.startswith("audit show")
        )


def described() -> dict[str, list[Kind]]:
    """Return the kinds of objects of each command."""
    kinds: dict[str, list[Kind]] = {}
    for command, what, said in rows((DOCS / "json.md").read_text(), "Command"):
        words = spans(command)[0].split()
        name = " ".join(word for word in words if word.islower() and not word.startswith("-"))
        fields = [each for each in spans(said.split(";")[0]) if _FIELD.fullmatch(each) and each != "false"]
        optional = {each.rstrip("?") for each in fields if each.endswith("?")}
        required = {each for each in fields if not each.endswith("?")}
        kinds.setdefault(name, []).append(Kind(f"{name}: {what}", frozenset(required), frozenset(optional)))
    return kinds


DESCRIBED = described()

SAMPLES: dict[str, list[str]] = {
    "init": ["--data {tmp}/new", "{tmp}/service"],
    "health": ["--url http://127.0.0.1:1"],
    "check-runtime": ["--properties {tmp}/properties-local.xml"],
    "config": ["--config {tmp}/config/p.toml"],
    "config property": ["svc.persistence.provider.hr.leave.data"],
    "config route": ["hr/leave data", "hr/leave form"],
    "api-key new": ["runtime --expires 90d"],
    "api-key list": [""],
    "encryption-key new": [""],
    "encryption-key list": [""],
    "encryption-key retire": ["{key}"],
    "signing-key new": [""],
    "signing-key list": [""],
    "password list": [""],
    "token": ["hr/leave/1/d --expires 8h"],
    "forms": ["", "hr --sort bytes"],
    "show": ["hr/leave", "hr/leave/1", D, "hr/leave/draft/d", "hr/leave/data/gone", "hr/leave/data/cut"],
    "history": [D, f"{D}/a.bin", "hr/leave/data/gone", "hr/leave/data/old"],
    "diff": [D],
    "revert": [f"{D} --dry-run", "hr/leave/data/gone --as lea"],
    "search": ["hr/leave --version all", "hr/leave --version all --drafts only"],
    "leases": ["", "--break d"],
    "audit verify": [""],
    "audit show": [""],
    "export": ["{tmp}/all.zip"],
    "import": ["{tmp}/odd.jsonl"],
    "check": ["", "--deep hr", "--status"],
    "reindex": ["", "hr/leave --verify"],
    "reencrypt": ["--dry-run", ""],
    "backup": ["{tmp}/backups --verify"],
    "restore": ["{tmp}/backups --data {tmp}/restored", "{tmp}/backups hr/leave --data {tmp}/fresh"],
    "move": ["--to {tmp}/moved --dry-run", "--to {tmp}/moved --prepare"],
    "purge": ["--older-than 2000-01-01 --revisions", "--older-than {now} --tombstones --revisions --drafts"],
    "erase": [f"{D} --backups {{tmp}}/backups", f"{D} --certificate {{tmp}}/c.json --yes"],
    "upgrade": ["--dry-run", ""],
    "version": [""],
}
"""Arguments of each command, with which it prints every kind of object."""


BEFORE: dict[str, list[tuple[str, str]]] = {
    "api-key list": [("api-key new", "runtime --expires 90d --scope read --form hr"), ("api-key new", "other")],
    "audit show": [("reindex", "")],
    "audit verify": [("reindex", "")],
    "encryption-key list": [("encryption-key new", ""), ("encryption-key new", "")],
    "encryption-key retire": [("encryption-key new", ""), ("encryption-key new", "")],
    "erase": [("backup", "{tmp}/backups")],
    "password list": [("password set", "ann")],
    "reencrypt": [("encryption-key new", "")],
    "restore": [("backup", "{tmp}/backups"), ("init", "--data {tmp}/fresh")],
    "signing-key list": [("signing-key new", "")],
}
"""Commands that run before a sample, so that there is something to be printed."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with documents of every sort, damaged ones too, beside keys and an audit."""
    base = tmp_path_factory.mktemp("json")
    place = Place(base / "data")
    for version in (1, 2):
        place.put("hr/leave/form/form.xhtml", definition("<title>L</title>"), version=version, Username="ann")
    place.put(f"{D}/a.bin", b"12345")
    for text in (b"<d>1</d>", b"<d>2</d>"):
        place.put(f"{D}/data.xml", text, Username="lea", Group="staff", Workflow_Stage="sent")
    place.put("hr/leave/draft/d/data.xml")
    for name in ("gone", "cut", "old"):
        for text in (b"<d>1</d>", b"<d>22</d>"):
            place.put(f"hr/leave/data/{name}/data.xml", text)
    place.delete("hr/leave/data/gone/data.xml")
    place.put("svc/loose/data/d/data.xml")
    (base / "data/hr/leave/data/cut/data.xml").write_bytes(b"<d")
    older = next((base / "data/hr/leave/data/old/.history").rglob("*.json"))
    older.write_bytes(b"{")
    return base


class Sample:
    """A copy of the planted directory, and the command on it."""

    def __init__(self, tmp: Path, planted: Path) -> None:
        self.tmp = tmp
        shutil.copytree(planted / "data", tmp / "data", symlinks=True)
        (tmp / "config").mkdir()
        (tmp / "config/p.toml").write_text(
            'data = "../data"\nkeys = "../keys.json"\nencryption_keys = "../encryption.json"\naudit = "file"\n'
            'audit_file = "../audit/audit.jsonl"\n"svc.access-token.validity.*.*" = 100000\n'
        )
        (tmp / "odd.jsonl").write_text("{}\n")
        (tmp / "properties-local.xml").write_text(
            '<p><property name="oxf.fr.persistence.f.uri" value="http://localhost/{a}"/></p>'
        )
        with Store(str(tmp / "data"), lock_timeout=1) as store:
            store.leases.lock(_address("d"), LeaseHolder("lea", "staff"), 600)

    def run(self, command: str, arguments: str, *options: str) -> Result:
        words = arguments.format(tmp=self.tmp, now=next_after(None), key=self._oldest_key()).split()
        if (
            command != "version"
            and "--config" not in words
            and "--url" not in words
            and not (command == "init" and "--data" not in words)
        ):
            options = (*options, "--config", str(self.tmp / "config/p.toml"))
        password = "a long password\n" if command == "password set" else None
        return CliRunner().invoke(commands, [*command.split(), *words, *options], input=password)

    def _oldest_key(self) -> str:
        keys = self.tmp / "encryption.json"
        return str(json.loads(keys.read_text())["keys"][0]["id"]) if keys.exists() else ""


def _address(document: str) -> DocumentAddress:
    return DocumentAddress(Form("hr", "leave"), Collection.DATA, document, DATA_XML)


def test_every_command_prints_json_or_no_facts() -> None:
    """And the page describes what each prints, and nothing else."""
    options = {
        " ".join(path): any("--json" in parameter.opts for parameter in command.params) for path, command in leaves()
    }
    assert {name for name, has_json in options.items() if not has_json} == WITHOUT.keys()
    with_json = options.keys() - WITHOUT.keys()
    assert (DESCRIBED.keys(), SAMPLES.keys()) == (with_json, with_json)


@pytest.mark.parametrize("command", SAMPLES)
def test_objects_are_those_of_the_page(command: str, planted: Path, tmp_path: Path) -> None:
    sample, found = Sample(tmp_path, planted), []
    for before, arguments in BEFORE.get(command, ()):
        done = sample.run(before, arguments)
        assert done.exit_code in {0, 4}, (done.output, done.exception)
    if command == "restore":
        damage_backup(tmp_path / "backups")
    if command == "upgrade":
        make_old(tmp_path / "data")
    for arguments in SAMPLES[command]:
        done = sample.run(command, arguments, "--json")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.stdout, (arguments, done.stderr)
        found += [json.loads(line) for line in done.stdout.splitlines()]
    kinds = DESCRIBED[command]
    odd = [each for each in found if not any(kind.fits(each) for kind in kinds)]
    assert not odd
    unseen = {kind.name for kind in kinds if not any(kind.fits(each) for each in found)}
    assert unseen <= NOT_PRINTED.keys()
    assert all(_is_as_said(name, value) for each in found for name, value in each.items())


def _is_as_said(name: str, value: object) -> bool:
    """Check the type of a field by its name: instants, and numbers of bytes and seconds."""
    if isinstance(value, list):
        return all(_is_as_said(key, each) for item in value if isinstance(item, dict) for key, each in item.items())
    if name in _INSTANTS and value is not None:
        return isinstance(value, str) and _INSTANT.fullmatch(value) is not None
    return isinstance(value, int | float) if name in {"bytes", "size", "seconds"} else True


def damage_backup(backups: Path) -> None:
    """Change a file of the newest backup, which is then not what its digest says."""
    file = next(next(each for each in backups.iterdir() if each.name[0] == "2").rglob("leave/data/d/data.xml"))
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content.replace(b"2", b"3"))


def make_old(root: Path) -> None:
    """Leave a tree as the format before left it."""
    (root / "layout.json").write_text('{"format":1}\n')
    for sidecar in root.glob("*/*/*/*/*.json"):
        of_format_2(sidecar)


@pytest.mark.parametrize("command", ["forms", "show", "search", "check", "backup"])
def test_an_error_is_one_line_and_no_object(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {"show": ["hr/leave"], "search": ["hr/leave"], "backup": [str(tmp_path / "b")]}.get(command, [])
    given = [command, *arguments, "--data", str(tmp_path / "none")]
    plain, as_json = (ended([*given, *more], monkeypatch, capsys) for more in ([], ["--json"]))
    assert (as_json.status, as_json.out, len(as_json.errors)) == (1, "", 1)
    assert as_json == plain


def test_an_object_is_whole_in_every_encoding_and_harmless_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(json_text({"file": "a\udcffb"}).encode()) == {"file": "a\udcffb"}
    facts = {"name": "caf\u00e9 \u8bf7 \U0001f600 \x9b31m \u202e \x1b"}
    for encoding in ("utf-8", "latin-1", "ascii"):
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        text = json_text(facts)
        assert json.loads(text.encode(encoding)) == facts
        assert safe(text) == text


def test_json_of_a_group_goes_to_its_subcommand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = ended(["config", "--json", "route", "hr/leave", "data"], monkeypatch, capsys)
    assert (done.status, done.errors[-1]) == (2, "Error: --json goes after route")


def test_an_export_to_standard_output_has_no_json_beside_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(["export", "-", "--json"], monkeypatch, capsys).status == 2
