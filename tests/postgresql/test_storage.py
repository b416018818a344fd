"""A storage in a database under races and faults: nothing is lost, nothing is half there, nothing hangs."""

from __future__ import annotations

import hashlib
import multiprocessing
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import errors as codes

from persistence import limits
from persistence.errors import (
    BusyError,
    ConfigurationError,
    DiskError,
    OutcomeUnknownError,
    PersistenceError,
    ReplacedError,
)
from persistence.limits import DEFINITIONS_FORESEEN
from persistence.model.addresses import FORM_XHTML, Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.texts import Instant
from persistence.postgresql import revision_rows
from persistence.postgresql.connections import parse
from persistence.postgresql.database_storage import CommitListener, DatabaseStorage
from persistence.providers import opened
from persistence.storage.commit import Upload
from tests.in_process import serving
from tests.opened import close
from tests.postgresql.server import Server, prepared, running
from tests.postgresql.storages import rows, storage_at
from tests.storage.contract import body, content, delete, next_sidecar, revision, write
from tests.waiting import eventually

FORM = Form("hr", "leave")
DATA = DocumentAddress(FORM, Collection.DATA, "D", "data.xml")
DRAFT = DATA.moved(Collection.DRAFT)
FILE = DATA.moved(Collection.DATA, "a.bin")
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def storage(storage_uri: str, tmp_path: Path) -> DatabaseStorage:
    return storage_at(storage_uri, tmp_path / "local", lock_timeout=1)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revision_rows, "INLINE", 10)
    monkeypatch.setattr(revision_rows, "PIECE", 1000)


def count_up(uri: str, local: str, rounds: int, clock: float) -> None:
    """Add one so many times to the number that a document holds, by a clock that is wrong, and without locks."""
    now = time.time_ns
    time.time_ns = lambda: now() + int(clock * 1e9)
    storage = storage_at(uri, Path(local), is_locked=False)
    for _ in range(rounds):
        while not added(storage):
            pass
    close(storage.database)


def added(storage: DatabaseStorage) -> bool:
    with suppress(ReplacedError), storage.upload(DATA) as upload:
        found = storage.read(DATA, content=True)
        number = 0 if found is None else int((content(found) or b"").decode()[6:-7])
        upload.write(body(DATA, str(number + 1)))
        with storage.writing(DATA) as writer:
            seen = None if found is None else storage.read(DATA, found.sidecar.modified, content=False)
            writer.commit(DATA, next_sidecar(upload, seen), upload, over=seen)
        return True
    return False


def test_no_update_is_lost_between_processes_whose_locks_hold_nobody(
    storage: DatabaseStorage, storage_uri: str, tmp_path: Path
) -> None:
    """By clocks that differ by an hour; every revision has its number and a later instant than the one before."""
    rounds = 12
    arguments = [(storage_uri, str(tmp_path / f"{clock}"), rounds, clock) for clock in (0.0, -3600.0)]
    processes = [SPAWN.Process(target=count_up, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    history = storage.history(DATA)
    instants = [history.instant(position) for position in range(history.total)][::-1]
    found = [content(storage.read(DATA, instant, content=True)) for instant in instants]
    assert found == [body(DATA, str(number)) for number in range(1, 2 * rounds + 1)]
    assert instants == sorted(set(instants))


def test_nothing_of_a_block_is_seen_before_its_end_and_all_of_it_by_itself(storage: DatabaseStorage) -> None:
    write(storage, DRAFT, "draft")
    with storage.upload(DATA) as upload, storage.upload(FILE) as second:
        upload.write(body(DATA, "one"))
        second.write(b"file")
        with storage.writing(DATA) as writer:
            writer.commit(DATA, next_sidecar(upload, None), upload, over=None)
            writer.commit(FILE, next_sidecar(second, None), second, over=None)
            writer.discard_draft(FORM, "D")
            assert content(storage.read(DATA, content=True)) == body(DATA, "one")
            assert storage.read(DRAFT, content=False) is None
            assert storage.names(DATA) == ["a.bin", "data.xml"]
            assert rows(storage) == {"1/D/data.xml"}
    assert rows(storage) == {"0/D/data.xml", "0/D/a.bin"}


def end_connection(storage: DatabaseStorage, server: Server) -> None:
    """End the connection of the block, on the server."""
    with storage.database.reading("looking") as connection:
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        server.execute(f"SELECT pg_terminate_backend({row[0]})")
        activity = f"SELECT 1 FROM pg_stat_activity WHERE pid = {row[0]}"  # noqa: S608 - a number
        eventually(lambda: not server.execute(activity))


@pytest.mark.parametrize("error", [KeyError, BusyError], ids=["an error", "a connection that is killed"])
def test_what_ends_a_block_leaves_everything_as_it_was(
    storage: DatabaseStorage, database_server: Server, error: type[Exception]
) -> None:
    write(storage, DATA, "one")
    write(storage, DRAFT, "draft")
    before = rows(storage)
    with storage.upload(DATA) as upload:
        upload.write(body(DATA, "two"))

        def save() -> None:
            with storage.writing(DATA) as writer:
                over = writer.current(DATA)
                writer.commit(DATA, next_sidecar(upload, over), upload, over=over)
                if error is BusyError:
                    end_connection(storage, database_server)
                writer.discard_draft(FORM, "D")
                raise KeyError("after it")

        with pytest.raises(error):
            save()
    assert rows(storage) == before
    assert content(storage.read(DATA, content=True)) == body(DATA, "one")
    write(storage, DATA, "three")
    assert content(storage.read(DATA, content=True)) == body(DATA, "three")


def test_a_statement_that_failed_is_never_committed_as_a_success(storage: DatabaseStorage) -> None:
    """Whoever has caught its error, and whether or not its result was asked for."""
    with storage.upload(DATA) as upload:
        upload.write(body(DATA, "one"))

        def save(*, is_fetched: bool) -> None:
            with storage.writing(DATA) as writer, storage.database.reading("looking") as connection:
                writer.commit(DATA, next_sidecar(upload, None), upload, over=None)
                if is_fetched:
                    with suppress(codes.UndefinedTable):
                        connection.execute("SELECT 1 FROM nowhere").fetchone()
                else:
                    connection.execute("SELECT 1 FROM nowhere")

        with pytest.raises(DiskError, match="nothing was stored, because a statement of the transaction has failed"):
            save(is_fetched=True)
        with pytest.raises(PersistenceError, match='relation "nowhere" does not exist'):
            save(is_fetched=False)
    assert rows(storage) == set()
    for number in range(8):  # on every connection that there is
        write(storage, DATA, str(number))


def write_often(storage: DatabaseStorage) -> None:
    for number in range(100):
        write(storage, DATA, str(number))


@pytest.mark.long
def test_a_synchronous_replica_that_is_given_up_is_no_success(tmp_path: Path) -> None:
    """The server says only by a warning that the commit is nowhere else."""
    with running() as server:
        storage = storage_at(prepared(server.uri("replicated")), tmp_path / "local")
        write(storage, DATA, "one")
        server.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        server.execute("SELECT pg_reload_conf()")

        def cancel() -> None:
            while not server.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            ):
                time.sleep(0.05)

        thread = threading.Thread(target=cancel)
        thread.start()
        try:
            with pytest.raises(OutcomeUnknownError, match="canceling wait for synchronous replication"):
                write_often(storage)  # the server reads its settings at some time
        finally:
            thread.join()
            server.execute("ALTER SYSTEM RESET synchronous_standby_names")
            server.execute("SELECT pg_reload_conf()")


def test_a_form_number_that_leads_nowhere_stores_nothing(storage: DatabaseStorage) -> None:
    """As after a failover that has lost the form's row: another form may have its number now."""
    write(storage, DATA, "one")
    with storage.database.apart("renumbering") as connection:
        connection.execute("UPDATE form SET app = 'other'")
    with pytest.raises(ReplacedError):
        write(storage, DATA, "two")
    assert list(storage.forms()) == [Form("other", "leave")]
    assert len(rows(storage)) == 1


@pytest.mark.usefixtures("pieces")
def test_contents_in_pieces_are_swept_when_no_revision_has_them(storage: DatabaseStorage) -> None:
    write(storage, DRAFT, "x" * 5000)
    write(storage, DRAFT, "y" * 5000)
    with storage.upload(FILE) as upload:
        upload.write(b"z" * 5000)
        upload.flush()
        assert len([each for each in rows(storage) if each.startswith(".spool")]) == 2
        # What is younger than an hour may be read still, or be on its way in.
        assert revision_rows.sweep(storage.database) == 0
    assert len([each for each in rows(storage) if each.startswith(".spool")]) == 1
    assert revision_rows.sweep(storage.database, 0) == 1
    assert rows(storage) == {"1/D/data.xml"}
    assert content(storage.read(DRAFT, content=True)) == body(DRAFT, "y" * 5000)


def commit_first(storage: DatabaseStorage, upload: Upload) -> None:
    with storage.writing(FILE) as writer:
        writer.commit(FILE, next_sidecar(upload, None), upload, over=None)


@pytest.mark.usefixtures("pieces")
def test_an_upload_of_which_not_all_pieces_were_stored_is_refused(
    storage: DatabaseStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with storage.upload(FILE) as upload:
        upload.write(b"z" * 5000)
        with monkeypatch.context() as broken:
            broken.setattr(revision_rows, "_PIECE", "INSERT INTO nowhere VALUES (%s, %s, %b)")
            with pytest.raises(ConfigurationError):
                upload.flush()
        with pytest.raises(DiskError, match="it failed before"):
            commit_first(storage, upload)
    assert rows(storage) == set()


@pytest.mark.usefixtures("pieces")
def test_an_upload_that_was_swept_is_refused(storage: DatabaseStorage) -> None:
    with storage.upload(FILE) as upload:
        upload.write(b"z" * 5000)
        upload.flush()
        revision_rows.sweep(storage.database, 0)
        with pytest.raises(BusyError, match="too long ago"):
            commit_first(storage, upload)
    assert rows(storage) == set()


@pytest.mark.usefixtures("pieces")
def test_a_content_in_pieces_is_read_while_it_is_replaced_and_discarded(storage: DatabaseStorage) -> None:
    write(storage, DRAFT, "x" * 50_000)
    with revision(storage.read(DRAFT, content=True)).opened as file:
        first = file.read(100)
        write(storage, DRAFT, "y")
        with storage.writing(DRAFT) as writer:
            writer.discard_draft(FORM, "D")
        assert first + file.read() == body(DRAFT, "x" * 50_000)
        revision_rows.sweep(storage.database, 0)
        file.seek(0)
        with pytest.raises(BusyError, match="was replaced while it was read"):
            file.read(20_000)


@pytest.mark.usefixtures("pieces")
def test_what_is_erased_is_gone_at_once_with_its_pieces(storage: DatabaseStorage) -> None:
    for address in (DATA, FILE, DRAFT, DATA):
        write(storage, address, "x" * 5000)
    write(storage, DRAFT, "y" * 5000)
    files = storage.document_files(FORM, "D")
    listed = [each.path for each in files.listed()]
    assert len(listed) == 5
    with storage.writing(DATA) as writer:
        writer.discard_document(FORM, "D")
        writer.discard_draft(FORM, "D")
        files.remove([])
    assert rows(storage) == set()
    assert list(files.listed()) == []


@pytest.mark.usefixtures("pieces")
def test_two_revisions_with_one_id_do_not_share_pieces(storage: DatabaseStorage) -> None:
    """An archive in which a document was given another name brings the ids of the document that is still there."""
    own = write(storage, FILE, "x" * 5000)
    other = replace(FILE, document="E")
    with storage.upload(other) as upload:
        upload.write(b"altered" * 1000)
        with storage.writing(other) as writer:
            stored = writer.commit(other, next_sidecar(upload, None, id=own.id), upload, over=None)
    assert (stored.etag, storage.sidecar(other)) == (own.etag, stored)
    assert content(storage.read(other, content=True)) == b"altered" * 1000
    with storage.writing(other) as writer:
        writer.discard_document(FORM, "E")
    assert content(storage.read(FILE, content=True)) == body(FILE, "x" * 5000)
    assert rows(storage) == {"0/D/a.bin"}


def test_a_page_of_a_long_history_reads_its_own_sidecars_only(storage: DatabaseStorage) -> None:
    write(storage, DATA, "one")
    with storage.database.apart("repeating") as connection:
        connection.execute(
            "INSERT INTO revision SELECT form, kind, folder, name, to_char(timestamp '2001-01-01' + n * interval '1 s',"
            ' \'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"\'), false, md5(n::text), sidecar, body FROM revision,'
            " generate_series(1, 10000) AS n"
        )
    listed = storage.history(DATA)
    assert listed.total == 10_001
    with storage.database.apart("spoiling") as connection:
        connection.execute("UPDATE revision SET sidecar = 'x' WHERE modified < '2001-01-01T02:40:00'")
    page = listed.page(100, 150)
    assert [each.instant for each in page] == [listed.instant(position) for position in range(100, 150)]
    assert None not in [each.sidecar for each in page]
    assert listed.page(9_990, 10_001)[0].sidecar is None
    assert listed.since(Instant("2001-01-01T01:00:00.000Z")) == 10_001 - 3_599


@pytest.mark.parametrize("keeps", [True, False])
def test_a_form_without_history_keeps_one_revision(storage_uri: str, tmp_path: Path, *, keeps: bool) -> None:
    storage = storage_at(storage_uri, tmp_path / "local", keeps_history=lambda _: keeps)
    definition = DefinitionAddress(FORM, 1, "form.xhtml")
    for address in (DATA, definition):
        for text in ("one", "two", "three"):
            write(storage, address, text)
    assert storage.history(DATA).total == (3 if keeps else 1)
    assert content(storage.read(DATA, content=True)) == body(DATA, "three")
    assert len(storage.revisions(definition)) == 2
    deleted = delete(storage, DATA)
    assert len(storage.revisions(DATA)) == (3 if keeps else 1)  # what a deletion keeps, the service removes
    with storage.writing(DATA) as writer:
        assert writer.remove_older(DATA, [*storage.revisions(DATA), deleted.modified]) == (3 if keeps else 1)
    assert storage.sidecar(DATA) == deleted


@pytest.mark.usefixtures("pieces")
def test_a_revision_is_rewritten_as_the_same(storage: DatabaseStorage) -> None:
    """Encrypted again, say: its instant and tag stay, and of the content before nothing is kept."""
    first, second = write(storage, DATA, "one" * 10), write(storage, DATA, "two" * 10)
    for instant, over in ((first.modified, first), (None, second)):
        for is_same in (True, False):
            with storage.upload(DATA) as upload:
                upload.write(body(DATA, "new" * 10))
                rewritten = next_sidecar(upload, None, modified=over.modified, created=over.created, tag=over.id)
                with storage.writing(DATA) as writer:
                    assert writer.rewrite(DATA, instant, over, rewritten, upload) is is_same
        found = revision(storage.read(DATA, over.modified, content=True))
        assert (found.etag, found.sidecar.modified) == (over.id, over.modified)
        assert content(found) == body(DATA, "new" * 10)
    revision_rows.sweep(storage.database, 0)
    assert rows(storage) == {"0/D/data.xml", f"0/D/data.xml/{first.modified}"}


class Listening(CommitListener):
    """Hears of changes, and fails where it is to."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []
        self.fails = False

    def changed(self, form: Form, document: str) -> None:
        self.heard.append((form, document))
        if self.fails:
            raise DiskError("the index")

    def published(self, form: Form, version: int) -> None:
        self.heard.append((form, version))


def test_the_index_hears_of_changes_before_the_commit_and_can_refuse_them(storage_uri: str, tmp_path: Path) -> None:
    listening = Listening()
    storage = storage_at(storage_uri, tmp_path / "local", listener=listening)
    write(storage, DATA, "one")
    write(storage, FILE, "of no interest")
    write(storage, DefinitionAddress(FORM, 3, "form.xhtml"), "one")
    write(storage, DefinitionAddress(FORM, 3, "logo.png"), "of no interest")
    assert listening.heard == [(FORM, "D"), (FORM, 3)]
    listening.fails = True
    with pytest.raises(DiskError, match="the index"):
        write(storage, DATA, "two")
    assert content(storage.read(DATA, content=True)) == body(DATA, "one")


def growth(uri: str, local: str, mebibytes: int) -> float:
    """Store a content and read it, in a process that has stored small ones; by how many mebibytes its memory grew."""
    storage = storage_at(uri, Path(local))
    for number in range(8):
        write(storage, FILE, str(number))
    before, sent, received = peak(), hashlib.sha256(), hashlib.sha256()
    with storage.upload(FILE) as upload:
        for number in range(mebibytes << 2):
            chunk = number.to_bytes(8, "big") * (1 << 15)
            sent.update(chunk)
            upload.write(chunk)
        upload.flush()
        with storage.writing(FILE) as writer:
            over = writer.current(FILE)
            writer.commit(FILE, next_sidecar(upload, over), upload, over=over)
    with revision(storage.read(FILE, content=True)).opened as file:
        while chunk := file.read(1 << 18):
            received.update(chunk)
    assert sent.digest() == received.digest()
    return (peak() - before) / (1 << 20)


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


@pytest.mark.parametrize("mebibytes", [32, pytest.param(256, marks=pytest.mark.long)])
def test_a_large_content_takes_little_memory(storage_uri: str, tmp_path: Path, mebibytes: int) -> None:
    with SPAWN.Pool(1) as pool:
        assert pool.apply(growth, (storage_uri, str(tmp_path), mebibytes)) < 16


@pytest.mark.parametrize("versions", [0, 1, DEFINITIONS_FORESEEN, DEFINITIONS_FORESEEN + 1])
def test_a_decision_knows_what_is_stored_when_it_begins(storage_uri: str, tmp_path: Path, versions: int) -> None:
    storage = storage_at(storage_uri, tmp_path / "local")
    definitions = [DefinitionAddress(FORM, version + 1, FORM_XHTML) for version in range(versions)]
    for address in (DRAFT, *definitions):
        write(storage, address, "one")
    asked: list[Address] = [DATA, DRAFT, *definitions, DefinitionAddress(FORM, 99, FORM_XHTML)]
    stored = [(storage.sidecar(each), storage.fingerprint(each)) for each in asked]
    listed = list(storage.fingerprints(FORM))
    with storage.deciding(DATA):
        assert [(storage.sidecar(each), storage.fingerprint(each)) for each in asked] == stored
        assert (list(storage.fingerprints(FORM)), list(storage.versions(FORM))) == (listed, [at for at, _ in listed])
    write(storage, DATA, "two")
    with storage.deciding(DATA):
        assert storage.sidecar(DATA) is not None


def test_a_publication_is_seen_in_its_own_block(storage_uri: str, tmp_path: Path) -> None:
    storage, definition = storage_at(storage_uri, tmp_path / "local"), DefinitionAddress(FORM, 1, FORM_XHTML)
    write(storage, definition, "one")
    with storage.deciding(DATA):
        before = storage.fingerprint(definition)
    write(storage, definition, "two")
    with storage.deciding(DATA):
        assert storage.fingerprint(definition) != before


_OLD = [f"{number:040x}" for number in range(25)]
_YOUNG = "f" * 40


def _leave(uri: str) -> None:
    address = parse(uri)
    with psycopg.connect(address.conninfo) as connection:
        connection.execute(f"SET search_path TO {address.schema}".encode())
        for content in (*_OLD, _YOUNG):
            seconds = 0 if content == _YOUNG else limits.UNCLAIMED_SECONDS + 60
            connection.execute(
                "INSERT INTO unclaimed (id, folder, since) VALUES (%s, 'd', now() - make_interval(secs => %s))",
                (content, seconds),
            )
            connection.execute("INSERT INTO piece (id, number, bytes) VALUES (%s, 0, 'x')", (content,))


def _left(uri: str, directory: Path) -> set[str]:
    return {each.removeprefix(".spool/") for each in rows(storage_at(uri, directory / "looking"))}


def test_a_quiet_service_sweeps(database_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(database_uri)
    _leave(database_uri)
    monkeypatch.setattr(opened, "SWEEP_EVERY", 0.05)
    with serving(tmp_path, place=database_uri, alone=True):
        eventually(lambda: _left(database_uri, tmp_path) == {_YOUNG})


def test_one_sweep_is_bounded(database_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = storage_at(database_uri, tmp_path / "local")
    _leave(database_uri)
    monkeypatch.setattr(revision_rows, "MOST_SWEPT", 2 * limits.SWEPT_AT_ONCE)
    revision_rows.sweep_all(storage.database)
    assert len(_left(database_uri, tmp_path)) == 1 + len(_OLD) - 2 * limits.SWEPT_AT_ONCE
    revision_rows.sweep_all(storage.database)
    assert _left(database_uri, tmp_path) == {_YOUNG}
