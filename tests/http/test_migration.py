"""The parameter form-definition-format-version over HTTP: seed, query parameters; spec forms 1.1, 1.9."""

import pytest
from lxml import etree

from tests.service import V1, Service

FR = "http://orbeon.org/oxf/xml/form-runner"
DEFINITION = f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- before --><xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
 xmlns:fr="{FR}"><xh:head><xf:model id="fr-form-model">
<xf:instance id="fr-form-instance"><form fr:data-format-version="2019.1.0"><s><g><c>é</c></g></s></form></xf:instance>
<xf:bind id="fr-form-binds" ref="instance('fr-form-instance')"><xf:bind id="s-bind" ref="s" name="s">
<xf:bind id="g-bind" ref="g" name="g"><xf:bind id="c-bind" ref="c" name="c"/></xf:bind></xf:bind></xf:bind>
<xf:instance id="fr-form-metadata"><metadata><created-with-version>2023.1 PE</created-with-version>
<migration version="2019.1.0">{{ no JSON</migration></metadata></xf:instance></xf:model></xh:head>
<xh:body><fr:view><fr:body><fr:section id="s-section" bind="s-bind"><fr:grid id="g-grid" bind="g-bind">
<fr:c><xf:input id="c-control" bind="c-bind"/></fr:c></fr:grid></fr:section></fr:body></fr:view></xh:body>
</xh:html>""".encode()
ASK = "?form-definition-format-version="
VERSION = f"{{{FR}}}data-format-version"


def data(body: bytes) -> etree._Element:
    [form] = etree.fromstring(body).xpath("//*[@id='fr-form-instance']/form")
    return form


def test_a_published_definition(service: Service, form: str) -> None:
    """Seed, rules 1 to 5: asked for, it is moved; not asked for, it is as it was stored."""
    path = f"{form}/form/form.xhtml"
    service.put(path, DEFINITION, {"Content-Type": "application/xhtml+xml"})
    assert service.get(path).body == DEFINITION
    answer = service.get(f"{path}{ASK}4.8.0")
    found = data(answer.body)
    assert (found.get(VERSION), found.findtext("s/c"), found.find("s/g")) == ("4.8.0", "é", None)
    assert (answer["Content-Type"], answer["Content-Length"]) == ("application/xhtml+xml", str(len(answer.body)))
    assert answer.body.startswith(b"<?xml version='1.0' encoding='UTF-8'?>\n<!-- before -->")
    assert data(service.get(f"{path}{ASK}2019.1.0").body).findtext("s/g/c") == "é"
    assert service.get(path).body == DEFINITION


def test_an_unpublished_definition(service: Service, form: str) -> None:
    """Forms 1.9: the root of its data says no version then; drafts likewise."""
    for collection in ("data", "draft"):
        path = f"{service.designer}/builder/{collection}/{form.replace('/', '-')}/data.xml"
        service.put(path, DEFINITION)
        found = data(service.get(f"{path}{ASK}4.0.0").body)
        assert (found.get(VERSION), found.findtext("s/c")) == (None, "é")


def test_the_version_is_chosen_first(service: Service, form: str) -> None:
    """Forms 1.1: by number or for a document."""
    path = f"{form}/form/form.xhtml"
    service.put(path, DEFINITION, **V1)
    service.put(path, DEFINITION.replace("é".encode(), b"two"), Form_Definition_Version=2)
    service.put(f"{form}/data/D/data.xml", **V1)
    for own, text in (({}, "two"), ({"Form_Definition_Version": 1}, "é"), ({"For_Document_Id": "D"}, "é")):
        assert data(service.get(f"{path}{ASK}4.8.0", **own).body).findtext("s/c") == text


@pytest.mark.parametrize("word", ["edge", "raw", "4.8", "2019.1.0.1", "x%0Ay"])
def test_formats_that_there_are_not(service: Service, form: str, word: str) -> None:
    """Forms 1.1: 400, also where there is nothing to migrate."""
    assert service.get(f"{form}/form/form.xhtml{ASK}{word}").refuses(400, "4.0.0, 4.8.0, 2019.1.0")


def test_where_it_means_nothing(service: Service, form: str) -> None:
    """Forms 1.1: on HEAD, on attachments, on other data, on writes, and without a value."""
    path = f"{form}/form/form.xhtml"
    assert service.put(f"{path}{ASK}x", DEFINITION).status == 201
    service.put(f"{form}/form/a.bin", b"<a")
    service.put(f"{form}/data/D/data.xml", DEFINITION, **V1)
    assert service.get(f"{form}/form/a.bin{ASK}4.8.0").body == b"<a"
    assert service.get(f"{form}/data/D/data.xml{ASK}4.8.0").body == DEFINITION
    assert service.get(f"{path}{ASK}").body == DEFINITION
    for word in ("x", "4.8.0"):
        head = service.head(f"{path}{ASK}{word}")
        assert (head.status, head["Content-Length"]) == (200, None)
    assert service.delete(f"{path}{ASK}x").status == 204


def test_the_client_may_have_it_already(service: Service, form: str) -> None:
    """8.7: 304 as without the parameter."""
    path = f"{form}/form/form.xhtml"
    service.put(path, DEFINITION)
    since = {"If-Modified-Since": service.get(path)["Last-Modified"] or ""}
    assert service.get(path, since).status == service.get(f"{path}{ASK}4.8.0", since).status == 304


def test_what_has_no_form_model_comes_back_as_it_is(service: Service, form: str) -> None:
    path = f"{form}/form/form.xhtml"
    service.put(path, b"<?xml version='1.1'?><a  b='c'></a>")
    assert service.get(f"{path}{ASK}4.8.0").body == b"<?xml version='1.1'?><a  b='c'></a>"


def test_five_mebibytes(service: Service, form: str) -> None:
    """Large definitions are stored, listed and migrated."""
    filling = b"".join(b"<!-- %064d --><p>%064d</p>" % (at, at) for at in range(40_000))
    body = DEFINITION.replace(b"</fr:view>", b"<filling>" + filling + b"</filling></fr:view>")
    assert len(body) > 5 << 20
    path = f"{form}/form/form.xhtml"
    assert service.put(path, body).status == 201
    moved = service.get(f"{path}{ASK}4.8.0")
    assert (moved.status, data(moved.body).findtext("s/c")) == (200, "é")
    assert len(moved.body) > 5 << 20
