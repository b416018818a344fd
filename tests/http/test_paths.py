"""Paths of controls over HTTP: marks without effect are refused, and all else goes by one path (spec forms 4.2)."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from lxml import etree

from persistence.cli import commands
from persistence.index import sources
from persistence.model.versions import IndexKey, PathStep
from persistence.storage.findings import FindingKind
from tests import encrypted_form
from tests import service as services
from tests.forms.test_paths import SHAPES, data_at, definitions
from tests.forms.vectors import Form, bind, changed, section
from tests.http.test_encryption import attach, keyed, raw, save
from tests.in_process import serving
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service

REFUSED = {
    "no id": '<xf:input bind="x-bind"><fr:encrypt/></xf:input>',
    "a ref": '<xf:input id="x-control" ref="s/x"><fr:index/></xf:input>',
    "a section": '<fr:section id="x-section" bind="x-bind"><fr:encrypt/></fr:section>',
    "a class": '<xf:input id="x-control" class="fr-encrypt"/>',
}


def with_view(view: str, form: str) -> bytes:
    app, name = form.split("/")
    text = Form("<form><s><x/></s></form>", bind("s", bind("x")), section("s", view)).document()
    text = changed(text, "<application-name>lab<", f"<application-name>{app}<")
    return changed(text, "<form-name>vec<", f"<form-name>{name}<").encode()


@pytest.mark.parametrize("name", REFUSED)
def test_a_mark_without_effect_is_refused_with_its_control_and_the_reason(
    service: Service, form: str, name: str
) -> None:
    body = with_view(REFUSED[name], form)
    refused = service.put(f"{form}/form/form.xhtml", body, **V1)
    assert refused.status == 400
    assert re.match(r"the mark .* of the element (input|section) .*has no effect: it", refused.cause)
    published = service.raw("POST", "/fr/service/publish", {}, body)
    assert (published.status, published.cause) == (400, refused.cause)
    assert service.get(f"{form}/form/form.xhtml").status == 404


def test_a_provider_behind_a_proxy_keeps_what_a_runtime_has_published(
    in_dialect: Callable[[str], Service], form: str
) -> None:
    service = replace(in_dialect("orbeon"), face=PROVIDER)
    put = service.put(f"{form}/form/form.xhtml", with_view(REFUSED["no id"], form), **V1)
    assert put.status == 201, put.cause


@pytest.fixture(scope="module")
def encrypting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with keyed(tmp_path_factory.mktemp("paths")) as service:
        yield service


@pytest.mark.parametrize("name", SHAPES)
def test_a_marked_value_is_unreadable_at_rest_in_data_of_every_format(
    encrypting: Service, form: str, name: str
) -> None:
    for version, (definition, paths) in enumerate(definitions(name, "<fr:encrypt/>"), 1):
        number = {"Form_Definition_Version": version}
        assert encrypting.put(f"{form}/form/form.xhtml", definition, **number).status == 201
        for at, path in enumerate(paths):
            document = f"{form}/data/{version}-{at}/data.xml"
            assert encrypting.put(document, data_at(path), **number).status == 201
            assert b"secret" not in raw(encrypting, document).body
            assert encrypting.get(document).body.count(b"secret") == 1


def found(service: Service, form: str, path: str, text: str) -> Answer:
    query = f'<search><query path="{path}" match="exact">{text}</query></search>'.encode()
    return service.raw("POST", f"{PUBLIC}/search/{form}", {f"{service.prefix}Form-Definition-Version": "1"}, query)


def test_an_index_that_was_built_by_other_paths_is_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a service of an earlier version has left it: each version of a form had its paths by other rules."""
    (_, (definition, _)) = definitions("plain grid", "<fr:index/>")
    body = b"<form><s><g><c>new</c></g><c>old</c></s></form>"
    with monkeypatch.context() as earlier:
        earlier.setattr(sources, "_RULES", "")
        key = IndexKey("s/c", (PathStep("s"), PathStep("c")))
        earlier.setattr("persistence.catalog.read_index_keys", lambda *_: (key,))
        with serving(tmp_path) as service:
            assert service.put("a/f/form/form.xhtml", definition, **V1).status == 201
            assert service.put("a/f/data/d/data.xml", body, **V1).status == 201
            assert etree.fromstring(found(service, "a/f", "s/c", "old").body).get("search-total") == "1"
    with serving(tmp_path) as service:
        assert etree.fromstring(found(service, "a/f", "s/g/c", "new").body).get("search-total") == "1"
        assert etree.fromstring(found(service, "a/f", "s/c", "old").body).get("search-total") == "0"


@pytest.mark.parametrize("older", [False, True])
def test_what_was_stored_plain_is_found_and_encrypted(tmp_path: Path, *, older: bool) -> None:
    """By a service that looked elsewhere for what the definition marks: here the marks came later."""
    ((_, _), (definition, (path, *_))) = definitions("plain grid", "<fr:encrypt/>")
    plain = definition.replace(b"<fr:encrypt/>", b"")
    with keyed(tmp_path) as service:
        assert service.put("a/f/form/form.xhtml", plain, **V1).status == 201
        assert service.put("a/f/data/d/data.xml", data_at(path), **V1).status == 201
        assert service.put("a/f/form/form.xhtml", definition, **V1).status == 204
        if older:
            assert service.put("a/f/data/d/data.xml", b"<form/>", **V1).status == 204
        assert kinds(service) == []
        assert kinds(service, "--deep") == ["value-plain"]
        assert command(service, "reencrypt").exit_code == 0
        assert kinds(service, "--deep") == []
        if not older:
            assert b"secret" not in raw(service, "a/f/data/d/data.xml").body
            assert b"secret" in service.get("a/f/data/d/data.xml").body


def test_a_plain_file_of_a_marked_control_is_found(tmp_path: Path) -> None:
    with keyed(tmp_path) as service:
        assert service.put("a/f/form/form.xhtml", encrypted_form.DEFINITION, **V1).status == 201
        attach(service, "a/f/data/1/scan.bin", None)
        save(service, "a/f", body=encrypted_form.data(scan=encrypted_form.path("a/f", "1", "scan.bin")))
        assert kinds(service, "--deep") == ["value-plain"]
        assert command(service, "reencrypt").exit_code == 0
        assert kinds(service, "--deep") == []


def test_a_stored_definition_with_a_mark_without_effect_is_found(tmp_path: Path) -> None:
    with serving(tmp_path, dialect="orbeon") as service:
        service.face = PROVIDER
        for name, form in (("no id", "a/e"), ("a ref", "a/i")):
            assert service.put(f"{form}/form/form.xhtml", with_view(REFUSED[name], form), **V1).status == 201
        done = command(service, "check")
        assert done.exit_code == 4
        found = re.findall(r"(\S+/form.xhtml): .*?(mark-not-\w+): the mark (<\S+>)", done.stdout)
        assert sorted(found) == [
            ("a/e/form/1/form.xhtml", "mark-not-encrypting", "<fr:encrypt>"),
            ("a/i/form/1/form.xhtml", "mark-not-indexing", "<fr:index>"),
        ]
        assert kinds(service, "a/i") == ["mark-not-indexing"]
        assert command(service, "check", "a/i").exit_code == 0, "a notice"


def command(service: Service, *arguments: str) -> Result:
    file = service.data.parent / "settings.toml"
    own = ["--config", str(file)] if file.exists() else []
    return CliRunner().invoke(commands, [*arguments, *own, "--data", services.place_of(service.data)])


def kinds(service: Service, *options: str) -> list[str]:
    known = {kind.label for kind in FindingKind}
    return [kind for kind in re.findall(r": ([a-z-]+): ", command(service, "check", *options).stdout) if kind in known]
