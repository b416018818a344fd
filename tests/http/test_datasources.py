"""Several trees over HTTP: definitions on one disk, data on another, and a provider API that names the tree."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient

from persistence import settings as configuration
from persistence.app import create_app
from persistence.catalog import Catalog
from persistence.cli import commands
from persistence.errors import StartupError
from persistence.properties.properties import ProviderProperties
from persistence.properties.property_table import ENGINES
from persistence.providers.router import Opening, Provider
from persistence.providers.tree_provider import open_index, open_store, provider_of_tree
from persistence.storage.attachments import FileBodies
from persistence.storage.storage import Storage
from tests import orders
from tests.initialised import initialised
from tests.opened import opened
from tests.orders import found
from tests.published import definition
from tests.service import PROVIDER, PUBLIC, V1, Answer, Service, running
from tests.waiting import eventually

CONFIG = """
"svc.persistence.provider.acme.*.data" = "orders"
"svc.persistence.orders.datasource" = "disk2"
"svc.persistence.provider.hr.*.form" = "forms"
"svc.persistence.forms.uri" = "file:"
"svc.persistence.forms.datasource" = "definitions"
"svc.persistence.provider.old.*.*" = "archive"
"svc.persistence.archive.datasource" = "disk2"
"svc.persistence.archive.active" = false
"svc.persistence.provider.pics.*.data.attachments" = "filesystem"
"svc.persistence.provider.pics.*.data" = "orders"
"svc.persistence.filesystem.base-path" = "attachments"
[datasource.disk2]
data = "disk2"
[datasource.definitions]
data = "definitions"
"""
_XML = {"Content-Type": "application/xml"}
_GUARDED = '<permissions><permission operations="create read"><user-role any-of="clerk"/></permission></permissions>'
_PATIENCE = 20.0


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("several")
    (directory / "attachments").mkdir()
    with running(directory, workers=2, settings=CONFIG) as service:
        yield service


@pytest.fixture
def public(several: Service) -> Service:
    several.face = PUBLIC
    return several


def beside(service: Service, name: str) -> Path:
    return service.data.parent / name


def by_provider(service: Service, method: str, path: str, body: bytes | None = None, **own: object) -> Answer:
    service.face = PROVIDER
    try:
        return service.ask(method, path, body, _XML, **own)
    finally:
        service.face = PUBLIC


def search(service: Service, form: str, body: str = "<search/>", **own: str) -> list[str]:
    answer = service.post(f"search/{form}", body, **own)
    assert answer.status == 200, answer.cause
    return found(answer.body)


def listed(service: Service, query: str = "") -> list[tuple[str, str, str]]:
    answer = service.raw("GET", f"{service.face}/form{query}")
    assert answer.status == 200, answer.cause
    names = ("application-name", "form-name", "form-version")
    return [tuple(form.findtext(name) or "" for name in names) for form in orders.tree(answer.body)]  # type: ignore[misc]


def test_definitions_and_data_lie_where_the_properties_say(public: Service) -> None:
    assert public.put("acme/order/form/form.xhtml", orders.definition()).status == 201
    assert public.put("acme/order/data/D1/data.xml", b"<d>one</d>").status == 201
    assert public.put("acme/order/draft/D1/data.xml", b"<d>draft</d>").status == 201
    assert public.put("acme/order/data/D1/a.bin", b"bytes").status == 201
    assert (public.data / "acme/order/form/1/form.xhtml").read_bytes() == orders.definition()
    assert (beside(public, "disk2") / "acme/order/data/D1/data.xml").read_bytes() == b"<d>one</d>"
    assert (beside(public, "disk2") / "acme/order/draft/D1/data.xml").exists()
    assert not (public.data / "acme/order/data").exists()
    assert not (beside(public, "disk2") / "acme/order/form").exists()
    got = public.get("acme/order/data/D1/data.xml")
    assert (got.status, got.body, got["Svc-Form-Definition-Version"]) == (200, b"<d>one</d>", "1")
    assert public.get("acme/order/data/D1/a.bin").body == b"bytes"
    assert public.get("acme/order/form/form.xhtml", For_Document_Id="D1").body == orders.definition()
    assert public.put("acme/order/data/D1/data.xml", b"<d>two</d>", {"If-Match": str(got["ETag"])}).status == 204
    assert public.get("acme/order/draft/D1/data.xml").status == 404
    assert public.delete("acme/order/data/D1/data.xml").status == 204
    assert public.get("acme/order/data/D1/data.xml").status == 404


def test_new_data_has_the_version_that_the_other_tree_has_published(public: Service) -> None:
    for version in (1, 2):
        assert public.put("acme/two/form/form.xhtml", definition(""), Form_Definition_Version=version).status == 201
    assert public.put("acme/two/data/D/data.xml")["Svc-Form-Definition-Version"] == "2"


def test_searches_read_data_by_the_definitions_of_the_other_tree(public: Service) -> None:
    assert public.put("acme/found/form/form.xhtml", orders.definition()).status == 201
    for name, document in (("a", "Ann"), ("b", "Bob")):
        body = f"<form><customer><name>{document}</name></customer></form>".encode()
        assert public.put(f"acme/found/data/{name}/data.xml", body).status == 201
    query = '<search><query path="customer/name" match="exact">Bob</query></search>'
    assert search(public, "acme/found", query) == ["b"]
    assert not (public.data / ".index/acme/found").exists()
    changed = orders.definition().replace(b"fr-index", b"fr-other")
    assert public.put("acme/found/form/form.xhtml", changed).status == 204
    assert sorted(search(public, "acme/found")) == ["a", "b"]
    assert public.raw("POST", f"{PUBLIC}/reindex", _XML, b"").status == 200
    assert public.raw("GET", f"{PUBLIC}/reindex/status").body == b'<status state="stopped"/>'
    assert sorted(search(public, "acme/found")) == ["a", "b"]


def test_permissions_hold_for_data_on_the_other_disk_through_both_faces(public: Service) -> None:
    guarded = definition(_GUARDED)
    assert public.put("acme/guarded/form/form.xhtml", guarded).status == 201
    path = "acme/guarded/data/D/data.xml"
    assert public.put(path).status == 403
    assert public.put(path, Username="kim", Roles="clerk").status == 201
    assert public.get(path).status == 403
    assert by_provider(public, "GET", path, Datasource="disk2").status == 403
    assert by_provider(public, "GET", path, Datasource="disk2", Username="kim", Roles="clerk").status == 200
    assert search(public, "acme/guarded") == []
    public.face = PROVIDER
    assert search(public, "acme/guarded", Datasource="disk2") == []
    assert search(public, "acme/guarded", Datasource="disk2", Username="kim", Roles="clerk") == ["D"]


def test_the_provider_face_takes_the_tree_that_the_header_names(public: Service) -> None:
    path = "lab/probe/data/D/data.xml"
    for body, own in ((b"<d>default</d>", {}), (b"<d>second</d>", {"Datasource": "disk2"})):
        assert by_provider(public, "PUT", path, body, **own).status == 201
        assert by_provider(public, "GET", path, **own).body == body
    assert (beside(public, "disk2") / path).read_bytes() == b"<d>second</d>"
    assert by_provider(public, "GET", path, Datasource="definitions").status == 404
    refused = by_provider(public, "GET", path, Datasource="disk3")
    assert (refused.status, refused.cause) == (400, "there is no datasource 'disk3' here")
    assert by_provider(public, "PUT", path, b"<d/>", Datasource="disk3").status == 400
    assert public.get(path, Datasource="disk2").body == b"<d>default</d>", "the public API goes by the properties"
    assert by_provider(public, "GET", path, Xmldb_Uri="/db/x").status == 200


def test_the_list_of_forms_has_those_of_all_active_providers(public: Service) -> None:
    for form in ("lab/one", "hr/leave", "old/gone"):
        assert public.put(f"{form}/form/form.xhtml", definition("")).status == 201
    assert (beside(public, "definitions") / "hr/leave/form/1/form.xhtml").exists()
    # What lies in a tree where nobody looks for it is not listed: neither would it be served.
    assert by_provider(public, "PUT", "hr/stray/form/form.xhtml", definition(""), **V1).status == 201
    names = {(app, form) for app, form, _ in listed(public)}
    assert {("lab", "one"), ("hr", "leave")} <= names
    assert not names & {("old", "gone"), ("hr", "stray")}
    assert listed(public, "/hr") == [("hr", "leave", "1")]
    assert public.get("old/gone/form/form.xhtml").status == 200, "inactive providers are read all the same"


def test_publishing_goes_from_tree_to_tree(public: Service) -> None:
    designed = definition("<application-name>hr</application-name><form-name>made</form-name>")
    assert public.put("svc/builder/data/M/data.xml", designed).status == 201
    answer = public.raw("POST", "/fr/service/svc/builder/publish/M", _XML, b"")
    assert answer.status == 200, answer.cause
    assert (beside(public, "definitions") / "hr/made/form/1/form.xhtml").exists()
    assert public.put("hr/made/data/D/data.xml").status == 201
    assert (public.data / "hr/made/data/D/data.xml").exists()


def test_flat_views_are_where_the_data_is(public: Service) -> None:
    path = "acme/flat/form/form.xhtml"
    assert public.put("acme/flat/data/D/data.xml", b"<form><customer><name>Ann</name></customer></form>").status == 201
    assert public.put(path, orders.definition(), Create_Flat_View="true").status == 201
    file = beside(public, "disk2") / ".index/.flat/flat.sqlite"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        rows = 'SELECT metadata_document_id FROM "svc_f_acme_flat_1"'
        assert connection.execute(rows).fetchall() == [("D",)]
        assert public.put("acme/flat/data/E/data.xml", b"<form/>").status == 201
        eventually(lambda: len(connection.execute(rows).fetchall()) >= 2, _PATIENCE)
        assert sorted(connection.execute(rows).fetchall()) == [("D",), ("E",)]


def test_attachments_may_be_with_a_provider_of_their_own(public: Service) -> None:
    """Spec forms 5.5: the main provider keeps a record without body, and ranges are of the body."""
    path, body = "pics/album/data/D/cat.bin", bytes(range(256)) * 8
    sent = {"Content-Type": "image/png"}
    assert public.put(path, body, sent, Hash_Algorithm="SHA-256", Hash_Value="abc").status == 201
    assert public.put("pics/album/data/D/data.xml").status == 201
    stored = beside(public, "attachments") / "pics/album/data/D/1/cat.bin"
    record = beside(public, "disk2") / path
    assert (stored.read_bytes(), record.read_bytes()) == (body, b"")
    got = public.get(path)
    assert (got.status, got.body, got["Content-Type"]) == (200, body, "image/png")
    assert (got["Svc-Hash-Value"], got["Accept-Ranges"]) == ("abc", "bytes")
    head = public.head(path)
    assert (head["Content-Length"], head["ETag"]) == (str(len(body)), got["ETag"])
    part = public.get(path, {"Range": "bytes=100-199"})
    assert (part.status, part.body, part["Content-Range"]) == (206, body[100:200], f"bytes 100-199/{len(body)}")
    assert public.put(path, b"other", sent).status == 204
    assert public.get(path).body == b"other"
    older = public.get(f"{path}?last-modified-time={got['Svc-Last-Modified']}")
    assert (older.status, older.body) == (200, body)
    # Behind a proxy this face is a main provider, and its record has no body.
    assert by_provider(public, "GET", path, Datasource="disk2").body == b""
    assert public.delete(path).status == 204
    assert public.get(path).status == 404
    assert not stored.exists()


def test_attachments_of_drafts_go_with_the_draft(public: Service) -> None:
    drafts = beside(public, "attachments") / "pics/album/draft"
    for document in ("E", "F"):
        assert public.put(f"pics/album/draft/{document}/a.bin", b"draft").status == 201
        assert public.put(f"pics/album/draft/{document}/data.xml").status == 201
        assert (drafts / document / "1/a.bin").read_bytes() == b"draft"
    assert public.get("pics/album/draft/E/a.bin").body == b"draft"
    assert public.put("pics/album/data/E/data.xml").status == 201
    assert public.delete("pics/album/draft/F/data.xml").status == 204
    assert not (drafts / "E").exists()
    assert not (drafts / "F").exists()
    assert public.get("pics/album/draft/E/a.bin").status == 404


def test_attachments_that_were_stored_before_are_served_as_they_are(public: Service) -> None:
    """Spec crud 11: storage can be switched without migration."""
    path = "pics/album/data/S/old.bin"
    assert by_provider(public, "PUT", path, b"whole", Datasource="disk2").status == 201
    assert by_provider(public, "PUT", "pics/album/data/S/data.xml", b"<d/>", Datasource="disk2").status == 201
    assert public.get(path).body == b"whole"
    assert public.put(path, b"new").status == 204
    assert (beside(public, "attachments") / "pics/album/data/S/1/old.bin").read_bytes() == b"new"
    assert public.get(path).body == b"new"


def test_a_body_that_is_lost_is_damage(public: Service) -> None:
    path = "pics/album/data/L/gone.bin"
    for name in ("gone.bin", "data.xml"):
        assert public.put(f"pics/album/data/L/{name}", b"<d/>").status == 201
    (beside(public, "attachments") / "pics/album/data/L/1/gone.bin").unlink()
    answer = public.get(path)
    assert (answer.status, answer.cause) == (500, f"the body of {path} is missing where its attachments are kept")


def test_an_older_body_that_is_lost_is_not_answered_with_the_one_that_is_there(public: Service) -> None:
    path = "pics/album/data/M/photo.bin"
    assert public.put("pics/album/data/M/data.xml", b"<d/>").status == 201
    first = public.put(path, b"first")[public.prefix + "Last-Modified"]
    assert public.put(path, b"latest").status == 204
    assert public.get(f"{path}?last-modified-time={first}").body == b"first"
    for older in (beside(public, "attachments") / "pics/album/data/M/1/.history").iterdir():
        older.unlink()
    assert public.get(f"{path}?last-modified-time={first}").status == 500
    assert public.get(path).body == b"latest"


def test_readiness_is_that_of_every_tree(public: Service) -> None:
    assert public.raw("GET", "/readyz").status == 200
    attachments = beside(public, "attachments")
    attachments.rename(attachments.with_name("gone"))
    try:
        answer = public.raw("GET", "/readyz")
        assert (answer.status, str(attachments) in answer.cause) == (503, True)
    finally:
        attachments.with_name("gone").rename(attachments)
    definitions = beside(public, "definitions")
    definitions.rename(definitions.with_name("gone"))
    try:
        answer = public.raw("GET", "/readyz")
        assert (answer.status, str(definitions) in answer.cause) == (503, True)
        assert not definitions.exists(), "a tree is made by nothing but init"
    finally:
        definitions.with_name("gone").rename(definitions)
    assert public.raw("GET", "/readyz").status == 200
    lock = definitions / ".locks/service"
    lock.unlink()
    assert public.raw("GET", "/readyz").status == 200
    assert lock.exists(), "what git clean removes is made again"


# Another engine is one line in a table: here one that only this test knows keeps forms, or attachments alone.

CRUD = "/fr/service/persistence/crud/acme/order"
HEADERS = {"Svc-Form-Definition-Version": "1"}
DOCUMENT = b"<form><customer><name>Ada</name></customer></form>"
SEARCH = b'<search><query path="customer/name" match="exact">Ada</query></search>'


class Drawers:
    calls_others = False
    written = ()
    sweeps = ()

    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    def _path(self, configured: ProviderProperties) -> Path:
        return Path(self._opening.settings.data).parent / configured.uri.rpartition("/")[2]

    def provider(self, configured: ProviderProperties) -> Provider:
        closing, properties, path = self._opening.closing, self._opening.properties, initialised(self._path(configured))
        settings = msgspec.structs.replace(self._opening.settings, data=path)
        index = closing.enter_context(open_index(settings, properties, path))
        updater = closing.enter_context(index.updater(self._opening.failed))
        store = closing.enter_context(open_store(settings, path, updater))
        updater.start()
        return provider_of_tree(store, index, Catalog(store))

    def bodies(self, configured: ProviderProperties, main: Storage) -> FileBodies:  # noqa: ARG002
        path = self._path(configured)
        path.mkdir(exist_ok=True)
        return FileBodies(str(path))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "drawer", f"{__name__}:Drawers")


@pytest.fixture
def config(tmp_path: Path, registered: None) -> str:  # noqa: ARG001
    """The forms of one application are in a drawer, and the attachments of another application in a second one."""
    initialised(tmp_path / "data")
    file = tmp_path / "own.toml"
    file.write_text(
        'data = "data"\n'
        '"svc.persistence.provider.acme.*.*" = "upper"\n'
        '"svc.persistence.upper.uri" = "drawer://here/upper"\n'
        '"svc.persistence.provider.hr.*.data.attachments" = "lower"\n'
        '"svc.persistence.lower.uri" = "drawer://here/lower"\n'
    )
    return str(file)


@pytest.fixture
def client(config: str) -> FlaskClient:
    loaded = configuration.load(config, environment={})
    return opened(create_app(loaded.settings, loaded.properties)).test_client()


def test_it_serves_forms_through_the_whole_application(client: FlaskClient, tmp_path: Path) -> None:
    headers = {**HEADERS, "Svc-Create-Flat-View": "true"}
    published = client.put(f"{CRUD}/form/form.xhtml", data=orders.definition(), headers=headers)
    assert published.status_code == 201
    assert client.put(f"{CRUD}/data/D/data.xml", data=DOCUMENT, headers=HEADERS).status_code == 201
    assert client.get(f"{CRUD}/data/D/data.xml").data == DOCUMENT
    found = client.post("/fr/service/persistence/search/acme/order", data=SEARCH, headers=HEADERS)
    assert (found.status_code, found.data.count(b"<document ")) == (200, 1)
    assert b"<form-name>order</form-name>" in client.get("/fr/service/persistence/form/acme").data
    assert client.post("/fr/service/persistence/reindex").status_code == 200
    assert client.delete(f"{CRUD}/data/D/data.xml").status_code == 204
    assert client.get(f"{CRUD}/data/D/data.xml").status_code == 404
    assert (tmp_path / "upper/acme/order/form/1/form.xhtml").is_file()
    assert not (tmp_path / "data/acme").exists()


def test_it_keeps_attachments_alone(client: FlaskClient, tmp_path: Path) -> None:
    base = CRUD.replace("acme/order", "hr/leave")
    assert client.put(f"{base}/data/D/data.xml", data=DOCUMENT, headers=HEADERS).status_code == 201
    assert client.put(f"{base}/data/D/a.bin", data=b"bytes", headers=HEADERS).status_code == 201
    assert client.get(f"{base}/data/D/a.bin").data == b"bytes"
    assert list((tmp_path / "lower").rglob("a.bin*"))
    assert (tmp_path / "data/hr/leave/data/D/data.xml").is_file()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("check",), "0 damage"),
        (("config", "route", "acme/order", "data"), "provider upper is another service, drawer://here/upper"),
        (("show", "acme/order"), "is with another service, drawer://here/upper: look there"),
    ],
)
def test_commands_know_that_it_is_no_tree(
    client: FlaskClient, config: str, arguments: tuple[str, ...], text: str
) -> None:
    assert client.put(f"{CRUD}/data/D/data.xml", data=DOCUMENT, headers=HEADERS).status_code == 201
    ran = CliRunner().invoke(commands, [*arguments, "--config", config])
    assert text in ran.output + str(ran.exception)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("uri", ["cupboard://here", "drawer:", "drawer://"])
def test_other_addresses_are_refused_when_the_configuration_is_read(tmp_path: Path, uri: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f'"svc.persistence.upper.uri" = "{uri}"\n')
    with pytest.raises(StartupError, match="must be file:"):
        configuration.load(str(file), environment={})
