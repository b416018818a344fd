"""What cannot be imported has a line each, the rest comes, and the exit status is not 0."""

import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from persistence.cli import options
from persistence.providers import router
from tests.cli.command_runner import Command
from tests.http.test_export import Archive
from tests.orbeon.conftest import Run
from tests.orbeon.databases import TABLES, RuntimeDatabase, wall
from tests.orbeon.test_rows import XHTML, serving, xml
from tests.postgresql.server import PASSWORD, Server
from tests.s3.server import BUCKET, Stored, serving_objects
from tests.services.test_import_over_http import exported
from tests.services.transferring import tree

pytestmark = pytest.mark.xdist_group("orbeon")

CRUD_TABLES = [name for name in TABLES if "lease" not in name and "organization" not in name]


@pytest.fixture
def to(tmp_path: Path) -> str:
    return str(tmp_path / "to/data")


def fill(found: RuntimeDatabase) -> None:
    """A definition with a file, and a document with one: a row in each table."""
    found.definition("2024-01-10 09:00:00", XHTML)
    found.definition_file("2024-01-10 09:00:00", "logo.png", b"logo")
    found.data("good", "2024-03-01 10:00:00", xml("good"), stage="begun")
    found.file("good", "2024-03-01 10:00:00", "scan.bin", b"scan")


GOOD = {
    "form/1/form.xhtml": XHTML.encode(),
    "form/1/logo.png": b"logo",
    "data/good/data.xml": xml("good").encode(),
    "data/good/scan.bin": b"scan",
}


def stored(to: str) -> dict[str, bytes]:
    """The current contents of a tree, below its form."""
    form = Path(to) / "hr/leave"
    return {
        str(path.relative_to(form)): path.read_bytes()
        for path in form.rglob("*")
        if path.is_file() and path.suffix != ".json" and not any(part.startswith(".") for part in path.parts[-2:])
    }


def test_without_one_of_the_tables_the_others_are_read(database: RuntimeDatabase, run: Run, to: str) -> None:
    _require_others(database, run, to, "orbeon_form_data_attach")


@pytest.mark.parametrize("missing", CRUD_TABLES[:-1])
def test_without_another_of_the_tables(small: RuntimeDatabase, run: Run, to: str, missing: str) -> None:
    _require_others(small, run, to, missing)


def _require_others(found: RuntimeDatabase, run: Run, to: str, missing: str) -> None:
    found.make(missing)
    for table in CRUD_TABLES:
        if table != missing:
            own = {"app": "hr", "form": "leave", "form_version": 1, "document_id": "d", "file_name": "x.bin"}
            time = wall("2024-03-01 10:00:00")
            content = XHTML if table == "orbeon_form_definition" else xml("d")
            found.add(table, **own, last_modified_time=time, xml=content, file_content=b"content", draft="N")
    done = run(found, to)
    assert (done.status, done.out) == (4, f"{missing}: refused: the table {missing} is missing\n")
    assert len(stored(to)) == 3


def test_an_older_database_is_read_and_what_it_lacks_is_named(database: RuntimeDatabase, run: Run, to: str) -> None:
    lacking = {
        "orbeon_form_definition": ("form_version",),
        "orbeon_form_definition_attach": ("form_version", "hash_algorithm", "hash_value"),
        "orbeon_form_data": ("form_version", "stage", "organization_id", "draft", "deleted"),
        "orbeon_form_data_attach": ("organization_id", "hash_algorithm", "hash_value", "created"),
    }
    left_out = [f"{table}.{column}" for table, columns in lacking.items() for column in columns]
    database.make(*left_out, "orbeon_form_data_lease", "orbeon_organization")
    fill(database)
    done = run(database, to)
    assert (done.status, done.out, stored(to)) == (0, "", GOOD)
    line = next(each for each in done.errors if each.startswith("an older database: it has no "))
    assert line.partition("no ")[2].split(", ") == [
        "form_version of orbeon_form_definition",
        "form_version of orbeon_form_definition_attach",
        *(f"{each} of orbeon_form_data" for each in ("form_version", "deleted", "organization_id", "draft", "stage")),
        "created of orbeon_form_data_attach",
        "organization_id of orbeon_form_data_attach",
    ]


def test_a_table_without_a_column_that_is_needed_is_named(small: RuntimeDatabase, run: Run, to: str) -> None:
    small.make("orbeon_form_data_attach.document_id")
    fill(small)
    done = run(small, to)
    assert (done.status, stored(to)) == (4, {name: GOOD[name] for name in GOOD if name != "data/good/scan.bin"})
    assert done.out == "orbeon_form_data_attach: refused: the table orbeon_form_data_attach lacks document_id\n"


def test_rows_that_cannot_be_read_have_a_line_each(database: RuntimeDatabase, run: Run, to: str) -> None:
    database.make()
    fill(database)
    database.data("null", "2024-03-01 10:00:00", xml("1"))
    database.data("null", "2024-03-02 10:00:00", None)
    database.file("null", "2024-03-02 10:00:00", "kept.bin", b"kept")
    database.definition("2024-01-10 09:00:00", None, form_version=2)
    database.definition("2024-01-10 09:00:00", XHTML, form_version=0)
    database.data("..", "2024-03-01 10:00:00", xml("1"))
    database.file("good", "2024-03-01 10:00:00", "empty.bin", None)
    database.file("good", "2024-03-01 10:00:00", "empty 2.bin", b"")
    database.file("names", "2024-03-01 10:00:00", "a/b", b"x")
    database.data("user", "2024-03-01 10:00:00", xml("1"), username="a\nb")
    database.data("slash", "2024-03-01 10:00:00", xml("1"), form="le/ave")
    database.data(None, "2024-03-01 10:00:00", xml("1"))
    database.file("good", "2024-03-01 10:00:00", None, b"x")
    database.data("d", "2024-03-01 10:00:00", xml("1"), app=None)
    database.add("orbeon_form_data", app="hr", form="leave", document_id="timeless", xml=xml("1"), draft="N")
    done = run(database, to)
    lines = done.out.splitlines()
    assert done.status == 4
    for line in (
        "hr/leave/data/null: refused: its revision of 2024-03-02T09:00:00.000Z has no XML",
        "hr/leave/form/2: refused: its revision of 2024-01-10T08:00:00.000Z has no XML",
        "hr/leave/data/good: refused: empty.bin has no content in the database: --attachments says where it is",
        "hr/leave/data/good: refused: empty 2.bin has no content in the database: --attachments says where it is",
        "hr/leave/orbeon_form_data: refused: 1 rows have no name of a document or file",
        "hr/leave/orbeon_form_data_attach: refused: 1 rows have no name of a document or file",
        "orbeon_form_data: refused: 1 rows have no app or form",
        "hr/leave/data/timeless: refused: 'None' is not a time",
    ):
        assert line in lines, (line, lines)
    for begin in (
        "hr/leave/form/0",
        "hr/leave/data/..",
        "hr/leave/data/names",
        "hr/leave/data/user",
        "hr/le/ave/data/slash",
    ):
        assert [line for line in lines if line.startswith(f"{begin}: refused: ")], (begin, lines)
    assert len(lines) == 13
    assert stored(to) == GOOD
    counts = "hr/leave: 1 of 3 rows of definitions, 1 of 7 rows of documents, 2 of 7 rows of attachments: NOT ALL"
    assert counts in done.errors


MALFORMED = ("<form>", "", "text", "<a/><b/>", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>')
NO_TIMES = ("yesterday", "2024-13-01 00:00:00", "99999999999999999999", "")


def test_what_is_malformed_is_refused_and_counted(small: RuntimeDatabase, run: Run, to: str) -> None:
    """A conflict that is skipped does not count as refused, and yet not everything came."""
    small.make()
    fill(small)
    assert run(small, to).status == 0
    for number, content in enumerate(MALFORMED):
        small.data(f"xml-{number}", "2024-03-01 10:00:00", content)
    for number, time in enumerate(NO_TIMES):
        own = {"app": "hr", "form": "leave", "document_id": f"time-{number}", "xml": "<a/>"}
        small.add("orbeon_form_data", **own, last_modified_time=time)
    done = run(small, to)
    assert (done.status, stored(to)) == (4, GOOD)
    refused = sorted(line.partition(": refused: ")[0] for line in done.out.splitlines())
    names = (
        f"{kind}-{number}" for kind, many in (("time", NO_TIMES), ("xml", MALFORMED)) for number in range(len(many))
    )
    assert refused == [f"hr/leave/data/{name}" for name in names]
    small.data("good", "2024-02-01 10:00:00", xml("older"))
    done = run(small, to, "--on-conflict", "skip")
    assert done.status == 4
    assert any("0 of 11 rows of documents, 1 of 2 rows of attachments: NOT ALL" in each for each in done.errors), done


def test_an_encoding_in_a_text_does_not_count_and_bytes_count_as_they_are(
    small: RuntimeDatabase, run: Run, to: str
) -> None:
    small.make()
    text_ = '<?xml version="1.0" encoding="ISO-8859-1"?><a>\xe4</a>'
    small.data("text", "2024-03-01 10:00:00", text_)
    small.data("broken", "2024-03-01 10:00:00", xml("1"))
    with small.engine.begin() as connection:
        connection.execute(text("UPDATE orbeon_form_data SET xml = CAST(x'3c613eff3c2f613e' AS TEXT) WHERE id = 2"))
    done = run(small, to)
    assert done.status == 4
    assert [line.partition(": refused: ")[0] for line in done.out.splitlines()] == ["hr/leave/data/broken"]
    assert stored(to) == {"data/text/data.xml": '<?xml version="1.0"?><a>\xe4</a>'.encode()}


def elsewhere(found: RuntimeDatabase) -> dict[str, bytes]:
    """Rows whose contents are elsewhere, and the files that are there: their paths and contents."""
    found.make()
    found.definition("2024-01-10 09:00:00", XHTML, form_version=3)
    found.definition_file("2024-01-10 09:00:00", "logo.png", None, form_version=3)
    found.data("d", "2024-03-01 10:00:00", xml("1"), form_version=3)
    for day, deleted in (("01", "N"), ("02", "N"), ("03", "Y")):
        found.file("d", f"2024-03-{day} 10:00:00", "a b#%.bin", b"", form_version=3, deleted=deleted)
    found.file("d", "2024-03-01 10:00:00", "gone.bin", None, form_version=3)
    found.data("d", "2024-03-05 10:00:00", xml("draft"), form_version=3, draft="Y")
    found.file("d", "2024-03-05 10:00:00", "new.bin", None, form_version=3, draft="Y")
    return {
        "hr/leave/form/3/logo.png": b"logo",
        "hr/leave/data/d/3/a b#%.bin": b"second" * 1_000_000,
        "hr/leave/draft/d/3/new.bin": b"",
    }


LEFT_OUT = (
    "note: older revisions of attachments are left out: the runtime kept their files elsewhere, and only the newest"
)


def _require_elsewhere(to: str, tmp_path: Path) -> None:
    with serving(tmp_path / "to", to) as service:
        archive = Archive(exported(service))
    found = {
        "/".join((*name.split("/")[2:-2], name.rpartition("/")[2])): each for name, each in archive.contents.items()
    }
    assert found["3/form/logo.png"] == b"logo"
    assert found["3/data/d/a b#%.bin"] == b"second" * 1_000_000
    assert found["3/draft/d/new.bin"] == b""
    assert "3/data/d/gone.bin" not in found


def test_attachments_in_a_directory(small: RuntimeDatabase, place: str, run: Run, tmp_path: Path) -> None:
    """There is one file for each name; without the option, documents come, and their attachments later."""
    for name, content in elsewhere(small).items():
        (tmp_path / "kept" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "kept" / name).write_bytes(content)
    link = tmp_path / "kept/hr/leave/data/d/3/gone.bin"
    link.symlink_to("/etc/hostname")
    without = run(small, place)
    assert (without.status, len(without.out.splitlines())) == (4, 3)
    for cause in (
        "reading hr/leave/data/d/3/gone.bin: Too many levels of symbolic links (3/gone.bin)",
        "gone.bin has no content in the place of --attachments",
    ):
        done = run(small, place, "--attachments", str(tmp_path / "kept"))
        assert (done.status, done.out) == (4, f"hr/leave/data/d: refused: {cause}\n")
        link.unlink(missing_ok=True)
    assert f"{LEFT_OUT} (1 times)" in done.errors
    _require_elsewhere(place, tmp_path)


def test_attachments_in_s3(small: RuntimeDatabase, run: Run, to: str, tmp_path: Path) -> None:
    with serving_objects() as server, pytest.MonkeyPatch.context() as patched:
        for name, value in server.environment.items():
            patched.setenv(name, value)
        for name, content in elsewhere(small).items():
            server.objects[f"runtime/files/{name}"] = Stored(content)
        done = run(small, to, "--attachments", f"s3://{BUCKET}/runtime/files")
        assert done.out == "hr/leave/data/d: refused: gone.bin has no content in the place of --attachments\n"
        server.shutdown()
    _require_elsewhere(to, tmp_path)


def _one_line(run: Run, address: str, to: str, *options_: str) -> str:
    done = run(RuntimeDatabase(address, None), to, *options_)  # type: ignore[arg-type]
    assert (done.status, done.out, len(done.errors)) == (1, "", 1), done
    assert tree(Path(to)) == {}
    return done.errors[0]


def test_a_database_that_is_not_there_is_one_line(
    database_server: Server, mariadb: Path, run: Run, to: str, tmp_path: Path
) -> None:
    (tmp_path / "text.sqlite").write_text("no database at all, but long enough to be looked at " * 40)
    run(RuntimeDatabase(f"sqlite:///{tmp_path}/none.sqlite", None), to)  # type: ignore[arg-type]
    assert _one_line(run, f"sqlite:///{tmp_path}/none.sqlite", to).endswith("none.sqlite is not a file")
    assert "file is not a database" in _one_line(run, f"sqlite:///{tmp_path}/text.sqlite", to)
    (tmp_path / "empty.sqlite").write_bytes(b"")
    assert "has none of the tables of a form runtime" in _one_line(run, f"sqlite:///{tmp_path}/empty.sqlite", to)
    for address in ("oracle://x/y", "mysql://root@localhost", "postgresql://", "sqlite://", "postgresql://h:x/y"):
        assert "not" in _one_line(run, address, to) or "must be such as" in _one_line(run, address, to)
    wrong = database_server.uri("none")
    assert "has none of the tables of a form runtime" in _one_line(run, wrong, to)
    wrong = database_server.uri("none", password="Wrong&Word")  # noqa: S106 - which is wrong
    line = _one_line(run, wrong, to)
    assert "password authentication failed" in line
    assert "Word" not in line
    assert PASSWORD not in line
    denied = f"mysql://root:Wrong%26Word@localhost/none?unix_socket={mariadb}"
    assert "Access denied" in _one_line(run, denied, to)
    assert "Word" not in _one_line(run, "mysql://root:Wrong%26Word@127.0.0.1:1/none", to)


def test_without_the_library_one_line_names_the_extra(
    small: RuntimeDatabase, run: Run, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.make()
    run(small, to)

    def missing(_: str) -> object:
        raise ModuleNotFoundError("No module named 'sqlalchemy'", name="sqlalchemy")

    monkeypatch.setattr(router, "resolve_name", missing)
    line = _one_line(run, small.address, to)
    assert "sqlalchemy, which is not installed: install the service with its extra [orbeon]" in line
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "pymysql", None)
    done = run(RuntimeDatabase("mysql://root@localhost/x", None), to)  # type: ignore[arg-type]
    assert "pymysql, which is not installed: install the service with its extra [orbeon]" in done.errors[-1]


def test_options_of_databases_are_for_databases(
    small: RuntimeDatabase, run: Run, to: str, tmp_path: Path, command: Command
) -> None:
    small.make()
    (tmp_path / "x.jsonl").write_text("")
    for own in (("--match", "a/b"), ("--time-zone", "UTC"), ("--attachments", str(tmp_path))):
        done = command("import", str(tmp_path / "x.jsonl"), "--data", to, *own)
        assert done.status == 2
        assert "--match, --attachments and --time-zone are for databases" in done.errors[-1]
    assert "is not a directory" in run(small, to, "--attachments", str(tmp_path / "none")).errors[-1]
    assert "is not APP or APP/FORM" in run(small, to, "--match", "a/b/1").errors[-1]
    assert options.WITH_DATA in run(small, to, "--attachments", "with-data").errors[-1]  # which is a directory here
