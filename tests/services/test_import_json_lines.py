"""JSON lines, as a script writes them: encodings and limits; the rest is in ``golden/lines.txt``."""

import io
import json

import pytest

from persistence.limits import LONGEST_LINE
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.services import transfers
from persistence.services.import_sources import open_source
from persistence.services.transfers import ImportReport
from persistence.storage.store import Store
from tests.forms.vectors import Form as FormDocument
from tests.services.transferring import LARGEST, importer, lines_source, results, run, tree

FORM = Form("a", "f")
DATA = DocumentAddress(FORM, Collection.DATA, "d", DATA_XML)
T1, T2, T3 = (f"2025-03-0{day}T05:06:07.089Z" for day in (4, 5, 6))
TAG = "0123456789" * 4
DEFINITION = FormDocument("<form/>", "", "").document()


def line(**fields: object) -> bytes:
    return json.dumps({"app": "a", "form": "f", **fields}).encode() + b"\n"


def content(store: Store, address: DocumentAddress | DefinitionAddress) -> bytes:
    found = store.read(address, content=True)
    with found.opened as file:
        return file.read()


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "windows-1252", "UTF-16", "US-ASCII", "utf-8", "unknown"])
@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("begin", ["", "\ufeff"])
def test_text_is_not_in_the_encoding_that_it_declares(store: Store, encoding: str, quote: str, begin: str) -> None:
    """It is decoded already: café became cafÃ©. The rest of the declaration stays."""
    whole = f"{begin}<?xml version='1.0' encoding={quote}{encoding}{quote} standalone='yes'?><d>caf\u00e9 \u20ac</d>"
    assert results(run(importer(store), lines_source(line(document="d", data=whole)))) == [("line 1", "imported")]
    stored = f"{begin}<?xml version='1.0' standalone='yes'?><d>caf\u00e9 \u20ac</d>"
    assert content(store, DATA) == stored.encode()


def test_a_definition_is_not_in_the_encoding_that_it_declares(store: Store) -> None:
    definition = f'<?xml version="1.0" encoding="UTF-16"?>{DEFINITION}'
    assert results(run(importer(store), lines_source(line(version=1, definition=definition)))) == [
        ("line 1", "imported")
    ]
    assert content(store, DefinitionAddress(FORM, 1, FORM_XHTML)) == f'<?xml version="1.0"?>{DEFINITION}'.encode()


def test_an_entity_tag_is_kept(store: Store) -> None:
    assert results(run(importer(store), lines_source(line(document="d", data="<d/>", etag=TAG)))) == [
        ("line 1", "imported")
    ]
    sidecar = store.sidecar(DATA)
    assert sidecar.etag == TAG


BAD_LINES = {
    "deep nesting": b'{"app":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a creator of two lines": line(document="d", data="<d/>", creator="a\nb"),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_bad_line_is_refused_by_its_number_and_the_others_are_imported(store: Store, kind: str) -> None:
    lines = b"\n" + BAD_LINES[kind].rstrip(b"\n") + b"\n" + line(document="good", data="<d/>")
    found = results(run(importer(store), lines_source(lines)))
    assert sorted(found) == [("line 2", "refused"), ("line 3", "imported")]
    assert {path.rpartition("/")[0] for path in tree(store.root)} == {"a/f/data/good"}


def test_a_byte_order_mark_does_not_matter(store: Store) -> None:
    lines = b"\xef\xbb\xbf" + line(document="d", data="<d/>")
    assert results(run(importer(store), lines_source(lines))) == [("line 1", "imported")]


def test_a_line_that_is_too_long_is_not_held(store: Store) -> None:
    lines = b'{"app":"' + b"x" * (LONGEST_LINE + 5) + b'"}\n' + line(document="good", data="<d/>")
    source = open_source("x", io.BytesIO(lines), largest=LARGEST)
    assert results(run(importer(store), source)) == [("line 1", "refused"), ("line 2", "imported")]


def counted(store: Store, lines: bytes) -> dict[str, object]:
    report = ImportReport()
    for outcome in run(importer(store), lines_source(lines)):
        report.add(outcome)
    return report.facts()


def test_a_document_of_several_lines_counts_once(store: Store) -> None:
    """Four documents of two revisions each, one line for each: the older ones first, then the newer ones."""
    scan = [{"name": "scan.png", "content": "c2Nhbg=="}]
    older = [line(document=f"d{each}", data="<d/>", modified=T1, attachments=scan) for each in range(4)]
    newer = [line(document=f"d{each}", data="<e/>", modified=T2, attachments=scan) for each in range(4)]
    drafts = [line(document="d0", draft=True, data="<f/>", modified=T3)]
    counts = {"skipped": 0, "refused": 0}
    first = counted(store, b"".join((*older, *newer, *drafts)))
    assert first["documents"] == {"imported": 4, "unchanged": 0, **counts}
    assert first["drafts"] == {"imported": 1, "unchanged": 0}
    assert first["attachments"] == {"imported": 4, "unchanged": 0}
    assert first["revisions"] == {"new": 8, "known": 0}
    more = counted(store, b"".join((*older, *newer, line(document="d0", deleted=True, modified="2025-03-07"))))
    assert more["documents"] == {"imported": 0, "unchanged": 4, "skipped": 0, "refused": 1}
    more = counted(store, b"".join((*older, *newer, line(document="d1", data="<g/>", modified=T3))))
    assert more["documents"] == {"imported": 1, "unchanged": 3, **counts}
    assert more["revisions"] == {"new": 1, "known": 8}


def test_a_report_forgets_what_came_long_ago(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(transfers, "MOST_REMEMBERED", 2)
    lines = [
        line(document=each, data=f"<d{number}/>", modified=T1 if each == "a" else T2)
        for number, each in enumerate("abc")
    ]
    found = counted(store, b"".join((*lines, lines[2], lines[0])))
    assert found["documents"] == {"imported": 3, "unchanged": 1, "skipped": 0, "refused": 0}
