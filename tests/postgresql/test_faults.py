"""Faults of a database, as a client and an administrator meet them: one clear line each, and the service goes on.

No answer and no log has a password or a traceback; an answer of 503 says when to try again.
"""

from __future__ import annotations

import http.client
import re
import select
import shutil
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from persistence.errors import BusyError, OutcomeUnknownError
from persistence.postgresql import connections
from persistence.postgresql.database import Database
from tests import orders
from tests import service as services
from tests.in_process import serving
from tests.opened import opened
from tests.orders import named
from tests.postgresql import server as postgresql
from tests.postgresql.server import DATABASE, PASSWORD, Server, fresh_schema, require_no_password, stopped
from tests.rigs import disks
from tests.service import Answer, Service, running
from tests.waiting import at_once, eventually

pytestmark = pytest.mark.xdist_group("database-faults")  # they share a server

DOCUMENT = "acme/order/data/D/data.xml"
PATIENCE = 20.0
"""Seconds in which every request is answered, whatever the database does."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that tests may do anything to, as long as it is whole again at their end."""
    with postgresql.running() as server:
        yield server


@dataclass
class ServedDatabase:
    service: Service
    server: Server
    schema: str

    def get(self) -> Answer:
        return self.service.get(DOCUMENT)

    def put(self, name: str, **headers: str) -> Answer:
        own = {header.replace("_", "-"): value for header, value in headers.items()}
        return self.service.put(DOCUMENT, named(name), own, Form_Definition_Version="1")

    def execute(self, statement: str) -> None:
        self.server.execute(statement)

    def end_connections(self) -> None:
        self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'keeper'")

    def is_ready(self) -> Answer:
        return self.service.raw("GET", "/readyz")


def unavailable(answer: Answer, text: str, status: int = 503) -> None:
    """The answer is one line that has a text, and no password; the client is told when to try again."""
    assert (answer.status, answer["Content-Type"]) == (status, "text/plain; charset=utf-8"), answer.body
    assert text in answer.cause
    assert "\n" not in answer.cause
    assert "Traceback" not in answer.cause
    assert "psycopg" not in answer.cause
    require_no_password(answer.cause)
    assert status != 503 or int(answer["Retry-After"] or 0) > 0


@contextmanager
def served(
    directory: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    *,
    uri: str = "",
    start: Callable[..., AbstractContextManager[Service]] = serving,
    patience: float = 1,
) -> Iterator[ServedDatabase]:
    """A service with a form and a document, for the length of a block, which waits so many seconds for locks."""
    name = fresh_schema()
    uri = uri or server.uri(name)
    with ExitStack() as stack, monkeypatch.context() as patched:
        patched.setattr(services, "place_of", lambda _: uri.replace("SCHEMA", name))
        env = {"PERSISTENCE_LOCAL": str(directory / "local"), "PERSISTENCE_LOCK_TIMEOUT": str(patience)}
        service: Service = stack.enter_context(start(directory, env=env))
        asked = ServedDatabase(service, server, name)
        assert service.put("acme/order/form/form.xhtml", orders.definition()).status == 201
        assert asked.put("Ada").status == 201
        yield asked


@pytest.fixture
def asked(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedDatabase]:
    """A service that waits shortly for the database."""
    monkeypatch.setattr("persistence.postgresql.connections.CONNECT_SECONDS", 1)
    with served(tmp_path, server, monkeypatch) as asked:
        yield asked


@pytest.fixture
def hasty(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedDatabase]:
    """A service that waits for the database as shortly as it can."""
    monkeypatch.setattr("persistence.postgresql.connections.CONNECT_SECONDS", 0.3)
    with served(tmp_path, server, monkeypatch, patience=0.3) as asked:
        yield asked


def test_a_database_that_can_only_be_read_is_read(asked: ServedDatabase) -> None:
    """As a replica by mistake, or one that was made read-only while its disk fills."""
    asked.execute("ALTER ROLE keeper SET default_transaction_read_only = on")
    asked.end_connections()
    try:
        recovers(asked)
        unavailable(asked.put("Bob"), "the database can only be read: it is a replica, or made read-only")
        unavailable(asked.is_ready(), "can only be read")
    finally:
        asked.execute("ALTER ROLE keeper RESET default_transaction_read_only")
        asked.end_connections()
    recovers(asked)
    becomes_ready(asked)
    assert asked.put("Bob").status == 204


def test_a_password_that_changes_and_connections_that_are_refused_say_nothing_of_it(
    hasty: ServedDatabase, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for fault, mend, text in (
        ("PASSWORD 'another'", f"PASSWORD '{PASSWORD}'", "password authentication failed"),
        ("CONNECTION LIMIT 0", "CONNECTION LIMIT -1", "too many connections for role"),
        ("NOLOGIN", "LOGIN", "is not permitted to log in"),
    ):
        hasty.execute(f"ALTER ROLE keeper {fault}")
        hasty.end_connections()
        try:
            unavailable(hasty.get(), "")  # a connection may end while it is used
            unavailable(hasty.get(), text)
            unavailable(hasty.is_ready(), "no connection to database forms at 127.0.0.1")
        finally:
            hasty.execute(f"ALTER ROLE keeper {mend}")
        assert text in caplog.text
        recovers(hasty)
    require_no_password(caplog.text + "".join(capfd.readouterr()))


def recovers(asked: ServedDatabase) -> None:
    """The service finds the database again by itself, soon, and reads what is stored."""

    def is_served() -> bool:
        answer = asked.get()
        if answer.status != 200:
            unavailable(answer, "")
            return False
        return answer.body == named("Ada")

    eventually(is_served, PATIENCE)


def becomes_ready(asked: ServedDatabase) -> None:
    """The service finds out that it can store; what it found before counts for two seconds."""
    eventually(lambda: asked.is_ready().status == 200, PATIENCE)


@contextmanager
def locked(asked: ServedDatabase, table: str) -> Iterator[None]:
    conninfo = f"host={asked.server.directory} port={asked.server.port} dbname={DATABASE} user=admin"
    with psycopg.connect(conninfo) as connection:
        connection.execute(f"LOCK TABLE {asked.schema}.{table} IN ACCESS EXCLUSIVE MODE".encode())
        yield
        connection.rollback()


def test_who_waits_for_a_lock_too_long_is_busy(asked: ServedDatabase) -> None:
    with locked(asked, "revision"):
        began = time.monotonic()
        unavailable(asked.get(), "another request has the lock")
        unavailable(asked.put("Bob"), "another request has the lock")
        assert time.monotonic() - began < PATIENCE
    recovers(asked)


def test_a_statement_that_takes_too_long_is_ended(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("persistence.postgresql.connections.STATEMENT_SECONDS", 0.3)
    with served(tmp_path, server, monkeypatch) as asked:
        with locked(asked, "revision"):
            unavailable(asked.get(), "the database took too long")
        recovers(asked)


def test_all_connections_in_use_keep_nobody_for_ever(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = Database.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "most_connections", 2)
    monkeypatch.setattr("persistence.postgresql.connections.CONNECT_SECONDS", 0.5)
    monkeypatch.setattr("persistence.postgresql.connections.STATEMENT_SECONDS", 4)
    with served(tmp_path, server, monkeypatch) as asked:
        asked.execute("ALTER ROLE keeper SET lock_timeout = 0")
        with locked(asked, "revision"):
            answers = at_once(*[asked.get] * 4, seconds=PATIENCE)
            for answer in answers:
                unavailable(answer, "")
            assert "no connection to database" in "".join(each.cause for each in answers)
        recovers(asked)


def test_a_server_that_is_stopped_keeps_no_thread_past_its_deadline(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it twice, where a request would try again, or give up what it has begun."""
    for name in ("STATEMENT_SECONDS", "STATEMENT_ANSWER_SECONDS"):
        monkeypatch.setattr(f"persistence.postgresql.connections.{name}", 2)
    monkeypatch.setattr("persistence.postgresql.connections.CONNECT_SECONDS", 1)
    uri = f"{server.uri('SCHEMA')}&connect_timeout=2"
    with served(tmp_path, server, monkeypatch, uri=uri) as asked:
        kinds: list[Callable[[], Answer]] = [
            asked.get,
            lambda: asked.put("Bob"),
            lambda: asked.service.put("acme/order/data/D/large.bin", b"x" * 600_000),
            lambda: asked.service.delete(DOCUMENT),
            lambda: asked.service.get("acme/order/form/form.xhtml"),
            lambda: asked.service.raw("POST", "/fr/service/persistence/search/acme/order", {}, b"<search/>"),
            asked.is_ready,
        ]
        with locked(asked, "revision"):  # as many connections as requests
            at_once(*[asked.get] * 4, seconds=PATIENCE)
        with stopped(server):
            began = time.monotonic()
            for answer in at_once(*kinds[:4], seconds=PATIENCE):
                unavailable(answer, "the server has not answered for")
            assert time.monotonic() - began < 4 + 3
            began = time.monotonic()
            for answer in at_once(*kinds[3:], seconds=PATIENCE):
                unavailable(answer, "")
            assert time.monotonic() - began < 4
            assert asked.service.raw("GET", "/healthz").status == 200
        recovers(asked)
        assert asked.put("Bob").status == 204


@contextmanager
def unconfirmed(server: Server) -> Iterator[None]:
    """Let commits wait for a synchronous replica that is not there."""
    try:
        server.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "postgres")
        server.execute("SELECT pg_reload_conf()", "postgres")
        while server.execute("SHOW synchronous_standby_names", "postgres") != [("nobody",)]:
            time.sleep(0.01)
        yield
    finally:
        server.execute("ALTER SYSTEM RESET synchronous_standby_names", "postgres")
        server.execute("SELECT pg_reload_conf()", "postgres")


def test_a_save_that_no_replica_confirms_ends_and_others_do_not_begin(asked: ServedDatabase) -> None:
    assert asked.is_ready().status == 200
    with unconfirmed(asked.server):
        began = time.monotonic()
        unavailable(asked.put("Bob"), "the commit was not confirmed (no synchronous replica has answered for 1.")
        assert 0.9 < time.monotonic() - began < 4
        assert asked.get().body == named("Ada")
        unavailable(asked.put("Cid"), "no synchronous replica confirms commits")
        unavailable(asked.is_ready(), "no synchronous replica confirms commits")
        began = time.monotonic()
        large = asked.service.put("acme/order/data/D/large.bin", b"x" * 600_000)
        for answer in (asked.put("Cid"), asked.is_ready(), large):
            unavailable(answer, "no synchronous replica confirms commits")
        assert time.monotonic() - began < 6
    becomes_ready(asked)
    assert asked.get().body == named("Bob")
    assert asked.put("Cid").status == 204


@pytest.mark.parametrize("is_forwarded", [True, False])
def test_a_commit_that_is_cut_is_found_out_by_the_entity_tag(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, *, is_forwarded: bool
) -> None:
    with cutting(server.port, is_forwarded=is_forwarded) as (port, armed):
        uri = server.uri("SCHEMA").replace(f":{server.port}/", f":{port}/")
        with served(tmp_path, server, monkeypatch, uri=uri) as asked:
            for name in ("Amy", "Ada"):  # statements that are repeated are sent by a name
                for _ in range(6):
                    assert asked.put(name).status == 204
            asked.service.put(DOCUMENT.replace("data", "draft", 1), named("Zoe"))
            before = asked.get()["ETag"] or ""
            armed.set()
            unavailable(asked.put("Bob", If_Match=before), "whether it is stored, the entity tag says")
            found = asked.get()
            assert (found.body, found["ETag"] != before) == (
                (named("Bob"), True) if is_forwarded else (named("Ada"), False)
            )
            assert asked.service.get(DOCUMENT.replace("data", "draft", 1)).status == (404 if is_forwarded else 200)
            again = asked.put("Bob", If_Match=before)
            assert again.status == (412 if is_forwarded else 204)
            assert asked.get().body == named("Bob")


def test_a_disk_that_is_full_is_507_and_what_was_stored_stays(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks.require(disks.TMPFS, tmp_path)
    with disks.mounted(disks.TMPFS, server.directory) as disk:
        own = disk / "space"
        own.mkdir()
        if (owner := postgresql.owner()) is not None:
            shutil.chown(own, owner)
        server.execute(f"CREATE TABLESPACE small LOCATION '{own}'", "postgres")
        server.execute("GRANT CREATE ON TABLESPACE small TO keeper", "postgres")
        server.execute("ALTER ROLE keeper SET default_tablespace = small", "postgres")
        try:
            with served(tmp_path, server, monkeypatch) as asked:
                disks.fill(disk / "fill")
                answers = [
                    asked.service.put(f"acme/order/data/{number}/data.xml", named("x" * 50_000)) for number in range(40)
                ]
                full = [answer for answer in answers if answer.status != 201]
                assert full
                for answer in full:
                    unavailable(answer, "could not extend file", 507)
                assert asked.get().body == named("Ada")
                (disk / "fill").unlink()
                assert asked.put("Bob").status == 204
                assert asked.get().body == named("Bob")
                server.execute(f"DROP SCHEMA {asked.schema} CASCADE")
        finally:
            server.execute("ALTER ROLE keeper RESET default_tablespace", "postgres")
            server.execute("DROP TABLESPACE small", "postgres")


@pytest.mark.parametrize(
    ("start", "how"),
    [
        (serving, signal.SIGQUIT),
        pytest.param(running, signal.SIGQUIT, marks=pytest.mark.long),
        pytest.param(running, signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_a_server_that_crashes_or_is_restarted_is_found_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: Callable[..., AbstractContextManager[Service]],
    how: signal.Signals,
) -> None:
    """The log of a service says nothing of passwords, and has no traceback."""
    with postgresql.running() as own, served(tmp_path, own, monkeypatch, start=start) as asked:
        own.stop(how)
        for answer in at_once(asked.get, asked.get, asked.is_ready, lambda: asked.put("Bob"), seconds=PATIENCE):
            unavailable(answer, "")
        said = asked.put("Bob")
        unavailable(said, f"no connection to database forms at 127.0.0.1:{own.port} as keeper")
        assert " within 2." in said.cause  # and not the five seconds that a connection may take
        assert asked.service.raw("GET", "/healthz").status == 200
        asked.server = postgresql.start(own.directory, port=own.port)
        recovers(asked)
        assert asked.put("Bob").status == 204
        if start is running:
            log = asked.service.log.read_text()
            require_no_password(log)
            assert "Traceback" not in log
            assert "psycopg" not in log


@pytest.mark.parametrize("path", ["data/D/large.bin", "data/L/data.xml?nonrelevant=remove"])
def test_a_content_that_is_erased_while_it_is_sent_breaks_off_without_a_traceback(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    large = b"<form><customer><name>" + b"x" * (24 << 20) + b"</name></customer></form>"
    with served(tmp_path, server, monkeypatch, start=running) as asked:
        own = {"Content-Type": "application/octet-stream"}
        stored = asked.service.put(f"acme/order/{path.partition('?')[0]}", large, own, Form_Definition_Version="1")
        assert stored.status == 201
        connection = http.client.HTTPConnection("127.0.0.1", asked.service.port, timeout=30)
        with closing(connection):
            connection.request("GET", f"{asked.service.face}/crud/acme/order/{path}")
            response = connection.getresponse()
            assert (response.status, int(response.headers["Content-Length"])) == (200, len(large))
            begun = response.read(1000)
            asked.execute(f"DELETE FROM {asked.schema}.piece")  # noqa: S608 - a schema of the test
            with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
                response.read()
            assert begun == large[:1000]
        broken = [line for line in asked.service.log.read_text().splitlines() if '"event":"request"' not in line]
        assert [line for line in broken if "was replaced while it was read" in line] == broken[-1:]
        assert '"event":"answer-broken-off"' in broken[-1]
        assert "Traceback" not in asked.service.log.read_text()
        unavailable(asked.service.get(f"acme/order/{path}"), "was replaced while it was read")
        assert asked.get().status == 200


@pytest.fixture
def database(server: Server, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A schema, of which the server has a second to answer."""
    for name in ("STATEMENT_SECONDS", "STATEMENT_ANSWER_SECONDS"):
        monkeypatch.setattr(f"persistence.postgresql.connections.{name}", 1)
    return opened(Database(postgresql.prepared(f"{server.uri('stopped')}&connect_timeout=2"), lock_timeout=1))


def test_a_commit_that_is_not_answered_has_an_unknown_outcome(server: Server, database: Database) -> None:
    def save() -> None:
        with database.transaction("saving", "a form") as connection:
            connection.execute("INSERT INTO form (app, name) VALUES ('a', 'b')")
            began.append(time.monotonic())
            stop.__enter__()

    began: list[float] = []
    stop = stopped(server)
    try:
        with pytest.raises(OutcomeUnknownError, match=r"saving a form: .* lost within the commit"):
            save()
        assert time.monotonic() - began[0] < 10
    finally:
        stop.__exit__(None, None, None)
    with database.reading("asking") as connection:
        assert connection.execute("SELECT count(*) FROM form").fetchone() in {(0,), (1,)}


def test_the_waits_of_a_transaction_have_one_deadline(database: Database) -> None:
    """A disk that is slow lets each statement of a save wait; all of them may not wait as long as each."""

    def save(statements: int) -> None:
        with database.transaction("saving", first=None) as connection:
            for _ in range(statements):
                connection.execute("SELECT pg_sleep(0.7)").fetchone()

    began = time.monotonic()
    with pytest.raises(BusyError, match=r"saving: the database cannot be had: the server has not answered for"):
        save(10)
    assert time.monotonic() - began < 4
    save(2)  # the next one has all of the time


_SLOW_COMMIT = """
CREATE FUNCTION stopped.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1.4); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON stopped.form DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION stopped.slow()
"""


def test_after_a_slow_commit_one_is_tried_out(
    server: Server, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the next one begins, that is; while it is tried out, nothing is refused that could be stored."""
    monkeypatch.setattr("persistence.postgresql.connections.STATEMENT_SECONDS", 5)
    tried: list[bool] = []
    monkeypatch.setattr(connections, "_is_confirmed", lambda _: tried.append(True) or True)
    server.execute(_SLOW_COMMIT)
    try:
        database.require_committing()
        assert not tried
        with database.transaction("saving", first=None) as connection:
            connection.execute("INSERT INTO form (app, name) VALUES ('slow', 'b')")
        for _ in range(3):
            database.require_committing()
        assert tried == [True]
    finally:
        server.execute("DROP TRIGGER slow ON stopped.form; DROP FUNCTION stopped.slow()")


@contextmanager
def cutting(target: int, *, is_forwarded: bool) -> Iterator[tuple[int, threading.Event]]:
    """Forward everything to a port; once armed, a commit is forwarded or not, and its connection cut."""
    armed = threading.Event()

    class Forwarding(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", target)) as server:
                self._forward(self.request, server)

        def _forward(self, client: socket.socket, server: socket.socket) -> None:
            is_cutting, names = False, set[bytes]()
            while True:
                for each in select.select([client, server], [], [])[0]:
                    data = each.recv(1 << 16)
                    if not data or (is_cutting and each is server):  # committed
                        return
                    if each is client and _is_commit(data, names) and armed.is_set():
                        armed.clear()
                        if not is_forwarded:
                            return
                        is_cutting = True
                    (server if each is client else client).sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Forwarding) as listening:
        listening.daemon_threads, listening.block_on_close = True, False
        threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True).start()
        yield listening.server_address[1], armed
        listening.shutdown()


def _is_commit(data: bytes, names: set[bytes]) -> bool:
    """Return whether a client commits, also by one of the names that it has given to this statement."""
    names.update(re.findall(rb"(_pg3_[0-9]+)\x00COMMIT\x00", data))
    return b"COMMIT" in data or any(b"\x00%s\x00" % name in data for name in names)
