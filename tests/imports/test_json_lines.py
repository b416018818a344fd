"""JSON lines, as a script writes them: documents, drafts, definitions, their attachments and facts."""

from __future__ import annotations

import base64
import io
import json

import pytest

from persistence.limits import LONGEST_LINE
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.services.import_plans import OnConflict
from persistence.services.import_sources import open_source
from persistence.storage.store import Store
from tests.forms.vectors import Form as FormDocument
from tests.imports.archives import tree
from tests.imports.importing import LARGEST, importer, lines_source, results, run

FORM = Form("a", "f")
DATA = DocumentAddress(FORM, Collection.DATA, "d", DATA_XML)
T1, T2, T3 = (f"2025-03-0{day}T05:06:07.089Z" for day in (4, 5, 6))
TAG = "0123456789" * 4
DEFINITION = FormDocument("<form/>", "", "").document()


def line(**fields: object) -> bytes:
    return json.dumps({"app": "a", "form": "f", **fields}).encode() + b"\n"


def content(store: Store, address: DocumentAddress | DefinitionAddress) -> bytes:
    found = store.read(address, content=True)
    assert found is not None
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


def test_a_document_with_its_facts_is_imported(store: Store) -> None:
    fields = {"creator": "anna", "group": "sales", "organization": ["x", "y"], "modifier": "berta", "stage": "begun"}
    scan = {"name": "scan.png", "content": base64.b64encode(b"\x00png").decode(), "content_type": "image/png"}
    document = line(
        document="d",
        version=3,
        data="<d>\u00e4</d>",
        created=T1,
        modified=T2,
        etag=TAG,
        valid=True,
        **fields,
        attachments=[scan, {"name": "notes.txt", "content": ""}],
    )
    assert results(run(importer(store), lines_source(document))) == [("line 1", "imported")]
    sidecar = store.sidecar(DATA)
    assert sidecar is not None
    assert (sidecar.version, sidecar.created, sidecar.modified, sidecar.etag) == (3, T1, T2, TAG)
    assert (sidecar.creator, sidecar.group, sidecar.organization) == ("anna", "sales", ("x", "y"))
    assert (sidecar.modifier, sidecar.stage, sidecar.valid) == ("berta", "begun", True)
    assert content(store, DATA) == "<d>\u00e4</d>".encode()
    attached = store.sidecar(DATA.moved(Collection.DATA, "scan.png"))
    assert attached is not None
    assert (attached.content_type, attached.modified) == ("image/png", T2)
    assert content(store, DATA.moved(Collection.DATA, "scan.png")) == b"\x00png"
    assert results(run(importer(store), lines_source(document))) == [("line 1", "unchanged")]


def test_lines_of_one_document_become_its_history(store: Store) -> None:
    scan = [{"name": "scan.png", "content": "AAAA"}]
    lines = line(document="d", data="<one/>", modified=T1, attachments=scan)
    lines += line(document="d", data="<two/>", modified=T2, attachments=scan)
    lines += line(document="d", deleted=True, modified=T3, modifier="anna")
    found = run(importer(store), lines_source(lines))
    assert [(each.result.value, each.placed, each.known) for each in found] == [
        ("imported", 2, 0),
        ("imported", 1, 1),
        ("imported", 1, 0),
    ]
    history = store.history(DATA)
    assert history is not None
    assert [history.instant(at) for at in range(history.total)] == [T3, T2, T1]
    again = run(importer(store), lines_source(lines))
    assert {each.result.value for each in again} == {"unchanged"}


def test_definitions_come_before_the_data_that_names_them_first(store: Store) -> None:
    lines = line(document="d", data="<d/>") + line(
        version=4, definition=DEFINITION, attachments=[{"name": "logo.png", "content": "AAAA"}]
    )
    assert results(run(importer(store), lines_source(lines))) == [("line 2", "imported"), ("line 1", "imported")]
    sidecar = store.sidecar(DATA)
    assert sidecar is not None
    assert sidecar.version == 4
    assert content(store, DefinitionAddress(FORM, 4, FORM_XHTML)) == DEFINITION.encode()
    assert content(store, DefinitionAddress(FORM, 4, "logo.png")) == b"\0\0\0"


def test_a_line_without_times_is_of_now_and_is_not_stored_twice(store: Store) -> None:
    lines = line(document="d", data="<d/>") + line(document="d", data="<d/>", draft=True)
    assert [each for _, each in results(run(importer(store), lines_source(lines)))] == ["imported"] * 2
    before = tree(store.root)
    assert [each for _, each in results(run(importer(store), lines_source(lines)))] == ["unchanged"] * 2
    assert tree(store.root) == before


BAD_LINES = {
    "no JSON": b"{",
    "a list": b"[]",
    "deep nesting": b'{"app":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a number as text": line(document="d", data=1),
    "an unknown field": line(document="d", data="<d/>", owner="anna"),
    "no data": line(document="d"),
    "data and definition": line(document="d", data="<d/>", definition=DEFINITION),
    "a definition without version": line(definition=DEFINITION),
    "data of no document": line(data="<d/>"),
    "a deleted document with data": line(document="d", deleted=True, data="<d/>"),
    "a version of zero": line(document="d", data="<d/>", version=0),
    "a version that no request can name": line(document="d", data="<d/>", version=10**9),
    "no Base64": line(document="d", data="<d/>", attachments=[{"name": "x", "content": "?"}]),
    "two attachments of one name": line(
        document="d", data="<d/>", attachments=[{"name": "x", "content": ""}, {"name": "x", "content": "AAAA"}]
    ),
    "an attachment called data.xml": line(document="d", data="<d/>", attachments=[{"name": DATA_XML, "content": ""}]),
    "an attachment that leads elsewhere": line(
        document="d", data="<d/>", attachments=[{"name": "../x", "content": ""}]
    ),
    "a time that is none": line(document="d", data="<d/>", modified="yesterday"),
    "a time to come": line(document="d", data="<d/>", modified="9999-01-01T00:00:00Z"),
    "a time after the last one": line(document="d", data="<d/>", modified="9999-12-31T23:59:59.9999Z"),
    "modified before created": line(document="d", data="<d/>", modified=T1, created=T2),
    "a creator of two lines": line(document="d", data="<d/>", creator="a\nb"),
    "a creator of 256 characters": line(document="d", data="<d/>", creator="a" * 256),
    "a tag that is none": line(document="d", data="<d/>", etag="x"),
    "a content type that is none": line(
        document="d", data="<d/>", attachments=[{"name": "x", "content": "", "content_type": "png"}]
    ),
    "data that is not well-formed": line(document="d", data="<d>"),
    "half a character": b'{"app":"a","form":"f","document":"d","data":"<d>\\ud800</d>"}\n',
    "a document with a slash": line(document="a/b", data="<d/>"),
    "permissions that are unknown": line(
        version=1,
        definition=DEFINITION.replace(
            "<metadata>", "<metadata><permissions><permission operations='x'/></permissions>"
        ),
    ),
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


CONFLICTS = [
    (line(document="d", data="<other/>", modified=T2), "another revision"),
    (line(document="d", data="<other/>", modified=T1), "newer revision"),
    (line(document="d", data="<other/>"), "another content"),
]


@pytest.mark.parametrize(("lines", "cause"), CONFLICTS)
def test_what_differs_here_is_never_overwritten(store: Store, lines: bytes, cause: str) -> None:
    into = importer(store)
    run(into, lines_source(line(document="d", data="<here/>", modified=T2, creator="anna")))
    before = tree(store.root)
    found = run(into, lines_source(lines))
    assert results(found) == [("line 1", "refused")]
    assert cause in found[0].cause
    assert results(run(into, lines_source(lines), on_conflict=OnConflict.SKIP)) == [("line 1", "skipped")]
    assert tree(store.root) == before
    renewed = run(into, lines_source(lines), on_conflict=OnConflict.NEW_REVISION)
    assert results(renewed) == [("line 1", "imported")]
    assert content(store, DATA) == b"<other/>"
    sidecar = store.sidecar(DATA)
    assert sidecar is not None
    assert (sidecar.creator, sidecar.modified > T2) == ("anna", True)
    older = store.history(DATA)
    assert older is not None
    assert older.total == 2


def test_a_draft_that_is_here_is_not_removed_by_a_newer_save(store: Store) -> None:
    into = importer(store)
    run(into, lines_source(line(document="d", data="<here/>", modified=T1)))
    run(into, lines_source(line(document="d", data="<draft/>", draft=True, modified=T2)))
    found = run(into, lines_source(line(document="d", data="<newer/>", modified=T3)))
    assert results(found) == [("line 1", "refused")]
    assert "draft" in found[0].cause
    other = run(
        into,
        lines_source(line(document="d", data="<other/>", draft=True, modified=T3)),
        on_conflict=OnConflict.NEW_REVISION,
    )
    assert results(other) == [("line 1", "refused")], "a draft has no history that would keep the one here"
    assert content(store, DATA.moved(Collection.DRAFT)) == b"<draft/>"


def test_a_newer_revision_is_stored_over_an_older_one(store: Store) -> None:
    into = importer(store)
    run(into, lines_source(line(document="d", data="<one/>", modified=T1)))
    assert results(run(into, lines_source(line(document="d", data="<two/>", modified=T2)))) == [("line 1", "imported")]
    assert store.read_revision(DATA, T1, content=False) is not None  # type: ignore[arg-type]


def test_a_dry_run_says_the_same_and_stores_nothing(store: Store) -> None:
    lines = line(document="d", data="<d/>", modified=T1) + line(document="e", data="<e>")
    dry = run(importer(store), lines_source(lines), is_dry=True)
    assert tree(store.root) == {}
    assert run(importer(store), lines_source(lines)) == dry
