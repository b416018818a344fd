"""The publish interface over HTTP: spec crud 8.3, spec forms 6.7."""

import json
from http.client import RemoteDisconnected
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from lxml import etree

from tests.forms.vectors import V2, V6, V7, V8, published
from tests.http.dying import DEFECT
from tests.in_process import serving
from tests.service import PROVIDER, V1, Answer, Service, running

PROJECT = Path(__file__).parents[2]
CRUD = "/fr/service/persistence/crud"
NAMESPACES = {"xh": "http://www.w3.org/1999/xhtml", "xf": "http://www.w3.org/2002/xforms"}
DEFINITION = """<?xml version="1.0" encoding="UTF-8"?><!-- before -->
<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
 xmlns:component="urn:kept"><xh:head><xf:model id="fr-form-model">
<xf:instance id="fr-form-instance"><form><image>{image}</image></form></xf:instance>
<xf:instance id="fr-form-metadata"><metadata><application-name>{app}</application-name>
<form-name>{form}</form-name><available>maybe</available>{more}</metadata></xf:instance>
<xf:instance id="fr-form-attachments"><attachments>{files}</attachments></xf:instance>
<xf:bind id="fr-form-binds" ref="instance('fr-form-instance')" calculate="component:f('é')"/>
</xf:model></xh:head></xh:html>"""


def definition(form: str, *, image: str = "", files: str = "", more: str = "") -> bytes:
    app, name = form.split("/")
    return DEFINITION.format(app=app, form=name, image=image, files=files, more=more).encode()


def post(service: Service, path: str, body: bytes = b"", **query: str) -> Answer:
    return service.raw("POST", f"/fr/service/{path}?{urlencode(query)}", {}, body)


def publish(service: Service, document: str, **query: str) -> Answer:
    return post(service, f"{service.designer}/builder/publish/{document}", **query)


def said(answer: Answer) -> tuple[str, ...]:
    assert (answer.status, answer["Content-Type"]) == (200, "application/xml"), answer.body
    return tuple(child.text or "" for child in etree.fromstring(answer.body))


def metadata(service: Service, form: str, **own: object) -> dict[str, str]:
    stored = service.get(f"{form}/form/form.xhtml", **own)
    [found] = etree.fromstring(stored.body).xpath("//metadata", namespaces=NAMESPACES)
    return {child.tag: child.text for child in found}


@pytest.fixture
def designed(service: Service, form: str) -> str:
    """The id of an unpublished definition of the form, with three attachments, two of them under odd names."""
    document = form.split("/", maxsplit=1)[0]
    base = f"{service.designer}/builder/data/{document}"
    names = ["0a1b.bin", "ä b.pdf", "100%.css"]
    for name in names:
        kind, known = {"Content-Type": "application/pdf"}, {"Hash_Algorithm": "X", "Hash_Value": 1}
        service.put(f"{base}/{quote(name)}", name.encode(), kind, **known)
    image, *files = (f"\n {CRUD}/{base}/{quote(name)}?x=1 " for name in names)
    elements = "".join(f'<f filename="f">{file}</f>' for file in files)
    service.put(f"{base}/data.xml", definition(form, image=image, files=elements))
    return document


def test_from_the_designer(service: Service, form: str, designed: str) -> None:
    """8.3: attachments copied, paths rewritten, everything else as it was, the source remembered."""
    answer = publish(service, designed)
    assert said(answer) == (*form.split("/"), "3", "1")
    stored = service.get(f"{form}/form/form.xhtml")
    assert (stored["Content-Type"], stored[service.prefix + "Document"]) == ("application/xhtml+xml", designed)
    text = stored.body.decode()
    for name in ("0a1b.bin", "ä b.pdf", "100%.css"):
        assert f">{CRUD}/{form}/form/{quote(name)}<" in text
        copy = service.get(f"{form}/form/{quote(name)}")
        assert (copy.body.decode(), copy["Content-Type"]) == (name, "application/pdf")
        assert copy[service.prefix + "Hash-Value"] == "1"
    assert ("builder" not in text, "<!-- before -->" in text) == (True, True)
    assert ("calculate=\"component:f('é')\"" in text, 'xmlns:component="urn:kept"' in text) == (True, True)
    assert "available" not in metadata(service, form)


def test_versions(service: Service, form: str, designed: str) -> None:
    """8.3: absent, next and a number mean what they mean in the header, which counts as well."""
    asked = [{}, {}, {"form-definition-version": "next"}, {"form-definition-version": "7"}, {}]
    published = [said(publish(service, designed, **query))[3] for query in asked]
    assert published == ["1", "1", "2", "7", "7"]
    header = {service.prefix + "Form-Definition-Version": "3"}
    answer = service.raw("POST", f"/fr/service/{service.designer}/builder/publish/{designed}", header)
    assert said(answer)[3] == "3"
    for version in (1, 2, 3, 7):
        assert service.get(f"{form}/form/0a1b.bin", Form_Definition_Version=version).body == b"0a1b.bin"


def test_what_is_said_in_the_metadata(service: Service, form: str, designed: str) -> None:
    said(publish(service, designed, available="false", **{"version-comment": " <b>é "}))
    found = metadata(service, form)
    assert (found["available"], found["version-comment"]) == ("false", "<b>é")
    said(post(service, "publish", service.get(f"{form}/form/form.xhtml").body, **{"version-comment": " "}))
    assert not {"available", "version-comment"} & metadata(service, form).keys()


LISTED = {
    "4.8.0": [{"path": "trip/legs", "iteration-name": "legs-iteration"}],
    "2019.1.0": {
        "migrations": [
            {
                "containerPath": [{"value": "trip"}],
                "newGridElem": {"value": name},
                "afterElem": after and {"value": after},
                "content": [{"value": content}],
                "topLevel": True,
            }
            for name, after, content in (("top", None, "code"), ("bottom", "legs", "note"))
        ]
    },
}


def test_the_grids_are_listed_as_a_form_runtime_lists_them(service: Service, form: str) -> None:
    """Spec forms 1.5; what was listed before is replaced, and nothing is listed where that is not wanted."""
    app, name = form.split("/")
    own = f"<application-name>{app}</application-name><form-name>{name}</form-name>"
    before = '<migration version="2019.1.0">old</migration><migration version="4.7.0">other</migration>'
    text = (
        V2.document().replace("<application-name>lab</application-name>", own).replace("<form-name>vec</form-name>", "")
    )
    body = text.replace("</metadata>", f"{before}</metadata>").encode()
    said(post(service, "publish", body, **{"upgrade-form-definition": "false"}))
    assert service.get(f"{form}/form/form.xhtml").body.count(b"<migration") == 2
    said(post(service, "publish", body))
    stored = service.get(f"{form}/form/form.xhtml").body.replace(b'<migration version="4.7.0">other</migration>', b"")
    root = etree.fromstring(stored)
    found = {each.get("version"): json.loads(each.text or "") for each in root.iterfind(".//metadata/migration")}
    assert found == LISTED


def test_a_grid_without_an_element_of_its_own_is_not_listed_and_one_of_a_template_with_its_section() -> None:
    """A list would say that older data lacks it, and newer data has it: a runtime would put controls into it."""
    listed = {form: [*etree.fromstring(published(form).encode()).iterfind(".//migration")] for form in (V6, V7, V8)}
    assert [[each.get("version") for each in listed[form]] for form in (V6, V7)] == [["4.8.0"], []]
    repeated, plain = (json.loads(each.text or "") for each in listed[V8])
    assert repeated == [{"path": "who/tels", "iteration-name": "tels-iteration"}]
    found = [(each["containerPath"], each["topLevel"]) for each in plain["migrations"]]
    assert found == [([{"value": "main"}], True), ([{"value": "who"}], False)]


def test_from_a_body_a_form_takes_its_own_attachments_into_its_next_version(service: Service, form: str) -> None:
    """What was fetched, changed and is published again keeps its images; what is not there is let be."""
    assert said(post(service, "publish", definition(form)))[2:] == ("0", "1")
    assert service.get(f"{form}/form/form.xhtml")[service.prefix + "Document"] is None
    assert said(post(service, "publish", definition(form), **{"document-id": "abc"}))[3] == "1"
    assert service.get(f"{form}/form/form.xhtml")[service.prefix + "Document"] == "abc"
    service.put(f"{form}/form/a.bin", b"one", **V1)
    body = definition(form, image=f"{CRUD}/{form}/form/a.bin", files=f"<f>{CRUD}/{form}/form/gone.bin</f>")
    assert said(post(service, "publish", body, **{"form-definition-version": "1"}))[2:] == ("1", "1")
    assert said(post(service, "publish", body, **{"form-definition-version": "next"}))[2:] == ("1", "2")
    assert service.get(f"{form}/form/a.bin", Form_Definition_Version=2).body == b"one"


def test_a_versions_own_attachments_are_never_replaced_by_anothers(service: Service, form: str) -> None:
    """What the version to publish has already, put there before, is what it keeps."""
    for version, content in ((1, b"one"), (2, b"two")):
        service.put(f"{form}/form/a.bin", content, Form_Definition_Version=version)
        service.put(f"{form}/form/form.xhtml", definition(form), Form_Definition_Version=version)
    service.put(f"{form}/form/a.bin", b"three", Form_Definition_Version="next")
    body = definition(form, image=f"{CRUD}/{form}/form/a.bin")
    for version, content in (("1", b"one"), ("next", b"three")):
        number = said(post(service, "publish", body, **{"form-definition-version": version}))[3]
        assert service.get(f"{form}/form/a.bin", Form_Definition_Version=number).body == content


def test_two_attachments_of_one_name_are_refused(service: Service, form: str) -> None:
    base = f"{service.designer}/builder/data"
    documents = [f"{form.split('/', maxsplit=1)[0]}-{letter}" for letter in "AB"]
    for document in documents:
        service.put(f"{base}/{document}/data.xml")
        service.put(f"{base}/{document}/x.bin", document.encode())
    paths = [f"{CRUD}/{base}/{document}/x.bin" for document in documents]
    body = definition(form, image=paths[0], files=f"<f>{paths[1]}</f>")
    assert post(service, "publish", body).refuses(400, "two different attachments called 'x.bin'")


def test_section_templates_bring_their_attachments(service: Service, form: str) -> None:
    """Forms 6.2: from the version of the library that the definition names, else the latest; none of other forms."""
    app = form.split("/", maxsplit=1)[0]
    library = f"{app}/library"
    for version in (1, 2):
        service.put(f"{library}/form/form.xhtml", definition(library), Form_Definition_Version=version)
        service.put(f"{library}/form/l.bin", b"%d" % version, Form_Definition_Version=version)
    other = f"{CRUD}/{app}/other/form/x.bin"
    named = "<library-versions><app>1</app><_>x</_></library-versions>"
    for more, content in ((named, b"1"), ("", b"2")):
        body = definition(form, image=f"{CRUD}/{library}/form/l.bin", files=f"<f>{other}</f>", more=more)
        assert said(post(service, "publish", body))[2] == "1"
        assert service.get(f"{form}/form/l.bin").body == content
    assert other in service.get(f"{form}/form/form.xhtml").body.decode()


def test_publishing_again_changes_nothing_that_is_there(service: Service, form: str, designed: str) -> None:
    """8.3, safe to repeat: an attachment that is there already stays, with its history."""
    said(publish(service, designed))
    before = service.get(f"{form}/form/0a1b.bin")["ETag"]
    assert said(publish(service, designed))[2:] == ("3", "1")
    assert service.get(f"{form}/form/0a1b.bin")["ETag"] == before


def test_a_missing_attachment_keeps_a_form_from_being_published(service: Service, form: str, designed: str) -> None:
    path = f"{service.designer}/builder/data/{designed}/0a1b.bin"
    service.delete(path)
    assert publish(service, designed).refuses(404, "0a1b.bin")
    assert service.get(f"{form}/form/form.xhtml").status == service.get(f"{form}/form/{quote('ä b.pdf')}").status == 404
    service.put(path, b"again")
    assert said(publish(service, designed))[2:] == ("3", "1")


UNKNOWN = '<permissions><permission operations="*"/></permissions>'
UNREADABLE = {b"<a": "not well-formed", b"": "not well-formed", b"<!DOCTYPE a><a/>": "DOCTYPE", b"<a/>": "no metadata"}
BAD = [
    *UNREADABLE.items(),
    (definition("/f"), "application-name"),
    (definition("a/ "), "form-name"),
    (definition("a/..b"), "must not start with a dot"),
    (definition("a&#x9b;b/f"), "not allowed"),
    (definition("a/" + "x" * 300), "too long"),
    (definition("a/b", more=UNKNOWN), "unknown"),
]


def test_what_cannot_be_published(service: Service, form: str) -> None:
    for body, cause in BAD:
        answer = post(service, "publish", body)
        assert (answer.status, cause in answer.cause) == (400, True), (body, answer.cause)
    assert publish(service, "nobody").status == 404
    assert post(service, "publish", definition(form), **{"form-definition-version": "x"}).status == 400
    assert service.raw("GET", "/fr/service/publish").status == 405
    for comment in ("\0", "\x01", "\uffff", "x" * 5000):
        assert post(service, "publish", definition(form), **{"version-comment": comment}).status == 400
    assert service.raw("POST", "/fr/service/publish", {"Content-Length": str(17 << 20)}).status == 413


def test_who_may_not_read_it_may_not_publish_it(tmp_path: Path) -> None:
    """6: the designer's own storage may have permissions as well."""
    settings = '"svc.permissions.svc.builder" = \'{"owner": ["create", "read"]}\'\n'
    with serving(tmp_path, settings=settings) as service:
        service.face = PROVIDER
        service.put("svc/builder/data/D/data.xml", definition("a/f"), Username="lea")
        path = "/fr/service/svc/builder/publish/D"
        assert service.raw("POST", path, {"Svc-Username": "bob"}).status == 403
        assert service.raw("POST", path, {"Svc-Username": "lea"}).status == 200


@pytest.mark.parametrize("commits", [1, *(pytest.param(each, marks=pytest.mark.long) for each in (0, 2))])
def test_a_publisher_that_dies_half_way_is_followed_by_one_that_finishes(tmp_path: Path, commits: int) -> None:
    """8.3, safe to repeat: until the last file is stored the version is not there; the next try takes its number."""
    base = "svc/builder/data/D"
    names = ("a.bin", "b.bin")
    with serving(tmp_path) as service:
        service.put("a/f/form/form.xhtml", definition("a/f"))
        for name in names:
            service.put(f"{base}/{name}", name.encode())
        files = "".join(f"<f>{CRUD}/{base}/{name}</f>" for name in names)
        service.put(f"{base}/data.xml", definition("a/f", files=files))
    dying = {DEFECT: str(commits), "PYTHONPATH": str(PROJECT)}
    with running(tmp_path, module="tests.http.dying", env=dying) as service, pytest.raises(RemoteDisconnected):
        publish(service, "D", **{"form-definition-version": "next"})
    with serving(tmp_path) as service:
        assert service.get("a/f/form/form.xhtml", Form_Definition_Version=2).status == 404
        assert service.get("a/f/form/form.xhtml")["Svc-Form-Definition-Version"] == "1"
        assert said(publish(service, "D", **{"form-definition-version": "next"}))[2:] == ("2", "2")
        for name in names:
            assert service.get(f"a/f/form/{name}", Form_Definition_Version=2).body == name.encode()
        assert service.leftovers() == []
