"""A form with its definition in one service and its data in another: it is indexed where it is published, too."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from tests import orders
from tests.http.test_flat_views import order, reporting
from tests.in_process import serving
from tests.search_faults import found
from tests.service import PROVIDER, PUBLIC, V1, Service

FORM = "acme/order"
ADA = '<search><query path="customer/name" match="exact">Ada</query></search>'
READERS = '<permissions><permission operations="create read update list"/></permissions>'
NOBODY = "<permissions/>"
ROWS = {"svc": "SELECT name FROM svc_f_acme_order_1", "orbeon": "SELECT name FROM orbeon_f_acme_order_1"}
PREFIX = {"svc": "svc.", "orbeon": "oxf.fr."}


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "behind", dialect="orbeon", alone=True) as service:
        yield service


@pytest.fixture(params=["orbeon", pytest.param("svc", marks=pytest.mark.long)])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def front(directory: Path, dialect: str, behind: Service, part: str) -> AbstractContextManager[Service]:
    """A service that has one part of each form behind it."""
    lines = {"provider.*.*." + part: "far", "far.uri": f"http://127.0.0.1:{behind.port}", "far.dialect": "orbeon"}
    directory.mkdir()
    file = directory / "front.toml"
    file.write_text("".join(f'"{PREFIX[dialect]}persistence.{name}" = "{value}"\n' for name, value in lines.items()))
    return serving(directory, dialect=dialect, options=("--config", file.name), alone=True)


def publish(service: Service, metadata: str = READERS, **own: object) -> int:
    return service.put(f"{FORM}/form/form.xhtml", orders.definition(metadata), **V1, **own).status


def search(service: Service, body: str = ADA) -> tuple[list[str], str]:
    answer = service.post(f"search/{FORM}", body)
    assert answer.status == 200, answer.cause
    return sorted(found(answer.body)), answer[f"{service.prefix}Notice"] or ""


def save(service: Service, *names: str) -> None:
    for name in names:
        assert service.put(f"{FORM}/data/{name}/data.xml", order(name), **V1).status in (201, 204)


def test_controls_of_data_here_are_indexed_by_a_copy_of_its_definition(
    tmp_path: Path, dialect: str, behind: Service
) -> None:
    """The copy is published on the provider API. It decides nothing else: rules go by the definition behind."""
    with front(tmp_path / "front", dialect, behind, "form") as service:
        own_tree = replace(service, face=PROVIDER)
        assert publish(service) == 201
        assert not (service.data / FORM / "form").exists()
        save(service, "Ada", "Bob")
        names, notice = search(service)
        assert (names, "publish version 1 where its data is" in notice) == ([], True)
        assert search(service, "<search/>")[0] == ["Ada", "Bob"]
        assert publish(own_tree, NOBODY) == 201
        assert (service.data / FORM / "form/1/form.xhtml").exists()
        assert search(service) == (["Ada"], "")
        save(service, "Ada", "Cid")
        assert search(service) == (["Ada"], "")
        assert service.get(f"{FORM}/data/Ada/data.xml").status == 200
        assert READERS.encode() in service.get(f"{FORM}/form/form.xhtml").body
        assert service.raw("GET", f"{PUBLIC}/form/{FORM}").body.count(b"<form ") == 1
        assert publish(service, NOBODY) == 204
        assert service.get(f"{FORM}/data/Ada/data.xml").status == 403
        assert publish(service) == 204
        assert own_tree.delete(f"{FORM}/form/form.xhtml", **V1).status == 204
        assert search(service, "<search/>")[0] == [], "as after a DELETE of any definition"
        assert publish(own_tree) in (201, 204)
        assert search(service, "<search/>")[0] == ["Ada", "Bob", "Cid"]
        assert search(service)[0] == ["Ada"]


def test_data_here_has_flat_views_by_a_copy_of_its_definition(tmp_path: Path, dialect: str, behind: Service) -> None:
    with front(tmp_path / "front", dialect, behind, "form") as service:
        refused = service.put(f"{FORM}/form/form.xhtml", orders.definition(), **V1, Create_Flat_View="true")
        assert (refused.status, "publish the form there" in refused.cause) == (501, True)
        assert publish(service) == 201
        save(service, "Ada")
        assert publish(replace(service, face=PROVIDER), Create_Flat_View="true") == 201
        save(service, "Bob")
        with reporting(service) as report:
            report.becomes(lambda: sorted(report.ask(ROWS[dialect])), [("Ada",), ("Bob",)])


def test_data_behind_is_indexed_and_has_flat_views_by_a_copy_there(
    tmp_path: Path, dialect: str, behind: Service
) -> None:
    with front(tmp_path / "front", dialect, behind, "data") as service:
        service.face, behind.face = PUBLIC, PROVIDER
        assert publish(service) == 201
        assert publish(behind, Create_Flat_View="true") == 201
        save(service, "Ada", "Bob")
        deadline = time.monotonic() + 10
        while search(service)[0] != ["Ada"] and time.monotonic() < deadline:
            time.sleep(0.02)
        assert search(service) == (["Ada"], "")
        assert not (service.data / FORM / "data").exists()
        with reporting(behind) as report:
            report.becomes(lambda: sorted(report.ask(ROWS["orbeon"])), [("Ada",), ("Bob",)])
