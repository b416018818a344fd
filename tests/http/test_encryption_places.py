"""Encrypted values are bound to their places and to each other: without the key nothing is changed unseen.

What a person plants without a key is stored here through the provider API, which keeps bytes as they are: its sidecar
is then right, and no tree or database can tell.
"""

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from persistence.crypto import EncryptionKeys, KeyRing, purpose
from persistence.model.versions import DATA_FORMATS
from persistence.postgresql.database_check import maintained
from tests.encrypted_form import DEFINITION, OPEN, SECRETS, data, path
from tests.http.test_definitions import kinds, run_command
from tests.http.test_encryption import APPS, CONTENT, attach, keyed, raw, save, texts
from tests.postgresql.server import requires_postgresql
from tests.postgresql.storages import storage_at
from tests.served import served
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service, alone
from tests.services.transferring import moved
from tests.sidecars import resealed
from tests.waiting import eventually

KEY = bytes.fromhex("7" * 64)
VALUE = re.compile(rb"enc2:k1:[A-Za-z0-9+/=]+")
LABEL = re.compile(rb' (xmlns:fr="[^"]+" )?fr:value-encrypted="true"')
SEAL = re.compile(rb"<\?encrypted-values [^?]*\?>")


service = served(alone=True, env={"PERSISTENCE_ENCRYPTION_KEY": f"k1:{KEY.hex()}"})


@pytest.fixture
def form(service: Service, form: str) -> str:
    assert service.put(f"{form}/form/form.xhtml", DEFINITION).status == 201
    return form


def planted(service: Service, form: str, body: bytes) -> Answer:
    """The answer to a reader, after bytes were put in the place of those that are stored."""
    assert replace(service, face=PROVIDER).put(f"{form}/data/1/data.xml", body, **V1).status == 204
    return service.get(f"{form}/data/1/data.xml")


def exchanged(stored: bytes, _: bytes) -> bytes:
    """The values of the two iterations, each in the other's place."""
    _, first, second, _ = VALUE.findall(stored)
    return stored.replace(first, b"@@").replace(second, first).replace(b"@@", second)


def in_plain_text(stored: bytes, _: bytes) -> bytes:
    value = VALUE.findall(stored)[0]
    return LABEL.sub(b"", stored, count=1).replace(value, b"DE-EVIL")


def with_the_last_iteration_removed(stored: bytes, _: bytes) -> bytes:
    at = stored.rindex(b"<kids>")
    return stored[:at] + stored[stored.index(b"</kids>", at) + len(b"</kids>") :]


def in_a_namespace(stored: bytes, _: bytes) -> bytes:
    """The first value in an element that no reader looks for, and a plain one where it was."""
    at = stored.index(VALUE.findall(stored)[0])
    begin = stored.rindex(b"<", 0, at)
    end = stored.index(b">", at) + 1
    name = re.findall(rb"<(\w+)", stored[begin:end])[0]
    hidden = stored[begin:end].replace(b"<" + name, b'<z:%s xmlns:z="urn:z"' % name).replace(b"</", b"</z:")
    return stored[:begin] + hidden + b"<%s>DE-EVIL</%s>" % (name, name) + stored[end:]


def without_seal(stored: bytes, _: bytes) -> bytes:
    return SEAL.sub(b"", stored)


def in_the_old_format(stored: bytes, _: bytes) -> bytes:
    """One value exchanged for one of before values were bound to iterations."""
    return stored.replace(VALUE.findall(stored)[1], b"enc1:k1:" + VALUE.findall(stored)[2][8:])


CHANGES: dict[str, Callable[[bytes, bytes], bytes]] = {
    "exchanged": exchanged,
    "in plain text": in_plain_text,
    "in a namespace": in_a_namespace,
    "the first iteration removed": lambda stored, _: re.sub(rb"<kids>.*?</kids>", b"", stored, count=1),
    "the last iteration removed": with_the_last_iteration_removed,
    "emptied": lambda stored, _: stored.replace(VALUE.findall(stored)[0], b""),
    "moved into an empty iteration": lambda stored, _: stored.replace(b"<kids>", b"<kids><note/></kids><kids>", 1),
    "with elements around": lambda stored, _: stored.replace(VALUE.findall(stored)[0], b"<x/>DE-EVIL"),
    "of another revision": lambda stored, older: stored.replace(VALUE.findall(stored)[0], VALUE.findall(older)[0]),
    "another seal": lambda stored, older: stored.replace(SEAL.findall(stored)[0], SEAL.findall(older)[0]),
    "without seal": without_seal,
    "a seal of nothing": lambda stored, _: SEAL.sub(b"<?encrypted-values ?>", stored),
    "in the old format": in_the_old_format,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_without_the_key_are_damage(
    service: Service, form: str, change: Callable[[bytes, bytes], bytes]
) -> None:
    save(service, form)
    older = raw(service, f"{form}/data/1/data.xml").body
    save(service, form, body=data().replace(SECRETS[0].encode(), b"078-05-1121 geheim"))
    stored = raw(service, f"{form}/data/1/data.xml").body
    assert len(VALUE.findall(stored)) == 4, "three values and the seal"
    changed = change(stored, older)
    assert changed != stored
    for body in (changed, changed.replace(OPEN.encode(), OPEN.encode() * 10_000)):  # at once, and piece by piece
        got = planted(service, form, body)
        assert (got.status, got.body.count(b"\n"), b"EVIL" not in got.body) == (500, 1, True)
        assert service.get(f"{form}/data/1/data.xml?nonrelevant=remove").status == 500
    assert planted(service, form, stored.replace(OPEN.encode(), b"other")).status == 200


def test_marked_values_are_encrypted_in_whatever_format_they_are_sent(tmp_path: Path) -> None:
    with keyed(tmp_path) as service:
        for at_rest, app in APPS.items():
            service.put(f"{app}/f/form/form.xhtml", DEFINITION)
            for sent in DATA_FORMATS:
                save(service, f"{app}/f", body=data(sent))
                stored = raw(service, f"{app}/f/data/1/data.xml").body
                assert not [text for text in SECRETS if text.encode() in stored], (sent, at_rest)
                assert texts(service.get(f"{app}/f/data/1/data.xml").body) == [SECRETS[0], OPEN, *SECRETS[1:]]


def test_a_check_finds_plain_values(tmp_path: Path) -> None:
    """Encrypting again does not take them in where the others say that something is missing."""
    with keyed(tmp_path) as service:
        service.publish("a/f", DEFINITION)
        save(service, "a/f")
        stored = raw(service, "a/f/data/1/data.xml").body
        label = re.compile(rb' (xmlns:fr="[^"]+" )?fr:value-encrypted="true">enc2:[^<]+')
        assert planted(service, "a/f", label.sub(b">DE-EVIL", stored, count=1)).status == 500
        assert "value-plain" in kinds(service, "--deep")
        done = run_command(service, "reencrypt")
        assert (done.exit_code, "is not as it was written" in done.output) == (4, True), done.output
        assert service.get("a/f/data/1/data.xml").status == 500


def test_a_check_finds_a_missing_seal_and_values_that_are_all_plain(tmp_path: Path) -> None:
    """Plain values are damage where the sidecar says that some are encrypted."""
    with keyed(tmp_path) as service:
        service.publish("a/f", DEFINITION)
        save(service, "a/f")
        stored = raw(service, "a/f/data/1/data.xml").body
        assert kinds(service, "--deep") == []
        planted(service, "a/f", without_seal(stored, b""))
        assert set(kinds(service, "--deep")) == {"encryption-wrong"}
        planted(service, "a/f", stored)
        assert planted(service, "a/f", data()).status == 200, "this may be of before the controls were marked"
        resealed(service.data / "a/f/data/1/data.xml.json", encrypted=True)
        assert service.get("a/f/data/1/data.xml").refuses(500, "but its sidecar says that it has")
        assert set(kinds(service, "--deep")) == {"encryption-wrong", "value-plain"}


def old_value(form: str, text: str, *names: str) -> bytes:
    app, name = form.split("/")
    key = KeyRing("k1", {"k1": KEY}).derived("k1", None, purpose("value", app, name, "1"))
    sealed = AESGCM(key).encrypt(bytes(12), text.encode(), "\x1f".join(names).encode())
    return b"enc1:k1:" + base64.b64encode(bytes(12) + sealed)


def test_values_in_the_format_of_before_are_read_and_bound_by_reencryption(service: Service, form: str) -> None:
    expected = [SECRETS[0], OPEN, *SECRETS[1:]]
    save(service, form)
    stored = without_seal(raw(service, f"{form}/data/1/data.xml").body, b"")
    places = (("person", "ssn"), ("person", "kids", "note"), ("person", "kids", "note"))
    for value, text, names in zip(VALUE.findall(stored), SECRETS, places, strict=True):
        stored = stored.replace(value, old_value(form, text, *names))
    assert texts(planted(service, form, stored).body) == expected
    assert service.post(f"reencrypt/{form}").status == 200
    eventually(lambda: re.search(rb'state="(encrypting|waiting)"', service.call("GET", "reencrypt").body) is None)
    new = raw(service, f"{form}/data/1/data.xml").body
    assert (len(VALUE.findall(new)), new.count(b"enc1:")) == (4, 0)
    assert texts(service.get(f"{form}/data/1/data.xml").body) == expected


def test_whatever_brings_a_document_to_another_place_leaves_it_readable(service: Service, form: str) -> None:
    """A draft that becomes data, a copy, an older revision that comes back, rows that move, a data format."""
    expected = [SECRETS[0], OPEN, *SECRETS[1:]]
    attach(service, f"{form}/draft/1/s.bin")
    save(service, form, collection="draft", body=data(scan=path(form, "1", "s.bin", "draft")))
    draft = service.get(f"{form}/draft/1/data.xml").body
    attach(service, f"{form}/data/1/s.bin", body=service.get(f"{form}/draft/1/s.bin").body)
    first = save(service, form, body=draft.replace(b"/draft/", b"/data/"))["Svc-Last-Modified"]
    assert texts(service.get(f"{form}/data/1/data.xml").body) == expected
    assert service.get(f"{form}/data/1/s.bin", Decrypt="true").body == CONTENT
    shown = service.get(f"{form}/data/1/data.xml").body
    other_way = re.sub(rb"(<kids>.*?</kids>)(<kids>.*?</kids>)", rb"\2\1", shown)
    save(service, form, body=other_way)
    assert texts(service.get(f"{form}/data/1/data.xml").body) == [*expected[:2], SECRETS[2], SECRETS[1]]
    restored = service.raw("POST", f"{PUBLIC}/history/{form}/1/restore?last-modified-time={first}")
    assert restored.status == 204, restored.cause
    assert texts(service.get(f"{form}/data/1/data.xml").body) == expected
    body, xml = b"<document-id>1</document-id>", {"Content-Type": "application/xml"}
    copy = service.raw("POST", f"/fr/service/{form}/duplicate", xml, body)
    new = re.sub(rb"<[^>]+>", b"", copy.body).decode()
    assert texts(service.get(f"{form}/data/{new}/data.xml").body) == expected
    assert service.delete(f"{form}/data/1/data.xml").status == 204
    last = service.raw("POST", f"{PUBLIC}/history/{form}/1/restore?last-modified-time={first}")
    assert last.status in (200, 201, 204), last.cause
    assert texts(service.get(f"{form}/data/1/data.xml").body) == expected


def test_rows_that_are_not_relevant_are_left_out_of_what_is_bound(service: Service, form: str) -> None:
    relevant = b'<kids xmlns:fr="http://orbeon.org/oxf/xml/form-runner" fr:relevant="false">'
    for filler in (b"", b"<b>%s</b>" % (b"x" * 300_000)):
        body = data().replace(b"<kids>", filler + relevant, 1)
        save(service, form, body=body)
        got = service.get(f"{form}/data/1/data.xml?nonrelevant=remove")
        assert (got.status, texts(got.body)) == (200, [SECRETS[0], OPEN, SECRETS[2]])
        assert got["Content-Length"] == str(len(got.body))
        assert texts(service.get(f"{form}/data/1/data.xml").body) == [SECRETS[0], OPEN, *SECRETS[1:]]


@requires_postgresql
def test_a_move_to_a_database_and_back_leaves_them_readable(tmp_path: Path, database_uri: str) -> None:
    with keyed(tmp_path / "from") as service:
        service.put("a/f/form/form.xhtml", DEFINITION)
        attach(service, "a/f/data/1/s.bin")
        save(service, "a/f", body=data(scan=path("a/f", "1", "s.bin")))
        database = maintained(storage_at(database_uri, tmp_path / "local"))
        back = tmp_path / "back/data"
        moved(service.data, database, "a/f")
        keys = tmp_path / "from/var/encryption-keys.json"
    ring = EncryptionKeys(str(keys), trees=[str(service.data)]).ring()
    key = f"{ring.writing}:{ring.keys[str(ring.writing)].hex()}"
    env = {"PERSISTENCE_ENCRYPTION_KEY": key, "PERSISTENCE_LOCAL": str(tmp_path / "own")}

    def require_readable(*options: str) -> None:
        with alone(tmp_path / "back", env=env, options=options) as service:
            assert texts(service.get("a/f/data/1/data.xml").body) == [SECRETS[0], OPEN, *SECRETS[1:]]
            assert service.get("a/f/data/1/s.bin", Decrypt="true").body == CONTENT

    require_readable("--data", database_uri)
    moved(database, back, "a")
    require_readable()
