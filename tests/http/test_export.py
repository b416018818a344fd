"""The export of forms and data as an archive, over HTTP (spec crud 8.4), and an import of it into an empty tree."""

import io
import json
import os
import random
import socket
import struct
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from lxml import etree

from persistence.crypto import MAGIC, EncryptionKeys
from persistence.dialect import DIALECTS
from persistence.errors import BusyError
from persistence.forms.archive_metadata import ImportFacts, read_metadata
from persistence.http.responses import XLSX
from persistence.index.sync.updater import TreeIndex
from persistence.keys import Keys
from persistence.model.addresses import ERRORS_ENTRY, METADATA_SUFFIX, parse_entry
from persistence.model.sidecar import Sidecar
from persistence.model.texts import Instant
from persistence.postgresql.database_index import DatabaseIndex
from persistence.services import exporting
from persistence.storage import stored_revision
from persistence.storage.layout import HISTORY, revision_of
from tests import orders
from tests import service as services
from tests.cli.test_tables import files as tables
from tests.cli.test_tables import sheets, typed_definition
from tests.encrypted_form import DEFINITION, OPEN, SECRETS, data, path
from tests.http.test_permissions import LEA
from tests.in_process import serving
from tests.pages.test_shown_values import filled
from tests.searches import NAME
from tests.service import PUBLIC, V1, Answer, Service, running
from tests.waiting import eventually

FORM = b'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>Leave</title></head></html>'
EXPORT = "/fr/service/persistence/export"
FORM_TYPE = "application/x-www-form-urlencoded"
ALL = {"data-revision-history": "include", "drafts": "include"}


@contextmanager
def a_service(directory: Path, dialect: str = "svc", more: str = "", *, is_real: bool = False) -> Iterator[Service]:
    directory.mkdir(parents=True, exist_ok=True)
    settings = f'keys = "keys.json"\nadministrators = ["desk"]\n{more}\n'
    start = running if is_real else serving
    with start(directory, dialect=dialect, settings=settings) as service:
        service.extra = {"Authorization": f"Bearer {key_of(directory, 'desk')}"}
        yield service


def key_of(directory: Path, name: str) -> str:
    return Keys(f"{directory}/keys.json", tree=f"{directory}/data").add(name)


@pytest.fixture(params=sorted(DIALECTS))
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with a_service(tmp_path, request.param) as service:
        yield service


class Archive:
    """An archive that was exported, with the metadata of its entries."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.zip = zipfile.ZipFile(io.BytesIO(data))
        assert self.zip.testzip() is None
        self.names = self.zip.namelist()
        assert len(set(self.names)) == len(self.names)
        self.contents = {
            name: self.zip.read(name)
            for name in self.names
            if not name.endswith(METADATA_SUFFIX) and name != ERRORS_ENTRY
        }
        self.metadata: dict[str, ImportFacts] = {
            name.removesuffix(METADATA_SUFFIX): read_metadata([self.zip.read(name)])
            for name in self.names
            if name.endswith(METADATA_SUFFIX)
        }
        assert self.contents.keys() <= self.metadata.keys()
        for name in self.contents:
            parse_entry(name)

    @property
    def errors(self) -> list[str]:
        if ERRORS_ENTRY not in self.names:
            return []
        assert self.names[-1] == ERRORS_ENTRY
        return self.zip.read(ERRORS_ENTRY).decode().splitlines()

    def sidecar(self, name: str) -> Sidecar:
        found = self.metadata[name].sidecar
        assert found is not None
        return found


def exported(service: Service, *pairs: tuple[str, str], **parameters: str) -> Archive:
    answer = asked(service, *pairs, **parameters)
    assert answer.status == 200, answer.cause
    assert answer["Content-Type"] == "application/zip"
    return Archive(answer.body)


def asked(service: Service, *pairs: tuple[str, str], **parameters: str) -> Answer:
    return service.raw("GET", f"{EXPORT}?{urlencode([*pairs, *parameters.items()])}")


def stored(service: Service, form: str = "hr/leave") -> None:
    """A form in two versions, a document with two revisions and attachments, a deleted one, and a draft."""
    for version in (1, 2):
        own = {"Form_Definition_Version": version}
        service.put(f"{form}/form/logo.png", b"\x89PNG%d" % version, {"Content-Type": "image/png"}, **own)
        assert service.put(f"{form}/form/form.xhtml", FORM, **own).status == 201
    service.put(f"{form}/form/form.xhtml", FORM, **V1)
    assert service.put(f"{form}/data/A/data.xml", b"<d>1</d>", **V1, **LEA, Workflow_Stage="open").status == 201
    service.put(f"{form}/data/A/a%20b.bin", b"1", {"Content-Type": "text/plain"}, **V1, **LEA)
    service.put(f"{form}/data/A/a%20b.bin", b"2", {"Content-Type": "text/plain"}, **V1, **LEA)
    service.put(f"{form}/data/A/x.metadata.xml", b"mine", **V1, **LEA)
    assert service.put(f"{form}/data/A/data.xml", b"<d>2</d>", **LEA).status == 204
    assert service.put(f"{form}/data/B/data.xml", b"<d>3</d>", Form_Definition_Version=2).status == 201
    assert service.put(f"{form}/data/C/data.xml", b"<d>4</d>", **V1).status == 201
    assert service.delete(f"{form}/data/C/data.xml").status == 204
    assert service.put(f"{form}/draft/D/data.xml", b"<d>5</d>", **V1, **LEA).status == 201
    assert service.put(f"{form}/draft/D/e.bin", b"5", **V1, **LEA).status == 201


@pytest.fixture(scope="module")
def choice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with a_service(tmp_path_factory.mktemp("choice")) as service:
        stored(service)
        service.put("x/y/form/form.xhtml", FORM, **V1)
        service.put("x/y/data/E/data.xml", **V1)
        yield service


def test_what_is_current_is_exported_by_default(service: Service) -> None:
    stored(service)
    archive = exported(service)
    expected = {
        "hr/leave/1/form/latest/form.xhtml": FORM,
        "hr/leave/1/form/latest/logo.png": b"\x89PNG1",
        "hr/leave/2/form/latest/form.xhtml": FORM,
        "hr/leave/2/form/latest/logo.png": b"\x89PNG2",
        "hr/leave/1/data/A/latest/data.xml": b"<d>2</d>",
        "hr/leave/1/data/A/latest/a b.bin": b"2",
        "hr/leave/1/data/A/latest/x.metadata.xml.attachment": b"mine",
        "hr/leave/2/data/B/latest/data.xml": b"<d>3</d>",
    }
    if not services.is_proxied:  # what data does not name is known to nobody else
        assert (archive.contents, archive.metadata.keys()) == (expected, expected.keys())
    assert archive.errors == []
    found = archive.sidecar("hr/leave/1/data/A/latest/data.xml")
    assert (found.creator, found.modifier, found.stage, found.version) == ("lea", "lea", None, 1)


def documents_of(answer: Answer) -> list[str]:
    """The documents in a workbook or in files of Parquet."""
    assert answer.status == 200, answer.cause
    if answer["Content-Type"] == XLSX:
        rows = sheets(answer.body)["Documents"]
    else:
        assert answer["Content-Type"] == "application/zip"
        rows = tables(answer.body)["documents.parquet"].to_pylist()
    return sorted(f"{row['Document']}/{row['Form version']:.0f}" for row in rows)


@pytest.mark.parametrize("kind", ["xlsx", "parquet"])
def test_a_table_has_the_data_of_one_form(choice: Service, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in it, tests/cli/test_tables.py shows."""
    query = f"{EXPORT}/hr/leave?format={kind}&drafts=include&form-version=all"
    answer = choice.raw("GET", query)
    drafts = [] if services.is_proxied else ["D/1"]
    assert documents_of(answer) == ["A/1", "B/2", *drafts]
    assert answer["Content-Disposition"].endswith('.xlsx"' if kind == "xlsx" else '.zip"')
    assert documents_of(choice.raw("POST", f"{EXPORT}/hr/leave/A?format={kind}&lang=en")) == ["A/1"]
    if kind == "parquet" and not services.is_proxied:
        monkeypatch.delitem(sys.modules, "persistence.services.parquet")
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        assert choice.raw("GET", query).refuses(501, "this needs pyarrow, which is not installed")


def test_a_table_has_labels_of_a_language_and_comes_with_its_problems(service: Service) -> None:
    assert service.put("town/permit/form/form.xhtml", typed_definition(), **V1).status == 201
    assert service.put("town/permit/data/d/data.xml", filled(cost="<cost>much</cost>"), **V1).status == 201
    answer = service.raw("GET", f"{EXPORT}/town/permit?format=parquet&lang=de")
    assert "Der Titel" in tables(answer.body)["documents.parquet"].schema.names
    archive = zipfile.ZipFile(io.BytesIO(answer.body))
    assert archive.namelist() == ["documents.parquet", "rows.parquet", "problems.txt"]
    expected = "town/permit/data/d/data.xml: a value of s/cost is not a valid decimal: it is null\n"
    assert archive.read("problems.txt").decode() == expected


@pytest.mark.parametrize("by", ["xml", "json"])
def test_what_a_search_finds_is_exported(service: Service, by: str) -> None:
    """The condition on a control is one of the latest version; drafts come if they are asked for."""
    for document, name in (("a", "Ann"), ("b", "Bob"), ("c", "Ann Lee")):
        body = f"<form><customer><name>{name}</name></customer></form>".encode()
        if document == "a":
            assert service.put("found/order/form/form.xhtml", orders.definition(), **V1).status == 201
        assert service.put(f"found/order/data/{document}/data.xml", body, **V1).status == 201
        assert service.put(f"found/order/draft/{document}/data.xml", body, **V1, **LEA).status == 201
    condition = {"path": NAME, "match": "substring", "value": "ann"}
    in_xml = f'<search><query path="{NAME}" match="substring">ann</query><page-size>1</page-size></search>'
    search = json.dumps({"query": condition}) if by == "json" else in_xml
    archive = exported(service, match="found/order", content="form-data", search=search)
    assert sorted(archive.contents) == [f"found/order/1/data/{each}/latest/data.xml" for each in "ac"]
    wanted = urlencode({"format": "xlsx", "search": search, "drafts": "include"})
    rows = sheets(service.raw("GET", f"{EXPORT}/found/order?{wanted}").body)["Documents"]
    once = sorted({row["Document"] for row in rows})
    assert once == ["a", "c"]
    assert len(rows) == (2 if services.is_proxied else 4)  # another service shows drafts to named users only


def test_an_export_of_a_search_waits_for_no_index(choice: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has not begun when the index turns out to be missing."""

    def search(*_: object) -> None:
        raise BusyError("the index is being made", 7)

    if services.is_proxied:
        pytest.skip("the index is that of the other service")
    for index in (TreeIndex, DatabaseIndex):
        monkeypatch.setattr(index, "search", search)
    answer = asked(choice, match="hr/leave", search="<search><query>x</query></search>")
    assert (answer.status, answer["Retry-After"]) == (503, "7")


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("?format=xlsx", "a table has the rows of one form, and 2 forms match"),
        ("/hr/leave?format=pdf", "format must be zip or xlsx or parquet, not 'pdf'"),
        ("/hr/leave?format=xlsx&content=form-data", "content and data-revision-history are parameters of an archive"),
        ("/hr/leave?lang=en", "lang is a parameter of a table, not of an archive"),
        *(
            (f"/hr/leave{rest}?{urlencode({'search': f'<search>{search}</search>'})}", cause)
            for rest, search, cause in (
                (
                    "",
                    '<query path="nothing" match="exact">x</query>',
                    "'nothing' is not an indexed control of hr/leave",
                ),
                ("", "<drafts>only</drafts>", "the search of an export has no drafts and no operations"),
                ("", '<query metadata="leased-by" match="exact">x</query>', "cannot have leased-by"),
                ("", "<qery/>", "a search has no element <qery>; the nearest is query"),
                ("/A", "<query>x</query>", "search is a parameter of an export of forms"),
            )
        ),
    ],
)
def test_an_export_of_something_else_is_refused(choice: Service, path: str, cause: str) -> None:
    assert choice.raw("GET", f"{EXPORT}{path}").refuses(400, cause)


def test_a_document_is_exported_with_the_definition_of_its_version(choice: Service) -> None:
    def parts(path: str) -> set[str]:
        archive = Archive(choice.raw("GET", f"{EXPORT}/hr/leave/{path}").body)
        return {"/".join(name.split("/")[2:5]) for name in archive.contents}

    assert parts("B") == {"2/form/latest", "2/data/B"}
    assert parts("A?content=form-definition") == {"1/form/latest"}
    if not services.is_proxied:
        assert parts("D?drafts=include") == {"1/form/latest", "1/draft/D"}
        assert "1/data/C" in parts("C?data-revision-history=include")


def test_entries_can_be_read_from_a_stream_by_java(choice: Service) -> None:
    """``java.util.zip.ZipInputStream`` refuses entries that are stored, and have their sizes after their contents."""
    archive = exported(choice)
    assert {each.compress_type for each in archive.zip.infolist()} == {zipfile.ZIP_DEFLATED}
    if not services.is_proxied:  # which knows no attachments of a definition that it does not name
        picture = archive.zip.getinfo("hr/leave/1/form/latest/logo.png")
        assert picture.compress_size > picture.file_size


def sidecars_of(tree: Path) -> dict[str, tuple[Sidecar, bytes]]:
    found = {}
    for file in tree.glob("*/*/*/*/**/*.json"):
        content = file.with_suffix("")
        folder = content.parent.parent if content.parent.name == HISTORY else content.parent
        older = revision_of(content.name) if content.parent.name == HISTORY else None
        name = content.name if older is None else older[1]
        address = f"{folder.relative_to(tree)}/{name}"
        sidecar = stored_revision.decode(file.read_bytes(), str(file), address)
        found[f"{address} {sidecar.modified}"] = (sidecar, b"" if sidecar.deleted else content.read_bytes())
    return found


def test_with_history_and_drafts_nothing_is_missing(service: Service, tmp_path: Path) -> None:
    """Every sidecar of the tree is in the archive with all its facts, and every content byte for byte."""
    stored(service)
    service.delete("hr/leave/form/form.xhtml", Form_Definition_Version=2)
    archive = exported(service, **ALL)
    tree = sidecars_of(tmp_path / "data")
    assert len(tree) == 16
    found = {}
    for name, metadata in archive.metadata.items():
        entry = parse_entry(name)
        where = (
            str(entry.address).removesuffix(f" version {entry.version}").replace("/form/", f"/form/{entry.version}/")
        )
        found[f"{where} {metadata.sidecar.modified}"] = (metadata.sidecar, archive.contents.get(name, b""))
    assert found == tree


@pytest.mark.parametrize(
    ("asked_for", "expected"),
    [
        ("/hr?content=form-data", {"A", "B"}),
        ("/hr/leave?content=form-data&form-version=1", {"A"}),
        ("/hr/leave?content=form-data&form-version=latest", {"B"}),
        ("/hr/leave/A?content=form-data&data-revision-history=include", {"A"}),
        ("?match=hr/leave/1&content=form-data", {"A"}),
        ("?match=hr/leave/2&content=form-data", {"B"}),
        ("?match=hr/leave/latest&content=form-data", {"B"}),
        ("?match=//latest&content=form-data", {"B", "E"}),
        ("?match=/leave/all&content=form-data", {"A", "B"}),
        ("?match=x//&content=form-data", {"E"}),
        ("?match=x&content=form-data", {"E"}),
        ("?match=nothing//&content=form-data", set()),
        ("?match=hr/leave/7&content=form-data", set()),
        ("?match=hr/leave&content=form-definition", set()),
        ("?match=hr/leave/1&match=hr//&match=x/y/latest", {"A", "B", "E"}),
        ("?match=x/y/1&content=form-data&match=hr/leave/2", {"B", "E"}),
        ("?content=form-data,form-definition", {"A", "B", "E"}),
        ("?content=form-data&data-last-modified-time-lt=2001-01-01", set()),
        ("?content=form-data&data-last-modified-time-gte=2001-01-01T00:00:00Z", {"A", "B", "E"}),
        ("?content=form-data&data-last-modified-time-gte=2999-01-01T00:00:00%2B01:00", set()),
    ],
)
def test_paths_patterns_contents_and_dates_choose(choice: Service, asked_for: str, expected: set[str]) -> None:
    """Spec runtime 6; in the query, or in the body of a POST."""
    path, _, query = asked_for.partition("?")
    posted = choice.raw("POST", EXPORT + path, {"Content-Type": FORM_TYPE}, query.encode())
    for answer in (choice.raw("GET", EXPORT + asked_for), posted):
        assert answer.status == 200, answer.cause
        names = Archive(answer.body).contents
        assert {name.split("/")[4] for name in names if "/data/" in name} == expected
        has_definitions = "content=" not in query or "form-definition" in query
        assert any("/form/" in name for name in names) is has_definitions


def test_history_and_dates_choose_revisions(choice: Service) -> None:
    archive = exported(choice, content="form-data", **{"data-revision-history": "only"})
    data = [body for name, body in archive.contents.items() if name.endswith("/data.xml")]
    assert sorted(data) == [b"<d>1</d>", b"<d>4</d>"]
    now = Instant(choice.head("hr/leave/data/A/data.xml").instant)
    parameters = {"match": "hr/leave/1", "content": "form-data", "data-revision-history": "include"}
    for bound, body in (("lt", b"<d>1</d>"), ("gte", b"<d>2</d>")):
        archive = exported(choice, **parameters, **{f"data-last-modified-time-{bound}": now})
        found = [body for name, body in archive.contents.items() if "/A/" in name and name.endswith("/data.xml")]
        assert found == [body]


BAD_PARAMETERS = [
    ("?match=a/b/1/2", 400, "APP/FORM/VERSION"),
    ("?match=hr/leave/0", 400, "positive integer"),
    ("?match=hr/leave/newest", 400, "positive integer"),
    ("?match=hr/nothing/all", 404, "there is no form hr/nothing"),
    ("?match=hr/..", 404, "no form"),
    ("?content=data", 400, "'data' is not a valid content"),
    ("?data-revision-history=yes", 400, "'yes' is not a valid data-revision-history"),
    ("?data-last-modified-time-gte=yesterday", 400, "must be a time"),
    ("?data-last-modified-time-lt=2025-02-30", 400, "must be a time"),
    ("?data-last-modified-time-gte=2025-02-02&data-last-modified-time-lt=2025-02-01", 400, "is not before"),
    ("?data-last-modified-time-gte=9999-12-31T23:59:59.9999Z", 400, "after the year 9999"),
    ("?drafts=only", 400, "exclude or include"),
    ("?decrypt=1", 400, "decrypt must be"),
    ("?content=form-data&content=form-data", 400, "twice"),
    ("?macth=hr/leave", 400, "no parameter 'macth', only match, content"),
    ("?" + "&".join(["match=a"] * 101), 400, "more than 100"),
    ("/hr/leave/none?content=form-data", 404, "none"),
    ("/hr/none", 404, "none"),
    *((f"/hr/leave/{rest}", 404, "") for rest in ("B?form-version=1", "C", "C?form-version=latest", "D")),
    ("/hr/leave/%00", 400, ""),
    ("/hr?match=hr/leave", 400, "match"),
]


@pytest.mark.parametrize(("query", "status", "cause"), BAD_PARAMETERS)
def test_bad_parameters_are_refused_with_their_cause(choice: Service, query: str, status: int, cause: str) -> None:
    assert choice.raw("GET", EXPORT + query).refuses(status, cause)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/xml", b"<match/>"),
        *((FORM_TYPE, body) for body in (b"\xff", b"match=%ff", b"&".join([b"match=a"] * 1000))),
    ],
)
def test_bad_bodies_are_refused(choice: Service, kind: str, body: bytes) -> None:
    assert choice.raw("POST", EXPORT, {"Content-Type": kind}, body).status == 400


def test_nobody_else_may_export(tmp_path: Path) -> None:
    with a_service(tmp_path, more='trusted = ["127.0.0.1"]') as service:
        assert exported(service).names == []
        service.extra = {"Authorization": f"Bearer {key_of(tmp_path, 'other')}"}
        assert asked(service).status == 403
        service.extra = {}
        assert asked(service).refuses(403, "administrators")
    with serving(tmp_path / "open") as service:
        assert asked(service).status == 403


def test_what_is_damaged_is_left_out_and_named(tmp_path: Path) -> None:
    with a_service(tmp_path) as service:
        stored(service)
        folder = tmp_path / "data/hr/leave/data"
        (folder / "B/data.xml").write_bytes(b"<cut")
        book = sheets(service.raw("GET", f"{EXPORT}/hr/leave?format=xlsx&form-version=all").body)
        (folder / "A/a b.bin.json").write_bytes(b"{}")
        rotten = folder / "A/x.metadata.xml"
        stamp = rotten.stat().st_mtime_ns
        rotten.write_bytes(b"mind")  # of the same size and time: only the digest tells
        os.utime(rotten, ns=(stamp, stamp))
        archive = exported(service)
    assert [row["Document"] for row in book["Documents"]] == ["A"]
    assert list(book)[-1] == "Problems"
    assert ["B/data.xml" in row["Problems"] for row in book["Problems"]] == [True]
    names = {name.split("/", 3)[3] for name in archive.contents if "/data/" in name}
    assert len(names) == 2
    assert not any("/B/" in name for name in archive.names)
    expected = ["B/data.xml", "a b.bin", "x.metadata.xml"]
    assert sorted(name for line in archive.errors for name in expected if name in line) == expected


def test_entries_of_more_than_4_gib_are_of_the_larger_format(choice: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit of the smaller format set to a few bytes, in entries and in the directory."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 50)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 3)
    monkeypatch.setattr(exporting, "SPOOLED_DIRECTORY", 100)
    body = asked(choice, **ALL).body
    monkeypatch.undo()
    assert b"PK\x06\x06" in body
    archive = Archive(body)
    assert archive.zip.infolist()[0].extract_version == 45
    assert archive.contents == exported(choice, **ALL).contents


def test_a_disk_that_stops_breaks_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sees that the answer is not whole, and the next request is served."""
    with a_service(tmp_path) as service:
        for number in range(20):
            service.put(f"hr/leave/data/{number}/data.xml", b"<d>%s</d>" % (b"x" * 100_000), **V1)

        def refuse(*_: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(exporting._Directory, "__iter__", refuse)  # noqa: SLF001 - no disk breaks at will
        with pytest.raises(Exception, match="IncompleteRead"):
            asked(service)
        monkeypatch.undo()
        assert len(exported(service).contents) == 20


def test_a_client_that_goes_away_leaves_nothing_open(tmp_path: Path) -> None:
    with a_service(tmp_path) as service:
        for number in range(30):
            body = b"<d>%s</d>" % bytes(range(65, 90)) * 40_000
            service.put(f"hr/leave/data/{number}/a.bin", body, {"Content-Type": "image/png"}, **V1)
        before = set(open_files(tmp_path))
        for _ in range(8):  # more than there are threads
            with socket.create_connection(("127.0.0.1", service.port)) as client:
                fields = "\r\n".join(f"{name}: {value}" for name, value in service.extra.items())
                client.sendall(f"GET {EXPORT} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n".encode())
                assert b"200" in client.recv(200)
        assert service.get("hr/leave/data/1/a.bin").status == 404  # a thread answers, if only that there is no data
        eventually(lambda: not set(open_files(tmp_path)) - before)


def open_files(tree: Path) -> Iterator[str]:
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith(str(tree)) and "/hr/leave/" in target:
            yield target


def test_a_document_that_changes_meanwhile_is_of_one_state(tmp_path: Path) -> None:
    """What is replaced after its document was looked at is read from the history."""
    with a_service(tmp_path) as service:
        service.put("hr/leave/data/A/data.xml", b"<d>1</d>", **V1)
        service.put("hr/leave/data/A/a.bin", b"1", **V1)
        looked = exporting._Folder._stable  # noqa: SLF001

        def slowly(folder: exporting._Folder) -> dict[str, object]:
            known = looked(folder)
            service.put("hr/leave/data/A/data.xml", b"<d>2</d>")
            service.put("hr/leave/data/A/a.bin", b"2")
            return dict(known)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exporting._Folder, "_stable", slowly)  # noqa: SLF001
            archive = exported(service)
        assert sorted(archive.contents.values()) == [b"1", b"<d>1</d>"]
        assert archive.errors == []


def test_a_real_service_streams_without_a_length(tmp_path: Path) -> None:
    with a_service(tmp_path, is_real=True) as service:
        stored(service)
        answer = asked(service)
        assert (answer["Content-Length"], answer["Transfer-Encoding"]) == (None, "chunked")
        disposition = answer["Content-Disposition"] or ""
        assert disposition.startswith('attachment; filename="export-')
        assert Archive(answer.body).contents


# What is encrypted, what is in other places, and archives of the real system.


CONTENT = random.Random(7).randbytes(300_000)
REAL = (
    b'<metadata>\n  <created-by username="ann" groupname="staff"/>\n  <last-modified-by username="bob"/>\n'
    b"  <workflow-stage>started</workflow-stage>\n</metadata>"
)


@pytest.fixture(params=["hr/leave", "apart/leave"])
def encrypted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Service, str]]:
    """A service with a form that has encrypted controls; the attachments of the second are in another directory."""
    EncryptionKeys(str(tmp_path / "ring.json"), trees=[str(tmp_path / "data")]).new()
    more = 'encryption_keys = "ring.json"\n' + services.attachments_apart("apart.*", "big", tmp_path / "big")
    form = request.param
    with a_service(tmp_path, more=more) as service:
        assert service.put(f"{form}/form/form.xhtml", DEFINITION).status == 201
        for body, holder in ((CONTENT, "person/scan"), (b"open", "person/photo")):
            name = "scan.bin" if body == CONTENT else "photo.bin"
            kind = {"Content-Type": "application/octet-stream"}
            service.put(
                f"{form}/data/D/{name}", body, kind, **V1, Path_To_Holder=holder, Hash_Value="x", Hash_Algorithm="y"
            )
        saved = data(scan=path(form, "D", "scan.bin"), photo=path(form, "D", "photo.bin"))
        assert service.put(f"{form}/data/D/data.xml", saved, **V1).status == 201
        yield service, form


def by_file(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {name.rpartition("/")[2]: body for name, body in contents.items() if "/data/" in name}


def test_stored_bytes_are_exported_as_they_are(encrypted: tuple[Service, str], tmp_path: Path) -> None:
    service, form = encrypted
    archive = exported(service)
    found = by_file(archive.contents)
    assert found["data.xml"] == (tmp_path / "data" / form / "data/D/data.xml").read_bytes()
    assert not any(secret.encode() in found["data.xml"] for secret in SECRETS)
    assert found["scan.bin"].startswith(MAGIC)
    assert found["photo.bin"] == b"open"
    for name in archive.contents:
        sidecar = archive.sidecar(name)
        assert (sidecar.body, sidecar.size) == (None, len(archive.contents[name]))
        if name.endswith("scan.bin"):
            assert (sidecar.encrypted, sidecar.sealed_hash is not None) == (True, True)
    assert archive.errors == []


def test_decrypted_only_when_asked_for_and_only_with_the_key(encrypted: tuple[Service, str], tmp_path: Path) -> None:
    service, _ = encrypted
    archive = exported(service, decrypt="true")
    found = by_file(archive.contents)
    texts = [each.text for each in etree.fromstring(found["data.xml"]).iter("ssn", "name", "note")]
    assert texts == [SECRETS[0], OPEN, *SECRETS[1:]]
    assert (found["scan.bin"], found["photo.bin"]) == (CONTENT, b"open")
    for name, metadata in archive.metadata.items():
        sidecar = archive.sidecar(name)
        assert metadata.is_decrypted is name.endswith(("data.xml", "scan.bin"))
        facts = sidecar.size, bool(sidecar.encrypted), sidecar.sealed_hash
        assert facts == (len(archive.contents[name]), False, None)
        if name.endswith("scan.bin"):
            assert sidecar.client_hash.value == "x"
    (tmp_path / "ring.json").unlink()
    archive = exported(service, decrypt="true")
    assert (sorted(by_file(archive.contents)), len(archive.errors)) == (["photo.bin"], 2)
    assert sorted(by_file(exported(service).contents)) == ["data.xml", "photo.bin", "scan.bin"]


def test_what_does_not_decrypt_is_left_out_whole(encrypted: tuple[Service, str], tmp_path: Path) -> None:
    """Also where only its last bytes are damaged: no entry is begun that could not be ended."""
    service, form = encrypted
    root = tmp_path / ("big" if form.startswith("apart") else "data") / form / "data"
    [file] = root.rglob("scan.bin")
    stamp, body = file.stat().st_mtime_ns, bytearray(file.read_bytes())
    body[-5] ^= 1
    file.write_bytes(body)
    os.utime(file, ns=(stamp, stamp))
    archive = exported(service, decrypt="true")
    assert sorted(by_file(archive.contents)) == ["data.xml", "photo.bin"]
    assert ["scan.bin" in line for line in archive.errors] == [True]


def real_archive(history: str) -> bytes:
    """An archive of the real system (spec runtime 7): Java notes creation only in the header before a content."""
    older, newer = "2023-11-14T22:13:20Z", "2023-11-14T23:13:20.456Z"
    moments = ("latest",) if history == "exclude" else (newer, older)
    files = {"a/f/2/form/latest/form.xhtml": FORM, "a/f/2/data/e/latest/data.xml": b"<d>e</d>"}
    for moment in moments:
        name = f"a/f/2/data/d/{moment}/data.xml"
        files |= {name: f"<d>{moment}</d>".encode(), f"{name}.metadata.xml": REAL}
    files |= {"a/f/2/data/d/latest/scan.bin": CONTENT, "a/f/2/data/d/latest/\xe4.txt": b"text"}
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            if name.endswith(("/data.xml", "/form.xhtml")):
                modified = 1_700_000_000 if older in name else 1_700_003_600
                entry.extra = struct.pack("<HHBll", 0x5455, 9, 5, modified, 1_700_000_000)
            archive.writestr(entry, content)
            entry.extra = entry.extra and struct.pack("<HHBl", 0x5455, 5, 5, modified)
    return held.getvalue()


@pytest.mark.parametrize("history", ["exclude", "include"])
def test_an_archive_of_the_real_system_is_imported(tmp_path: Path, history: str) -> None:
    """And its export is equal: tests/postgresql/test_commands.py and tests/services/test_import_real_layout.py."""
    kind, archive = {"Content-Type": "application/zip"}, real_archive(history)
    with a_service(tmp_path) as service:
        for query, status in (("?dry-run=true", 404), ("", 200)):
            report = etree.fromstring(service.raw("POST", f"{PUBLIC}/import{query}", kind, archive).body)
            assert (report.get("refused"), report.find("documents").get("imported")) == ("0", "2")
            assert [found.get("name") for found in report.findall("without-owner")] == ["a/f/data/e"]
            assert service.get("a/f/data/d/data.xml").status == status
        found = [service.get(f"a/f/data/{name}") for name in ("d/data.xml", "e/data.xml", "d/scan.bin", "d/%C3%A4.txt")]
        own = ("Username", "Group", "Last-Modified-By-Username", "Workflow-Stage", "Created", "Last-Modified")
        facts = [[answer[service.prefix + name] for name in own] for answer in found[:2]]
        assert service.get("a/f/form/form.xhtml", Form_Definition_Version=2).body == FORM
    created, modified = "2023-11-14T22:13:20.000Z", f"2023-11-14T23:13:20.{'000' if history == 'exclude' else '456'}Z"
    assert facts[0] == ["ann", "staff", "bob", "started", created, modified]
    assert facts[1] == [None, None, None, None, created, "2023-11-14T23:13:20.000Z"]
    assert [(answer.status, answer.body) for answer in found[2:]] == [(200, CONTENT), (200, b"text")]
