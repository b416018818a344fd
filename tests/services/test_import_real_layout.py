"""Archives of the real system: without facts of this service, or with facts of a shape that is not published."""

import io
import random
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from persistence.errors import BadRequestError
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.queries import RevisionHistory
from persistence.services.import_plans import ImportSource
from persistence.services.import_sources import open_source
from persistence.services.transfers import TransferResult
from persistence.storage.store import Store
from tests.forms.vectors import Form as FormDocument
from tests.initialised import initialised
from tests.services.test_import_json_lines import T1, T2, line
from tests.services.transferring import (
    LARGEST,
    export_of,
    importer,
    lines_source,
    results,
    run,
    tree,
    zip_source,
    zipped,
)

FORM = Form("a", "f")
DATA = DocumentAddress(FORM, Collection.DATA, "d", DATA_XML)
METADATA = (
    b'<metadata xmlns="urn:other"><owner><username>anna</username><groupname>sales</groupname></owner>'
    b"<last-modified-by>berta</last-modified-by><workflow-stage>begun</workflow-stage><colour>red</colour></metadata>"
)
FILES = {
    "a/f/2/form/latest/form.xhtml": FormDocument("<form/>", "", "").document().encode(),
    "a/f/2/form/latest/logo.png": b"png",
    f"a/f/2/data/d/{T2}/data.xml": b"<two/>",
    f"a/f/2/data/d/{T1.replace('.089', '')}/data.xml": b"<one/>",
    "a/f/2/data/d/latest/scan.jpg": b"scan",
    f"a/f/2/data/d/{T2}/data.xml.metadata.xml": METADATA,
}


def zip_of(data: bytes) -> ImportSource:
    return open_source("real.zip", io.BytesIO(data), largest=LARGEST)


COMPOSED, DECOMPOSED = "\u00e9.png", "e\u0301.png"


@pytest.mark.parametrize(
    ("named", "there", "stored"),
    [
        ("/x/%C3%A9.png", [DECOMPOSED], [COMPOSED]),
        (f"/x/{COMPOSED}", [DECOMPOSED], [COMPOSED]),
        ("/x/e%CC%81.png", [DECOMPOSED], [DECOMPOSED]),
        (f"/x/{COMPOSED} /x/{DECOMPOSED}", [DECOMPOSED], [DECOMPOSED]),
        (f"/x/{COMPOSED}", [DECOMPOSED, COMPOSED], [DECOMPOSED, COMPOSED]),
        (f"/x/{DECOMPOSED}", [COMPOSED], [COMPOSED]),
        ("", [DECOMPOSED], [DECOMPOSED]),
    ],
)
@pytest.mark.parametrize("is_definition", [True, False])
def test_an_attachment_has_its_name_as_the_data_has_it(
    store: Store, named: str, there: list[str], stored: list[str], *, is_definition: bool
) -> None:
    """As decomposed by macOS, it would not be what the data names, and a purge of orphans would remove it."""
    folder = "a/f/1/form/latest" if is_definition else "a/f/1/data/d/latest"
    form = FormDocument(f"<form>{named}</form>", "", "").document().encode()
    main = {f"{folder}/form.xhtml": form} if is_definition else {f"{folder}/data.xml": f"<d>{named}</d>".encode()}
    outcomes = run(importer(store), zip_source({**main, **{f"{folder}/{name}": name.encode() for name in there}}))
    assert [each.result for each in outcomes] == [TransferResult.IMPORTED]
    assert any("as the data has it" in note for note in outcomes[0].notes) is (there != stored)
    address = DefinitionAddress(FORM, 1, FORM_XHTML) if is_definition else DATA
    assert sorted(store.names(address)) == sorted([*stored, address.name])


def test_its_layout_gives_revisions_at_their_times(store: Store) -> None:
    outcomes = run(importer(store), zip_source(FILES))
    assert results(outcomes) == [("a/f/form/2", "imported"), ("a/f/data/d", "imported")]
    history = store.history(DATA)
    assert [history.instant(at) for at in range(history.total)] == [T2, T1.replace(".089", ".000")]
    current = history.revision(0)
    newest = current.sidecar
    assert (newest.version, newest.creator, newest.group) == (2, "anna", "sales")
    assert (newest.modifier, newest.stage, newest.created) == ("berta", "begun", T1.replace(".089", ".000"))
    scan = store.sidecar(DATA.moved(Collection.DATA, "scan.jpg"))
    assert (scan.content_type, scan.modified) == ("image/jpeg", T1.replace(".089", ".000"))
    definition = store.sidecar(DefinitionAddress(FORM, 2, FORM_XHTML))
    assert definition.metadata is not None
    assert "the element <colour> of the metadata is not known, and left out" in outcomes[1].notes


def test_an_archive_that_was_unpacked_is_a_folder(store: Store, tmp_path: Path) -> None:
    for name, content in FILES.items():
        path = tmp_path / "unpacked" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    outcomes = run(importer(store), open_source(str(tmp_path / "unpacked"), None, largest=LARGEST))
    assert {each.result for each in outcomes} == {TransferResult.IMPORTED}
    before = tree(store.root)
    assert {each.result for each in run(importer(store), zip_source(FILES))} == {TransferResult.UNCHANGED}
    assert tree(store.root) == before


@pytest.mark.parametrize("prefix", ["crud/", "fr/service/persistence/crud/"])
def test_paths_of_the_interface_are_understood(store: Store, prefix: str) -> None:
    files = {
        "a/f/form/form.xhtml": FILES["a/f/2/form/latest/form.xhtml"],
        "a/f/form/3/form.xhtml": FILES["a/f/2/form/latest/form.xhtml"],
        "a/f/data/d/data.xml": b"<d/>",
        "a/f/draft/d/data.xml": b"<e/>",
    }
    outcomes = run(importer(store), zip_source({prefix + name: content for name, content in files.items()}))
    assert sorted(results(outcomes)) == [
        ("a/f/data/d", "imported"),
        ("a/f/form/1", "imported"),
        ("a/f/form/3", "imported"),
    ]
    saved = store.sidecar(DATA)
    assert saved.version == 3
    assert store.sidecar(DATA.moved(Collection.DRAFT)) is not None


def test_data_of_another_version_than_here_is_refused(store: Store) -> None:
    run(importer(store), lines_source(line(document="d", version=1, data="<d/>", modified=T1)))
    found = run(importer(store), lines_source(line(document="d", version=2, data="<e/>", modified=T2)))
    assert results(found) == [("line 1", "refused")]
    assert "version" in found[0].cause


def test_an_archive_with_any_bytes_changed_has_an_answer(store: Store) -> None:
    """Whatever is wrong with it, it is refused as a whole or in parts, and nothing else happens."""
    random.seed(15)
    archive = zipped(FILES)
    answered = set()
    into = importer(store)
    for _ in range(400):
        changed = bytearray(archive)
        for _ in range(random.choice((1, 2, 8))):
            changed[random.randrange(len(changed))] = random.randrange(256)
        if random.random() < 0.1:
            del changed[random.randrange(len(changed)) :]
        try:
            source = open_source("x", io.BytesIO(bytes(changed)), largest=LARGEST)
            answered |= {each.result for each in run(into, source, is_dry=True)}
        except BadRequestError:
            answered.add(None)
    assert {None, TransferResult.REFUSED, TransferResult.IMPORTED} <= answered
    assert tree(store.root) == {}


REAL = b"""<metadata><created-by username="J&#xfc;rgen &#x674e;" groupname="staff"/><last-modified-by username="bob"/>
    <workflow-stage>started</workflow-stage></metadata>"""
OTHER = b'<metadata><created-by username="eve"/></metadata>'
CREATED, MODIFIED = 1_700_000_000, 1_700_003_600


def real_zip(files: Mapping[str, bytes], *, in_directory: bool = False) -> bytes:
    """A ZIP file as the real system writes it: the time of creation is in the headers before the contents only."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.extra = struct.pack("<HHBll", 0x5455, 9, 5, MODIFIED, CREATED)
            archive.writestr(entry, content)
            if not in_directory:
                entry.extra = struct.pack("<HHBl", 0x5455, 5, 5, MODIFIED)
    return held.getvalue()


def facts(store: Store, document: str, name: str = DATA_XML) -> tuple[object, ...]:
    found = store.sidecar(DocumentAddress(FORM, Collection.DATA, document, name))
    return found.creator, found.group, found.modifier, found.stage, found.created, found.modified


SAVED = ("2023-11-14T22:13:20.000Z", "2023-11-14T23:13:20.000Z")
LATEST = {
    "a/f/2/form/latest/form.xhtml": FILES["a/f/2/form/latest/form.xhtml"],
    "a/f/2/data/d/latest/data.xml": b"<two/>",
    "a/f/2/data/d/latest/data.xml.metadata.xml": REAL,
    "a/f/2/data/d/latest/scan.bin": b"scan",
    "a/f/2/data/d/latest/scan.bin.metadata.xml": OTHER,
    "a/f/2/data/e/latest/data.xml": b"<three/>",
}


@pytest.mark.parametrize("in_directory", [False, True])
def test_facts_of_the_real_export_are_attributes_and_timestamps(store: Store, *, in_directory: bool) -> None:
    """Spec runtime 7. A document without metadata comes without an owner, and is named."""
    outcomes = run(importer(store), zip_of(real_zip(LATEST, in_directory=in_directory)))
    assert [(each.name, each.lacks_owner) for each in outcomes[1:]] == [("a/f/data/d", False), ("a/f/data/e", True)]
    assert facts(store, "d") == ("J\xfcrgen \u674e", "staff", "bob", "started", *SAVED)
    assert facts(store, "d", "scan.bin") == ("eve", None, None, None, *SAVED)
    assert facts(store, "e") == (None, None, None, None, *SAVED)
    assert outcomes[1].notes == ()


def test_an_export_of_the_real_system_comes_back_equal(store: Store, tmp_path: Path) -> None:
    """Imported, exported, and imported into an empty tree; and the export has the facts where the real system reads."""
    run(importer(store), zip_of(real_zip(LATEST)))
    for number, parameters in enumerate(({}, {"history": RevisionHistory.INCLUDE})):
        data = export_of(store, **parameters)
        with Store(initialised(tmp_path / f"again{number}"), lock_timeout=5) as again:
            outcomes = run(importer(again), zip_of(data))
            assert [each.result for each in outcomes] == [TransferResult.IMPORTED] * 3
            assert tree(again.root) == tree(store.root)
        if parameters:
            continue
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            name = "a/f/2/data/d/latest/data.xml"
            root = ET.fromstring(archive.read(f"{name}.metadata.xml"))  # noqa: S314 - its own
            assert root.find("created-by").attrib == {"username": "J\xfcrgen \u674e", "groupname": "staff"}
            assert root.find("last-modified-by").get("username") == "bob"
            assert root.findtext("workflow-stage") == "started"
            assert archive.getinfo(name).extra == struct.pack("<HHBl", 0x5455, 5, 5, MODIFIED)
            assert data.count(name.encode() + struct.pack("<HHBll", 0x5455, 9, 5, MODIFIED, CREATED)) == 1


def test_what_half_of_the_metadata_lacks_is_said(store: Store) -> None:
    """What is there is taken; the rest has a note, or for the owner a line."""
    half = b'<metadata><last-modified-by username="bob"/><workflow-stage>started</workflow-stage></metadata>'
    files = {**LATEST, "a/f/2/data/d/latest/data.xml.metadata.xml": half}
    (_, first, second) = run(importer(store), zip_of(real_zip(files)), is_dry=True)
    assert (first.lacks_owner, first.notes) == (True, ())
    assert second.notes == ("form data came without a last modifier",)
    (_, first, second) = run(importer(store), zip_source(files))
    assert facts(store, "d")[:4] == (None, None, "bob", "started")
    times = ("form data came without a time", "form data came without a time of creation")
    assert (first.lacks_owner, first.notes, second.notes[1:]) == (True, times, times)


def test_a_time_in_seconds_is_that_of_the_revision_whose_history_is_here(store: Store) -> None:
    """The real system gives the same revision milliseconds where it exports a history."""
    name = "a/f/2/data/d/2023-11-14T23:13:20.456Z/data.xml"
    run(importer(store), zip_of(real_zip({name: b"<two/>", f"{name}.metadata.xml": REAL})))
    before = tree(store.root)
    latest = {name: content for name, content in LATEST.items() if "/data/d/latest/data.xml" in name}
    assert results(run(importer(store), zip_of(real_zip(latest)))) == [("a/f/data/d", "unchanged")]
    assert tree(store.root) == before
    other = {**latest, "a/f/2/data/d/latest/data.xml": b"<other/>"}
    assert results(run(importer(store), zip_of(real_zip(other)))) == [("a/f/data/d", "refused")]


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        (b"<metadata><created-by", "not well-formed"),
        (b"<!DOCTYPE metadata><metadata/>", "document type"),
        (b"<metadata>" + b" " * (1 << 20) + b"</metadata>", "bytes"),
        (b'<metadata><created-by username="\x01"/></metadata>', "not well-formed"),
        (b'<metadata><created-by username="' + b"x" * 300 + b'"/></metadata>', "longer than"),
    ],
)
def test_bad_metadata_refuses_its_document_and_no_other(store: Store, metadata: bytes, cause: str) -> None:
    files = {**LATEST, "a/f/2/data/d/latest/data.xml.metadata.xml": metadata}
    outcomes = run(importer(store), zip_of(real_zip(files)))
    assert results(outcomes)[1:] == [("a/f/data/d", "refused"), ("a/f/data/e", "imported")]
    assert cause in outcomes[1].cause
    assert "\n" not in outcomes[1].cause


def test_archives_of_other_programs_say_when_a_file_was_changed_and_not_the_revision(store: Store) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        entry = zipfile.ZipInfo("a/f/data/d/data.xml")
        entry.extra = struct.pack("<HHBll", 0x5455, 9, 3, MODIFIED, MODIFIED)
        archive.writestr(entry, b"<d/>")
    run(importer(store), zip_of(held.getvalue()))
    assert facts(store, "d")[5] > "2026"
