"""Archives and folders that nobody should have made: each has a clear answer, and the rest is imported."""

import hashlib
import io
import os
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_CAUSE
from persistence.services.import_plans import ImportReport
from persistence.services.import_sources import FilesSource, FolderFiles, ZipFiles, open_source
from persistence.storage.store import Store
from tests.imports.archives import tree, zipped
from tests.imports.importing import LARGEST, importer, results, run, zip_source

T1, T2 = "2025-03-04T05:06:07.089Z", "2025-03-05T05:06:07.089Z"
GOOD = f"a/f/1/data/good/{T1}/data.xml"


@pytest.mark.parametrize("name", ["a/f/{}/form/latest/form.xhtml", f"a/f/{{}}/data/d/{T1}/data.xml"])
def test_a_version_that_no_request_can_name_is_refused(store: Store, name: str) -> None:
    (refused,) = run(importer(store), zip_source({name.format(10**9): b"<d/>"}))
    assert "has form definition version 1000000000, and no version is higher than 999999999" in refused.cause
    (imported,) = run(importer(store), zip_source({name.format(10**9 - 1): b"<d/>"}))
    assert (refused.result.value, imported.result.value) == ("refused", "imported")


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        (f"a/f/1/data/../{T1}/data.xml", "dots"),
        (f"/a/f/1/data/d/{T1}/data.xml", "empty parts"),
        (f"a/f/1/data//{T1}/data.xml", "empty parts"),
        (f"a\\f/1/data/d/{T1}/data.xml", "backslashes"),
        (f"C:/a/f/1/data/d/{T1}/data.xml", "neither that of a definition"),
        ("a/f/1/data/d/yesterday/data.xml", "neither that of a definition"),
        ("a/f/0/form/latest/form.xhtml", "neither that of a definition"),
        ("a/f/data/d", "neither that of a definition"),
        (f"a/f/1/data/d/{T1}/" + "x" * 300, "too long"),
        (f"a/f/1/data/d/{T1}/" + "\u00e4" * 128, "too long"),
        (f"a/f/1/data/d\n/{T1}/data.xml", "not allowed"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(store: Store, name: str, cause: str) -> None:
    outcomes = run(importer(store), zip_source({name: b"<d/>", GOOD: b"<d/>"}))
    assert sorted(each.result.value for each in outcomes) == ["imported", "refused"]
    assert any(cause in each.cause for each in outcomes), outcomes
    assert [path for path in tree(store.root) if path.endswith("data.xml")] == ["a/f/data/good/data.xml"]


def _entry(name: str, content: bytes = b"<d/>", **attributes: object) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(GOOD, b"<d/>")
        info = zipfile.ZipInfo(name)
        info.compress_type = zipfile.ZIP_STORED
        for key, value in attributes.items():
            setattr(info, key, value)
        archive.writestr(info, content)
    return held.getvalue()


BAD = f"a/f/1/data/bad/{T1}/data.xml"


def _patched(archive: bytes, name: str, at: int, layout: str, value: int) -> bytes:
    """An archive with another value in the directory entry of a name."""
    begin = archive.rindex(name.encode()) - 46
    changed = bytearray(archive)
    struct.pack_into(layout, changed, begin + at, value)
    return bytes(changed)


BAD_ENTRIES = {
    "a link": (_entry(BAD, create_system=3, external_attr=(stat.S_IFLNK | 0o777) << 16), "it is a link"),
    "a pipe": (_entry(BAD, create_system=3, external_attr=(stat.S_IFIFO | 0o777) << 16), "it is a link"),
    "encrypted": (_patched(_entry(BAD), BAD, 8, "<H", 1), "encrypted with a password"),
    "bzip2": (_entry(BAD, compress_type=zipfile.ZIP_BZIP2), "method 12"),
    "lzma": (_entry(BAD, compress_type=zipfile.ZIP_LZMA), "method 14"),
    "method 99": (_patched(_entry(BAD), BAD, 10, "<H", 99), "method 99"),
    "a wrong CRC": (_entry(BAD).replace(b"<d/>", b"<e/>"), "Bad CRC-32"),
    "too large": (_entry(BAD, b" " * LARGEST + b"<d/>"), f"the limit is {LARGEST}"),
    "another local name": (_entry(BAD).replace(b"data/bad", b"data/BAD", 1), "differ"),
    "not well-formed": (_entry(BAD, b"<d>"), "well-formed"),
    "a document type": (_entry(BAD, b'<!DOCTYPE d [<!ENTITY a "b">]><d>&a;</d>'), "document type"),
    "a bomb of XML": (_entry(BAD, b"<d>" * 1000 + b"</d>" * 1000), "256"),
}


@pytest.mark.parametrize("kind", BAD_ENTRIES)
def test_a_bad_entry_is_refused_and_the_others_are_imported(store: Store, kind: str) -> None:
    archive, cause = BAD_ENTRIES[kind]
    outcomes = run(importer(store), open_source("x", io.BytesIO(archive), largest=LARGEST))
    assert sorted(results(outcomes)) == [("a/f/data/bad", "refused"), ("a/f/data/good", "imported")]
    assert cause in next(each.cause for each in outcomes if each.cause)
    assert [path for path in tree(store.root) if path.endswith("data.xml")] == ["a/f/data/good/data.xml"]


BAD_FACTS = {
    "a restored time of no calendar": (b"<restored>9999-99-99T99:99:99.999Z</restored>", "a time that does not exist"),
    "a long hash": (b'<client-hash algorithm="MD5">%s</client-hash>' % (b"x" * 300), "must have 1 to"),
    "a hash of two lines": (b'<client-hash algorithm="MD5">a&#10;b</client-hash>', "control characters"),
    "a hash by a long algorithm": (b'<client-hash algorithm="%s">x</client-hash>' % (b"x" * 300), "must have 1 to"),
    "a long value": (b"<valid>%s</valid>" % (b"9" * 5000), "`$.valid`"),
}


@pytest.mark.parametrize(
    "permissions", [b"&lt;permissions", b"&lt;!DOCTYPE p [&lt;!ENTITY a 'b'>]>&lt;p>&amp;a;&lt;/p>"]
)
def test_a_deletion_of_a_definition_with_bad_permissions_is_refused(store: Store, permissions: bytes) -> None:
    """They would be those of data of the version."""
    time = b"2025-01-01T00:00:00.000Z"
    facts = b"<id>%s</id><form-version>1</form-version><last-modified>%s</last-modified>" % (b"a" * 40, time)
    facts += b"<created>%s</created><size>0</size><deleted>true</deleted>" % time
    facts += b"<form-metadata><permissions>%s</permissions></form-metadata>" % permissions
    source = zip_source({"a/f/1/form/latest/form.xhtml.metadata.xml": b'<metadata format="1">%s</metadata>' % facts})
    (refused,) = run(importer(store), source)
    assert (refused.name, refused.result.value) == ("a/f/form/1", "refused")
    assert "the permissions cannot be read" in refused.cause
    assert tree(store.root) == {}


@pytest.mark.parametrize("kind", BAD_FACTS)
def test_facts_that_no_request_can_give_are_refused(store: Store, kind: str) -> None:
    fact, cause = BAD_FACTS[kind]
    time = b"2025-01-01T00:00:00.000Z"
    digest = hashlib.sha256(b"<d/>").hexdigest().encode()
    facts = b"<id>%s</id><form-version>1</form-version><last-modified>%s</last-modified>" % (b"a" * 40, time)
    facts += b"<created>%s</created><size>4</size><digest>sha256:%s</digest>" % (time, digest)
    name = f"a/f/1/data/bad/{time.decode()}/data.xml"
    metadata = b'<metadata format="1">%s%s</metadata>' % (facts, fact)
    outcomes = run(importer(store), zip_source({name: b"<d/>", f"{name}.metadata.xml": metadata}))
    assert results(outcomes) == [("a/f/data/bad", "refused")]
    assert cause in outcomes[0].cause
    assert len(outcomes[0].cause) <= LONGEST_CAUSE
    assert tree(store.root) == {}


def test_a_document_with_one_bad_attachment_is_not_begun(store: Store) -> None:
    archive = _entry("a/f/1/data/good/latest/scan.bin", b"content").replace(b"content", b"CONTENT")
    outcomes = run(importer(store), open_source("x", io.BytesIO(archive), largest=LARGEST))
    assert results(outcomes) == [("a/f/data/good", "refused")]
    assert tree(store.root) == {}


def test_a_revision_that_is_there_twice_is_refused(store: Store) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(GOOD, b"<d/>")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr(GOOD, b"<e/>")
    outcomes = run(importer(store), open_source("x", io.BytesIO(held.getvalue()), largest=LARGEST))
    assert results(outcomes) == [("a/f/data/good", "refused")]
    assert "has the same revision" in outcomes[0].cause


@pytest.mark.parametrize(
    "other",
    [f"./{GOOD}", GOOD.replace(":", "_"), GOOD.replace(T1, "2025-03-04T06:06:07.089+01:00"), f"crud/{GOOD}"],
    ids=["dot", "as Windows has colons", "another time zone", "path of the interface"],
)
def test_a_revision_that_is_there_under_two_names_is_refused(store: Store, other: str) -> None:
    outcomes = run(importer(store), zip_source({GOOD: b"<d/>", other: b"<e/>"}))
    assert results(outcomes) == [("a/f/data/good", "refused")]
    assert "has the same revision" in outcomes[0].cause
    assert not [path for path in tree(store.root) if path.endswith("data.xml")]


def test_names_that_differ_in_case_are_different_documents(store: Store) -> None:
    outcomes = run(importer(store), zip_source({f"a/f/1/data/{each}/{T1}/data.xml": b"<d/>" for each in "dD"}))
    assert results(outcomes) == [("a/f/data/d", "imported"), ("a/f/data/D", "imported")]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda archive: archive[: len(archive) // 2], "cut off"),
        (lambda archive: archive[:-1], "cut off"),
        (lambda archive: archive[:4], "cut off"),
        (lambda archive: archive.replace("\u00e4".encode(), b"\xff\xff"), "not UTF-8"),
    ],
)
def test_an_archive_that_cannot_be_read_is_refused_as_a_whole(change: object, cause: str) -> None:
    archive = zipped({GOOD: b"<d/>", f"a/f/1/data/\u00e4/{T1}/data.xml": b"<d/>"})
    assert callable(change)
    with pytest.raises(BadRequestError, match=cause):
        open_source("x", io.BytesIO(change(archive)), largest=LARGEST)


def test_a_name_without_the_mark_of_utf_8_is_refused(store: Store) -> None:
    name = f"a/f/1/data/\u00e4\u00e4/{T1}/data.xml"
    archive = _patched(zipped({name: b"<d/>"}), name, 8, "<H", 0)
    outcomes = run(importer(store), open_source("x", io.BytesIO(archive), largest=LARGEST))
    assert [each.result.value for each in outcomes] == ["refused"]


def test_entries_that_share_their_bytes_are_a_bomb() -> None:
    archive = zipped({f"a/f/1/data/{each}/{T1}/data.xml": b"<d/>" for each in ("d1", "d2")})
    first = archive.index(b"PK\x03\x04")
    second = _patched(archive, f"a/f/1/data/d2/{T1}/data.xml", 42, "<L", first)
    with pytest.raises(BadRequestError, match="overlaps another"):
        open_source("x", io.BytesIO(second), largest=LARGEST)


def test_an_archive_that_grows_too_much_is_a_bomb() -> None:
    huge = f"a/f/1/data/d/{T1}/data.xml"
    archive = _patched(zipped({huge: b"<d/>"}), huge, 24, "<L", 0xFFFFFFF0)
    with pytest.raises(BadRequestError, match="refusing an archive of"):
        open_source("x", io.BytesIO(archive), largest=LARGEST)


def test_a_directory_that_is_too_large_is_not_read() -> None:
    archive = zipped({f"a/f/1/data/{each}/{T1}/data.xml": b"<d/>" for each in range(50)})
    with pytest.raises(BadRequestError, match="in parts"):
        ZipFiles(io.BytesIO(archive), 1000, largest=LARGEST)


def test_a_zip_file_in_a_zip_file_is_an_attachment(store: Store) -> None:
    inner = zipped({"x": b"y"})
    files = {GOOD: b"<d/>", "a/f/1/data/good/latest/inner.zip": inner}
    assert results(run(importer(store), zip_source(files))) == [("a/f/data/good", "imported")]
    assert tree(store.root)["a/f/data/good/inner.zip"][0] == inner


def test_links_pipes_and_devices_in_a_folder_are_refused(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for document in ("good", "link", "pipe", "below"):
        (folder / f"a/f/data/{document}").mkdir(parents=True)
    secret = tmp_path / "secret.xml"
    secret.write_bytes(b"<secret/>")
    (folder / "a/f/data/good/data.xml").write_bytes(b"<d/>")
    (folder / "a/f/data/link/data.xml").symlink_to(secret)
    os.mkfifo(folder / "a/f/data/pipe/data.xml")
    (folder / "a/f/data/below").rmdir()
    (folder / "a/f/data/below").symlink_to(folder / "a/f/data/good")
    outcomes = run(importer(store), open_source(str(folder), None, largest=LARGEST))
    assert sorted(results(outcomes)) == [
        ("a/f/data/below", "refused"),
        ("a/f/data/good", "imported"),
        ("a/f/data/link", "refused"),
        ("a/f/data/pipe", "refused"),
    ]


def test_a_file_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "a/f/data/d").mkdir(parents=True)
    (folder / "a/f/data/d/data.xml").write_bytes(b"<d/>")
    files = FolderFiles(str(folder), largest=LARGEST)
    FilesSource(files)
    (folder / "a/f/data/d/data.xml").unlink()
    (folder / "a/f/data/d/data.xml").symlink_to("/etc/passwd")
    with pytest.raises(BadRequestError, match="cannot be read"):
        list(files.pieces("a/f/data/d/data.xml"))


def test_a_data_directory_is_not_a_folder_to_import(store: Store) -> None:
    with pytest.raises(BadRequestError, match="data directory"):
        open_source(store.root, None, largest=LARGEST)


def test_an_export_that_lacks_something_says_so(store: Store) -> None:
    report = ImportReport()
    for each in run(importer(store), zip_source({GOOD: b"<d/>", "export-errors.txt": b"a/f/data/x: damaged"})):
        report.add(each)
    assert any("export-errors.txt" in each for each in report.lines(is_dry=False))
    assert b"export-errors.txt" in report.as_xml(is_dry=False)


def test_files_of_other_programs_are_ignored(store: Store) -> None:
    files = {
        "README.md": b"x",
        "__MACOSX/a/._data.xml": b"x",
        "a/f/.DS_Store": b"x",
        "a/f/Thumbs.db": b"",
        GOOD: b"<d/>",
    }
    found = [each.result.value for each in run(importer(store), zip_source(files))]
    assert sorted(found) == ["ignored", "ignored", "ignored", "ignored", "imported"]
