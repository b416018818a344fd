"""Moves between trees and databases: there and back it is the same tree, and what is refused or kept out."""

import threading
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from persistence import limits
from persistence.errors import BusyError
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.postgresql.database import lock_key
from persistence.postgresql.database_check import maintained
from persistence.services.transfers import TransferOutcome, TransferResult
from persistence.storage.storage import MaintainedDatabase
from persistence.storage.store import Store
from tests.imports.archives import tree
from tests.imports.test_any_tree import DATA, FORMS, Requests, send
from tests.initialised import initialised
from tests.moving.moves import moved
from tests.moving.test_moving import V1, before_drafts_come_and_go, drafts_come_and_go, of_app, results
from tests.postgresql.storages import storage_at
from tests.served import served
from tests.service import Service
from tests.storage.contract import put

_apps = count()
_LARGE = b"0123456789abcdef" * 40_000


service = served(alone=True)


@pytest.fixture
def database(database_uri: str, tmp_path: Path) -> MaintainedDatabase:
    """An empty database."""
    return maintained(storage_at(database_uri, tmp_path / "local"))


@pytest.fixture
def app(service: Service) -> str:
    """An application with two documents, one with revisions, attachments, one of them large, and a draft."""
    app = f"db{next(_apps)}"
    for body in (b"<one/>", b"<two/>"):
        service.put(f"{app}/f/data/d/data.xml", body, **V1)
    service.put(f"{app}/f/data/d/large.bin", _LARGE, **V1)
    service.put(f"{app}/f/draft/d/data.xml", b"<draft/>", **V1)
    service.put(f"{app}/f/draft/d/large.bin", _LARGE[::-1], **V1)
    service.put(f"{app}/f/data/gone/data.xml", b"<gone/>", **V1)
    service.delete(f"{app}/f/data/gone/data.xml", **V1)
    return app


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(DATA | FORMS, min_size=1, max_size=12), st.integers(0, 12))
def test_there_and_back_is_the_same_tree(
    service: Service, database: MaintainedDatabase, tmp_path: Path, requests: Requests, pause: int
) -> None:
    app = f"any{next(_apps)}"
    send(service, app, requests[:pause])
    moved(service.data, database, f"{app}/f", lambda: send(service, app, requests[pause:]))
    back = Path(initialised(tmp_path / app))
    assert [each.cause for each in moved(database, back, app) if each.cause] == []
    assert tree(back) == of_app(service.data, app)
    assert list(filter(None, database.inspect(True, lambda *_: None))) == []


def test_a_move_leaves_the_forms_alone_that_another_one_has_begun(
    service: Service, database: MaintainedDatabase, app: str
) -> None:
    other = f"{app}-other"
    service.put(f"{other}/f/data/d/data.xml", b"<other/>", **V1)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        moved(service.data, database, app, interrupted)
    moved(service.data, database, other)
    assert database.arrivals.begun(str(service.data)) == {Form(app, "f")}
    assert all(each.result is TransferResult.THERE for each in moved(service.data, database, app))
    assert database.arrivals.begun(str(service.data)) == set()


def test_large_contents_and_drafts_go_there_and_back(
    service: Service, database: MaintainedDatabase, app: str, tmp_path: Path
) -> None:
    assert len(_LARGE) > limits.PIECE

    def meanwhile() -> None:
        service.put(f"{app}/f/draft/d/data.xml", b"<draft2/>", **V1)

    assert set(moved(service.data, database, app, meanwhile)) == {
        TransferOutcome(f"{app}/f/data/d", TransferResult.MOVED, placed=2, size=len(b"<draft2/>") + len(_LARGE)),
        TransferOutcome(f"{app}/f/data/gone", TransferResult.THERE),
    }
    moved(database, tmp_path / "back", app)
    assert of_app(tmp_path / "back", app) == of_app(service.data, app)
    assert list(filter(None, database.inspect(True, lambda *_: None))) == []
    assert not database.arrivals.begun(str(service.data))


def test_large_contents_with_one_content_id_are_moved_under_their_entity_tags(
    database: MaintainedDatabase, tmp_path: Path
) -> None:
    """As documents have that were imported under another name. Two contents in pieces cannot have one id."""
    form, files = Form("a", "f"), []
    with Store(initialised(tmp_path / "from"), lock_timeout=5) as store:
        for document in "de":
            main = DocumentAddress(form, Collection.DATA, document, DATA_XML)
            put(store, main, b"<d/>")
            files.append(main.moved(Collection.DATA, "large.bin"))
            put(store, files[-1], _LARGE, id="a" * 40)
    assert len(_LARGE) > limits.INLINE
    for _ in range(2):
        outcomes = moved(tmp_path / "from", database)
        assert [(each.result, each.cause) for each in outcomes] == [(TransferResult.THERE, "")] * 2
    assert list(filter(None, database.inspect(True, lambda *_: None))) == []
    moved(database, tmp_path / "to")
    with Store(str(tmp_path / "to"), lock_timeout=5) as store:
        for address in files:
            found = store.read(address, content=True)
            with found.opened as file:
                assert (found.etag, file.read()) == ("a" * 40, _LARGE)


def test_what_is_gone_from_a_database_is_removed_from_the_tree(
    service: Service, database: MaintainedDatabase, app: str, tmp_path: Path
) -> None:
    moved(service.data, database, app)
    data = DocumentAddress(Form(app, "f"), Collection.DATA, "d", DATA_XML)

    def meanwhile() -> None:
        with database.storage.writing(data) as writer:
            writer.discard_draft(data.form, "d")
            writer.discard_document(data.form, "d")

    assert results(moved(database, tmp_path / "back", app, meanwhile)) == [
        ("data/gone", TransferResult.THERE),
        ("data/d", TransferResult.REMOVED),
    ]
    assert {path.split("/")[3] for path in of_app(tmp_path / "back", app)} == {"gone"}


def test_drafts_that_an_earlier_move_has_stored_do_not_keep_a_later_one_from_its_end(
    service: Service, database: MaintainedDatabase, app: str, tmp_path: Path
) -> None:
    moved(service.data, database, app)
    before_drafts_come_and_go(service, app)
    moved(service.data, database, app)
    drafts_come_and_go(service, app)
    assert not [each.cause for each in moved(service.data, database, app) if each.cause]
    moved(database, tmp_path / "back", app)
    assert of_app(tmp_path / "back", app) == of_app(service.data, app)


def test_nobody_writes_while_writers_are_kept_out(
    service: Service, database: MaintainedDatabase, app: str, database_uri: str, tmp_path: Path
) -> None:
    moved(service.data, database, app)
    data = DocumentAddress(Form(app, "f"), Collection.DATA, "d", DATA_XML)
    other = storage_at(database_uri, tmp_path / "local")
    with database.keeping_writers_out() as require:
        with pytest.raises(BusyError, match="can only be read for now") as refused, other.writing(data):
            pass
        assert refused.value.retry_after > 0
        assert other.sidecar(data) is not None
        require()
    with other.writing(data):
        pass


def test_writers_that_are_writing_end_before_they_are_kept_out(
    service: Service, database: MaintainedDatabase, app: str, database_uri: str, tmp_path: Path
) -> None:
    moved(service.data, database, app)
    data = DocumentAddress(Form(app, "f"), Collection.DATA, "d", DATA_XML)
    other, events, writes = storage_at(database_uri, tmp_path / "local"), list[str](), threading.Event()

    def write() -> None:
        with other.writing(data):
            writes.set()
            threading.Event().wait(0.3)
            events.append("written")

    writer = threading.Thread(target=write)
    writer.start()
    writes.wait()
    with database.keeping_writers_out():
        events.append("kept out")
    writer.join()
    assert events == ["written", "kept out"]


def test_a_lost_connection_ends_the_move(
    service: Service, database: MaintainedDatabase, app: str, database_uri: str, tmp_path: Path
) -> None:
    moved(service.data, database, app)
    other = storage_at(database_uri, tmp_path / "local")
    with database.keeping_writers_out() as require:
        with other.database.apart("ending") as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"
                " AND granted AND ((classid::bigint << 32) | objid::bigint) = %s",
                (lock_key(other.database.address.schema, "read-only"),),  # others' tests have locks here, too
            )
        with pytest.raises(BusyError, match="whether writers are kept out"):
            require()
