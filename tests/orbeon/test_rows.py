"""Everything that is in the rows of a runtime's database is there after an import: row by row, over HTTP."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import text

from persistence.model import addresses
from persistence.properties.property_table import is_database
from persistence.services.orbeon_database import open_database
from tests.forms.vectors import Form
from tests.http.test_export import Archive
from tests.orbeon.conftest import Run
from tests.orbeon.databases import ZONE, RuntimeDatabase, on_mariadb
from tests.service import PUBLIC, Service
from tests.services.test_import_over_http import a_service, exported

pytestmark = pytest.mark.xdist_group("orbeon")  # one server of each engine

XHTML = Form("<form/>").document()
SCAN, SCAN_2 = b"scan" * 1000, b"\x00\xff second"


class Revision(NamedTuple):
    """A revision as the archive of the service should have it; ``content`` is ``None`` of a deletion."""

    content: bytes | None
    modifier: str | None = "ann"
    stage: str | None = None
    creator: str | None = "ann"
    group: str | None = "staff"
    organization: tuple[str, ...] = ()


def xml(text: str) -> str:
    return f"<form><name>{text}</name></form>"


def fill(found: RuntimeDatabase) -> dict[str, Revision]:
    """Add rows of every kind; return the revisions that they are, by the names of their entries in an archive."""
    found.make()
    for pos, name in ((2, "Sales"), (1, "Acme")):
        found.add("orbeon_organization", id=7, depth=2, pos=pos, name=name)
    expected = {**_definitions(found), **_documents(found)}
    later = datetime.now(ZoneInfo(ZONE)).replace(tzinfo=None)
    for document, hours in (("d1", 2), ("d2", -2), ("nobody", 2)):
        expiration = later + timedelta(hours=hours)
        found.add("orbeon_form_data_lease", document_id=document, username="lea", groupname="x", expiration=expiration)
    return expected


def _definitions(found: RuntimeDatabase) -> dict[str, Revision]:
    found.definition("2024-01-10 09:00:00.000100", XHTML)
    found.definition("2024-01-10 09:00:00.000900", XHTML + "<!-- again -->", last_modified_by="bob")
    found.definition("2024-02-10 09:00:00", XHTML, form_version=2)
    found.definition("2024-02-11 09:00:00", XHTML, form_version=2, deleted="Y", last_modified_by="bob")
    found.definition_file("2024-01-10 09:00:00", "logo.png", b"logo")
    form = "hr/leave/{}/form/{}"
    return {
        form.format(1, "2024-01-10T08:00:00.000Z/form.xhtml"): Revision(XHTML.encode(), creator=None, group=None),
        form.format(1, "2024-01-10T08:00:00.001Z/form.xhtml"): Revision(
            f"{XHTML}<!-- again -->".encode(), "bob", creator=None, group=None
        ),
        form.format(2, "2024-02-10T08:00:00.000Z/form.xhtml"): Revision(XHTML.encode(), creator=None, group=None),
        form.format(2, "2024-02-11T08:00:00.000Z/form.xhtml"): Revision(None, "bob", creator=None, group=None),
        form.format(1, "2024-01-10T08:00:00.000Z/logo.png"): Revision(b"logo", creator=None, group=None),
    }


def _documents(found: RuntimeDatabase) -> dict[str, Revision]:
    org = ("Acme", "Sales")
    found.data("d1", "2024-06-01 10:00:00.123", xml("1"), stage="begun", organization_id=7)
    found.data(
        "d1", "2024-06-01 11:00:00.456", xml("\xe4\N{SNOWMAN}"), stage="done", organization_id=7, last_modified_by="bob"
    )
    found.file("d1", "2024-06-01 10:00:00.100", "scan.bin", SCAN, organization_id=7)
    found.file("d1", "2024-06-01 11:00:00.400", "scan.bin", SCAN_2, organization_id=7, last_modified_by="bob")
    found.file("d1", "2024-06-01 12:00:00", "scan.bin", None, organization_id=7, deleted="Y", last_modified_by="cat")
    found.data("d2", "2024-03-01 10:00:00", xml("1"), form_version=2)
    found.data("d2", "2024-03-02 10:00:00", xml("1"), form_version=2, deleted="Y", last_modified_by="bob")
    found.data("d2", "2024-03-03 10:00:00", xml("again"), form_version=2, username=None, groupname=None)
    for number in range(3):
        found.data("d3", f"2024-03-01 10:00:00.1230{number}", xml(str(number)))
    found.data("d4", "2024-03-01 10:00:00", xml("saved"))
    for minute in (1, 2, 3):
        found.data("d4", f"2024-03-01 11:0{minute}:00", xml(f"draft {minute}"), draft="Y")
        found.file("d4", f"2024-03-01 11:0{minute}:00", "new.bin", f"{minute}".encode(), draft="Y")
    found.file("d4", "2024-03-01 11:04:00", "gone.bin", b"x", draft="Y", deleted="Y")
    found.data("d5", "2024-03-01 10:00:00", xml("never saved"), draft="Y")
    found.data("d6", "2024-10-27 01:30:00", xml("before"))
    found.data("d6", "2024-10-27 02:30:00", xml("twice"))
    found.data("d6", "2024-10-27 03:30:00", xml("after"))
    found.data("d7", "2024-03-01 10:00:00", xml("1"))
    found.data("d7", "2024-03-02 10:00:00", None, deleted="Y", last_modified_by="bob")
    found.data("d8", "2024-03-02 10:00:00", xml("saved"))
    found.data("d8", "2024-03-01 10:00:00", xml("older draft"), draft="Y")
    designer = {"app": "orbeon", "form": "builder"}
    found.data("b1", "2024-03-01 10:00:00", XHTML, **designer)
    found.file("b1", "2024-03-01 10:00:00", "logo.png", b"logo", **designer)
    at = "hr/leave/{}/data/{}".format
    return {
        at(1, "d1/2024-06-01T08:00:00.123Z/data.xml"): Revision(xml("1").encode(), "ann", "begun", organization=org),
        at(1, "d1/2024-06-01T09:00:00.456Z/data.xml"): Revision(
            xml("\xe4\N{SNOWMAN}").encode(), "bob", "done", organization=org
        ),
        at(1, "d1/2024-06-01T08:00:00.100Z/scan.bin"): Revision(SCAN, organization=org),
        at(1, "d1/2024-06-01T09:00:00.400Z/scan.bin"): Revision(SCAN_2, "bob", organization=org),
        at(1, "d1/2024-06-01T10:00:00.000Z/scan.bin"): Revision(None, "cat", organization=org),
        at(2, "d2/2024-03-01T09:00:00.000Z/data.xml"): Revision(xml("1").encode()),
        at(2, "d2/2024-03-02T09:00:00.000Z/data.xml"): Revision(None, "bob"),
        at(2, "d2/2024-03-03T09:00:00.000Z/data.xml"): Revision(xml("again").encode(), creator=None, group=None),
        at(1, "d3/2024-03-01T09:00:00.123Z/data.xml"): Revision(xml("0").encode()),
        at(1, "d3/2024-03-01T09:00:00.124Z/data.xml"): Revision(xml("1").encode()),
        at(1, "d3/2024-03-01T09:00:00.125Z/data.xml"): Revision(xml("2").encode()),
        at(1, "d4/2024-03-01T09:00:00.000Z/data.xml"): Revision(xml("saved").encode()),
        "hr/leave/1/draft/d4/2024-03-01T10:03:00.000Z/data.xml": Revision(xml("draft 3").encode()),
        "hr/leave/1/draft/d4/2024-03-01T10:03:00.000Z/new.bin": Revision(b"3"),
        "hr/leave/1/draft/d5/2024-03-01T09:00:00.000Z/data.xml": Revision(xml("never saved").encode()),
        at(1, "d6/2024-10-26T23:30:00.000Z/data.xml"): Revision(xml("before").encode()),
        at(1, "d6/2024-10-27T00:30:00.000Z/data.xml"): Revision(xml("twice").encode()),
        at(1, "d6/2024-10-27T02:30:00.000Z/data.xml"): Revision(xml("after").encode()),
        at(1, "d7/2024-03-01T09:00:00.000Z/data.xml"): Revision(xml("1").encode()),
        at(1, "d7/2024-03-02T09:00:00.000Z/data.xml"): Revision(None, "bob"),
        at(1, "d8/2024-03-02T09:00:00.000Z/data.xml"): Revision(xml("saved").encode()),
        "orbeon/builder/1/data/b1/2024-03-01T09:00:00.000Z/data.xml": Revision(XHTML.encode()),
        "orbeon/builder/1/data/b1/2024-03-01T09:00:00.000Z/logo.png": Revision(b"logo"),
    }


@contextmanager
def serving(directory: Path, place: str) -> Iterator[Service]:
    """A service on a place, with an administrator's key."""
    with a_service(directory, "orbeon", place=place if is_database(place) else None) as service:
        yield service


def revisions(service: Service) -> dict[str, Revision]:
    """All revisions of an archive over HTTP, drafts too."""
    archive = Archive(exported(service))
    found = dict[str, Revision]()
    for name in archive.metadata:
        facts = archive.sidecar(name)
        app, form, version, kind, *middle, moment, file = name.split("/")
        own = "/".join((app, form, version, kind, *middle, facts.modified, file))
        assert facts.deleted == (name not in archive.contents)
        assert moment in ("latest", facts.modified)
        found[own] = Revision(
            archive.contents.get(name), facts.modifier, facts.stage, facts.creator, facts.group, facts.organization
        )
    return found


def test_every_row_is_a_revision_in_a_tree(database: RuntimeDatabase, run: Run, tmp_path: Path) -> None:
    _require_every_row(database, str(tmp_path / "to/data"), run, tmp_path)


def test_every_row_is_a_revision_in_a_database(
    small: RuntimeDatabase, database_uri: str, run: Run, tmp_path: Path
) -> None:
    _require_every_row(small, database_uri, run, tmp_path)


def _require_every_row(database: RuntimeDatabase, place: str, run: Run, tmp_path: Path) -> None:
    """With instants, users, stages and deletions; then the same again: nothing is new."""
    expected = fill(database)
    dry = run(database, place, "--dry-run")
    assert dry.status == 0, dry
    done = run(database, place)
    assert (done.status, done.out) == (0, ""), done
    assert "note: a revision moved on by a millisecond, because the one before it has the same (2 times)" in done.errors
    counts = "hr/leave: 4 of 4 rows of definitions, 20 of 20 rows of documents, 8 of 8 rows of attachments (5 left out)"
    assert counts in done.errors
    assert "leases: 1 go on" in done.errors
    with serving(tmp_path / "to", place) as service:
        assert revisions(service) == expected
        _require_readable(service, expected)
        again = run(database, place)
        assert (again.status, again.out) == (0, "")
        assert "revisions of documents: 0 new, 16 known" in again.errors
        assert counts in again.errors
        assert revisions(service) == expected


def _require_readable(service: Service, expected: dict[str, Revision]) -> None:
    """Each revision of a document is answered at its instant, and the history has its user."""
    for name, revision in expected.items():
        app, form, version, kind, *document, moment, file = name.split("/")
        path = "/".join((app, form, kind, *document, file))
        if kind == "data" and revision.content is not None:
            answer = service.get(f"{path}?last-modified-time={quote(moment)}", Form_Definition_Version=version)
            assert (answer.status, answer.body) == (200, revision.content), (name, answer.cause)
            assert answer["Orbeon-Username"] == revision.creator
    history = service.raw("GET", f"{PUBLIC}/history/hr/leave/d1").body.decode()
    assert re.findall('modified-username="(.*?)"', history) == ["bob", "ann"]
    assert service.get("hr/leave/data/d7/data.xml").status == service.deleted
    assert (
        service.get("hr/leave/form/form.xhtml", Form_Definition_Version="1").body == f"{XHTML}<!-- again -->".encode()
    )


def test_a_dry_run_says_how_times_are_read_and_stores_nothing(texts: RuntimeDatabase, run: Run, tmp_path: Path) -> None:
    fill(texts)
    dry = run(texts, str(tmp_path / "to/data"), "--dry-run")
    assert dry.errors[0] == (
        "the time 2024-06-01 12:00:00.000 in the database is read as 2024-06-01T10:00:00.000Z (time zone Europe/Berlin)"
    )
    assert "documents: 8 would be imported, 0 were there already" in dry.errors
    assert "note: a time is in an hour that occurs twice: it was read as the first one (1 times)" in dry.errors
    assert not (tmp_path / "to/data/hr").exists()


def test_milliseconds_of_sqlite_need_no_time_zone(small: RuntimeDatabase, run: Run, tmp_path: Path) -> None:
    fill(small)
    dry = run(small, str(tmp_path / "to/data"), "--dry-run", zone="Asia/Tokyo")
    assert dry.errors[0] == "the time 1717236000000 in the database is read as 2024-06-01T10:00:00.000Z"
    assert not [line for line in dry.errors if "hour" in line]


def test_another_time_zone_is_another_instant(texts: RuntimeDatabase, run: Run, tmp_path: Path) -> None:
    texts.make()
    texts.data("d", "2024-03-01 10:00:00", xml("1"))
    texts.data("d", "2024-03-10 02:30:00", xml("2"))
    histories = {"Asia/Tokyo": "2024-03-01T01", "America/New_York": "2024-03-01T15", "UTC": "2024-03-01T10"}
    for zone, begin in histories.items():
        tree = tmp_path / "to" / zone.partition("/")[0]
        done = run(texts, str(tree), zone=zone)
        assert done.status == 0
        assert [each.name[:13] for each in (tree / "hr/leave/data/d/.history").glob("*.xml")] == [begin]
        never = "note: a time is in an hour that clocks leave out: the time zone may be wrong (1 times)"
        assert (never in done.errors) is (zone == "America/New_York")
    unknown = run(texts, str(tree), "--dry-run", zone="Mars/Base")
    assert unknown.errors[-1].endswith("Error: Mars/Base is not a time zone such as Europe/Berlin")


def test_only_the_forms_that_match_are_imported(small: RuntimeDatabase, run: Run, tmp_path: Path) -> None:
    fill(small)
    tree = tmp_path / "to/data"
    done = run(small, str(tree), "--match", "orbeon")
    assert (done.status, (tree / "orbeon/builder/data/b1/logo.png").read_bytes()) == (0, b"logo")
    assert not (tree / "hr").exists()
    assert "orbeon/builder: 1 of 1 rows of documents, 1 of 1 rows of attachments" in done.errors


def test_an_interrupted_import_continues(small: RuntimeDatabase, run: Run, tmp_path: Path) -> None:
    """What was stored before is known: here the definitions and documents of the first days."""
    expected = fill(small)
    tree = str(tmp_path / "to/data")
    run(small, tree, "--match", "orbeon/builder")
    small.data("d7", "2024-03-03 10:00:00", xml("new"))
    done = run(small, tree, "--json")
    facts = json.loads(done.out.splitlines()[-1])
    assert (done.status, facts["documents"]["unchanged"], facts["documents"]["imported"]) == (0, 1, 7)
    leave = facts["forms"][0]
    assert leave == {
        "form": "hr/leave",
        "definitions": {"came": 4, "rows": 4},
        "documents": {"came": 21, "rows": 21},
        "attachments": {"came": 8, "rows": 8},
        "left_out": 5,
    }
    with serving(tmp_path / "to", tree) as service:
        found = revisions(service)
    assert found.pop("hr/leave/1/data/d7/2024-03-03T09:00:00.000Z/data.xml").content == xml("new").encode()
    assert found == expected


def test_encrypted_values_stay_as_they_are(small: RuntimeDatabase, place: str, run: Run, tmp_path: Path) -> None:
    """The keys are the runtime's: nothing is decrypted, and nothing is encrypted again."""
    sealed = '<form xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><ssn fr:value-encrypted="true">AAEC</ssn></form>'
    small.make()
    small.definition("2024-01-10 09:00:00", XHTML.replace("<xf:input ", '<xf:input class="fr-encrypt" '))
    small.data("d", "2024-03-01 10:00:00", sealed)
    small.file("d", "2024-03-01 10:00:00", "x.bin", b"\x01\x02", hash_algorithm="SHA-256", hash_value="abc=")
    assert run(small, place).status == 0
    with serving(tmp_path / "to", place) as service:
        archive = Archive(exported(service))
    assert sealed.encode() in archive.contents.values()
    hashed = next(archive.sidecar(name).client_hash for name in archive.metadata if name.endswith("x.bin"))
    assert hashed is not None
    assert (hashed.algorithm, hashed.value) == ("SHA-256", "abc=")


def test_attachments_of_any_size(database: RuntimeDatabase, run: Run, tmp_path: Path) -> None:
    """They are read by pieces of 4 MiB."""
    database.make()
    sizes = (1, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 9_000_000)
    content = bytes(range(251)) * (max(sizes) // 251 + 1)
    for size in sizes:
        database.file("d", "2024-03-01 10:00:00", f"{size}.bin", content[:size])
    done = run(database, str(tmp_path / "to/data"))
    assert done.status == 0, done
    for size in sizes:
        assert (tmp_path / f"to/data/hr/leave/data/d/{size}.bin").read_bytes() == content[:size]


def test_mysql_finds_a_row_in_the_second_hour(mariadb: Path, run: Run, tmp_path: Path) -> None:
    """It compares times in its own zone, in which the hour occurs twice."""
    with on_mariadb(mariadb) as found:
        found.make()
        found.file("d", "2024-10-27 00:30:00", "x.bin", b"content")
        with found.engine.begin() as connection:
            connection.execute(text("SET time_zone = '+00:00'"))
            connection.execute(text("UPDATE orbeon_form_data_attach SET last_modified_time = '2024-10-27 01:30:00'"))
        done = run(found, str(tmp_path / "to/data"))
        assert (done.status, done.out) == (0, "")
        assert (tmp_path / "to/data/hr/leave/data/d/x.bin").read_bytes() == b"content"


def test_the_snapshot_does_not_see_what_is_stored_later(database: RuntimeDatabase) -> None:
    database.make()
    database.data("d", "2024-03-01 10:00:00", xml("1"))
    with database.engine.connect() as connection:
        if database.kind == "sqlite":  # else the snapshot would keep writers out
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
    with open_database(database.address) as found:
        before = found.forms()
        database.data("d", "2024-03-02 10:00:00", xml("2"))
        assert found.forms() == before
        assert [len(rows) for rows in found.documents(addresses.Form("hr", "leave"))] == [1]
    with open_database(database.address) as found:
        assert [len(rows) for rows in found.documents(addresses.Form("hr", "leave"))] == [2]


# Attachments of 2 GB in all pass through an import in pieces, whatever the engine.


_SIZE = 14_000_000
_COUNT, _FEWER = 150, 20
"""Attachments; fewer in MariaDB, which without an index scans the table for each piece."""

_LARGEST_GROWTH = 150_000
"""KB that an import with large attachments may take more than one with small ones, whatever their number."""

_MEASURED = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "persistence", *sys.argv[1:]])
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def _imported(found: RuntimeDatabase, directory: Path) -> int:
    """Import into a new tree; return the most memory that the command took, in KB."""
    directory.mkdir()
    own = ["--data", str(directory / "data"), "--dialect", "orbeon"]
    subprocess.run([sys.executable, "-m", "persistence", "init", *own], cwd=directory, check=True, capture_output=True)
    command = [sys.executable, "-c", _MEASURED, "import", found.address, *own, "--time-zone", ZONE]
    done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)
    status, most = done.stdout.splitlines()[-1].split()
    assert status == "0", done.stderr
    return int(most)


def _fill_files(found: RuntimeDatabase, size: int) -> dict[str, str]:
    """Add a document with attachments to an empty database; return their digests by name."""
    found.definition("2024-01-01 12:00:00", Form("<form/>").document())
    digests, names = {}, [f"scan{number:03}.bin" for number in range(_FEWER if found.kind == "mysql" else _COUNT)]
    for name in names:
        content = os.urandom(1000) + b"x" * (size - 1000)
        digests[name] = hashlib.sha256(content).hexdigest()
        found.file("d1", "2024-01-02 12:00:00", name, content)
    named = "".join(f"<f>/fr/service/persistence/crud/hr/leave/data/d1/{name}</f>" for name in names)
    found.data("d1", "2024-01-02 12:00:01", f"<form>{named}</form>")
    return digests


@pytest.mark.long
def test_two_gigabytes_of_attachments_are_streamed(database: RuntimeDatabase, tmp_path: Path) -> None:
    database.make()
    _fill_files(database, 2000)
    before = _imported(database, tmp_path / "small")
    for table in ("orbeon_form_definition", "orbeon_form_data", "orbeon_form_data_attach"):
        database.clear(table)
    digests = _fill_files(database, _SIZE)
    most = _imported(database, tmp_path / "large")
    (folder,) = (tmp_path / "large/data").glob("*/*/data/d1")
    for name, digest in digests.items():
        with (folder / name).open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == digest
    assert most < before + _LARGEST_GROWTH
