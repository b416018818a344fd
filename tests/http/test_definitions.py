"""Form definitions over HTTP: publishing, versions (seed, Versioning; spec crud 5, 15), formats, and other places."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from flask.testing import FlaskClient
from lxml import etree

from persistence.app import create_app
from persistence.catalog import Catalog, Definition
from persistence.cli import commands
from persistence.dialect import DIALECTS
from persistence.errors import RemoteError
from persistence.index import sources
from persistence.model.addresses import Form
from persistence.model.versions import IndexKey, PathStep
from persistence.properties.properties import Properties
from persistence.providers.opened import Providers
from persistence.settings import Settings
from persistence.storage.findings import FindingKind
from tests import encrypted_form
from tests import service as services
from tests.encrypted_form import DEFINITION, UNMARKED, data
from tests.forms import vectors
from tests.forms.test_paths import SHAPES, data_at, definitions
from tests.forms.vectors import bind, changed, section
from tests.http.stories import play, stories
from tests.http.test_encryption import attach, keyed, raw, save
from tests.in_process import serving
from tests.initialised import initialised
from tests.opened import close, opened
from tests.service import PROVIDER, PUBLIC, V1, Service


@stories(
    {
        "published, read and replaced: without a header it is version 1 (15.1)": """
            PUT form <f>1</f> -> 201 body= v=1
            GET|HEAD form -> 200 v=1
            GET form v=1 -> 200 v=1 <f>1</f>
            GET|DELETE form v=2 -> 404
            PUT form <f>2</f> -> 204 v=1
            GET form -> 200 <f>2</f>""",
        "numbers are reused; a deleted version hands over to the next lower one (15.2, 5.2)": """
            PUT form <f>1</f>
            PUT form v=next <f>2</f> -> 201 v=2
            GET form -> 200 <f>2</f>
            PUT form v=1 <f>1b</f> -> 204
            GET form -> 200 <f>2</f>
            DELETE form -> 204 v=2
            GET form v=2 -> deleted
            DELETE form v=2 -> 410
            GET form -> 200 <f>1b</f>
            PUT form v=next <f>2b</f> -> 201 v=2""",
        "next on an unpublished form is one (5.1)": """
            PUT form v=next -> 201 v=1""",
        "gaps are allowed: what does not exist is created (5.1)": """
            PUT form v=10 -> 201
            GET form -> 200 v=10
            PUT form v=9 -> 201
            GET form -> 200 v=10
            PUT form v=next -> 201 v=11""",
        "the only version deleted was version 1 (5.1); nothing was never published (D14)": """
            DELETE form -> 404
            PUT form
            DELETE form -> 204
            GET form -> deleted
            DELETE form -> 410
            PUT form -> 201""",
        "next cannot be read or deleted (5.1)": """
            PUT form
            GET|HEAD|DELETE form v=next -> 400""",
        "a version that would end next is refused": """
            PUT form form/logo.png v=999999999 -> 400 `would leave no room for 'next'`
            PUT form v=999000000 -> 201
            PUT form v=999000001 -> 201
            PUT form v=next -> 201
            HEAD form -> 200 v=999000002""",
        "the definition of a document, which wins over the version; of drafts on request (3, 5.1, 15.4)": """
            PUT form v=1 <f>1</f>
            PUT form v=2 <f>2</f>
            PUT form v=3 <f>3</f>
            PUT data/A v=1
            PUT data/B v=2
            PUT draft/B v=3
            GET form For-Document-Id=A -> 200 <f>1</f>
            GET form For-Document-Id=B -> 200 <f>2</f> v=2
            HEAD form For-Document-Id=B -> 200 v=2
            GET form For-Document-Id=B v=1 -> 200 <f>2</f>
            GET form For-Document-Id=B For-Document-IsDraft=true -> 200 <f>3</f>
            GET form For-Document-Id=B For-Document-IsDraft=false -> 200 <f>2</f>
            GET form For-Document-Id=B For-Document-IsDraft=TRUE -> 400
            GET form For-Document-Id=A For-Document-IsDraft=true -> 404
            GET form For-Document-Id=A For-Document-IsDraft=maybe -> 400
            GET form For-Document-Id=none -> 404
            GET form For-Document-Id=../A -> 400
            DELETE data/A
            GET form For-Document-Id=A -> deleted
            PUT|DELETE form For-Document-Id=B -> 400""",
        "with next, attachments land in the new version before their form.xhtml (5.1)": """
            PUT form
            PUT form/a.bin v=next <a/> -> 201 v=2
            PUT form/b.bin v=next <b/> -> 201 v=2
            PUT form v=next -> 201 v=2
            GET form/a.bin -> 200 <a/>
            GET form/a.bin v=1 -> 404""",
        "without a header, existence is that of form.xhtml, also of a new attachment (5.1)": """
            PUT form/a.bin -> 201
            PUT form
            PUT form/b.bin <x/> -> 204
            PUT form/c.bin v=1 -> 201
            GET form/b.bin -> 200 <x/>""",
        "no owner and no operations; the source document is kept and returned (4.3)": """
            PUT form?document=source-1 by=lea group=staff -> 201 Operations=
            GET form -> 200 Last-Modified-By-Username=lea Document=source-1 Form-Definition-App={app} \
                Form-Definition-Form={name} Username= Group= Operations= Workflow-Stage= \
                Created! Modified! ETag! Last-Modified!
            PUT form -> 204 Operations=
            GET form -> 200 Document=""",
        "a definition is XML or XHTML": """
            PUT form Content-Type=application/xhtml+xml
            GET form -> 200 Content-Type=application/xhtml+xml
            PUT form Content-Type=text/plain
            GET form -> 200 Content-Type=application/xml
            PUT form Content-Type=`application/xhtml+xml; charset=utf-8`
            GET form -> 200 Content-Type=application/xhtml+xml""",
        "malformed versions are refused": "\n".join(
            f"GET|PUT|DELETE form data/D v={text} -> 400 `positive integer`"
            for text in ("0", "-1", "one", "1.5", "latest", "NEXT", "99999999999999999999")
        ),
    }
)
def test_versions(service: Service, form: str, story: str) -> None:
    play(service, form, story)


def test_deleting_a_definition_leaves_the_rest(service: Service, form: str) -> None:
    """Spec crud 4.10 and 5.2: attachments of the version and data made with it stay."""
    told = """
        PUT form/a.bin form data/D v=1
        DELETE form
        GET form/a.bin v=1 -> 200 <d/>
        GET|PUT data/D -> 200 204"""
    play(service, form, told)


def test_replaced_and_deleted_definitions_stay_in_the_history(service: Service, form: str) -> None:
    """Spec crud 4.4: journaled, though no request reads them; a person can."""
    play(service, form, "PUT form <f>1</f>\nPUT form <f>2</f>\nDELETE form")
    history = service.data / form / "form" / "1" / ".history"
    kept = [file.read_bytes() for file in sorted(history.iterdir()) if file.suffix == ".xhtml"]
    assert kept == [b"<f>1</f>", b"<f>2</f>"]
    assert not (service.data / form / "form" / "1" / "form.xhtml").exists()


# Other formats: the parameter form-definition-format-version (seed, query parameters; spec forms 1.1, 1.9).

FR = "http://orbeon.org/oxf/xml/form-runner"
DESIGNED = f"""<?xml version="1.0" encoding="UTF-8"?>
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


def instance(body: bytes) -> etree._Element:
    [form] = etree.fromstring(body).xpath("//*[@id='fr-form-instance']/form")
    return form


def test_a_published_definition(service: Service, form: str) -> None:
    """Seed, rules 1 to 5: asked for, it is moved; not asked for, it is as it was stored."""
    path = f"{form}/form/form.xhtml"
    service.put(path, DESIGNED, {"Content-Type": "application/xhtml+xml"})
    assert service.get(path).body == DESIGNED
    answer = service.get(f"{path}{ASK}4.8.0")
    found = instance(answer.body)
    assert (found.get(VERSION), found.findtext("s/c"), found.find("s/g")) == ("4.8.0", "é", None)
    assert (answer["Content-Type"], answer["Content-Length"]) == ("application/xhtml+xml", str(len(answer.body)))
    assert answer.body.startswith(b"<?xml version='1.0' encoding='UTF-8'?>\n<!-- before -->")
    assert instance(service.get(f"{path}{ASK}2019.1.0").body).findtext("s/g/c") == "é"
    assert service.get(path).body == DESIGNED


def test_an_unpublished_definition(service: Service, form: str) -> None:
    """Forms 1.9: the root of its data says no version then; drafts likewise."""
    for collection in ("data", "draft"):
        path = f"{service.designer}/builder/{collection}/{form.replace('/', '-')}/data.xml"
        service.put(path, DESIGNED)
        found = instance(service.get(f"{path}{ASK}4.0.0").body)
        assert (found.get(VERSION), found.findtext("s/c")) == (None, "é")


@stories(
    {
        "the version is chosen first, by number or for a document": """
            PUT form v=1 {designed}
            PUT form v=2 {second}
            PUT data/D v=1
            GET form{ask}4.8.0 -> has=<c>two</c>
            GET form{ask}4.8.0 v=1 -> has=<c>é</c>
            GET form{ask}4.8.0 For-Document-Id=D -> has=<c>é</c>""",
        "other formats are refused, also where there is nothing to migrate": """
            GET form{ask}edge form{ask}raw form{ask}4.8 form{ask}2019.1.0.1 -> 400 `4.0.0, 4.8.0, 2019.1.0`
            GET form{ask}x%0Ay -> 400 `4.0.0, 4.8.0, 2019.1.0`""",
        "it means nothing on HEAD, on attachments, on other data, on writes, and without a value": """
            PUT form{ask}x {designed} -> 201
            PUT form/a.bin <a
            PUT data/D v=1 {designed}
            GET form/a.bin{ask}4.8.0 -> 200 <a
            GET data/D{ask}4.8.0 -> 200 {designed}
            GET form{ask} -> 200 {designed}
            HEAD form{ask}x form{ask}4.8.0 -> 200 Content-Length=
            DELETE form{ask}x -> 204""",
        "the client may have it already: 304 as without the parameter (8.7)": """
            PUT form {designed}
            GET form -> Modified>date
            GET form form{ask}4.8.0 If-Modified-Since={date} -> 304""",
        "what has no form model comes back as it is": """
            PUT form {odd}
            GET form{ask}4.8.0 -> 200 {odd}""",
    }
)
def test_formats(service: Service, form: str, story: str) -> None:
    """Forms 1.1."""
    words = {"designed": DESIGNED.decode(), "second": DESIGNED.decode().replace("é", "two")}
    play(service, form, story, ask=ASK, odd="<?xml version='1.1'?><a  b='c'></a>", **words)


def test_five_mebibytes(service: Service, form: str) -> None:
    filling = b"".join(b"<!-- %064d --><p>%064d</p>" % (at, at) for at in range(40_000))
    body = DESIGNED.replace(b"</fr:view>", b"<filling>" + filling + b"</filling></fr:view>")
    assert len(body) > 5 << 20
    path = f"{form}/form/form.xhtml"
    assert service.put(path, body).status == 201
    moved = service.get(f"{path}{ASK}4.8.0")
    assert (moved.status, instance(moved.body).findtext("s/c")) == (200, "é")
    assert len(moved.body) > 5 << 20


# Definitions in another service, which cannot be reached: they are needed for nothing else than permissions.


NOBODY = "http://127.0.0.1:1"
OWNED = (
    b'<permissions><permission operations="read update delete"><owner/></permission>'
    b'<permission operations="create"/></permissions>'
)


def client(tmp_path: Path, dialect: str) -> FlaskClient:
    prefix = DIALECTS[dialect].property_prefix
    properties = Properties.load(
        {f"{prefix}persistence.provider.hr.*.form": "peer", f"{prefix}persistence.peer.uri": NOBODY}, prefix
    )
    settings = Settings(data=initialised(tmp_path / "data"), dialect=dialect)
    return opened(create_app(settings, properties)).test_client()


@pytest.mark.parametrize("path", ["data/D/data.xml", "draft/D/data.xml", "data/D/a.bin"])
def test_only_the_public_face_asks_for_permissions(tmp_path: Path, path: str) -> None:
    """The runtime has decided by the definitions itself (spec crud 11)."""
    asking = client(tmp_path, "orbeon")
    headers = {"Orbeon-Form-Definition-Version": "1"}
    assert asking.put(f"/crud/hr/leave/{path}", data=b"<form/>", headers=headers).status_code == 201
    assert asking.get(f"/crud/hr/leave/{path}", headers=headers).data == b"<form/>"
    assert asking.put(f"{PUBLIC}/crud/hr/leave/{path}", data=b"<form/>", headers=headers).status_code == 502


def test_who_lacks_permission_learns_nothing_of_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version of the draft is looked at only when the version of its saved document permits the save."""
    asking = opened(create_app(Settings(data=initialised(tmp_path / "data")))).test_client()
    base = "/fr/service/persistence/crud/hr/leave"
    by_ann = {"Svc-Form-Definition-Version": "2", "Svc-Username": "ann", "Svc-Group": "staff"}
    by_bob = {"Svc-Form-Definition-Version": "1", "Svc-Username": "bob", "Svc-Group": "sales"}
    owned = UNMARKED.replace(b"</metadata>", OWNED + b"</metadata>")
    assert asking.put(f"{base}/form/form.xhtml", data=owned, headers=by_ann).status_code == 201
    assert asking.put(f"{base}/data/D/data.xml", data=data(), headers=by_ann).status_code == 201
    of = Catalog.of

    def failing(catalog: Catalog, form: Form, version: int) -> Definition:
        if version == 1:
            raise RemoteError("version 1 cannot be had")
        return of(catalog, form, version)

    monkeypatch.setattr(Catalog, "of", failing)
    assert asking.put(f"{base}/draft/D/data.xml", data=data(), headers=by_bob).status_code == 403
    by_ann["Svc-Form-Definition-Version"] = "1"
    assert asking.put(f"{base}/draft/D/data.xml", data=data(), headers=by_ann).status_code == 502


def test_an_index_reads_no_definition_of_another_service(tmp_path: Path) -> None:
    """So the controls of such data are not indexed; those of all other forms are."""
    said = {"svc.persistence.provider.hr.*.form": "peer", "svc.persistence.peer.uri": NOBODY}
    settings = Settings(data=initialised(tmp_path / "data"))
    providers = opened(Providers(settings, Properties.load(said, "svc."), lambda *_: None))
    for router in (providers.router, providers.within(settings.roots.default)):
        apart, here = router.of(Form("hr", "leave")), router.of(Form("it", "desk"))
        assert apart.index_catalog is apart.data.catalog is not apart.catalog
        assert here.index_catalog is here.catalog


def test_a_form_with_attachments_elsewhere_is_reencrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command calls a service: the rest of the form is here."""
    monkeypatch.chdir(tmp_path)
    initialised(tmp_path / "data")
    (tmp_path / "own.toml").write_text(
        'encryption_keys = "keys.json"\n"svc.persistence.provider.hr.*.data.attachments" = "peer"\n'
        f'"svc.persistence.peer.uri" = "{NOBODY}"\n'
    )
    options = ["--config", "own.toml"]
    assert CliRunner().invoke(commands, ["encryption-key", "new", *options]).exit_code == 0
    app = opened(create_app(Settings(data=str(tmp_path / "data"), encryption_keys=str(tmp_path / "keys.json"))))
    asking = app.test_client()
    headers = {"Svc-Form-Definition-Version": "1"}
    base = "/fr/service/persistence/crud/hr/leave"
    assert asking.put(f"{base}/form/form.xhtml", data=UNMARKED, headers=headers).status_code == 201
    assert asking.put(f"{base}/data/D/data.xml", data=data(), headers=headers).status_code == 201
    assert asking.put(f"{base}/form/form.xhtml", data=DEFINITION, headers=headers).status_code == 204
    close(app)
    assert CliRunner().invoke(commands, ["reencrypt", "--data", str(tmp_path / "data"), *options]).exit_code == 0
    assert b"encrypted=" in (tmp_path / "data/hr/leave/data/D/data.xml").read_bytes()


# Paths of controls over HTTP: marks without effect are refused, and all else goes by one path (spec forms 4.2).

REFUSED = {
    "no id": '<xf:input bind="x-bind"><fr:encrypt/></xf:input>',
    "a ref": '<xf:input id="x-control" ref="s/x"><fr:index/></xf:input>',
    "a section": '<fr:section id="x-section" bind="x-bind"><fr:encrypt/></fr:section>',
    "a class": '<xf:input id="x-control" class="fr-encrypt"/>',
}


def with_view(view: str, form: str) -> bytes:
    app, name = form.split("/")
    text = vectors.Form("<form><s><x/></s></form>", bind("s", bind("x")), section("s", view)).document()
    text = changed(text, "<application-name>lab<", f"<application-name>{app}<")
    return changed(text, "<form-name>vec<", f"<form-name>{name}<").encode()


@pytest.mark.parametrize("name", REFUSED)
def test_a_mark_without_effect_is_refused_with_its_control_and_the_reason(
    service: Service, in_dialect: Callable[[str], Service], form: str, name: str
) -> None:
    body = with_view(REFUSED[name], form)
    refused = service.put(f"{form}/form/form.xhtml", body, **V1)
    assert refused.status == 400
    assert re.match(r"the mark .* of the element (input|section) .*has no effect: it", refused.cause)
    published = service.raw("POST", "/fr/service/publish", {}, body)
    assert (published.status, published.cause) == (400, refused.cause)
    assert service.get(f"{form}/form/form.xhtml").status == 404
    provider = replace(in_dialect("orbeon"), face=PROVIDER)  # behind a proxy it keeps what a runtime has published
    assert provider.put(f"{form}/form/form.xhtml", body, **V1).status == 201


@pytest.fixture(scope="module")
def encrypting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with keyed(tmp_path_factory.mktemp("paths")) as service:
        yield service


@pytest.mark.parametrize("name", SHAPES)
def test_a_marked_value_is_unreadable_at_rest_in_every_format(encrypting: Service, form: str, name: str) -> None:
    for version, (definition, paths) in enumerate(definitions(name, "<fr:encrypt/>"), 1):
        number = {"Form_Definition_Version": version}
        assert encrypting.put(f"{form}/form/form.xhtml", definition, **number).status == 201
        for at, path in enumerate(paths):
            document = f"{form}/data/{version}-{at}/data.xml"
            assert encrypting.put(document, data_at(path), **number).status == 201
            assert b"secret" not in raw(encrypting, document).body
            assert encrypting.get(document).body.count(b"secret") == 1


def test_an_index_that_was_built_by_other_paths_is_corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a service of an earlier version has left it: each version of a form had its paths by other rules."""
    (_, (definition, _)) = definitions("plain grid", "<fr:index/>")

    def require_found(service: Service, path: str, text: str, total: int) -> None:
        query = f'<search><query path="{path}" match="exact">{text}</query></search>'
        assert f'search-total="{total}"'.encode() in service.post("search/a/f", query, **V1).body

    with monkeypatch.context() as earlier:
        earlier.setattr(sources, "_RULES", "")
        key = IndexKey("s/c", (PathStep("s"), PathStep("c")))
        earlier.setattr("persistence.catalog.read_index_keys", lambda *_: (key,))
        with serving(tmp_path) as service:
            service.publish("a/f", definition, **V1)
            service.save("a/f", "d", b"<form><s><g><c>new</c></g><c>old</c></s></form>")
            require_found(service, "s/c", "old", 1)
    with serving(tmp_path) as service:
        require_found(service, "s/g/c", "new", 1)
        require_found(service, "s/c", "old", 0)


@pytest.mark.parametrize("what", ["current", "older", "file"])
def test_what_was_stored_plain_is_found_and_encrypted(tmp_path: Path, what: str) -> None:
    """By a service that looked elsewhere for what the definition marks: here the marks came later."""
    ((_, _), (definition, (path, *_))) = definitions("plain grid", "<fr:encrypt/>")
    with keyed(tmp_path) as service:
        if what == "file":
            service.publish("a/f", encrypted_form.DEFINITION)
            attach(service, "a/f/data/1/scan.bin", None)
            save(service, "a/f", body=encrypted_form.data(scan=encrypted_form.path("a/f", "1", "scan.bin")))
        else:
            service.publish("a/f", definition.replace(b"<fr:encrypt/>", b""), **V1)
            service.save("a/f", "d", data_at(path))
            service.publish("a/f", definition, **V1)
            if what == "older":
                service.save("a/f", "d", b"<form/>")
            assert kinds(service) == []
        assert kinds(service, "--deep") == ["value-plain"]
        assert run_command(service, "reencrypt").exit_code == 0
        assert kinds(service, "--deep") == []
        if what == "current":
            assert b"secret" not in raw(service, "a/f/data/d/data.xml").body
            assert b"secret" in service.get("a/f/data/d/data.xml").body


def test_a_stored_definition_with_a_mark_without_effect_is_found(tmp_path: Path) -> None:
    with serving(tmp_path, dialect="orbeon") as service:
        service.face = PROVIDER
        for name, form in (("no id", "a/e"), ("a ref", "a/i")):
            assert service.put(f"{form}/form/form.xhtml", with_view(REFUSED[name], form), **V1).status == 201
        done = run_command(service, "check")
        assert done.exit_code == 4
        found = re.findall(r"(\S+/form.xhtml): .*?(mark-not-\w+): the mark (<\S+>)", done.stdout)
        assert sorted(found) == [
            ("a/e/form/1/form.xhtml", "mark-not-encrypting", "<fr:encrypt>"),
            ("a/i/form/1/form.xhtml", "mark-not-indexing", "<fr:index>"),
        ]
        assert kinds(service, "a/i") == ["mark-not-indexing"]
        assert run_command(service, "check", "a/i").exit_code == 0, "a notice"


def run_command(service: Service, *arguments: str) -> Result:
    file = service.data.parent / "settings.toml"
    own = ["--config", str(file)] if file.exists() else []
    return CliRunner().invoke(commands, [*arguments, *own, "--data", services.place_of(service.data)])


def kinds(service: Service, *options: str) -> list[str]:
    known = {kind.label for kind in FindingKind}
    return [
        kind for kind in re.findall(r": ([a-z-]+): ", run_command(service, "check", *options).stdout) if kind in known
    ]
