"""Encryption at rest over HTTP: plain in, plain out, and nothing plain on disk (spec forms 4)."""

import hashlib
import json
import os
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from http.client import IncompleteRead
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from lxml import etree

from persistence.crypto import MAGIC, EncryptionKeys, KeyRing, legacy_keys
from persistence.model.versions import DATA_FORMATS
from tests.encrypted_form import DEFINITION, HOLDERS, OPEN, SECRETS, UNMARKED, data, path, traces
from tests.in_process import serving
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service, attachments_apart, running

FR = "{http://orbeon.org/oxf/xml/form-runner}"
CONTENT = random.Random(7).randbytes(200_000)
PASSWORD = "Vault-Key-2024!blue"  # noqa: S105 - that of the vector
VECTOR = "AAECAwQFBgcICQoLQjvWaENLAOs4UvOAykhr1KQMWA70bPksVtJjEmKq"
APPS = {data_format: f"app-{number}" for number, data_format in enumerate(DATA_FORMATS)}
CONFIG = "".join(
    f'"svc.persistence.provider.{app}.*.*" = "p{app}"\n"svc.persistence.p{app}.data-format-version" = "{data_format}"\n'
    for data_format, app in APPS.items()
)


def keys_of(directory: Path) -> EncryptionKeys:
    return EncryptionKeys(str(directory / "var/encryption-keys.json"), trees=[str(directory / "data")])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with keyed(tmp_path_factory.mktemp("encryption"), running) as service:  # which has a log
        yield service


@contextmanager
def keyed(
    directory: Path, start: Callable[..., AbstractContextManager[Service]] = serving, **env: str
) -> Iterator[Service]:
    keys_of(directory).new()
    passwords = {"password": "other", "password.read-fallback": PASSWORD}
    lines = [f'"svc.field-encryption.{name}" = "{password}"\n' for name, password in passwords.items()]
    apart = attachments_apart("apart.*", "big", directory / "big")
    settings = 'encryption_keys = "var/encryption-keys.json"\n' + CONFIG + "".join(lines) + apart
    with start(directory, settings=settings, env=env) as service:
        yield service


@pytest.fixture
def form(service: Service, form: str) -> str:
    assert service.put(f"{form}/form/form.xhtml", DEFINITION).status == 201
    return form


def raw(service: Service, path: str) -> Answer:
    """What a proxy in front would get: the bytes as they are stored."""
    return replace(service, face=PROVIDER).get(path)


def save(
    service: Service, form: str, document: str = "1", body: bytes | None = None, collection: str = "data", **own: object
) -> Answer:
    return service.save(form, document, body or data(), collection, **own)


def attach(
    service: Service, name: str, holder: str | None = "person/scan", body: bytes = CONTENT, **own: object
) -> Answer:
    more = {} if holder is None else {"Path_To_Holder": holder}
    kind = {"Content-Type": "application/octet-stream"}
    answer = service.put(name, body, kind, **V1, **more, **own)
    assert answer.status in (201, 204), answer.cause
    return answer


def texts(document: bytes) -> list[str]:
    return [element.text or "" for element in etree.fromstring(document).iter("ssn", "name", "note")]


def test_marked_values_are_encrypted_at_rest_and_come_back_plain(service: Service, form: str) -> None:
    """In all formats: test_encryption_places.py."""
    save(service, form)
    stored = (service.data / form / "data/1/data.xml").read_bytes()
    assert not [text for text in SECRETS if text.encode() in stored]
    assert OPEN.encode() in stored
    marked = [each.tag for each in etree.fromstring(stored).iter() if each.get(f"{FR}value-encrypted") == "true"]
    assert marked == ["ssn", "note", "note"]
    got = service.get(f"{form}/data/1/data.xml")
    assert got["Content-Length"] == str(len(got.body))
    assert texts(got.body) == [SECRETS[0], OPEN, *SECRETS[1:]]
    assert b"value-encrypted" not in got.body
    assert raw(service, f"{form}/data/1/data.xml").body == stored
    head = service.head(f"{form}/data/1/data.xml")
    assert head["Content-Length"] in (None, str(len(got.body)))
    assert head["ETag"] == got["ETag"]


@pytest.mark.parametrize("data_format", DATA_FORMATS)
def test_a_holder_is_told_by_its_path_in_any_format(service: Service, data_format: str) -> None:
    form = f"{APPS[data_format]}/holders"
    assert service.put(f"{form}/form/form.xhtml", DEFINITION).status in (201, 204)
    files = f"{form}/data/{data_format}"
    for number, holder in enumerate({each for known in HOLDERS.values() for each in (*known, f"{known[2]}/_")}):
        assert attach(service, f"{files}/{number}.bin", holder, b"x")["Svc-Did-Encrypt"] == "true", holder
    for holder in (None, "", "person", "person/photo", "ssn", "scan", "person/top", "Person/Scan"):
        assert attach(service, f"{files}/plain.bin", holder)["Svc-Did-Encrypt"] is None, holder
    assert (service.data / files / "plain.bin").read_bytes() == CONTENT


def test_the_client_s_hash_of_data_is_encrypted_where_values_are(service: Service, form: str) -> None:
    digest = hashlib.sha256(data()).hexdigest()
    name = f"{form}/data/1/data.xml"
    save(service, form, Hash_Algorithm="SHA-256", Hash_Value=digest)
    assert not traces(service.data / form, digest)
    for answer in (service.get(name), service.head(name)):
        assert (answer["Svc-Hash-Algorithm"], answer["Svc-Hash-Value"]) == ("SHA-256", digest)
    assert raw(service, name)["Svc-Hash-Value"] is None
    save(service, form, body=b"<form><person><ssn/></person></form>", Hash_Algorithm="SHA-256", Hash_Value=digest)
    assert raw(service, name)["Svc-Hash-Value"] == digest


def test_an_attachment_is_decrypted_only_for_those_who_ask(service: Service, form: str) -> None:
    name = f"{form}/data/1/a.bin"
    digest = hashlib.sha256(CONTENT).hexdigest()
    attach(service, name, Hash_Algorithm="SHA-256", Hash_Value=digest)
    save(service, form)
    stored = (service.data / name).read_bytes()
    assert stored.startswith(MAGIC)
    sidecar = (service.data / f"{name}.json").read_text()
    assert digest not in sidecar
    assert json.loads(sidecar)["encrypted"] is True
    plain = service.get(name, Decrypt="true")
    assert (plain.body, plain["Content-Length"]) == (CONTENT, str(len(CONTENT)))
    assert (plain["Svc-Hash-Algorithm"], plain["Svc-Hash-Value"]) == ("SHA-256", digest)
    assert service.head(name, Decrypt="true")["Content-Length"] == str(len(CONTENT))
    for word in (None, "True", "1", "false", " "):
        own = {} if word is None else {"Decrypt": word}
        got = service.get(name, **own)
        assert (got.status, got.body) == (200, stored)
        assert service.head(name, **own)["Content-Length"] == str(len(stored))
    assert raw(service, name).body == stored
    assert raw(service, name)["Svc-Hash-Value"] is None


def test_attachments_with_a_provider_of_their_own_are_encrypted_there(service: Service) -> None:
    name, digest = "apart/form/data/1/a.bin", hashlib.sha256(CONTENT).hexdigest()
    assert service.put("apart/form/form/form.xhtml", DEFINITION).status == 201
    assert attach(service, name)["Svc-Did-Encrypt"] == "true"
    save(service, "apart/form")
    stored = (service.data.parent / "big/apart/form/data/1/1/a.bin").read_bytes()
    assert stored.startswith(MAGIC)
    assert (service.data / name).read_bytes() == b""
    assert digest not in (service.data / f"{name}.json").read_text()
    assert service.get(name).body == stored
    assert service.get(name, Decrypt="true").body == CONTENT
    part = service.get(name, {"Range": "bytes=65535-65536"}, Decrypt="true")
    assert (part.status, part.body) == (206, CONTENT[65_535:65_537])


def test_sizes_and_ranges_are_of_the_plain_content(service: Service, form: str) -> None:
    """A range past its end is refused, though the file is longer. What is plain comes as it is."""
    folder, size = f"{form}/data/1", len(CONTENT)
    for each in (0, 65_536, size):
        attach(service, f"{folder}/{each}.bin", body=CONTENT[:each])
        attach(service, f"{folder}/{each}-plain.bin", "person/photo", CONTENT[:each])
    save(service, form)
    for each in (0, 65_536, size):
        for name in (f"{each}.bin", f"{each}-plain.bin"):
            assert service.get(f"{folder}/{name}", Decrypt="true").body == CONTENT[:each]
    for wanted, first, last in (("0-1", 0, 1), ("65535-65536", 65_535, 65_536), ("199999-9999999", size - 1, size - 1)):
        got = service.get(f"{folder}/{size}.bin", {"Range": f"bytes={wanted}"}, Decrypt="true")
        assert (got.status, got["Content-Range"]) == (206, f"bytes {first}-{last}/{size}")
        assert got.body == CONTENT[first : last + 1]
    past = service.get(f"{folder}/{size}.bin", {"Range": f"bytes={size}-"}, Decrypt="true")
    assert (past.status, past["Content-Range"]) == (416, f"bytes */{size}")


def test_stored_and_decrypted_bytes_are_never_taken_for_each_other(service: Service, form: str) -> None:
    name = f"{form}/data/1/a.bin"
    attach(service, name)
    save(service, form)
    stored, plain = service.get(name), service.get(name, Decrypt="true")
    tags = stored["ETag"] or "", plain["ETag"] or ""
    assert tags[0] != tags[1]
    assert service.head(name, Decrypt="true")["ETag"] == tags[1]
    for own, decrypt in enumerate(({}, {"Decrypt": "true"})):
        for other, tag in enumerate(tags):
            got = service.get(name, {"If-None-Match": tag}, **decrypt)
            assert got.status == (304 if own == other else 200)
            got = service.get(name, {"Range": "bytes=0-9", "If-Range": tag}, **decrypt)
            assert got.status == (206 if own == other else 200)
        dated = {"Range": "bytes=0-9", "If-Range": stored["Last-Modified"]}
        assert service.get(name, dated, **decrypt).status == 200
        assert service.get(name, {"If-Modified-Since": stored["Last-Modified"]}, **decrypt).status == 200


@pytest.mark.parametrize("own", [{}, {"Decrypt": "true"}], ids=["stored", "decrypted"])
def test_a_write_may_name_the_tag_of_either_bytes(service: Service, form: str, own: dict[str, str]) -> None:
    name = f"{form}/data/1/a.bin"
    attach(service, name)
    save(service, form)

    def tag() -> str:
        return service.get(name, **own)["ETag"] or ""

    old = tag()
    more = {"Form_Definition_Version": 1, "Path_To_Holder": "person/scan"}
    assert service.put(name, CONTENT, {"If-Match": old}, **more).status == 204
    assert service.put(name, CONTENT, {"If-Match": old}, **more).status == 412
    assert service.put(name, CONTENT, {"If-None-Match": tag()}, **more).status == 412
    assert service.delete(name, {"If-Match": old}).status == 412
    assert service.delete(name, {"If-Match": tag()}).status == 204


def test_holders_say_whether_their_file_is_encrypted_whatever_the_client_says(service: Service, form: str) -> None:
    attach(service, f"{form}/data/1/scan.bin")
    attach(service, f"{form}/data/1/item.bin", "person/files")
    attach(service, f"{form}/data/1/photo.bin", "person/photo")
    holders = [path(form, "1", f"{name}.bin") for name in ("scan", "photo", "item")]
    body = data(scan=holders[0], photo=holders[1], files=(holders[2], holders[1]))
    for sent in (
        body,
        body.replace(b"<photo>", f'<photo xmlns:f="{FR[1:-1]}" f:attachment-encrypted="true">'.encode()),
    ):
        save(service, form, body=sent)
        root = etree.fromstring(service.get(f"{form}/data/1/data.xml").body)
        said = {element.text: element.get(f"{FR}attachment-encrypted") for element in root.iter("scan", "photo", "_")}
        assert said == {holders[0]: "true", holders[1]: None, holders[2]: "true"}
    listed = service.raw("GET", f"/fr/service/{form}/attachments?document=1")
    assert [each.text for each in etree.fromstring(listed.body)] == [holders[0], holders[1], holders[2], holders[1]]
    assert etree.fromstring(listed.body)[0].get(f"{FR}attachment-encrypted") == "true"


def test_a_value_that_looks_like_the_path_of_an_attachment_is_encrypted(service: Service, form: str) -> None:
    for looks in ("/fr/service/persistence/crud/x/y/form/SECRET-7", path(form, "1", "SECRET-7")):
        save(service, form, body=f"<form><person><ssn>{looks}</ssn><scan>{looks}</scan></person></form>".encode())
        stored = etree.fromstring((service.data / form / "data/1/data.xml").read_bytes())
        assert (stored.findtext("person/ssn") or "").startswith("enc2:")
        assert stored.findtext("person/scan") == looks
        assert etree.fromstring(service.get(f"{form}/data/1/data.xml").body).findtext("person/ssn") == looks


def test_a_raw_file_that_is_copied_to_another_address_is_encrypted_for_that(service: Service, form: str) -> None:
    attach(service, f"{form}/draft/1/a.bin", Hash_Algorithm="x", Hash_Value="y")
    save(service, form, collection="draft")
    stored = service.get(f"{form}/draft/1/a.bin").body
    for holder in (None, "person/scan"):
        put = attach(service, f"{form}/data/1/a.bin", holder, stored)
        assert put["Svc-Did-Encrypt"] == "true"
    copied = (service.data / form / "data/1/a.bin").read_bytes()
    assert copied != stored
    save(service, form)
    assert service.get(f"{form}/data/1/a.bin", Decrypt="true").body == CONTENT
    whole = service.get(f"{form}/data/1/a.bin").body
    overhead = len(whole) - len(CONTENT) - 4 * 16
    for left in (len(whole) - 1, *(overhead + frames * (65_536 + 16) for frames in (1, 2, 3))):
        cut = service.put(f"{form}/data/1/b.bin", whole[:left], **V1)
        assert (cut.status, "an encrypted attachment that was changed" in cut.cause) == (400, True), left


def test_a_raw_file_of_what_one_may_not_read_is_not_taken_in(service: Service, form: str) -> None:
    attach(service, f"{form}/data/1/a.bin")
    stored = (service.data / form / "data/1/a.bin").read_bytes()
    assert service.put(f"{form}/data/2/a.bin", stored, **V1).status == 403
    save(service, form)
    assert service.put(f"{form}/data/2/a.bin", stored, **V1).status == 201
    other = MAGIC + stored[len(MAGIC) + 3 :]
    assert service.put(f"{form}/data/2/b.bin", other, **V1)["Svc-Did-Encrypt"] is None


def test_drafts_and_older_revisions_are_encrypted_like_data(service: Service, form: str) -> None:
    save(service, form, collection="draft")
    assert not traces(service.data / form / "draft", *SECRETS)
    assert texts(service.get(f"{form}/draft/1/data.xml").body) == [SECRETS[0], OPEN, *SECRETS[1:]]
    attach(service, f"{form}/data/1/a.bin")
    first = save(service, form)
    at = service.get(f"{form}/data/1/data.xml")["Svc-Last-Modified"]
    attached_at = service.head(f"{form}/data/1/a.bin")["Svc-Last-Modified"]
    attach(service, f"{form}/data/1/a.bin", body=b"newer")
    save(service, form, body=b"<form><person><ssn/></person></form>")
    old = service.get(f"{form}/data/1/data.xml?last-modified-time={at}")
    assert (old["ETag"], texts(old.body)) == (first["ETag"], [SECRETS[0], OPEN, *SECRETS[1:]])
    assert service.get(f"{form}/data/1/a.bin?last-modified-time={attached_at}", Decrypt="true").body == CONTENT
    assert not traces(service.data / form / "data", *SECRETS)


def test_long_data_is_decrypted_piece_by_piece(service: Service, form: str) -> None:
    save(service, form, body=data().replace(b"<ssn>", f'<ssn xmlns:fr="{FR[1:-1]}" fr:relevant="false">'.encode()))
    rows = "".join(f"<kids><note>{SECRETS[1]} {number}</note></kids>" for number in range(5000))
    save(service, form, "long", f"<form><person>{rows}</person></form>".encode())
    for rest, expected in (
        ("1/data.xml?nonrelevant=remove", [OPEN, *SECRETS[1:]]),
        ("1/data.xml", [SECRETS[0], OPEN, *SECRETS[1:]]),
        ("long/data.xml", [f"{SECRETS[1]} {number}" for number in range(5000)]),
    ):
        got = service.get(f"{form}/data/{rest}")
        assert (texts(got.body), got["Content-Length"]) == (expected, str(len(got.body)))


def test_definitions_and_the_designer_s_data_are_never_encrypted(service: Service, form: str) -> None:
    assert (service.data / form / "form/1/form.xhtml").read_bytes() == DEFINITION
    assert service.put(f"{form}/form/a.bin", CONTENT, Path_To_Holder="person/scan")["Svc-Did-Encrypt"] is None
    assert service.put("svc/builder/form/form.xhtml", DEFINITION).status in (201, 204)
    assert service.put("svc/builder/data/d/data.xml", data()).status in (201, 204)
    assert service.put("svc/builder/data/d/a.bin", CONTENT, Path_To_Holder="person/scan")["Svc-Did-Encrypt"] is None
    assert (service.data / "svc/builder/data/d/data.xml").read_bytes() == data()


def test_a_form_that_marks_nothing_keeps_data_as_it_is(service: Service, form: str) -> None:
    assert service.put(f"{form}/form/form.xhtml", UNMARKED, Form_Definition_Version=2).status == 201
    body = b"<?xml version='1.0'?><!-- as it is --><form  a = '1'><ssn>x</ssn></form>\n"
    assert service.put(f"{form}/data/2/data.xml", body, Form_Definition_Version=2).status == 201
    assert (service.data / form / "data/2/data.xml").read_bytes() == body
    assert service.get(f"{form}/data/2/data.xml").body == body
    assert service.head(f"{form}/data/2/data.xml")["Content-Length"] == str(len(body))


def test_data_stays_readable_when_controls_are_not_marked_any_more(service: Service, form: str) -> None:
    attach(service, f"{form}/data/1/a.bin")
    save(service, form, body=data(scan=path(form, "1", "a.bin")))
    assert service.put(f"{form}/form/form.xhtml", UNMARKED).status == 204
    got = service.get(f"{form}/data/1/data.xml").body
    assert texts(got) == [SECRETS[0], OPEN, *SECRETS[1:]]
    save(service, form, body=got)
    stored = (service.data / form / "data/1/data.xml").read_bytes()
    assert (SECRETS[0].encode() in stored, b"attachment-encrypted" in stored) == (True, True)
    assert service.get(f"{form}/data/1/a.bin", Decrypt="true").body == CONTENT


NEW = ["draft/1/data.xml", "data/2/data.xml", "data/1/new.bin"]


@pytest.mark.parametrize("name", ["data/1/data.xml", *NEW])
def test_nothing_is_stored_plain_because_the_definition_is_gone(service: Service, form: str, name: str) -> None:
    save(service, form)
    assert service.delete(f"{form}/form/form.xhtml").status == 204
    assert service.put(f"{form}/{name}", data(), **V1, Path_To_Holder="person/scan").refuses(500, "is gone")
    assert not traces(service.data / form, *SECRETS)


@pytest.mark.parametrize("name", NEW)
def test_an_unpublished_version_is_encrypted_as_another_one_marks(service: Service, form: str, name: str) -> None:
    assert service.put(f"{form}/data/1/data.xml", data(), Form_Definition_Version=7).status == 201
    body = CONTENT if name.endswith(".bin") else data()
    assert service.put(f"{form}/{name}", body, Form_Definition_Version=7, Path_To_Holder="person/scan").status == 201
    for directory in (service.data / form, service.data / ".index" / form):
        assert not traces(directory, *SECRETS, CONTENT[1000:1040])


def test_nothing_marked_is_found_on_disk_in_the_index_or_in_the_log(service: Service, form: str) -> None:
    """The hex look: with views for reports, an index and a log that were all made of it."""
    service.publish(form, DEFINITION, Create_Flat_View="true")
    digest = hashlib.sha256(CONTENT).hexdigest()
    attach(service, f"{form}/data/1/a.bin", Hash_Algorithm="SHA-256", Hash_Value=digest)
    for collection in ("draft", "data", "data"):
        save(service, form, collection=collection)
    assert service.raw("POST", f"{PUBLIC}/reindex").status == 200
    for body in (b"<form><person><ssn>" + SECRETS[0].encode(), data() + b"<"):
        assert service.put(f"{form}/data/1/data.xml", body).status == 400
    for text, hits in ((OPEN, 1), (SECRETS[0], 0), (SECRETS[2], 0), ("enc2:", 0)):
        found = service.post(f"search/{form}", f"<search><query>{text}</query></search>")
        assert (found.status, etree.fromstring(found.body).get("search-total")) == (200, str(hits)), text
    traced = traces(service.data.parent, *SECRETS, digest, digest.upper(), CONTENT[1000:1040], CONTENT[-40:])
    others = re.compile(f"(?!.*{form}).*(app-|svc/builder)")  # other tests store plain data on purpose
    assert [each for each in traced if not others.match(each[0])] == []
    assert service.log in list(service.data.parent.rglob("*"))
    assert list(service.data.glob(f".index/{form}/*"))


@pytest.mark.parametrize("edits", ["all", "xml"])
def test_a_changed_file_is_an_error_or_a_broken_answer_but_never_a_whole_one(
    tmp_path: Path, form: str, edits: str
) -> None:
    """It is damage before it is decrypted, but where every change counts as an edit by hand.

    One that has kept size and time, as after a fault of the disk, is noticed when it is decrypted.
    """
    with keyed(tmp_path, PERSISTENCE_HAND_EDITS=edits) as service:
        service.publish(form, DEFINITION)
        name, file = f"{form}/data/1/a.bin", service.data / form / "data/1/a.bin"
        attach(service, name)
        attach(service, f"{form}/data/1/b.bin", body=CONTENT[::-1])
        save(service, form)
        whole, before = file.read_bytes(), file.stat()
        first, second = (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (300, 100_000))
        another = file.with_name("b.bin").read_bytes()
        for content, keeps_time in (
            *((content, False) for content in (another, first, whole[:-70_000], whole[:-1], whole[100:])),
            *((another, True), (first, True)),
        ):
            file.write_bytes(content)
            if keeps_time:
                os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
            got = service.get(name, Decrypt="true")
            is_seen = edits == "xml" and not keeps_time
            assert (got.status, "is damaged" in got.cause, got.body.count(b"\n")) == (500, is_seen, 1)
        file.write_bytes(second)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(IncompleteRead) as raised:  # the first frame has gone out
            service.get(name, Decrypt="true")
        assert (raised.value.partial, raised.value.expected) == (CONTENT[: 1 << 16], len(CONTENT) - (1 << 16))
        file.write_bytes(whole)
        assert service.get(name, Decrypt="true").body == CONTENT


def test_what_the_real_system_has_encrypted_is_read(service: Service, form: str) -> None:
    provider = replace(service, face=PROVIDER)
    (key,) = legacy_keys([PASSWORD])
    body = (
        f'<form xmlns:fr="{FR[1:-1]}"><a fr:value-encrypted="true">{VECTOR}</a><b encrypted="true">{VECTOR}</b></form>'
    )
    save(provider, form, body=body.encode())
    attach(provider, f"{form}/data/1/a.bin", None, bytes(12) + AESGCM(key).encrypt(bytes(12), CONTENT, None))
    got = etree.fromstring(service.get(f"{form}/data/1/data.xml").body)
    assert [got.findtext("a"), got.findtext("b")] == ["078-05-1120 \u00e9"] * 2
    assert not got[0].attrib
    assert service.get(f"{form}/data/1/a.bin", Decrypt="true").body == CONTENT
    part = service.get(f"{form}/data/1/a.bin", {"Range": "bytes=70001-70009"}, Decrypt="true")
    assert (part.status, part.body) == (206, CONTENT[70_001:70_010])
    holder = f'<scan xmlns:f="{FR[1:-1]}" f:attachment-encrypted="true">{path(form, "1", "a.bin")}</scan>'
    save(service, form, body=f"<form><person>{holder}</person></form>".encode())
    assert b'f:attachment-encrypted="true"' in service.get(f"{form}/data/1/data.xml").body


def test_without_a_key_what_is_marked_is_not_stored_and_all_else_is(tmp_path: Path) -> None:
    with serving(tmp_path) as service:
        assert service.put("a/b/form/form.xhtml", DEFINITION).status == 201
        for name, holder in (("data.xml", ""), ("a.bin", "person/scan")):
            put = service.put(f"a/b/data/1/{name}", data(), **V1, Path_To_Holder=holder)
            assert (put.status, put.body.count(b"\n"), "persistence encryption-key new" in put.cause) == (500, 1, True)
        assert not traces(service.data, *SECRETS)
        assert not service.leftovers()
        assert service.get("a/b/data/1/data.xml").status == 404
        save(service, "a/b", body=f"<form><person><ssn/><name>{OPEN}</name></person></form>".encode())
        attach(service, "a/b/data/1/photo.bin", "person/photo")
        keys_of(tmp_path).new()
        save(service, "a/b")
        attach(service, "a/b/data/1/a.bin")
        (tmp_path / "var/encryption-keys.json").rename(tmp_path / "gone")
        got = service.get("a/b/data/1/data.xml")
        assert (got.status, got.body.count(b"\n"), "is missing here" in got.cause) == (500, 1, True)
        assert service.get("a/b/data/1/a.bin", Decrypt="true").status == 500
        assert service.get("a/b/data/1/a.bin").body.startswith(MAGIC)
        assert service.get("a/b/data/1/photo.bin").body == CONTENT


def test_what_a_key_encrypts_that_is_retired_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the key was retired, nothing was there yet that needed it."""
    keys, derived, has_begun = keys_of(tmp_path), KeyRing.derived, threading.Event()

    def noted(ring: KeyRing, *given: object) -> bytes:
        has_begun.set()
        return derived(ring, *given)  # type: ignore[arg-type]  # what it was given

    monkeypatch.setattr(KeyRing, "derived", noted)
    old = keys.new()
    with serving(tmp_path, alone=True) as service:  # in this process
        assert service.put("a/b/form/form.xhtml", DEFINITION).status == 201
        end = data().rindex(b"</")
        long_data = (data()[:end] + b" " * 600_000, data()[end:])
        for name, pieces in (("data.xml", long_data), ("a.bin", (CONTENT * 3, CONTENT))):

            def body(pieces: tuple[bytes, bytes] = pieces, old: str = old) -> Iterator[bytes]:
                has_begun.clear()
                yield pieces[0]
                assert has_begun.wait(30)
                keys.new()
                keys.retire(old)
                yield pieces[1]

            own = {"Form_Definition_Version": 1, "Path_To_Holder": "person/scan"}
            headers = {"Content-Type": "application/xml", "Content-Length": str(sum(map(len, pieces)))}
            refused = service.put(f"a/b/data/1/{name}", body(), headers, **own)  # type: ignore[arg-type]  # as http.client's
            assert refused.status == 503, refused.cause
            assert "was retired while it was received" in refused.cause
            assert service.get(f"a/b/data/1/{name}").status == 404
            old = keys.ring().to_write()
            assert service.put(f"a/b/data/1/{name}", b"".join(pieces), headers, **own).status == 201
            assert service.get(f"a/b/data/1/{name}", Decrypt="true").status == 200


def test_nginx_is_not_sent_to_what_must_be_decrypted(tmp_path: Path) -> None:
    keys_of(tmp_path).new()
    with serving(tmp_path, env={"PERSISTENCE_ACCEL_REDIRECT": "/protected"}) as service:
        assert service.put("a/b/form/form.xhtml", DEFINITION).status == 201
        attach(service, "a/b/data/1/a.bin")
        save(service, "a/b")
        assert service.get("a/b/data/1/a.bin")["X-Accel-Redirect"] is not None
        got = service.get("a/b/data/1/a.bin", Decrypt="true")
        assert (got["X-Accel-Redirect"], got.body) == (None, CONTENT)


def test_values_are_plain_as_json_and_encrypted_again_when_json_is_written(service: Service, form: str) -> None:
    save(service, form)
    path, accepts = f"{form}/data/1/data.xml", {"Accept": "application/json"}
    found = json.loads(service.get(path, accepts).body)["person"]
    assert (found["ssn"], found["name"], [each["note"] for each in found["kids"]]) == (SECRETS[0], OPEN, [*SECRETS[1:]])
    sent = json.dumps({"person": {"ssn": "new secret", "kids": [{}, {"note": "other secret"}]}}).encode()
    assert service.put(path, sent, {"Content-Type": "application/json"}).status == 204
    assert texts(service.get(path).body) == ["new secret", OPEN, SECRETS[1], "other secret"]
    stored = raw(service, path).body
    assert b"value-encrypted" in stored
    assert not [text for text in (*SECRETS, "new secret", "other secret") if text.encode() in stored]
