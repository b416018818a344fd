"""Another engine is one line in a table: here one that only this test knows keeps forms, or attachments alone."""

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


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "drawer", f"{__name__}:Drawers")


@pytest.fixture
def config(tmp_path: Path) -> str:
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


@pytest.mark.parametrize("uri", ["cupboard://here", "drawer:", "drawer://"])
def test_other_addresses_are_refused_when_the_configuration_is_read(tmp_path: Path, uri: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(f'"svc.persistence.upper.uri" = "{uri}"\n')
    with pytest.raises(StartupError, match="must be file:"):
        configuration.load(str(file), environment={})
