"""Databases beside a tree, and the page of a check; all of ``tests/http`` is asked by ``make test-postgresql``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import on_database, orders
from tests import service as services
from tests.in_process import serving
from tests.metrics.test_metrics import samples, value
from tests.orders import named
from tests.pages.administrator import administrator
from tests.pages.test_looking import ended, save
from tests.postgresql import server as postgresql
from tests.postgresql.server import Server
from tests.service import PROVIDER, PUBLIC, Service

_SETTINGS = """
"svc.persistence.*.lease" = true
"svc.persistence.provider.far.*.data" = "second"
"svc.persistence.second.datasource" = "other"
"svc.persistence.provider.near.*.*" = "third"
"svc.persistence.third.datasource" = "tree"
[datasource.other]
data = "{}"
[datasource.tree]
data = "tree"
"""


@pytest.fixture(scope="module")
def served(database_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service in this process on a database, with a second database and a tree as datasources."""
    directory = tmp_path_factory.mktemp("served")
    first, second = (database_server.uri(postgresql.fresh_schema()) for _ in range(2))
    (directory / "own.toml").write_text(_SETTINGS.format(second))
    with serving(directory, place=first, options=("--config", "own.toml")) as service:
        yield service


@pytest.fixture
def service(served: Service) -> Service:
    served.face = PUBLIC
    return served


def _find(service: Service, form: str, name: str) -> int:
    body = f'<search><query path="customer/name" match="exact">{name}</query></search>'.encode()
    answer = service.raw("POST", f"{service.face}/search/{form}", {"Content-Type": "application/xml"}, body)
    assert answer.status == 200, answer.cause
    return answer.body.count(b"<document ")


def test_leases_and_connections_are_counted(service: Service, form: str) -> None:
    """A place has the same name in both metrics: its address without passwords."""
    path = f"{form}/data/{form[4:12]}-counted/data.xml"
    service.put(path, Form_Definition_Version=1)
    before = samples(service)
    assert service.lock(path, "lea").status == 200
    found = samples(service)
    places = {dict(labels)["place"] for name, labels in found if name == "persistence_place_up"}
    databases = {place for place in places if not place.startswith("/")}
    assert len(databases) == 2
    more = [value(found, "leases", place=place) - value(before, "leases", place=place) for place in databases]
    assert sorted(more) == [0, 1]
    assert {dict(labels)["place"] for name, labels in found if name == "persistence_leases"} >= databases
    assert 1 <= value(found, "database_open_connections") <= value(found, "database_most_connections")


@pytest.mark.parametrize("app", ["far", "near"])
def test_data_is_where_the_properties_say(service: Service, form: str, app: str) -> None:
    """In another database, or in a tree beside the databases; each is named on the provider API, too."""
    form = f"{app}/{form[4:12]}"
    assert service.put(f"{form}/form/form.xhtml", orders.definition()).status == 201
    assert service.put(f"{form}/data/D/data.xml", named("Ann"), Form_Definition_Version=1).status == 201
    assert _find(service, form, "Ann") == 1
    service.face = PROVIDER
    names = {"far": "other", "near": "tree"}
    assert service.get(f"{form}/data/D/data.xml").status == 404
    assert service.get(f"{form}/data/D/data.xml", Datasource=names[app]).status == 200
    assert (service.log.parent / "tree" / form / "data/D/data.xml").exists() == (app == "near")


def test_a_check_of_a_database_is_begun_from_the_page(
    tmp_path: Path, database_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "place_of", partial(on_database.address, database_server))
    monkeypatch.setattr(services, "prepare", partial(on_database.prepare, database_server))
    found = administrator(tmp_path)
    save(found)
    assert "hr" in (found.get("/admin/forms") and found.text)
    found.do("/admin/actions/check?mode=look")
    ended(found, "check")
    assert "Nothing was found" in found.text
    assert "nothing is wrong" in found.text
    found.do("/admin/actions/check?mode=adopt")
    ended(found, "check")
    assert "--adopt and --budget are for data directories" in found.text
