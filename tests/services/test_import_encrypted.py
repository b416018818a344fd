"""Encrypted contents: kept where the key is here, refused where it is not; what arrives plain is encrypted."""

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from persistence.crypto import EncryptionKeys
from persistence.services.import_sources import open_source
from persistence.services.transfers import TransferOutcome
from persistence.storage.store import Store
from tests.encrypted_form import DEFINITION, OPEN, SECRETS, data, path
from tests.initialised import initialised
from tests.service import Service
from tests.services.test_import_over_http import a_service, exported
from tests.services.transferring import importer, results, run, tree

FORM = "hr/secret"
SCAN = b"the scan of a passport " * 4000
V1 = {"Form_Definition_Version": 1}


def key_file(directory: Path) -> str:
    """A file with a key of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    EncryptionKeys(f"{directory}/encryption-keys.json", trees=[str(directory / "data")]).new()
    return f"{directory}/encryption-keys.json"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with an encrypted document of two revisions, and its attachments."""
    directory = tmp_path_factory.mktemp("from")
    EncryptionKeys(f"{directory}/var/encryption-keys.json", trees=[str(directory / "data")]).new()
    with a_service(directory) as service:
        service.put(f"{FORM}/form/form.xhtml", DEFINITION)
        for name in ("scan", "photo"):
            kind = {"Content-Type": "application/octet-stream"}
            service.put(f"{FORM}/data/1/{name}.bin", SCAN, kind, Path_To_Holder=f"person/{name}", **V1)
        body = data(scan=path(FORM, "1", "scan.bin"), photo=path(FORM, "1", "photo.bin"))
        for _ in range(2):
            answer = service.put(f"{FORM}/data/1/data.xml", body, Hash_Algorithm="A", Hash_Value="h", **V1)
            assert answer.status in (201, 204), answer.cause
        yield service


def keys_of(source: Service) -> str:
    return f"{source.data.parent}/var/encryption-keys.json"


def imported(archive: bytes, directory: Path, keys: str) -> tuple[list[TransferOutcome], list[TransferOutcome]]:
    """The outcomes of an import into an empty tree, and of another one."""
    with Store(initialised(directory / "data"), lock_timeout=5) as store:
        into = importer(store, keys=keys)
        source = lambda: open_source("x", io.BytesIO(archive), largest=1 << 20)  # noqa: E731
        return run(into, source()), run(into, source())


def secrets_in(root: Path) -> list[str]:
    """The files that have something plain that is to be encrypted."""
    plain = [each.encode() for each in SECRETS] + [SCAN[:100]]
    return [name for name, (held, _) in tree(root).items() if any(each in held for each in plain)]


def shown(directory: Path, keys: str) -> dict[str, bytes]:
    """The plain contents that a service shows of what was imported."""
    (directory / "var").mkdir(exist_ok=True)
    (directory / "var/encryption-keys.json").write_bytes(Path(keys).read_bytes())
    (directory / "var/encryption-keys.json").chmod(0o600)
    names = ("data.xml", "scan.bin", "one.bin")
    with a_service(directory) as service:
        return {name: service.get(f"{FORM}/data/1/{name}", Decrypt="true").body for name in names}


def test_encrypted_contents_are_kept_as_they_are(source: Service, tmp_path: Path) -> None:
    first, again = imported(exported(source), tmp_path, keys_of(source))
    assert {each.result.value for each in first} == {"imported"}
    assert {each.result.value for each in again} == {"unchanged"}
    assert tree(tmp_path / "data") == tree(source.data)
    assert shown(tmp_path, keys_of(source))["scan.bin"] == SCAN


@pytest.mark.parametrize("has_other_key", [True, False])
def test_without_the_key_they_are_refused_by_its_id(source: Service, tmp_path: Path, *, has_other_key: bool) -> None:
    key = EncryptionKeys(keys_of(source), trees=[str(source.data)]).ring().writing
    first, _ = imported(exported(source), tmp_path, key_file(tmp_path / "other") if has_other_key else "")
    assert results(first) == [(f"{FORM}/form/1", "imported"), (f"{FORM}/data/1", "refused")]
    assert f"the key {key}" in first[1].cause
    assert not (tmp_path / "data" / FORM / "data").exists()


def test_contents_of_another_document_are_refused(source: Service, tmp_path: Path) -> None:
    """They are bound to their place: under another name nobody could decrypt them."""
    archive = exported(source).replace(b"/data/1/", b"/data/2/")
    first, _ = imported(archive, tmp_path, keys_of(source))
    assert [result for _, result in results(first)] == ["imported", "refused"]


def test_a_decrypted_export_is_encrypted_with_the_key_here(source: Service, tmp_path: Path) -> None:
    keys = key_file(tmp_path / "other")
    archive = exported(source, "&decrypt=true")
    first, again = imported(archive, tmp_path, keys)
    assert {each.result.value for each in first} == {"imported"}, first
    assert {each.result.value for each in again} == {"unchanged"}, again
    assert secrets_in(tmp_path / "data") == [f"{FORM}/data/1/photo.bin"], "which is not marked"
    plain = shown(tmp_path, keys)
    assert plain["scan.bin"] == SCAN
    assert SECRETS[0].encode() in plain["data.xml"]
    assert plain["data.xml"] == source.get(f"{FORM}/data/1/data.xml").body


def test_plain_lines_are_encrypted_as_a_put_would(tmp_path: Path) -> None:
    keys = key_file(tmp_path / "other")
    form = {"app": "hr", "form": "secret", "version": 1}
    content = base64.b64encode(SCAN).decode()
    body = data(scan=path(FORM, "1", "scan.bin"), files=(path(FORM, "1", "one.bin"),)).decode()
    names = ("scan.bin", "one.bin", "unnamed.bin")
    files = [{"name": name, "content": content} for name in names]
    files.append({"name": "told.bin", "content": content, "holder": "person/scan"})
    lines = [{**form, "definition": DEFINITION.decode()}, {**form, "document": "1", "data": body, "attachments": files}]
    first, again = imported("\n".join(map(json.dumps, lines)).encode(), tmp_path, keys)
    assert {each.result.value for each in first} == {"imported"}, first
    assert {each.result.value for each in again} == {"unchanged"}, again
    assert secrets_in(tmp_path / "data") == [f"{FORM}/data/1/unnamed.bin"], "nothing says who holds it"
    plain = shown(tmp_path, keys)
    assert (SECRETS[1].encode() in plain["data.xml"], OPEN.encode() in plain["data.xml"]) == (True, True)
    assert plain["data.xml"].count(b'attachment-encrypted="true"') == 2
    assert plain["one.bin"] == SCAN


def test_plain_data_without_any_key_is_refused(source: Service, tmp_path: Path) -> None:
    first, _ = imported(exported(source, "&decrypt=true"), tmp_path, "")
    assert [result for _, result in results(first)] == ["imported", "refused"]
    assert "persistence encryption-key new" in first[1].cause
