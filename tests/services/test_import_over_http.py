"""Importing over HTTP, by an administrator's key only, and by the command; into places apart; what is found then."""

import errno
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lxml import etree

from persistence.cli import transfer_commands
from persistence.dialect import SVC
from persistence.http import service_routes
from persistence.index.sync.staleness import IndexCondition
from persistence.keys import Keys
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from persistence.providers.opened import open_index
from persistence.settings import Settings
from persistence.storage.commit import Upload
from tests.cli.command_runner import Place
from tests.commands import persistence
from tests.encrypted_form import UNMARKED, data
from tests.in_process import serving
from tests.initialised import initialised
from tests.service import PUBLIC, Answer, Service, pair
from tests.services.test_import_json_lines import T1, T2, T3, line
from tests.services.test_import_round_trip import fill
from tests.services.transferring import tree, zipped

IMPORT = f"{PUBLIC}/import"
ZIP, LINES = "application/zip", "application/jsonl"


@contextmanager
def a_service(directory: Path, dialect: str = "svc", more: str = "", place: str | None = None) -> Iterator[Service]:
    """A service with an administrator's key, which its requests have; ``place`` is a database, if it has one."""
    directory.mkdir(parents=True, exist_ok=True)
    own = 'keys = "keys.json"\nencryption_keys = "var/encryption-keys.json"\nadministrators = ["boss"]\n'
    (directory / "settings.toml").write_text(own + more)
    keys = Keys(f"{directory}/keys.json", tree=f"{directory}/data")
    secret = keys.add("boss")
    options = ("--config", str(directory / "settings.toml"))
    with serving(directory, dialect=dialect, options=options, place=place) as service:
        service.face, service.extra = PUBLIC, {"Authorization": f"Bearer {secret}"}
        yield service


def exported(service: Service, query: str = "") -> bytes:
    """An archive of everything."""
    return service.raw("GET", f"{PUBLIC}/export?data-revision-history=include&drafts=include{query}").body


def sent(service: Service, body: bytes, kind: str = ZIP, query: str = "") -> Answer:
    return service.raw("POST", IMPORT + query, {"Content-Type": kind}, body)


def reported(service: Service, body: bytes, kind: str = ZIP, query: str = "") -> etree._Element:
    """The report of what is imported."""
    answer = sent(service, body, kind, query)
    assert (answer.status, answer["Content-Type"]) == (200, "application/xml"), answer.cause
    return etree.fromstring(answer.body)


def found(service: Service) -> int:
    """How many documents of the form of ``line`` a search finds."""
    answer = service.post("search/a/f", "<search><query/></search>")
    return int(etree.fromstring(answer.body).get("search-total"))


def is_indexed(service: Service) -> bool:
    """Whether the index is there already: nobody has to wait for it in the first search."""
    settings, properties = Settings(data=str(service.data)), Properties.load({}, SVC.property_prefix)
    with open_index(settings, properties, str(service.data)) as index:
        return index.rebuild_of(Form("a", "f")).condition() is IndexCondition.READY


def test_an_archive_of_one_service_is_imported_into_another(tmp_path: Path) -> None:
    with a_service(tmp_path / "from", "orbeon") as source:
        fill(source)
        archive = exported(source)
    with a_service(tmp_path / "to", "orbeon") as service:
        before = tree(service.data)
        dry = reported(service, archive, query="?dry-run=true")
        assert (dry.get("dry-run"), dry.find("documents").get("imported")) == ("true", "5")
        assert tree(service.data) == before
        report = reported(service, archive)
        assert report.get("refused") == "0"
        counts = {
            kind: report.find(kind).get("imported") for kind in ("definitions", "documents", "drafts", "attachments")
        }
        assert counts == {"definitions": "2", "documents": "5", "drafts": "2", "attachments": "5"}
        assert dict(report.find("revisions").attrib) == {"new": "11", "known": "0"}
        assert service.get("acme/order/data/1/data.xml").body == b"<form>2</form>"
        assert service.get("acme/order/data/1/scan.bin")["Content-Type"] == "image/png"
        assert reported(service, archive).find("documents").get("unchanged") == "5"


def test_what_was_imported_is_found_at_once(tmp_path: Path) -> None:
    lines = [line(document=f"d{number}", data="<d/>", modified=T1) for number in range(20)]
    with a_service(tmp_path) as service:
        reported(service, b"".join(lines), LINES)
        assert (is_indexed(service), found(service)) == (True, 20)


def test_what_the_command_imports_is_found_by_the_service_that_runs(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"".join(line(document=str(number), data="<d/>") for number in range(150)))
    with a_service(tmp_path / "to") as service:
        service.save("a/f", "before")
        done = persistence("import", str(tmp_path / "x.jsonl"), data=service.data)
        assert done.returncode == 0, done.stderr
        assert (is_indexed(service), found(service)) == (True, 151)


def test_a_disk_that_is_full_is_507(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"".join(line(document=each, data="<d/>") for each in "xy")
    own = Upload.write
    with a_service(tmp_path) as service:
        for room in (1, 2, 3):  # for the body, for a document and for both

            def write(upload: Upload, chunk: bytes) -> None:
                nonlocal room
                room -= 1
                if room == 0:
                    raise OSError(errno.ENOSPC, "No space left on device")
                own(upload, chunk)

            monkeypatch.setattr(Upload, "write", write)
            answer = sent(service, lines, LINES)
            assert (answer.status, answer.body.count(b"\n")) == (507, 1), answer.body
        monkeypatch.undo()
        assert service.get("a/f/data/x/data.xml").status == 200
        report = reported(service, lines, LINES)
        assert dict(report.find("documents").attrib) == {
            **dict.fromkeys(("imported", "unchanged"), "1"),
            **dict.fromkeys(("skipped", "refused"), "0"),
        }


def test_refusals_are_in_the_report_and_the_rest_is_imported(tmp_path: Path) -> None:
    archive = zipped({f"a/f/1/data/{each}/{T1}/data.xml": text for each, text in (("x", b"<d>"), ("y", b"<d/>"))})
    with a_service(tmp_path) as service:
        report = reported(service, archive)
        assert (report.get("refused"), report.find("documents").get("imported")) == ("1", "1")
        assert report.find("refused").get("name") == "a/f/data/x"
        assert "well-formed" in report.findtext("refused")
        assert service.get("a/f/data/y/data.xml").status == 200


def test_only_an_administrators_key_may_import(tmp_path: Path) -> None:
    with a_service(tmp_path) as service:
        other = Keys(f"{tmp_path}/keys.json", tree=f"{tmp_path}/data").add("other")
        assert (
            service.raw("POST", IMPORT, {"Authorization": f"Bearer {other}", "Content-Type": ZIP}, b"x").status == 403
        )
        service.extra = {}
        assert sent(service, b"x").status == 401
    with serving(tmp_path / "open") as service:  # open to all on loopback, but nobody has shown a key
        assert sent(service, b"x").status == 403


BAD_REQUESTS = [
    (b"x", ZIP, "", 400, "cut off"),
    (zipped({"a": b""})[:-1], ZIP, "", 400, "cut off"),
    (b"x", "text/plain", "", 415, "application/zip"),
    (b"x", "", "", 415, "application/zip"),
    (b"x", ZIP, "?on-conflict=overwrite", 400, "on-conflict"),
    (b"x", ZIP, "?dry-run=perhaps", 400, "dry-run"),
    (b"x", ZIP, "?dry_run=true", 400, "only dry-run, on-conflict"),
    (b"x", ZIP, "?dry-run=true&dry-run=false", 400, "sent twice"),
    (b"", LINES, "", 200, "<import"),
]


def test_bad_requests(tmp_path: Path) -> None:
    with a_service(tmp_path) as service:
        for body, kind, query, status, cause in BAD_REQUESTS:
            answer = sent(service, body, kind, query)
            assert (answer.status, cause in answer.body.decode()) == (status, True), (kind, query, answer.body)


def test_a_body_past_the_bound_is_413(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_routes, "LARGEST_IMPORT", 10)
    with a_service(tmp_path) as service:
        assert sent(service, b"x" * 11).status == 413
        assert service.raw("GET", IMPORT).status == 405


def test_documents_without_an_owner_are_named_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_commands, "MOST_NAMED", 2)
    place, archive = Place(tmp_path / "data"), str(tmp_path / "x.zip")
    Path(archive).write_bytes(zipped({f"a/f/1/data/{each}/latest/data.xml": b"<d/>" for each in "123"}))
    named = "a/f/data/{}: imported: came without an owner"
    for options in (("--dry-run",), ()):
        done = place.run("import", archive, *options)
        assert (done.exit_code, done.stdout.splitlines()) == (0, [named.format(1), named.format(2)])
        assert "documents without an owner: 3" in done.stderr.splitlines()
    other = Place(tmp_path / "other").run("import", archive, "--json").stdout.splitlines()
    assert [json.loads(each).get("without_owner") for each in other] == [None, None, 3]
    assert json.loads(other[0]) == {"name": "a/f/data/1", "result": "imported", "cause": "came without an owner"}
    assert place.run("import", archive).stdout == ""


# Forms whose data, attachments or reports are not in one tree, and what properties ask of their data


def _apart(directory: Path) -> str:
    (directory / "big").mkdir(parents=True)
    return (
        '"svc.persistence.provider.acme.*.data.attachments" = "big"\n'
        f'"svc.persistence.big.base-path" = "{directory}/big"\n'
    )


def test_attachments_that_are_kept_apart_are_imported_to_their_place(tmp_path: Path) -> None:
    source, to = tmp_path / "from", tmp_path / "to"
    with a_service(source, more=_apart(source)) as service:
        fill(service)
        (tmp_path / "all.zip").write_bytes(exported(service))
    own = _apart(to)
    initialised(to / "data")
    (to / "persistence.toml").write_text(own)
    for known in ("11 new, 0 known", "0 new, 11 known"):
        done = persistence(
            "import", str(tmp_path / "all.zip"), "--config", str(to / "persistence.toml"), data=to / "data"
        )
        assert (done.returncode, f"revisions of documents: {known}" in done.stderr) == (0, True), done.stderr
        assert tree(to / "data") == tree(source / "data")
        assert tree(to / "big") == tree(source / "big")
    assert any(path.endswith("scan.bin") for path in tree(to / "big"))


def test_a_form_of_another_service_gets_the_newest_revisions(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('keys = "keys.json"\nadministrators = ["boss"]\n')
    secret = Keys(f"{tmp_path}/keys.json", tree=f"{tmp_path}/front").add("boss")
    scan = [{"name": "scan.bin", "content": "AAAA"}]
    lines = line(document="d", version=1, data="<one/>", modified=T1, attachments=scan, creator="anna")
    lines += line(document="d", version=1, data="<two/>", modified=T2)
    with pair(tmp_path, options=("--config", str(file))) as (service, behind):
        service.extra = {"Authorization": f"Bearer {secret}"}
        report = reported(service, lines[: lines.index(b"\n") + 1], LINES)
        assert (report.get("refused"), report.find("documents").get("imported")) == ("0", "1"), etree.tostring(report)
        assert "another service gives its own times" in report.findtext("note")
        again = reported(service, lines[: lines.index(b"\n") + 1], LINES)
        assert again.find("documents").get("unchanged") == "1", etree.tostring(again)
        other = reported(service, lines, LINES)
        assert (other.get("refused"), "newer revision here" in other.findtext("refused")) == ("1", True)
        assert service.raw("GET", f"{PUBLIC}/crud/a/f/data/d/data.xml").body == b"<one/>"
        assert tree(behind.data)["a/f/data/d/scan.bin"][0] == b"\0\0\0"


def test_flat_views_are_made_of_what_is_imported(tmp_path: Path) -> None:
    with a_service(tmp_path / "from") as service:
        kind = {"Content-Type": "application/xml"}
        answer = service.put("hr/leave/form/form.xhtml", UNMARKED, kind, Create_Flat_View="true")
        assert answer.status == 201, answer.cause
        service.put("hr/leave/data/1/data.xml", data(), Form_Definition_Version=1)
        archive = exported(service)
    with a_service(tmp_path / "to") as service:
        assert reported(service, archive).get("refused") == "0"
        service.post("search/hr/leave", "<search><query/></search>")
        with sqlite3.connect(service.data / ".index/.flat/flat.sqlite") as reports:
            names = [name for (name,) in reports.execute("SELECT name FROM sqlite_master")]
        assert [name for name in names if name.startswith("svc_f_")], names


def test_a_leased_document_is_refused_where_a_property_asks_for_that(tmp_path: Path) -> None:
    more = '"svc.persistence.*.lease" = true\n"svc.persistence.*.enforce-lease" = true\n'
    with a_service(tmp_path, more=more) as service:
        sent(service, line(document="d", data="<d/>", modified=T1), LINES)
        assert service.lock("a/f/data/d/data.xml", "anna").status == 200
        report = reported(service, line(document="d", data="<e/>", modified=T3), LINES)
        assert (report.get("refused"), "anna" in report.findtext("refused")) == ("1", True)
