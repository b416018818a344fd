"""``move``, ``check``, ``backup`` and ``restore`` of a database, with settings that name it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from persistence.cli import commands
from persistence.postgresql.database_check import RevisionInspection
from persistence.properties.property_table import shown_address
from persistence.storage.findings import FindingKind
from tests import in_process, orders
from tests.cli.command_runner import Ended, ended
from tests.imports.archives import tree
from tests.moving.test_moving import V1
from tests.postgresql.server import Server, fresh_schema
from tests.postgresql.storages import storage_at

_LARGE = b"0123456789abcdef" * 40_000
_DOCUMENT = "acme/order/data/d"


class Forms:
    """A tree with forms, an address of a database, and commands with settings of either."""

    def __init__(
        self, directory: Path, root: Path, uri: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.directory = directory
        self.root = root
        self.uri = uri
        self._patch = monkeypatch
        self._capsys = capsys
        self.database = self.settings("database", self.uri)
        self.tree = self.settings("tree", str(self.root))

    def settings(self, name: str, data: str) -> str:
        file = self.directory / f"{name}.toml"
        keys = f'keys = "{self.directory}/keys.json"\nencryption_keys = "{self.directory}/encryption-keys.json"\n'
        file.write_text(f'data = "{data}"\nlocal = "{self.directory}/local"\nlock_timeout = 2\n{keys}')
        return str(file)

    def run(self, *arguments: str, config: str | None = None) -> Ended:
        """Run a command; no password is in what it says."""
        done = ended([*arguments, "--config", config or self.database], self._patch, self._capsys)
        said = "\n".join((done.out, *done.errors))
        password = self.uri.partition("://")[2].partition("@")[0].partition(":")[2]
        assert password
        assert password not in said
        return done

    def found(self) -> list[str]:
        done = self.run("search", "acme/order", "--json", "--path", "customer/name=Bob")
        return [json.loads(line)["document"] for line in done.out.splitlines()]

    def change(self, statement: str) -> tuple[object, ...]:
        """Change rows behind the service's back; return the first that the statement has."""
        storage = storage_at(self.uri, self.directory / "local")
        with storage.database.apart("damaging") as connection:
            done = connection.execute(statement.encode(), binary=True)
            return (done.fetchone() or ()) if done.description else ()

    def findings(self, *options: str, status: int) -> list[str]:
        done = self.run("check", *options)
        assert done.status == status, done
        kinds = {kind.label for kind in FindingKind}
        return [kind for kind in re.findall(r": ([a-z-]+)(?=: )", done.out) if kind in kinds]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with a definition, a document of two revisions with a large attachment, and a draft."""
    with in_process.serving(tmp_path_factory.mktemp("maintaining") / "from", alone=True) as service:
        service.put("acme/order/form/form.xhtml", orders.definition(), **V1)
        for name in ("Ann", "Bob"):
            body = b"<form><customer><name>%s</name></customer></form>" % name.encode()
            service.put(f"{_DOCUMENT}/data.xml", body, **V1)
        service.put(f"{_DOCUMENT}/large.bin", _LARGE, **V1)
        service.put("acme/order/draft/e/data.xml", b"<form/>", **V1)
    return service.data


@pytest.fixture
def forms(
    tmp_path: Path,
    root: Path,
    database_server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Forms:
    """With a database that has nothing yet."""
    return Forms(tmp_path, root, database_server.uri(fresh_schema()), monkeypatch, capsys)


@pytest.fixture(scope="module")
def filled(root: Path, database_server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a database with all that the tree has. Each test leaves it so."""
    uri, directory = database_server.uri(fresh_schema()), tmp_path_factory.mktemp("filled")
    (directory / "own.toml").write_text(f'data = "{root}"\nlocal = "{directory}/local"\n')
    done = CliRunner().invoke(commands, ["move", "--to", uri, "--config", str(directory / "own.toml")])
    assert done.exit_code == 0, done.output
    return uri


@pytest.fixture
def moved(
    tmp_path: Path, root: Path, filled: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Forms:
    return Forms(tmp_path, root, filled, monkeypatch, capsys)


def test_forms_are_moved_to_a_database_and_back(forms: Forms, tmp_path: Path) -> None:
    done = forms.run("move", "--to", forms.uri, "--dry-run", config=forms.tree)
    assert (done.status, "1 definitions to be moved" in done.errors[0]) == (0, True)
    done = forms.run("move", "--to", forms.uri, config=forms.tree)
    assert (done.status, done.out) == (0, "")
    assert done.errors[-1].endswith(f'set data = "{shown_address(forms.uri)}" in the settings, and restart the service')
    assert forms.found() == ["d"]
    done = forms.run("move", "--to", str(tmp_path / "back"))
    assert done.status == 0
    assert tree(tmp_path / "back") == tree(forms.root)
    assert forms.run("move", "--to", forms.uri).status == 2


@pytest.mark.parametrize(
    "path",
    [
        "acme",
        "acme/order/",
        "acme/order/draft",
        "acme/order/form/1/form.xhtml",
        "acme/order/data/d",
        "acme/order/data/d/large.bin",
    ],
)
def test_a_part_of_a_database_is_checked(moved: Forms, path: str) -> None:
    done = moved.run("check", path)
    assert (done.status, done.out) == (0, "")


@pytest.mark.parametrize(
    "path",
    [
        "acm",
        "acme/orders",
        "acme/order/dat",
        "acme/order/form/2",
        "acme/order/form/x",
        "acme/order/data/e",
        "acme/order/data/d/other.bin",
        "acme/order/data/d/large.bin/x",
    ],
)
def test_a_path_that_a_database_does_not_have_is_refused(moved: Forms, path: str) -> None:
    done = moved.run("check", path)
    assert (done.status, f"{path} is not in the database" in done.errors[-1]) == (2, True)


def test_a_whole_database_has_no_findings(moved: Forms) -> None:
    assert moved.findings(status=0) == []
    assert moved.findings("--deep", status=0) == []
    done = moved.run("check", "--json")
    assert '"folders":3' in done.out


def of_data(assignment: str) -> str:
    """The statement that changes the row of the current data of a document."""
    return f"UPDATE revision SET {assignment} WHERE folder = 'd' AND name = 'data.xml' AND is_current"  # noqa: S608


_DAMAGE: dict[str, tuple[str, list[FindingKind], bool]] = {
    "content": (of_data("body = 'x'"), [FindingKind.CONTENT_WRONG], False),
    "same size": (of_data("body = overlay(body PLACING 'x' FROM 9)"), [FindingKind.CONTENT_WRONG], True),
    "piece": ("DELETE FROM piece WHERE number = 0", [FindingKind.CONTENT_WRONG], False),
    "changed piece": (
        "UPDATE piece SET bytes = overlay(bytes PLACING 'x' FROM 9) WHERE number = 0",
        [FindingKind.CONTENT_WRONG],
        True,
    ),
    "sidecar": (of_data("sidecar = '{}'"), [FindingKind.ROW_UNREADABLE], False),
    "id": (of_data("id = repeat('0', 40)"), [FindingKind.ROW_WRONG], False),
}


@pytest.mark.parametrize("damage", _DAMAGE)
def test_damage_is_found(moved: Forms, damage: str) -> None:
    """It is made in a transaction that is not committed."""
    statement, kinds, is_deep = _DAMAGE[damage]
    storage = storage_at(moved.uri, moved.directory / "local")
    with storage.database.session("damaging") as connection:
        connection.execute("BEGIN")
        connection.execute(statement.encode())
        for deep in (False, True):
            found = list(filter(None, RevisionInspection(storage.database, deep, lambda *_: None).run(connection)))
            assert [each.kind for each in found] == (kinds if deep or not is_deep else [])
        connection.execute("ROLLBACK")


_MENDED: dict[str, tuple[str, str]] = {
    "no current": ("UPDATE revision SET is_current = false WHERE folder = 'd' AND name = 'data.xml'", "no-current"),
    "stray content": ("INSERT INTO piece (id, number, bytes) VALUES (repeat('f', 40), 0, 'x')", "stray-content"),
    "overdue": (
        "INSERT INTO unclaimed (id, since, folder) VALUES (repeat('e', 40), now() - interval '1 day', 'x')",
        "overdue-contents",
    ),
    "in use": (
        "INSERT INTO unclaimed (id, folder) SELECT id, folder FROM revision WHERE name = 'large.bin'",
        "in-use-unclaimed",
    ),
    "lost row of the index": ("DELETE FROM document WHERE document = 'd'", "index-rows"),
    "stray row of the index": ("UPDATE document SET document = 'z' WHERE document = 'd'", "index-rows"),
    "total": ("UPDATE partition_total SET documents = documents + 1", "total-wrong"),
}


@pytest.mark.parametrize("damage", _MENDED)
def test_what_can_be_repaired_is_repaired(moved: Forms, damage: str) -> None:
    statement, kind = _MENDED[damage]
    moved.change(statement)
    assert kind in moved.findings(status=4)
    assert kind in moved.findings("--repair", "--dry-run", status=4)
    assert kind in moved.findings("--repair", status=3)
    assert moved.findings("--deep", status=0) == []
    assert moved.found() == ["d"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET value = value || 'x' WHERE control > 0",
        "DELETE FROM entry WHERE control > 0",
        "UPDATE free_text SET fold = fold || 'x'",
        "UPDATE document SET card = (SELECT card FROM document WHERE draft) WHERE NOT draft",
    ],
)
def test_a_deep_check_compares_the_values_of_the_index(moved: Forms, statement: str) -> None:
    moved.change(statement)
    assert "index-rows" not in moved.findings(status=0)
    assert "index-rows" in moved.findings("--deep", "--repair", status=3)
    assert moved.findings("--deep", status=0) == []


def test_damage_is_reported_and_stays(moved: Forms) -> None:
    (sidecar,) = moved.change(of_data("sidecar = sidecar") + " RETURNING sidecar")
    moved.change(of_data("sidecar = '{}'"))
    for options in ((), ("--repair",), ("acme/order/data/d", "--json")):
        done = moved.run("check", *options)
        assert (done.status, "row-unreadable" in done.out) == (4, True)
    assert moved.findings("acme/order/form", status=0) == []
    assert moved.run("check", "--adopt", "--all").status == 1
    moved.change(of_data(f"sidecar = '\\x{bytes(sidecar).hex()}'"))
    assert moved.findings("--deep", status=0) == []


def test_backups_are_restored_into_either_kind(moved: Forms, tmp_path: Path) -> None:
    done = moved.run("backup", str(tmp_path / "backups"), "--verify")
    assert (done.status, "3 documents, drafts and form versions" in done.errors[-1]) == (0, True), done
    (backup,) = (path for path in (tmp_path / "backups").iterdir() if path.is_dir())
    assert subprocess.run(["sha256sum", "--quiet", "--check", "SHA256SUMS"], cwd=backup, check=False).returncode == 0
    assert tree(backup / "data") == tree(moved.root)
    again = moved.run("backup", str(tmp_path / "backups"))
    assert re.search(r"0 files copied .*, [0-9]+ linked", again.errors[-1])
    done = moved.run("restore", str(tmp_path / "backups"), "--to", f"data={tmp_path}/to")
    assert done.status == 0, done
    assert tree(tmp_path / "to") == tree(moved.root)
    other = f"{moved.uri.partition('?')[0]}?schema={fresh_schema()}"
    done = moved.run("restore", str(tmp_path / "backups"), "--to", f"data={other}")
    assert done.status == 0, done
    assert "data: 1 definitions moved, 0 there already; 2 documents moved, 0 there already; " in done.errors[0]
    assert re.fullmatch(r".* restored to postgresql://[^,;]*; [0-9.]+ s", done.errors[1])
    assert moved.run("move", "--from", other, "--to", str(tmp_path / "back")).status == 0
    assert tree(tmp_path / "back") == tree(moved.root)
    refused = moved.run("restore", str(tmp_path / "backups"))
    assert (refused.status, "the destination is not empty: it has the form acme/order" in refused.errors[-1]) == (
        1,
        True,
    )


def test_a_backup_of_a_tree_is_restored_into_the_database_of_the_settings(forms: Forms, tmp_path: Path) -> None:
    assert forms.run("backup", str(tmp_path / "backups"), config=forms.tree).status == 0
    done = forms.run("restore", str(tmp_path / "backups"))
    assert done.status == 0, done
    assert forms.findings("--deep", status=0) == []
    assert forms.run("move", "--to", str(tmp_path / "back")).status == 0
    assert tree(tmp_path / "back") == tree(forms.root)


def test_init_takes_the_address_of_a_database(forms: Forms) -> None:
    for word in ("now", "already"):
        done = forms.run("init", forms.uri, config=forms.tree)
        assert (done.status, done.out.startswith("database "), done.out.endswith(f" is prepared {word}\n")) == (
            0,
            True,
            True,
        )


def test_a_database_that_cannot_be_had_is_named(forms: Forms, tmp_path: Path) -> None:
    nobody = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", forms.uri)
    config = forms.settings("nobody", nobody)
    for arguments in (
        ("check",),
        ("backup", str(tmp_path / "backups")),
        ("move", "--to", str(tmp_path / "to")),
        ("move", "--from", str(forms.root), "--to", nobody),
    ):
        done = forms.run(*arguments, config=config)
        assert done.status == 1, done
        assert "127.0.0.1:1" in done.errors[-1], done
        assert len(done.errors) == 1, done
