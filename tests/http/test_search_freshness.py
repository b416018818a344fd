"""A search finds what was acknowledged before it, whatever became of the process that acknowledged it."""

import os
import signal
from pathlib import Path

from tests import orders
from tests.index.racing import Racer, body, plant
from tests.published import Planter
from tests.service import Service, running

_REPOSITORY = str(Path(__file__).parents[2])
_DATA, _DRAFT = "acme/order/data/{}/data.xml", "acme/order/draft/{}/data.xml"
_FORM = "acme/order/form/form.xhtml"
_ALL = "<search><page-size>100</page-size></search>"


def put(service: Service, path: str, text: str) -> None:
    assert service.put(path, body(text), Username="ann", Form_Definition_Version="1").status in (201, 204)


def name(text: str) -> str:
    return f'<search><query path="customer/name" match="exact">{text}</query></search>'


def test_what_a_killed_worker_has_not_told_the_index_is_found(tmp_path: Path) -> None:
    plant(Planter(tmp_path / "data"), 3)
    deaf = {"PYTHONPATH": _REPOSITORY}
    with running(tmp_path, workers=2, module="tests.http.deaf", env=deaf) as service:
        search = Racer(service).search
        assert len(search(_ALL)) == 3
        put(service, _DATA.format("old-1"), "changed")
        put(service, _DATA.format("new"), "new")
        put(service, _DRAFT.format("new"), "drafted")
        assert service.delete(_DATA.format("old-2"), Form_Definition_Version="1").status == 204
        assert search(_ALL) == ["new°", "new", "old-1", "old-0"]
        put(service, _DATA.format("new"), "new again")
        for worker in service.workers():
            os.kill(worker, signal.SIGKILL)
        service.process.kill()
    with running(tmp_path, workers=2) as service:
        search = Racer(service).search
        assert search(_ALL) == ["new", "old-1", "old-0"]
        assert search(name("new again")) == ["new"]
        assert search(name("new")) == []
        assert search(name("changed")) == ["old-1"]
        assert search(name("old 1")) == []


def test_an_index_is_rebuilt_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The services of other tests leave that to the fork server, which does not start this one."""
    plant(Planter(tmp_path / "data"), 3)
    with running(tmp_path, env={"PYTHONPATH": _REPOSITORY}) as service:
        assert service.raw("POST", "/reindex", {}, b"").status == 200
        assert len(list(service.data.glob(".index/acme/order/*.sqlite"))) == 1
        assert len(Racer(service).search(_ALL)) == 3


def test_a_definition_that_goes_and_comes_back(tmp_path: Path) -> None:
    """Its data is not found in between, as spec search 2.5 says; what is saved meanwhile is, by what it is."""
    plant(Planter(tmp_path / "data"), 3)
    with running(tmp_path, workers=2) as service:
        search = Racer(service).search
        assert len(search(_ALL)) == 3
        for turn in range(3):
            assert service.delete(_FORM, Form_Definition_Version="1").status == 204
            assert search(_ALL) == []
            put(service, _DATA.format("meanwhile"), f"saved {turn}")
            assert search(_ALL) == ["meanwhile"]
            again = service.put(
                _FORM, orders.definition(), {"Content-Type": "application/xhtml+xml"}, Form_Definition_Version="1"
            )
            assert again.status in (201, 204)
            assert len(search(_ALL)) == 4
            assert search(name(f"saved {turn}")) == ["meanwhile"]


def test_text_is_searched_in_an_index_without_documents(tmp_path: Path) -> None:
    """A save that was killed leaves a directory with nothing to read, of which an index may be made."""
    plant(Planter(tmp_path / "data"), 0)
    (tmp_path / "data" / "acme/order/data/begun").mkdir(parents=True)
    with running(tmp_path) as service:
        search = Racer(service).search
        text = "<search><query>new</query></search>"
        assert search(_ALL) == []
        assert service.raw("POST", "/search/acme/order", {}, text.encode()).status == 200
        put(service, _DATA.format("begun"), "new")
        assert search(text) == ["begun"]
