"""A document under a new id, with its attachments: ``POST /fr/service/$app/$form/duplicate`` (spec runtime 8)."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from tests import service as services
from tests.encrypted_form import DEFINITION as ENCRYPTED
from tests.http.test_encryption import keyed
from tests.http.test_permissions import publish
from tests.service import PUBLIC, V1, Answer, Service

CRUD = f"{PUBLIC}/crud"
V2 = {"Form_Definition_Version": 2}
NEW = re.compile(rb"<document-id>([0-9a-f]{40})</document-id>")


def ask(service: Service, form: str, document: str, body: bytes | None = None, **user: str) -> Answer:
    sent = f"<document-id>{document}</document-id>".encode() if body is None else body
    return service.raw("POST", f"/fr/service/{form}/duplicate", {"Content-Type": "application/xml"}, sent, **user)


def duplicated(service: Service, form: str, document: str = "D", **user: str) -> str:
    answer = ask(service, form, document, **user)
    found = NEW.fullmatch(answer.body)
    assert (answer.status, answer["Content-Type"], found is not None) == (200, "application/xml", True), answer.body
    assert found is not None
    return found[1].decode()


def test_data_and_attachments_are_copied_and_the_caller_owns_them(service: Service, form: str) -> None:
    """Same version and stage, no draft; the rest of the data is byte for byte as it was."""
    names = ("a.bin", "b & c.bin", "é.bin", ".x.json", "lost.bin")
    base, other = f"{CRUD}/{form}/data/D", f"{CRUD}/{form}/data/E/e.bin"
    held = "".join(f"<_ filename='x'>{base}/{quote(name)}</_>" for name in names)
    again = f"<again>\n{base}/a.bin </again>"
    data = f"<form ><!-- {base}/a.bin --><files>{held}\n</files><other>{other}</other>{again}</form>"
    for name in names[:-1]:
        own = {"Content-Type": f"text/x-{names.index(name)}"}
        service.put(f"{form}/data/D/{quote(name)}", name.encode(), own, **V2, Username="lea")
    service.put(f"{form}/data/D/data.xml?valid=false", data.encode(), **V2, Username="lea", Workflow_Stage="begun")
    service.put(f"{form}/draft/D/data.xml", b"<form>draft</form>", **V2, Username="lea")
    new = duplicated(service, form, Username="bob", Group="others")
    got, prefix = service.get(f"{form}/data/{new}/data.xml", Username="bob"), service.prefix
    moved = data.replace(f">{base}/", f">{CRUD}/{form}/data/{new}/").replace(
        f"\n{base}/a.bin ", f"{CRUD}/{form}/data/{new}/a.bin"
    )
    assert got.body.decode() == moved
    facts = ("Username", "Group", "Form-Definition-Version", "Workflow-Stage", "Last-Modified-By-Username")
    assert [got[prefix + fact] for fact in facts] == ["bob", "others", "2", "begun", "bob"]
    for number, name in enumerate(names[:-1]):
        file = service.get(f"{form}/data/{new}/{quote(name)}", Username="bob")
        assert (file.body, file["Content-Type"]) == (name.encode(), f"text/x-{number}")
    assert service.get(f"{form}/data/{new}/lost.bin", Username="bob").status == 404
    assert service.get(f"{form}/draft/{new}/data.xml", Username="bob").status == 404
    assert service.get(f"{form}/data/D/data.xml", Username="lea").body == data.encode()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_the_encoding_stays(service: Service, form: str, encoding: str) -> None:
    data = f'<?xml version="1.0" encoding="{encoding}"?><d>é<f>{CRUD}/{form}/data/D/a.bin</f></d>'
    service.put(f"{form}/data/D/data.xml", data.encode(encoding), **V1)
    new = duplicated(service, form)
    assert service.get(f"{form}/data/{new}/data.xml").body.decode(encoding) == data.replace("/D/", f"/{new}/")


def test_permissions_of_both_documents_count(service: Service, form: str) -> None:
    publish(
        service, form, '<permission operations="read update"><owner/></permission><permission operations="create"/>'
    )
    service.put(f"{form}/data/D/data.xml", **V1, Username="lea")
    assert ask(service, form, "D", Username="bob").status == 403
    own = duplicated(service, form, Username="lea")
    publish(service, form, '<permission operations="read update"><owner/></permission>')
    assert ask(service, form, own, Username="lea").status == 403
    assert ask(service, form, "none", Username="lea").status == 404


@pytest.mark.parametrize(
    "body",
    [b"", b"<x>D</x>", b"<document-id/>", b"<document-id>D", b"<!DOCTYPE a><document-id>D</document-id>"]
    + [b"<document-id>%s</document-id>" % (b"x" * size) for size in (300, 1 << 19)]
    + [b"<document-id>a/../b</document-id>", b"<document-id>a\nb</document-id>", b"<document-id>..</document-id>"],
)
def test_a_body_without_an_id_is_refused(service: Service, form: str, body: bytes) -> None:
    answer = ask(service, form, "", body)
    assert (answer.status, answer.body.count(b"\n")) == (400, 1)


def test_of_a_singleton_there_is_no_duplicate(service: Service, form: str) -> None:
    """And nothing is left of its attachments, unless another service has them: it removes them for administrators."""
    definition = b"""<h:html xmlns:h="http://www.w3.org/1999/xhtml" xmlns:f="http://www.w3.org/2002/xforms"><h:head>
        <f:model id="fr-form-model"><f:instance id="fr-form-metadata"><metadata><singleton>true</singleton></metadata>
        </f:instance></f:model></h:head></h:html>"""
    service.put(f"{form}/form/form.xhtml", definition)
    service.put(f"{form}/data/D/data.xml", f"<d>{CRUD}/{form}/data/D/a.bin</d>".encode(), **V1, Username="lea")
    service.put(f"{form}/data/D/a.bin", b"1", **V1, Username="lea")
    assert ask(service, form, "D", Username="lea").status == 409
    if not services.is_proxied:
        assert [path.name for path in (service.data / form / "data").glob("*")] in ([], ["D"])


def test_what_is_encrypted_is_encrypted_anew(tmp_path: Path) -> None:
    with keyed(tmp_path) as service:
        form, base = "a/f", f"{CRUD}/a/f/data/D"
        service.put(f"{form}/form/form.xhtml", ENCRYPTED)
        holder = {"Path_To_Holder": "person/scan"}
        assert service.put(f"{form}/data/D/s.bin", b"scanned", **V1, **holder)["Svc-Did-Encrypt"] == "true"
        data = f"<form><person><ssn>078-05-1120</ssn><scan>{base}/s.bin</scan></person></form>"
        service.put(f"{form}/data/D/data.xml", data.encode(), **V1)
        new = duplicated(service, form)
        got = service.get(f"{form}/data/{new}/data.xml").body
        assert (b"<ssn" in got, b"078-05-1120" in got, b'fr:attachment-encrypted="true"' in got) == (True, True, True)
        assert service.get(f"{form}/data/{new}/s.bin", Decrypt="true").body == b"scanned"
        assert service.get(f"{form}/data/{new}/s.bin").body != b"scanned"
        files = [path.read_bytes() for path in service.data.rglob("*") if path.is_file() and new in str(path)]
        assert not any(b"078-05-1120" in each or each == b"scanned" for each in files)
