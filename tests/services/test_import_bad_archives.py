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
from persistence.services.import_sources import FilesSource, FolderFiles, ZipFiles, open_source
from persistence.services.transfers import ImportReport, TransferOutcome
from persistence.storage.store import Store
from tests.services.transferring import LARGEST, importer, results, run, tree, zip_source, zipped

T1 = "2025-03-04T05:06:07.089Z"
GOOD = f"a/f/1/data/good/{T1}/data.xml"


@pytest.mark.parametrize("name", ["a/f/{}/form/latest/form.xhtml", f"a/f/{{}}/data/d/{T1}/data.xml"])
def test_a_version_that_no_request_can_name_is_refused(store: Store, name: str) -> None:
    (refused,) = run(importer(store), zip_source({name.format(10**9): b"<d/>"}))
    assert "has form definition version 1000000000, and no version is higher than 999999999" in refused.cause
    (imported,) = run(importer(store), zip_source({name.format(10**9 - 1): b"<d/>"}))
    assert (refused.result.value, imported.result.value) == ("refused", "imported")


BAD = f"a/f/1/data/bad/{T1}/data.xml"


def _entry(name: str, content: bytes = b"<d/>", **attributes: object) -> bytes:
    """An archive with a good entry and one with these attributes."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(GOOD, b"<d/>")
        info = zipfile.ZipInfo(name)
        info.compress_type = zipfile.ZIP_STORED
        for key, value in attributes.items():
            setattr(info, key, value)
        archive.writestr(info, content)
    return held.getvalue()


def _patched(archive: bytes, name: str, at: int, layout: str, value: int) -> bytes:
    """An archive with another value in the directory entry of a name."""
    begin = archive.rindex(name.encode()) - 46
    changed = bytearray(archive)
    struct.pack_into(layout, changed, begin + at, value)
    return bytes(changed)


def _named(*names: str) -> bytes:
    return zipped(dict.fromkeys(names, b"<d/>"))


BAD_NAMES = {
    f"a/f/1/data/../{T1}/data.xml": "dots",
    f"/a/f/1/data/d/{T1}/data.xml": "empty parts",
    f"a/f/1/data//{T1}/data.xml": "empty parts",
    f"a\\f/1/data/d/{T1}/data.xml": "backslashes",
    f"C:/a/f/1/data/d/{T1}/data.xml": "neither that of a definition",
    "a/f/1/data/d/yesterday/data.xml": "neither that of a definition",
    "a/f/0/form/latest/form.xhtml": "neither that of a definition",
    "a/f/data/d": "neither that of a definition",
    f"a/f/1/data/d/{T1}/" + "x" * 300: "too long",
    f"a/f/1/data/d/{T1}/" + "\u00e4" * 128: "too long",
    f"a/f/1/data/d\n/{T1}/data.xml": "not allowed",
}
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
    "no mark of UTF-8": (
        _patched(_entry(BAD.replace("bad", "b\u00e4d")), BAD.replace("bad", "b\u00e4d"), 8, "<H", 0),
        "",
    ),
    **{name: (_named(name, GOOD), cause) for name, cause in BAD_NAMES.items()},
}


def outcomes_of(store: Store, archive: bytes) -> list[TransferOutcome]:
    return run(importer(store), open_source("x", io.BytesIO(archive), largest=LARGEST))


@pytest.mark.parametrize("kind", BAD_ENTRIES)
def test_a_bad_entry_is_refused_and_the_others_are_imported(store: Store, kind: str) -> None:
    archive, cause = BAD_ENTRIES[kind]
    outcomes = sorted(outcomes_of(store, archive), key=lambda each: each.result.value)
    assert [each.result.value for each in outcomes] == ["imported", "refused"]
    assert outcomes[0].name == "a/f/data/good"
    assert kind in BAD_NAMES or outcomes[1].name.startswith("a/f/")
    assert cause in outcomes[1].cause
    assert [path for path in tree(store.root) if path.endswith("data.xml")] == ["a/f/data/good/data.xml"]


TIME = "2025-01-01T00:00:00.000Z"
BAD_FACTS = {
    "a restored time of no calendar": (b"<restored>9999-99-99T99:99:99.999Z</restored>", "a time that does not exist"),
    "a long hash": (b'<client-hash algorithm="MD5">%s</client-hash>' % (b"x" * 300), "must have 1 to"),
    "a hash of two lines": (b'<client-hash algorithm="MD5">a&#10;b</client-hash>', "control characters"),
    "a hash by a long algorithm": (b'<client-hash algorithm="%s">x</client-hash>' % (b"x" * 300), "must have 1 to"),
    "a long value": (b"<valid>%s</valid>" % (b"9" * 5000), "`$.valid`"),
}


def metadata(*facts: bytes) -> bytes:
    own = b"<id>%s</id><form-version>1</form-version><last-modified>%s</last-modified><created>%s</created>"
    own %= (b"a" * 40, TIME.encode(), TIME.encode())
    return b'<metadata format="1">%s%s</metadata>' % (own, b"".join(facts))


@pytest.mark.parametrize(
    "permissions", [b"&lt;permissions", b"&lt;!DOCTYPE p [&lt;!ENTITY a 'b'>]>&lt;p>&amp;a;&lt;/p>"]
)
def test_a_deletion_of_a_definition_with_bad_permissions_is_refused(store: Store, permissions: bytes) -> None:
    """They would be those of data of the version."""
    bad = b"<form-metadata><permissions>%s</permissions></form-metadata>" % permissions
    facts = metadata(b"<size>0</size><deleted>true</deleted>", bad)
    (refused,) = run(importer(store), zip_source({"a/f/1/form/latest/form.xhtml.metadata.xml": facts}))
    assert (refused.name, refused.result.value) == ("a/f/form/1", "refused")
    assert "the permissions cannot be read" in refused.cause
    assert tree(store.root) == {}


@pytest.mark.parametrize("kind", BAD_FACTS)
def test_facts_that_no_request_can_give_are_refused(store: Store, kind: str) -> None:
    fact, cause = BAD_FACTS[kind]
    digest = hashlib.sha256(b"<d/>").hexdigest().encode()
    facts = metadata(b"<size>4</size><digest>sha256:%s</digest>" % digest, fact)
    name = f"a/f/1/data/bad/{TIME}/data.xml"
    outcomes = run(importer(store), zip_source({name: b"<d/>", f"{name}.metadata.xml": facts}))
    assert results(outcomes) == [("a/f/data/bad", "refused")]
    assert cause in outcomes[0].cause
    assert len(outcomes[0].cause) <= LONGEST_CAUSE
    assert tree(store.root) == {}


def _twice() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(GOOD, b"<d/>")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr(GOOD, b"<e/>")
    return held.getvalue()


TWICE = "has the same revision"


@pytest.mark.parametrize(
    ("archive", "cause"),
    [
        (_entry("a/f/1/data/good/latest/scan.bin", b"content").replace(b"content", b"CONTENT"), "Bad CRC-32"),
        (_twice(), TWICE),
        (_named(GOOD, f"./{GOOD}"), TWICE),
        (_named(GOOD, GOOD.replace(":", "_")), TWICE),
        (_named(GOOD, GOOD.replace(T1, "2025-03-04T06:06:07.089+01:00")), TWICE),
        (_named(GOOD, f"crud/{GOOD}"), TWICE),
    ],
    ids=["bad attachment", "one name", "dot", "colons of Windows", "another time zone", "path of the interface"],
)
def test_a_document_with_a_bad_file_or_two_of_one_revision_is_not_begun(
    store: Store, archive: bytes, cause: str
) -> None:
    (outcome,) = outcomes_of(store, archive)
    assert (outcome.name, outcome.result.value, cause in outcome.cause) == ("a/f/data/good", "refused", True)
    assert tree(store.root) == {}


def test_names_that_differ_in_case_are_different_documents(store: Store) -> None:
    outcomes = run(importer(store), zip_source({f"a/f/1/data/{each}/{T1}/data.xml": b"<d/>" for each in "dD"}))
    assert results(outcomes) == [("a/f/data/d", "imported"), ("a/f/data/D", "imported")]


WHOLE = _named(GOOD, f"a/f/1/data/\u00e4/{T1}/data.xml")


@pytest.mark.parametrize(
    ("archive", "cause"),
    [
        (WHOLE[: len(WHOLE) // 2], "cut off"),
        (WHOLE[:-1], "cut off"),
        (WHOLE[:4], "cut off"),
        (WHOLE.replace("\u00e4".encode(), b"\xff\xff"), "not UTF-8"),
        (_patched(_named(GOOD, BAD), BAD, 42, "<L", 0), "overlaps another"),
        (_patched(_named(GOOD), GOOD, 24, "<L", 0xFFFFFFF0), "refusing an archive of"),
    ],
    ids=["half", "but a byte", "four bytes", "no UTF-8", "bomb of shared bytes", "bomb that grows"],
)
def test_an_archive_that_cannot_be_read_is_refused_as_a_whole(archive: bytes, cause: str) -> None:
    with pytest.raises(BadRequestError, match=cause):
        open_source("x", io.BytesIO(archive), largest=LARGEST)


def test_a_directory_that_is_too_large_is_not_read() -> None:
    with pytest.raises(BadRequestError, match="in parts"):
        ZipFiles(io.BytesIO(_named(*(f"a/f/1/data/{each}/{T1}/data.xml" for each in range(50)))), 1000, largest=LARGEST)


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
