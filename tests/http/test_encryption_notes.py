"""The sidecar says whether anything in form data is encrypted, so that a GET of plain data reads it once."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest
from flask.testing import FlaskClient
from lxml import etree

from persistence.app import create_app
from persistence.services import codec
from persistence.settings import Settings
from tests.commands import persistence
from tests.encrypted_form import DEFINITION, OPEN, SECRETS, UNMARKED, data
from tests.http.test_encryption import FR, PASSWORD, VECTOR, keys_of, raw, save, texts
from tests.http.test_reencryption import reencrypted
from tests.in_process import serving
from tests.initialised import initialised
from tests.opened import opened
from tests.served import served
from tests.service import PROVIDER, PUBLIC, V1, Service, alone, pair
from tests.sidecars import resealed, said

PLAIN = b"<form><person><name>Ada</name></person></form>"
MENTIONING = b"<form><person><name>is it encrypted?</name></person></form>"
BEHIND = f'<form xmlns:f="{FR[1:-1]}"><person><ssn f:value-encrypted="true">{VECTOR}</ssn></person></form>'.encode()
"""Data as the proxy of a real runtime has encrypted it."""

LARGE = b"<form><person><name>" + b"a lovely long name " * 220_000 + b"</name></person></form>"


SETTINGS = f'encryption_keys = "var/encryption-keys.json"\n"svc.field-encryption.password" = "{PASSWORD}"\n'
service = served(has_keys=True, settings=SETTINGS, start=alone)


@pytest.fixture
def form(service: Service, form: str) -> str:
    assert service.put(f"{form}/form/form.xhtml", DEFINITION).status == 201
    return form


def save_behind(service: Service, form: str, body: bytes) -> None:
    """Save as a proxy does, which encrypts by itself."""
    save(replace(service, face=PROVIDER), form, body=body)


def sidecar(service: Service, form: str, collection: str = "data") -> Path:
    return service.data / form / collection / "1/data.xml.json"


def note(service: Service, form: str, collection: str = "data") -> object:
    return said(sidecar(service, form, collection)).get("encrypted", "silent")


def notes(service: Service, form: str) -> list[object]:
    return [said(path).get("encrypted", "silent") for path in (service.data / form / "data").rglob("*data.xml.json")]


def shown(service: Service, form: str, query: str = "") -> str:
    got = service.get(f"{form}/data/1/data.xml{query}")
    assert got.status == 200, got.cause
    return texts(got.body)[0]


@pytest.mark.parametrize(("collection", "by_proxy"), [("data", False), ("draft", False), ("data", True)])
@pytest.mark.parametrize(
    ("body", "expected", "text"),
    [(PLAIN, False, "Ada"), (MENTIONING, "silent", "is it encrypted?"), (None, True, SECRETS[0])],
)
def test_saving_notes_encryption(
    service: Service, form: str, collection: str, body: bytes | None, expected: object, text: str, *, by_proxy: bool
) -> None:
    """What a proxy has encrypted is not known to be. A sidecar without a note, as of before there were any, is read."""
    if body is None and by_proxy:
        body, expected, text = BEHIND, "silent", "078-05-1120 \u00e9"
    save(replace(service, face=PROVIDER) if by_proxy else service, form, body=body or data(), collection=collection)
    assert note(service, form, collection) == expected
    path = sidecar(service, form, collection)
    if expected is False:  # a service that does not know the note accepts this one: the checksum is the same
        path.write_text(path.read_text().replace('  "encrypted": false,\n', ""))
    for _ in range(2):
        for _ in range(2):
            got = service.get(f"{form}/{collection}/1/data.xml").body
            assert (texts(got)[0], got == body) == (text, body not in (None, BEHIND))
            assert not by_proxy or raw(service, f"{form}/{collection}/1/data.xml").body == body
        resealed(path, encrypted=None)
        assert note(service, form, collection) == "silent"


def test_each_save_has_a_note_of_its_own(service: Service, form: str) -> None:
    bodies = {"silent": BEHIND, False: PLAIN, True: data()}
    for expected in (False, True, False, "silent", True, "silent", False):
        (save_behind if expected == "silent" else save)(service, form, body=bodies[expected])
        assert note(service, form) == expected
        assert shown(service, form) in ("Ada", SECRETS[0], "078-05-1120 \u00e9")
    kept = sorted((service.data / form / "data/1/.history").glob("2*data.xml.json"))
    instants = [str(said(path)["modified"]) for path in kept]
    assert len(instants) == 6
    for instant in instants:
        assert shown(service, form, f"?last-modified-time={instant}") in ("Ada", SECRETS[0], "078-05-1120 \u00e9")


def test_reencrypting_notes_what_it_leaves(service: Service, form: str) -> None:
    assert service.put(f"{form}/form/form.xhtml", UNMARKED).status == 204
    save(service, form)
    save(service, form)
    assert notes(service, form) == [False, False]
    for definition, expected in ((DEFINITION, [True, True]), (UNMARKED, [False, False])):
        assert service.put(f"{form}/form/form.xhtml", definition).status == 204
        reencrypted(service, form)
        assert notes(service, form) == expected
        assert shown(service, form) == SECRETS[0]


def test_a_content_that_was_put_in_by_hand_is_looked_at(service: Service, form: str) -> None:
    save(service, form)
    file = service.data / form / "data/1/data.xml"
    sealed = file.read_bytes()
    save(service, form, body=PLAIN)
    assert note(service, form) is False
    for _ in range(3):
        file.write_bytes(sealed)
        assert shown(service, form) == SECRETS[0]
        file.write_bytes(PLAIN)
        assert shown(service, form) == "Ada"
    file.write_bytes(sealed)
    etag = service.get(f"{form}/data/1/data.xml")["ETag"]
    assert service.put(f"{form}/data/1/data.xml", PLAIN, {"If-Match": etag or ""}).status == 204
    assert shown(service, form) == "Ada"
    kept = [said(path) for path in (service.data / form / "data/1/.history").glob("2*data.xml.json")]
    (edit,) = [each for each in kept if each.get("adopted")]
    assert edit.get("encrypted", "silent") == "silent"
    assert shown(service, form, f"?last-modified-time={edit['modified']}") == SECRETS[0]


def test_plain_data_in_the_place_of_encrypted_is_shown_as_it_is(service: Service, form: str) -> None:
    """Attachments and definitions have no note."""
    save(service, form)
    service.put(f"{form}/data/1/a.bin", b"plain", {"Content-Type": "text/plain"}, **V1)
    for path in (service.data / form).rglob("*.json"):
        assert said(path).get("encrypted", "silent") == (True if path.name == "data.xml.json" else "silent"), path
    (service.data / form / "data/1/data.xml").write_bytes(PLAIN)
    assert service.get(f"{form}/data/1/data.xml").body == PLAIN


def test_what_is_adopted_or_restored_is_looked_at(tmp_path: Path) -> None:
    keys_of(tmp_path).new()

    with serving(tmp_path, settings=SETTINGS, alone=True) as service:
        service.publish("a/b", DEFINITION)
        save(service, "a/b")
        file = service.data / "a/b/data/1/data.xml"
        sealed = file.read_bytes()
        save(service, "a/b", body=PLAIN)
        file.write_bytes(sealed)
        persistence("backup", "backups", data=service.data)
    persistence("restore", str(next((tmp_path / "backups").glob("2*"))), data=tmp_path / "restored")
    done = persistence("check", "--adopt", "a/b/data/1/data.xml", data=tmp_path / "data")
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert note(service, "a/b") == "silent"
    for tree in ("data", "restored"):
        with serving(tmp_path, data=tmp_path / tree, settings=SETTINGS, alone=True) as service:
            assert shown(service, "a/b") == SECRETS[0], tree


def test_data_of_another_service_is_noted_as_it_arrives(tmp_path: Path) -> None:
    """The service in front encrypts, and asks the one behind for what it has, small or in a file of its own."""
    keys_of(tmp_path).new()
    with pair(tmp_path, settings='encryption_keys = "var/encryption-keys.json"\n') as (service, _):
        assert service.put("a/b/form/form.xhtml", DEFINITION).status == 201
        long = b"<note>" + b"x" * 100_000 + b"</note>"
        for body in (PLAIN, data(), MENTIONING, data().replace(b"<kids>", long + b"<kids>"), LARGE, data()):
            save(service, "a/b", body=body)
            for _ in range(2):
                assert texts(service.get("a/b/data/1/data.xml").body) == texts(body)
        assert "enc2:" in (service.data / "a/b/data/1/data.xml").read_text()


def read_by(service: Service, path: str) -> int:
    """The bytes that a worker reads from files to answer a GET, by ``sendfile`` too; the least of some tries."""
    io = Path(f"/proc/{service.workers()[0]}/io")

    def once() -> int:
        before = io.read_text()
        assert service.get(path).status == 200
        return int(io.read_text().split()[1]) - int(before.split()[1])

    return min(once() for _ in range(3))


def test_plain_data_is_read_once(service: Service, form: str) -> None:
    save(service, form, body=LARGE)
    assert note(service, form) is False
    name, size = f"{form}/data/1/data.xml", len(LARGE)
    assert size < read_by(service, name) < 1.2 * size
    resealed(sidecar(service, form), encrypted=None)  # as a service before this note has left it
    assert size < read_by(service, name) < 1.2 * size, "it was looked at once, and that is remembered"
    save_behind(service, form, LARGE)
    assert size < read_by(service, name) < 1.2 * size
    save(service, form, body=LARGE.replace(b"lovely", b"encrypted"))
    assert size < read_by(service, name), "it reads what says that something may be encrypted"
    assert etree.fromstring(service.get(name).body).findtext("person/name") != OPEN


def test_a_note_that_was_changed_is_damage(service: Service, form: str) -> None:
    save(service, form)
    path = sidecar(service, form)
    for change in ('"encrypted": false', '"encrypted": null'):
        text = path.read_text()
        path.write_text(text.replace('"encrypted": true', change))
        assert service.get(f"{form}/data/1/data.xml").status == 500
        path.write_text(text)
    assert shown(service, form) == SECRETS[0]


# A request about data in which nothing is encrypted passes the codec quickly.


DATA = f"{PUBLIC}/crud/a/b/data/1/data.xml"
SAVED = {"data": b"<form><person><name>Ada</name></person></form>", "headers": {"Svc-Form-Definition-Version": "1"}}


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    client = opened(create_app(Settings(data=initialised(tmp_path / "data")))).test_client()
    assert client.put(f"{PUBLIC}/crud/a/b/form/form.xhtml", data=UNMARKED).status_code == 201
    assert client.put(DATA, **SAVED).status_code == 201
    return client


def passed(ask: Callable[[], int], status: int) -> list[str]:
    """The functions of the codec that are called for a request, each time they are, and generators when they go on."""
    calls = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename == codec.__file__:
            calls.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        answered = ask()
    finally:
        sys.setprofile(None)
    assert answered == status
    return calls


def test_reading_passes_the_codec_in_three_calls_and_saving_in_fifteen(client: FlaskClient) -> None:
    assert len(passed(lambda: client.get(DATA).status_code, 200)) <= 3
    assert len(passed(lambda: client.head(DATA).status_code, 200)) <= 3
    calls = passed(lambda: client.put(DATA, **SAVED).status_code, 204)
    assert 0 < len(calls) <= 15, calls
