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
from persistence.providers.opened import Providers, open_index, open_store, provider_of_tree
from persistence.providers.router import Provider
from persistence.storage.attachments import FileBodies
from persistence.storage.storage import Storage
from tests import orders
from tests.http.stories import play, stories
from tests.initialised import initialised
from tests.opened import opened
from tests.published import definition
from tests.service import PUBLIC, Service, running
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


def there(service: Service, _form: str, _headers: object, *paths: str) -> str:
    """Those of the files beside the data directory that are there."""
    return " ".join(path for path in paths if (service.data.parent / path).exists())


@stories(
    {
        "definitions and data lie where the properties say": """
            FORM acme/order
            PUT form {order} -> 201
            PUT data/D1 <d>one</d> -> 201
            PUT draft/D1 <d>draft</d> -> 201
            PUT data/D1/a.bin <a/> -> 201
            THERE data/acme/order/form/1/form.xhtml data/acme/order/data disk2/acme/order/data/D1/data.xml \
                disk2/acme/order/draft/D1/data.xml disk2/acme/order/form -> `data/acme/order/form/1/form.xhtml \
disk2/acme/order/data/D1/data.xml disk2/acme/order/draft/D1/data.xml`
            GET data/D1 -> 200 <d>one</d> v=1 ETag>tag
            GET data/D1/a.bin -> 200 <a/>
            GET form For-Document-Id=D1 -> 200 {order}
            PUT data/D1 If-Match={tag} <d>two</d> -> 204
            GET draft/D1 -> 404
            DELETE data/D1 -> 204
            GET data/D1 -> 404""",
        "attachments may be with a provider of their own, the main one has a record without body (spec forms 5.5)": """
            FORM pics/album
            PUT data/D -> 201
            PUT data/D/cat.bin Content-Type=image/png Hash-Algorithm=SHA-256 Hash-Value=abc <cat/> -> 201
            THERE attachments/{cat} disk2/pics/album/data/D/cat.bin -> `attachments/{cat} \
disk2/pics/album/data/D/cat.bin`
            GET data/D/cat.bin -> 200 <cat/> Content-Type=image/png Hash-Value=abc Accept-Ranges=bytes ETag>tag \
                Last-Modified>first
            HEAD data/D/cat.bin -> 200 Content-Length=6 ETag={tag}
            GET data/D/cat.bin Range=bytes=1-3 -> 206 body=`cat` Content-Range=`bytes 1-3/6`
            PUT data/D/cat.bin <lion/> -> 204
            GET data/D/cat.bin -> 200 <lion/>
            GET data/D/cat.bin?last-modified-time={first} -> 200 <cat/>
            FACE provider
            GET data/D/cat.bin Datasource=disk2 -> 200 Content-Length=0
            FACE public
            DELETE data/D/cat.bin -> 204
            GET data/D/cat.bin -> 404
            THERE attachments/{cat} -> ``""",
        "new data has the version that the other tree has published": """
            FORM acme/two
            PUT form v=1
            PUT form v=2
            PUT data/D -> 201 v=2""",
        "searches read data by the definitions of the other tree": """
            FORM acme/found
            PUT form {order} -> 201
            PUT data/a {ann} -> 201
            PUT data/b {bob} -> 201
            SEARCH {named} -> found=b
            THERE data/.index/acme/found -> ``
            PUT form {unindexed} -> 204
            SEARCH -> has=`search-total="2"`
            POST ~/reindex -> 200
            GET ~/reindex/status -> 200 body=`<status state="stopped"/>`
            SEARCH -> has=`search-total="2"`""",
        "permissions hold for data on the other disk through both faces": """
            FORM acme/guarded
            PERMISSIONS <permission operations="create read"><user-role any-of="clerk"/></permission>
            PUT data/D -> 403
            PUT data/D by=kim role=clerk -> 201
            GET data/D -> 403
            SEARCH -> found=
            FACE provider
            GET data/D Datasource=disk2 -> 403
            GET data/D Datasource=disk2 by=kim role=clerk -> 200
            SEARCH Datasource=disk2 -> found=
            SEARCH Datasource=disk2 by=kim role=clerk -> found=D""",
        "the provider API takes the tree that the header names, and the public one goes by the properties": """
            FORM lab/probe
            FACE provider
            PUT data/D <d>default</d> -> 201
            PUT data/D Datasource=disk2 <d>second</d> -> 201
            GET data/D -> 200 <d>default</d>
            GET data/D Datasource=disk2 -> 200 <d>second</d>
            THERE disk2/lab/probe/data/D/data.xml -> disk2/lab/probe/data/D/data.xml
            GET data/D Datasource=definitions -> 404
            GET data/D Datasource=disk3 -> 400 `there is no datasource 'disk3' here`
            PUT data/D Datasource=disk3 -> 400
            GET data/D Xmldb-Uri=/db/x -> 200
            FACE public
            GET data/D Datasource=disk2 -> 200 <d>default</d>""",
        "the list of forms has those of all active providers; inactive ones are read all the same": """
            PUT /lab/one/form /hr/leave/form /old/gone/form -> 201
            THERE definitions/hr/leave/form/1/form.xhtml -> definitions/hr/leave/form/1/form.xhtml
            FACE provider
            PUT /hr/stray/form v=1 -> 201
            FACE public
            GET ~/form -> has=<form-name>one< has=<form-name>leave< lacks=<form-name>gone< lacks=<form-name>stray<
            GET ~/form/hr -> has=<form-name>leave< has=`search-total="1"`
            GET /old/gone/form -> 200""",
        "publishing goes from tree to tree": """
            FORM svc/builder
            PUT data/M {made} -> 201
            POST //fr/service/svc/builder/publish/M -> 200
            FORM hr/made
            PUT data/D -> 201
            THERE definitions/hr/made/form/1/form.xhtml data/hr/made/data/D/data.xml -> \
`definitions/hr/made/form/1/form.xhtml data/hr/made/data/D/data.xml`""",
        "attachments of drafts go with the draft": """
            FORM pics/album
            PUT draft/E/a.bin draft/E draft/F/a.bin draft/F -> 201
            THERE attachments/pics/album/draft/E/1/a.bin attachments/pics/album/draft/F/1/a.bin -> \
`attachments/pics/album/draft/E/1/a.bin attachments/pics/album/draft/F/1/a.bin`
            GET draft/E/a.bin -> 200 <d/>
            PUT data/E -> 201
            DELETE draft/F -> 204
            THERE attachments/pics/album/draft/E attachments/pics/album/draft/F -> ``
            GET draft/E/a.bin -> 404""",
        "attachments that were stored before are served as they are: storage is switched without migration": """
            FORM pics/album
            FACE provider
            PUT data/S/old.bin data/S Datasource=disk2 <whole/> -> 201
            FACE public
            GET data/S/old.bin -> 200 <whole/>
            PUT data/S/old.bin <new/> -> 204
            THERE attachments/pics/album/data/S/1/old.bin -> attachments/pics/album/data/S/1/old.bin
            GET data/S/old.bin -> 200 <new/>""",
    }
)
def test_several_trees(public: Service, form: str, story: str) -> None:
    words = {"order": orders.definition(), "unindexed": orders.definition().replace(b"fr-index", b"fr-other")}
    words |= {"ann": orders.named("Ann"), "bob": orders.named("Bob")}
    words["made"] = definition("<application-name>hr</application-name><form-name>made</form-name>")
    named = '<search><query path="customer/name" match="exact">Bob</query></search>'
    texts = {name: body.decode() for name, body in words.items()}
    texts |= {"named": named, "cat": "pics/album/data/D/1/cat.bin"}
    play(public, form, story, orders.definition, {"THERE": there}, **texts)


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


def test_a_lost_body_is_damage_and_a_lost_older_one_too(public: Service) -> None:
    path, bodies = "pics/album/data/M/photo.bin", beside(public, "attachments") / "pics/album/data/M/1"
    public.save("pics/album", "M")
    first = public.put(path, b"first").instant
    assert public.put(path, b"latest").status == 204
    assert public.get(f"{path}?last-modified-time={first}").body == b"first"
    for older in (bodies / ".history").iterdir():
        older.unlink()
    assert public.get(f"{path}?last-modified-time={first}").status == 500
    assert public.get(path).body == b"latest"
    (bodies / "photo.bin").unlink()
    assert public.get(path).refuses(500, f"the body of {path} is missing where its attachments are kept")


def test_readiness_is_that_of_every_tree(public: Service) -> None:
    assert public.raw("GET", "/readyz").status == 200
    for name in ("attachments", "definitions"):
        directory = beside(public, name)
        gone = directory.rename(directory.with_name("gone"))
        try:
            answer = public.raw("GET", "/readyz")
            assert (answer.status, str(directory) in answer.cause) == (503, True)
            assert not directory.exists(), "a tree is made by nothing but init"
        finally:
            gone.rename(directory)
    assert public.raw("GET", "/readyz").status == 200
    lock = beside(public, "definitions") / ".locks/service"
    lock.unlink()
    assert public.raw("GET", "/readyz").status == 200
    assert lock.exists(), "what git clean removes is made again"


# Another engine is one line in a table: here one that only this test knows keeps forms, or attachments alone.

CRUD = "/fr/service/persistence/crud/acme/order"
HEADERS = {"Svc-Form-Definition-Version": "1"}
DOCUMENT = b"<form><customer><name>Ada</name></customer></form>"
SEARCH = b'<search><query path="customer/name" match="exact">Ada</query></search>'


class Drawers:
    def __init__(self, opening: Providers) -> None:
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


def test_it_serves_forms_and_keeps_attachments_through_the_whole_application(
    client: FlaskClient, tmp_path: Path
) -> None:
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
    base = CRUD.replace("acme/order", "hr/leave")
    assert client.put(f"{base}/data/D/data.xml", data=DOCUMENT, headers=HEADERS).status_code == 201
    assert client.put(f"{base}/data/D/a.bin", data=b"bytes", headers=HEADERS).status_code == 201
    assert client.get(f"{base}/data/D/a.bin").data == b"bytes"
    assert list((tmp_path / "lower").rglob("a.bin*"))
    assert (tmp_path / "data/hr/leave/data/D/data.xml").is_file()


def test_commands_know_it_is_no_tree(client: FlaskClient, config: str) -> None:
    assert client.put(f"{CRUD}/data/D/data.xml", data=DOCUMENT, headers=HEADERS).status_code == 201
    for arguments, text in (
        (("check",), "0 damage"),
        (("config", "route", "acme/order", "data"), "provider upper is another service, drawer://here/upper"),
        (("show", "acme/order"), "is with another service, drawer://here/upper: look there"),
    ):
        ran = CliRunner().invoke(commands, [*arguments, "--config", config])
        assert text in ran.output + str(ran.exception)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("uri", ["cupboard://here", "drawer:", "drawer://"])
def test_other_addresses_are_refused_when_the_configuration_is_read(tmp_path: Path, uri: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f'"svc.persistence.upper.uri" = "{uri}"\n')
    with pytest.raises(StartupError, match="must be file:"):
        configuration.load(str(file), environment={})
