"""Exports of what is encrypted, of attachments in other places, and an import of an export into an empty tree."""

import io
import os
import random
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lxml import etree

from persistence.crypto.encryption_keys import EncryptionKeys
from persistence.crypto.frames import MAGIC
from persistence.storage.layout import INDEX, LOCKS, PAGES
from tests import service as services
from tests.cli.command_runner import Place
from tests.encrypted_form import DEFINITION, OPEN, SECRETS, data, path
from tests.http.test_export import ALL, LEA, a_service, exported, stored
from tests.http.test_export import FORM as OPEN_FORM
from tests.service import PUBLIC, V1, Service

V2 = {"Form_Definition_Version": 2}
HASH = {"Hash_Value": "x", "Hash_Algorithm": "y"}
CONTENT = random.Random(7).randbytes(300_000)
REAL = (
    b'<metadata>\n  <created-by username="ann" groupname="staff"/>\n  <last-modified-by username="bob"/>\n'
    b"  <workflow-stage>started</workflow-stage>\n</metadata>"
)


@pytest.fixture(params=["hr/leave", "apart/leave"])
def encrypted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Service, str]]:
    """A service with a form that has encrypted controls; the attachments of the second are in another directory."""
    if services.is_proxied:
        pytest.skip("the keys are this service's")
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


def test_decrypted_only_when_asked_for(encrypted: tuple[Service, str]) -> None:
    service, _ = encrypted
    archive = exported(service, decrypt="true")
    found = by_file(archive.contents)
    texts = [each.text for each in etree.fromstring(found["data.xml"]).iter("ssn", "name", "note")]
    assert texts == [SECRETS[0], OPEN, *SECRETS[1:]]
    assert (found["scan.bin"], found["photo.bin"]) == (CONTENT, b"open")
    for name, metadata in archive.metadata.items():
        sidecar = archive.sidecar(name)
        assert metadata.is_decrypted is name.endswith(("data.xml", "scan.bin"))
        assert (sidecar.size, bool(sidecar.encrypted), sidecar.sealed_hash) == (
            len(archive.contents[name]),
            False,
            None,
        )
        if name.endswith("scan.bin"):
            assert sidecar.client_hash is not None
            assert sidecar.client_hash.value == "x"


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


def test_without_the_key_nothing_is_decrypted(encrypted: tuple[Service, str], tmp_path: Path) -> None:
    service, _ = encrypted
    (tmp_path / "ring.json").unlink()
    archive = exported(service, decrypt="true")
    assert sorted(by_file(archive.contents)) == ["photo.bin"]
    assert len(archive.errors) == 2
    assert sorted(by_file(exported(service).contents)) == ["data.xml", "photo.bin", "scan.bin"]


def real_archive(history: str) -> bytes:
    """An archive of the real system (spec runtime 7): Java notes creation only in the header before a content."""
    older, newer = "2023-11-14T22:13:20Z", "2023-11-14T23:13:20.456Z"
    moments = ("latest",) if history == "exclude" else (newer, older)
    files = {"a/f/2/form/latest/form.xhtml": OPEN_FORM, "a/f/2/data/e/latest/data.xml": b"<d>e</d>"}
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


def seen(service: Service) -> list[tuple[object, ...]]:
    answers = []
    for name in ("d/data.xml", "e/data.xml", "d/scan.bin", "d/%C3%A4.txt"):
        answer = service.get(f"a/f/data/{name}")
        own = ("Username", "Group", "Last-Modified-By-Username", "Workflow-Stage", "Created", "Last-Modified")
        answers.append((answer.status, answer.body, *(answer[service.prefix + each] for each in own)))
    history = service.raw("GET", f"{PUBLIC}/history/a/f/d").body
    return [*answers, (service.get("a/f/form/form.xhtml", **V2).body, history)]


@pytest.mark.parametrize("history", ["exclude", "include"])
def test_an_archive_of_the_real_system_goes_round(tmp_path: Path, history: str) -> None:
    """Imported, exported, and imported into an empty place: all is equal, on the tree and on a database."""
    if services.is_proxied:
        pytest.skip("another service has its own times and owners")
    archive, before = real_archive(history), None
    for place in ("first", "second"):
        with a_service(tmp_path / place) as service:
            kind = {"Content-Type": "application/zip"}
            tried = etree.fromstring(service.raw("POST", f"{PUBLIC}/import?dry-run=true", kind, archive).body)
            assert service.get("a/f/data/d/data.xml").status == 404
            report = etree.fromstring(service.raw("POST", f"{PUBLIC}/import", kind, archive).body)
            names = [] if before else ["a/f/data/e"]
            for each in (tried, report):
                assert (each.get("refused"), each.find("documents").get("imported")) == ("0", "2")
                assert [found.get("name") for found in each.findall("without-owner")] == names
            after = seen(service)
            assert before in (None, after)
            archive, before = exported(service, **{"data-revision-history": history}).data, after
    created, modified = "2023-11-14T22:13:20.000Z", f"2023-11-14T23:13:20.{'000' if history == 'exclude' else '456'}Z"
    assert after[0][2:] == ("ann", "staff", "bob", "started", created, modified)
    assert after[1][2:] == (None, None, None, None, created, "2023-11-14T23:13:20.000Z")
    assert [each[:2] for each in after[2:4]] == [(200, CONTENT), (200, b"text")]


def files_of(root: Path) -> dict[str, bytes]:
    paths = (each for each in root.rglob("*") if each.is_file())
    own = {str(each.relative_to(root)): each.read_bytes() for each in paths}
    return {name: body for name, body in own.items() if name.split("/")[0] not in (INDEX, LOCKS, PAGES, "layout.json")}


def test_an_import_of_an_export_into_an_empty_tree_gives_the_same_tree(tmp_path: Path) -> None:
    if services.is_proxied:
        pytest.skip("the tree is the other service's")
    with a_service(tmp_path) as service:
        stored(service)
        stored(service, "x/y")
        service.delete("x/y/form/form.xhtml", Form_Definition_Version=2)
        service.delete("x/y/data/A/a%20b.bin", **LEA)
        exported(service, **ALL)
    place, other = Place(tmp_path / "data"), Place(tmp_path / "other")
    archive = str(tmp_path / "x.zip")
    assert place.run("export", archive, "--history", "include", "--drafts").exit_code == 0
    done = other.run("import", archive)
    assert done.exit_code == 0, (done.output, done.exception)
    assert files_of(other.root) == files_of(place.root)
    times = {
        name: (place.root / name).stat().st_mtime_ns for name in files_of(place.root) if not name.endswith(".json")
    }
    assert {name: (other.root / name).stat().st_mtime_ns for name in times} == times
