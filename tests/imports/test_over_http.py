"""Importing over HTTP: by an administrator's key only, while the service serves, with a report as the answer."""

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lxml import etree

from persistence.dialect import DIALECTS, SVC
from persistence.http import service_routes
from persistence.index.sync.staleness import IndexCondition
from persistence.keys import Keys
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from persistence.providers.opened import open_index
from persistence.settings import Settings
from persistence.storage.commit import Upload
from tests.commands import persistence
from tests.imports.archives import tree, zipped
from tests.imports.test_round_trip import fill
from tests.in_process import serving
from tests.service import PUBLIC, Answer, Service

IMPORT = f"{PUBLIC}/import"
ZIP, LINES = "application/zip", "application/jsonl"
T1 = "2025-03-04T05:06:07.089Z"


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


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_an_archive_of_one_service_is_imported_into_another(tmp_path: Path, dialect: str) -> None:
    with a_service(tmp_path / "from", dialect) as source:
        fill(source)
        archive = exported(source)
    with a_service(tmp_path / "to", dialect) as service:
        before = tree(service.data)
        dry = etree.fromstring(sent(service, archive, query="?dry-run=true").body)
        assert (dry.get("dry-run"), dry.find("documents").get("imported")) == ("true", "5")
        assert tree(service.data) == before
        answer = sent(service, archive)
        report = etree.fromstring(answer.body)
        assert (answer.status, answer["Content-Type"]) == (200, "application/xml")
        assert report.get("refused") == "0"
        counts = {
            kind: report.find(kind).get("imported") for kind in ("definitions", "documents", "drafts", "attachments")
        }
        assert counts == {"definitions": "2", "documents": "5", "drafts": "2", "attachments": "5"}
        assert dict(report.find("revisions").attrib) == {"new": "11", "known": "0"}
        assert service.get("acme/order/data/1/data.xml").body == b"<form>2</form>"
        assert service.get("acme/order/data/1/scan.bin")["Content-Type"] == "image/png"
        again = etree.fromstring(sent(service, archive).body)
        assert again.find("documents").get("unchanged") == "5"


def test_what_was_imported_is_found_at_once(tmp_path: Path) -> None:
    lines = b"".join(
        json.dumps({"app": "a", "form": "f", "document": each, "data": f"<d>{each}</d>"}).encode() + b"\n"
        for each in ("one", "two")
    )
    with a_service(tmp_path) as service:
        assert sent(service, lines, LINES).status == 200
        query = b"<search><query/><page-size>10</page-size><page-number>1</page-number></search>"
        answer = service.raw("POST", f"{PUBLIC}/search/a/f", {"Content-Type": "application/xml"}, query)
        assert etree.fromstring(answer.body).get("search-total") == "2"


def test_what_the_command_imports_is_found_by_the_service_that_runs(tmp_path: Path) -> None:
    lines = b"".join(
        json.dumps({"app": "a", "form": "f", "document": str(number), "data": "<d/>"}).encode() + b"\n"
        for number in range(150)
    )
    (tmp_path / "x.jsonl").write_bytes(lines)
    query = b"<search><query/><page-size>10</page-size><page-number>1</page-number></search>"
    with a_service(tmp_path / "to") as service:
        service.put("a/f/data/before/data.xml")
        done = persistence("import", str(tmp_path / "x.jsonl"), data=service.data)
        assert done.returncode == 0, done.stderr
        answer = service.raw("POST", f"{PUBLIC}/search/a/f", {"Content-Type": "application/xml"}, query)
        assert etree.fromstring(answer.body).get("search-total") == "151"


def test_a_disk_that_is_full_is_507(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"".join(
        json.dumps({"app": "a", "form": "f", "document": each, "data": "<d/>"}).encode() + b"\n" for each in "xy"
    )
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
        report = etree.fromstring(sent(service, lines, LINES).body)
        assert dict(report.find("documents").attrib) == {
            **dict.fromkeys(("imported", "unchanged"), "1"),
            **dict.fromkeys(("skipped", "refused"), "0"),
        }


def test_refusals_are_in_the_report_and_the_rest_is_imported(tmp_path: Path) -> None:
    archive = zipped({f"a/f/1/data/{each}/{T1}/data.xml": text for each, text in (("x", b"<d>"), ("y", b"<d/>"))})
    with a_service(tmp_path) as service:
        report = etree.fromstring(sent(service, archive).body)
        assert (report.get("refused"), report.find("documents").get("imported")) == ("1", "1")
        assert report.find("refused").get("name") == "a/f/data/x"
        assert "well-formed" in report.findtext("refused")
        assert service.get("a/f/data/y/data.xml").status == 200


def test_only_an_administrators_key_may_import(tmp_path: Path) -> None:
    with a_service(tmp_path) as service:
        other = Keys(f"{tmp_path}/keys.json", tree=f"{tmp_path}/data").add("other")
        for headers in ({"Authorization": f"Bearer {other}"},):
            assert service.raw("POST", IMPORT, {**headers, "Content-Type": ZIP}, b"x").status == 403
        service.extra = {}
        assert sent(service, b"x").status == 401
    with serving(tmp_path / "open") as service:  # open to all on loopback, but nobody has shown a key
        assert sent(service, b"x").status == 403


@pytest.mark.parametrize(
    ("body", "kind", "query", "status", "cause"),
    [
        (b"x", ZIP, "", 400, "cut off"),
        (zipped({"a": b""})[:-1], ZIP, "", 400, "cut off"),
        (b"x", "text/plain", "", 415, "application/zip"),
        (b"x", "", "", 415, "application/zip"),
        (b"x", ZIP, "?on-conflict=overwrite", 400, "on-conflict"),
        (b"x", ZIP, "?dry-run=perhaps", 400, "dry-run"),
        (b"x", ZIP, "?dry_run=true", 400, "only dry-run, on-conflict"),
        (b"x", ZIP, "?dry-run=true&dry-run=false", 400, "sent twice"),
        (b"", LINES, "", 200, "<import"),
    ],
)
def test_bad_requests(tmp_path: Path, body: bytes, kind: str, query: str, status: int, cause: str) -> None:
    with a_service(tmp_path) as service:
        answer = sent(service, body, kind, query)
        assert (answer.status, cause in answer.body.decode()) == (status, True), answer.body


def test_a_body_past_the_bound_is_413(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_routes, "LARGEST_IMPORT", 10)
    with a_service(tmp_path) as service:
        assert sent(service, b"x" * 11).status == 413
        assert service.raw("GET", IMPORT).status == 405


def test_the_index_is_there_when_an_import_has_ended(tmp_path: Path) -> None:
    body = b"".join(
        json.dumps({"app": "a", "form": "f", "document": f"d{number}", "data": "<d/>", "modified": T1}).encode() + b"\n"
        for number in range(20)
    )
    with a_service(tmp_path) as service:
        assert sent(service, body, LINES).status == 200
        with open_index(
            Settings(data=str(service.data)), Properties.load({}, SVC.property_prefix), str(service.data)
        ) as index:
            assert index.rebuild_of(Form("a", "f")).condition() is IndexCondition.READY
        answer = service.raw("POST", f"{PUBLIC}/search/a/f", {"Content-Type": "application/xml"}, b"<search/>")
        assert b'search-total="20"' in answer.body
