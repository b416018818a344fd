"""Moves between trees and databases: what is replaced, removed and refused in the destination, and who may write."""

import os
import tempfile
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
from persistence.storage.storage import Arrivals, MaintainedDatabase
from persistence.storage.store import Store, TreeArrivals
from tests import in_process
from tests.initialised import initialised
from tests.postgresql.server import requires_postgresql
from tests.postgresql.storages import storage_at
from tests.served import served
from tests.service import V1, Service
from tests.services.test_import_any_tree import DATA, FORMS, Requests, send
from tests.services.test_import_interrupted import killed
from tests.services.transferring import moved, tree
from tests.storage.contract import put

_apps = count()
_LARGE = b"0123456789abcdef" * 40_000
MOVED, THERE, REMOVED, REFUSED = map(TransferResult, ("moved", "there", "removed", "refused"))

service = served(alone=True)


@pytest.fixture
def database(database_uri: str, tmp_path: Path) -> MaintainedDatabase:
    """An empty database."""
    return maintained(storage_at(database_uri, tmp_path / "local"))


@pytest.fixture(params=["tree", pytest.param("database", marks=requires_postgresql)])
def to(request: pytest.FixtureRequest, tmp_path: Path) -> Path | MaintainedDatabase:
    """An empty destination."""
    return tmp_path / "to" if request.param == "tree" else request.getfixturevalue("database")


def arrivals(to: Path | MaintainedDatabase) -> Arrivals:
    return TreeArrivals(str(to)) if isinstance(to, Path) else to.storage.arrivals


def arrived(to: Path | MaintainedDatabase, app: str) -> dict[str, tuple[bytes, int]]:
    """The files of an application in a destination; those in a database as another move makes them."""
    if isinstance(to, Path):
        return of_app(to, app)
    assert list(filter(None, to.inspect(True, lambda *_: None))) == []
    with tempfile.TemporaryDirectory() as directory:
        assert [each.cause for each in moved(to, Path(directory, "back"), app) if each.cause] == []
        return of_app(Path(directory, "back"), app)


@pytest.fixture
def app(service: Service) -> str:
    """An application for one test, with a document of two revisions, an attachment and a draft."""
    app = f"app{next(_apps)}"
    for body in (b"<one/>", b"<two/>"):
        service.put(f"{app}/f/data/d/data.xml", body, **V1)
    service.put(f"{app}/f/data/d/scan.bin", b"scan", **V1)
    service.put(f"{app}/f/draft/d/data.xml", b"<draft/>", **V1)
    return app


def of_app(root: Path, app: str) -> dict[str, tuple[bytes, int]]:
    return {path: held for path, held in tree(root).items() if path.startswith(f"{app}/")}


def results(outcomes: list[TransferOutcome]) -> list[tuple[str, TransferResult]]:
    return [("/".join(each.name.split("/")[2:]), each.result) for each in outcomes]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(DATA | FORMS, min_size=1, max_size=12), st.integers(0, 12))
def test_there_and_back_is_the_same_tree(
    service: Service, to: Path | MaintainedDatabase, tmp_path: Path, requests: Requests, pause: int
) -> None:
    """Whatever is stored, byte for byte; some requests come between the two passes."""
    app = f"any{next(_apps)}"
    there = to / app if isinstance(to, Path) else to
    send(service, app, requests[:pause])
    moved(service.data, there, f"{app}/f", lambda: send(service, app, requests[pause:]))
    assert arrived(there, app) == of_app(service.data, app)
    moved(there, tmp_path / f"back-{app}", app)
    assert of_app(tmp_path / f"back-{app}", app) == of_app(service.data, app)


def test_a_draft_that_was_discarded_since_the_first_pass_is_removed(service: Service, app: str, tmp_path: Path) -> None:
    service.put(f"{app}/f/draft/e/data.xml", b"<draft/>", **V1)

    def meanwhile() -> None:
        assert service.delete(f"{app}/f/draft/e/data.xml", **V1).status == 204
        assert service.put(f"{app}/f/data/d/data.xml", b"<three/>", **V1).status == 204  # which removes its draft

    outcomes = moved(service.data, tmp_path / "to", app, meanwhile)
    assert results(outcomes) == [("data/d", MOVED), ("data/e", REMOVED)]
    assert of_app(tmp_path / "to", app) == of_app(service.data, app)
    assert not TreeArrivals(str(tmp_path / "to")).begun(str(service.data))


def interrupted() -> None:
    raise KeyboardInterrupt


def test_a_move_leaves_the_forms_alone_that_another_one_has_begun(
    service: Service, app: str, to: Path | MaintainedDatabase
) -> None:
    other = f"{app}-other"
    service.save(f"{other}/f", "d", b"<other/>")
    with pytest.raises(KeyboardInterrupt):
        moved(service.data, to, app, interrupted)
    moved(service.data, to, other)
    assert arrived(to, app) == of_app(service.data, app)
    assert arrivals(to).begun(str(service.data)) == {Form(app, "f")}
    assert {each.result for each in moved(service.data, to, app)} == {THERE}
    assert arrivals(to).begun(str(service.data)) == set()


def test_older_revisions_that_were_purged_since_are_removed(service: Service, app: str, tmp_path: Path) -> None:
    def meanwhile() -> None:
        data = DocumentAddress(Form(app, "f"), Collection.DATA, "d", DATA_XML)
        with Store(str(service.data), lock_timeout=5) as store, store.writing(data) as writer:
            assert writer.remove_older(data, store.revisions(data)) == 1

    assert results(moved(service.data, tmp_path / "to", app, meanwhile)) == [("data/d", MOVED)]
    assert of_app(tmp_path / "to", app) == of_app(service.data, app)


def drafts_come_and_go(service: Service, app: str) -> None:
    """Save and discard drafts that a move has seen, and store others."""
    assert service.put(f"{app}/f/data/saved/data.xml", b"<saved/>", **V1).status == 201
    assert service.delete(f"{app}/f/draft/discarded/data.xml", **V1).status == 204
    assert service.delete(f"{app}/f/draft/d/data.xml", **V1).status in (204, 404)
    for path in ("draft/again/data.xml", "draft/new/data.xml", "data/d/data.xml", "draft/d/data.xml"):
        assert service.put(f"{app}/f/{path}", b"<again/>", **V1).status in (201, 204)


def before_drafts_come_and_go(service: Service, app: str) -> None:
    for name in ("saved", "discarded", "again", "d"):
        service.put(f"{app}/f/draft/{name}/scan.bin", b"scan", **V1)
        assert service.put(f"{app}/f/draft/{name}/data.xml", b"<draft/>", **V1).status in (201, 204)


@pytest.mark.parametrize("is_killed", [False, True])
def test_drafts_that_an_earlier_move_has_stored_do_not_keep_a_later_one_from_its_end(
    service: Service, app: str, to: Path | MaintainedDatabase, *, is_killed: bool
) -> None:
    """The destination is not the move's own any more after the first, but these drafts are."""
    moved(service.data, to, app)
    before_drafts_come_and_go(service, app)
    if is_killed:
        with pytest.raises(KeyboardInterrupt):
            moved(service.data, to, app, interrupted)
    else:
        moved(service.data, to, app)
    drafts_come_and_go(service, app)
    assert not [each.cause for each in moved(service.data, to, app) if each.cause]
    assert arrived(to, app) == of_app(service.data, app)


def test_a_draft_that_somebody_else_has_changed_in_the_destination_stays(
    service: Service, app: str, tmp_path: Path
) -> None:
    before_drafts_come_and_go(service, app)
    with in_process.serving(tmp_path / "to", alone=True) as other:
        moved(service.data, other.data, app)
        assert other.put(f"{app}/f/draft/discarded/data.xml", b"<theirs/>", **V1).status == 204
        assert other.put(f"{app}/f/draft/again/other.bin", b"theirs", **V1).status == 201
        drafts_come_and_go(service, app)
        causes = [each.cause for each in moved(service.data, other.data, app) if each.cause]
        assert causes == [f"{app}/f/data/again has a draft in the destination that would be lost"]
        assert other.get(f"{app}/f/draft/discarded/data.xml").body == b"<theirs/>"
        assert other.get(f"{app}/f/draft/again/other.bin").body == b"theirs"


def test_drafts_from_another_source_stay(service: Service, app: str, tmp_path: Path) -> None:
    """Two places are collected in one: what the second lacks came from the first."""
    service.put(f"{app}/f/draft/first/data.xml", b"<first/>", **V1)
    with in_process.serving(tmp_path / "second", alone=True) as second:
        second.put(f"{app}/g/draft/second/data.xml", b"<second/>", **V1)
        for source in (service.data, second.data, service.data):
            assert not [each.cause for each in moved(source, tmp_path / "to", app) if each.cause]
    for path in ("f/draft/first", "g/draft/second"):
        assert f"{path}/data.xml" in " ".join(of_app(tmp_path / "to", app)), path


def test_what_others_have_stored_in_the_destination_stays(service: Service, app: str, tmp_path: Path) -> None:
    """After a whole move the destination is not the move's own any more."""
    with in_process.serving(tmp_path / "to", alone=True) as other:
        moved(service.data, other.data, app)
        assert other.put(f"{app}/f/data/d/data.xml", b"<theirs/>", **V1).status == 204
        assert other.put(f"{app}/f/data/theirs/data.xml", b"<theirs/>", **V1).status == 201
        service.put(f"{app}/f/data/d/data.xml", b"<ours/>", **V1)
        outcomes = moved(service.data, other.data, app)
        assert [(each.result, each.cause) for each in outcomes] == [
            (REFUSED, f"{app}/f/data/d has other revisions in the destination")
        ]
        assert other.get(f"{app}/f/data/d/data.xml").body == b"<theirs/>"
        assert other.get(f"{app}/f/data/theirs/data.xml").status == 200


def test_a_body_with_a_wrong_digest_is_refused_and_the_rest_goes_on(service: Service, app: str, tmp_path: Path) -> None:
    for name in ("a", "z"):
        service.put(f"{app}/f/data/{name}/data.xml", b"<d/>", **V1)
    content = service.data / app / "f/data/d/scan.bin"
    before = content.stat()
    with content.open("r+b") as file:
        file.write(b"sc4n")
    os.utime(content, ns=(before.st_atime_ns, before.st_mtime_ns))
    outcomes = moved(service.data, tmp_path / "to", app)
    assert sorted(results(outcomes)) == [("data/a", THERE), ("data/d", REFUSED), ("data/z", THERE)]
    cause = next(each.cause for each in outcomes if each.cause)
    assert cause.startswith(f"{app}/f/data/d/scan.bin of ")
    assert "does not have the digest of its sidecar" in cause
    assert {path.split("/")[3] for path in of_app(tmp_path / "to", app)} == {"a", "z"}
    with content.open("r+b") as file:
        file.write(b"scan")
    os.utime(content, ns=(before.st_atime_ns, before.st_mtime_ns))
    moved(service.data, tmp_path / "to", app)
    assert of_app(tmp_path / "to", app) == of_app(service.data, app)


def test_an_edit_by_hand_is_refused(service: Service, app: str, tmp_path: Path) -> None:
    (service.data / app / "f/data/d/data.xml").write_bytes(b"<by-hand/>")
    (outcome,) = moved(service.data, tmp_path / "to", app)
    assert "edited by hand" in outcome.cause


def test_nobody_writes_while_writers_are_kept_out(service: Service, app: str) -> None:
    with Store(str(service.data), lock_timeout=5) as store, store.keeping_writers_out():
        for refused in (
            service.put(f"{app}/f/data/d/data.xml", b"<three/>", **V1),
            service.delete(f"{app}/f/data/d/scan.bin", **V1),
            service.put(f"{app}/f/form/form.xhtml", b"<html/>", **V1),
        ):
            assert refused.status in {400, 503}
            assert refused.status == 400 or refused["Retry-After"]
        assert service.put(f"{app}/f/data/d/data.xml", b"<three/>", **V1).cause.endswith("can only be read for now")
        assert service.get(f"{app}/f/data/d/data.xml").body == b"<two/>"
        with (
            Store(str(service.data), lock_timeout=0.1) as other,
            pytest.raises(BusyError, match="somebody else"),
            other.keeping_writers_out(),
        ):
            pass
    assert service.put(f"{app}/f/data/d/data.xml", b"<three/>", **V1).status == 204


def test_a_lock_file_that_was_removed_ends_the_move(service: Service) -> None:
    with Store(str(service.data), lock_timeout=5) as store, store.keeping_writers_out() as require:
        require()
        (service.data / ".locks/read-only").unlink()
        with pytest.raises(BusyError, match="removed meanwhile"):
            require()


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
def test_a_move_that_is_killed_at_any_step_goes_on(service: Service, app: str, tmp_path: Path, every: int) -> None:
    expected = of_app(service.data, app)
    for at in count(1, every):
        root = Path(initialised(tmp_path / str(at)))
        was_killed = killed(at, moved, service.data, root, app)
        moved(service.data, root, app)
        data = DocumentAddress(Form(app, "f"), Collection.DATA, "d", DATA_XML)
        with Store(str(root), lock_timeout=5) as store, store.writing(data) as writer:
            writer.finish(data)  # as the next writer of the file would
            writer.finish(data.moved(Collection.DRAFT))
        assert of_app(root, app) == expected, at
        with Store(str(service.data), lock_timeout=5) as store, store.writing(data):
            pass  # it keeps nobody out any more
        if not was_killed:
            break
    assert at > 20


# What only a database has: contents in pieces, and its own locks


def test_large_contents_and_drafts_go_there_and_back(service: Service, database: MaintainedDatabase, app: str) -> None:
    assert len(_LARGE) > limits.PIECE
    service.put(f"{app}/f/data/d/large.bin", _LARGE, **V1)
    service.put(f"{app}/f/draft/d/large.bin", _LARGE[::-1], **V1)
    service.save(f"{app}/f", "gone")
    service.delete(f"{app}/f/data/gone/data.xml", **V1)

    def meanwhile() -> None:
        service.put(f"{app}/f/draft/d/data.xml", b"<draft2/>", **V1)

    assert set(moved(service.data, database, app, meanwhile)) == {
        TransferOutcome(f"{app}/f/data/d", TransferResult.MOVED, placed=2, size=len(b"<draft2/>") + len(_LARGE)),
        TransferOutcome(f"{app}/f/data/gone", TransferResult.THERE),
    }
    assert arrived(database, app) == of_app(service.data, app)
    assert not database.storage.arrivals.begun(str(service.data))


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
    service.save(f"{app}/f", "other")
    moved(service.data, database, app)
    data = DocumentAddress(Form(app, "f"), Collection.DATA, "d", DATA_XML)

    def meanwhile() -> None:
        with database.storage.writing(data) as writer:
            writer.discard_draft(data.form, "d")
            writer.discard_document(data.form, "d")

    assert results(moved(database, tmp_path / "back", app, meanwhile)) == [("data/other", THERE), ("data/d", REMOVED)]
    assert {path.split("/")[3] for path in of_app(tmp_path / "back", app)} == {"other"}


def test_nobody_writes_to_a_database_while_writers_are_kept_out(
    service: Service, database: MaintainedDatabase, app: str, database_uri: str, tmp_path: Path
) -> None:
    moved(service.data, database, app)
    data = DocumentAddress(Form(app, "f"), Collection.DATA, "d", DATA_XML)
    other = storage_at(database_uri, tmp_path / "local")
    with database.storage.keeping_writers_out() as require:
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
    with database.storage.keeping_writers_out():
        events.append("kept out")
    writer.join()
    assert events == ["written", "kept out"]


def test_a_lost_connection_ends_the_move(
    service: Service, database: MaintainedDatabase, app: str, database_uri: str, tmp_path: Path
) -> None:
    moved(service.data, database, app)
    other = storage_at(database_uri, tmp_path / "local")
    with database.storage.keeping_writers_out() as require:
        with other.database.apart("ending") as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"
                " AND granted AND ((classid::bigint << 32) | objid::bigint) = %s",
                (lock_key(other.database.address.schema, "read-only"),),  # others' tests have locks here, too
            )
        with pytest.raises(BusyError, match="whether writers are kept out"):
            require()
