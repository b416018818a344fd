"""What is opened is closed: applications, trees and indexes leave no thread, descriptor, process or memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from persistence.app import create_app
from persistence.errors import BusyError, StartupError
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.settings import Settings, load
from persistence.storage.locks import LockFile
from persistence.storage.store import Store
from tests import opened, rig_service
from tests.initialised import initialised
from tests.rigs.closing.rounds import ENVIRONMENT
from tests.search_faults import await_notes
from tests.service import PUBLIC, alone

_SETTINGS = """
data = "{0}/data"
insecure = true
keys = "{0}/keys.json"
encryption_keys = "{0}/encryption-keys.json"
"svc.persistence.provider.acme.*.data" = "orders"
"svc.persistence.orders.datasource" = "disk2"
"svc.persistence.provider.far.*.*" = "behind"
"svc.persistence.behind.uri" = "http://127.0.0.1:{1}"
"svc.persistence.behind.dialect" = "svc"
[datasource.disk2]
data = "{0}/disk2"
"""
_MORE_MEMORY = {100: 1024, 1_000: 2048}
"""KiB by which it may grow, by rounds: in 1,000 the interpreter's table of interned strings doubles, by 939 KiB, as
werkzeug compiles the routes of each application."""
_ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
"""Otherwise the allocator spreads what short-lived threads use, and keeps pages that nothing is in."""


def settings(directory: Path, port: int = 9) -> str:
    for tree in ("data", "disk2"):
        initialised(directory / tree)
    file = directory / "own.toml"
    file.write_text(_SETTINGS.format(directory, port))
    return str(file)


@pytest.mark.parametrize("rounds", [100, pytest.param(1_000, marks=pytest.mark.long)])
@pytest.mark.timeout(900)
def test_an_application_can_be_opened_and_closed_over_and_over(rounds: int, tmp_path: Path) -> None:
    """With two trees, another service, keys, requests and work in the background: nothing is left of it."""
    with alone(tmp_path / "behind", options=("--insecure",)) as behind:
        command = [sys.executable, "-m", "tests.rigs.closing.rounds", settings(tmp_path, behind.port), str(rounds)]
        own, cwd = os.environ | _ONE_ARENA, Path(__file__).parents[3]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=own)
    assert done.returncode == 0, done.stderr[-2000:]
    before, after = map(json.loads, done.stdout.splitlines())
    assert after["rounds"] == rounds
    assert after["threads"] == before["threads"] == ["MainThread"]
    assert after["descriptors"] == before["descriptors"]
    assert after["children"] == before["children"] == []
    assert after["memory"] - before["memory"] < _MORE_MEMORY[rounds]
    for tree in ("data", "disk2"):
        assert list((tmp_path / tree / ".index/.pending").glob("*")) == []


def test_a_closed_application_lets_go_of_its_trees_and_does_nothing_more(tmp_path: Path) -> None:
    """A restore could begin. What is asked nevertheless is told to come back."""
    effective = load(settings(tmp_path), environment=ENVIRONMENT)
    with create_app(effective.settings, effective.properties) as app:
        client = app.test_client()
        assert client.put("/crud/a/b/data/D/data.xml", data=b"<d/>").status_code == 201
        for tree in ("data", "disk2"):
            with pytest.raises(BusyError), LockFile(f"{tmp_path}/{tree}/.locks/service").exclusive("in use"):
                pass
    assert opened.threads() == []
    for tree in ("data", "disk2"):
        with LockFile(f"{tmp_path}/{tree}/.locks/service").exclusive("in use"):
            pass
    late = client.put("/crud/a/b/data/E/data.xml", data=b"<d/>"), client.post("/search/a/b", data=b"<search/>")
    assert [(each.status_code, each.headers["Retry-After"]) for each in late] == [(503, "1"), (503, "1")]
    assert client.get("/crud/a/b/data/D/data.xml").status_code == 200
    app.close()


def test_what_an_application_has_not_taken_in_is_found_by_the_next(tmp_path: Path) -> None:
    data = initialised(tmp_path)
    for number in range(3):
        with create_app(Settings(data=data, insecure=True)) as app:
            client = app.test_client()
            assert client.put(f"/crud/a/b/data/D{number}/data.xml", data=b"<d/>").status_code == 201
    with create_app(Settings(data=data, insecure=True)) as app:
        answer = app.test_client().post("/search/a/b", data=b"<search/>")
        assert 'search-total="3"' in answer.text


def test_what_was_opened_before_something_failed_is_closed(tmp_path: Path) -> None:
    """The second tree has an unknown format: the first one is let go of."""
    effective = load(settings(tmp_path), environment=ENVIRONMENT)
    (tmp_path / "disk2/layout.json").write_text("{}")
    with pytest.raises(StartupError):
        create_app(effective.settings, effective.properties)
    assert opened.threads() == []
    with LockFile(f"{tmp_path}/data/.locks/service").exclusive("in use"):
        pass


def test_a_closed_store_is_not_written_to(tmp_path: Path) -> None:
    address = DocumentAddress(Form("a", "b"), Collection.DATA, "D", DATA_XML)
    with Store(initialised(tmp_path), lock_timeout=1) as store:
        pass
    with pytest.raises(BusyError, match="is closed"), store.writing(address):
        pass
    with pytest.raises(BusyError, match="is closed"):
        store.upload(address)
    assert store.read(address, content=False) is None
    store.close()


def test_a_worker_has_two_threads_for_each_tree(tmp_path: Path) -> None:
    """Beside the main one and those that serve: the indexer, and the one that renews the lease."""
    env = rig_service.ENVIRONMENT | ENVIRONMENT | {"PERSISTENCE_CONFIG": settings(tmp_path)}
    with alone(tmp_path, threads=2, env=env, module=rig_service.__name__) as service:
        for path in ("hr/b", "acme/order"):
            for number in range(4):
                assert service.put(f"{path}/data/D{number}/data.xml", Form_Definition_Version=1).status == 201
            assert service.raw("POST", f"{PUBLIC}/search/{path}", body=b"<search/>").status == 200
        (worker,) = service.workers()
        names = [(task / "comm").read_text().strip() for task in Path(f"/proc/{worker}/task").iterdir()]
    own = Counter(name for name in names if not name.startswith(rig_service.SERVING))
    assert len(names) - own.total() <= 2
    main = own.total() - 4
    assert (own["updater"], own["tree-lease"], main) == (2, 2, 1)


def test_a_worker_that_ends_leaves_no_notes_and_no_log_beside_the_index(tmp_path: Path) -> None:
    """Gunicorn ends its workers without a word to the application: the end of the process closes it."""
    with alone(tmp_path, workers=2, options=("--insecure",)) as service:
        for number in range(8):
            assert service.put(f"a/b/data/D{number}/data.xml", Form_Definition_Version=1).status == 201
            assert service.raw("POST", "/search/a/b", body=b"<search/>").status == 200
        await_notes(service)
    assert list((tmp_path / "data/.index/.pending").iterdir()) == []
    assert [each.name for each in (tmp_path / "data/.index/a/b").glob("*-wal")] == []
