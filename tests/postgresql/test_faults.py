"""Faults of a database, as a client and an administrator meet them: one clear line each, and the service goes on.

No answer and no log has a password or a traceback; an answer of 503 says when to try again.
"""

from __future__ import annotations

import http.client
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from persistence.postgresql import schema
from persistence.postgresql.database import Database
from persistence.postgresql.schema import Step
from tests import orders
from tests import service as services
from tests.cli.command_runner import ended
from tests.in_process import serving
from tests.postgresql import server as postgresql
from tests.postgresql.cutting import Cutter
from tests.postgresql.server import DATABASE, PASSWORD, Server, fresh_schema
from tests.postgresql.stopping import stopped
from tests.rigs import disks
from tests.service import Answer, Service, running

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
    """A service on a schema of its own."""

    service: Service
    server: Server
    schema: str

    def get(self) -> Answer:
        return self.service.get(DOCUMENT)

    def put(self, name: str, **headers: str) -> Answer:
        own = {header.replace("_", "-"): value for header, value in headers.items()}
        return self.service.put(DOCUMENT, order(name), own, Form_Definition_Version="1")

    def execute(self, statement: str) -> None:
        """Run a statement as an administrator."""
        self.server.execute(statement)

    def end_connections(self) -> None:
        """Let the server end all connections of the service."""
        self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'keeper'")

    def is_ready(self) -> Answer:
        return self.service.raw("GET", "/readyz")


def order(name: str) -> bytes:
    return f"<form><customer><name>{name}</name></customer></form>".encode()


def unavailable(answer: Answer, text: str, status: int = 503) -> None:
    """The answer is one line that has a text, and no password; the client is told when to try again."""
    assert (answer.status, answer["Content-Type"]) == (status, "text/plain; charset=utf-8"), answer.body
    assert text in answer.cause
    assert "\n" not in answer.cause
    assert "Traceback" not in answer.cause
    assert "psycopg" not in answer.cause
    require_no_password(answer.cause)
    assert status != 503 or int(answer["Retry-After"] or 0) > 0


def require_no_password(text: str) -> None:
    for secret in (PASSWORD, quote(PASSWORD, safe="")):
        assert secret not in text


@contextmanager
def served(
    directory: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    *,
    uri: str = "",
    start: Callable[..., AbstractContextManager[Service]] = serving,
) -> Iterator[ServedDatabase]:
    """A service with a form and a document, for the length of a block."""
    name = fresh_schema()
    uri = uri or server.uri(name)
    with ExitStack() as stack, monkeypatch.context() as patched:
        patched.setattr(services, "place_of", lambda _: uri.replace("SCHEMA", name))
        env = {"PERSISTENCE_LOCAL": str(directory / "local"), "PERSISTENCE_LOCK_TIMEOUT": "1"}
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


# At the start.


def _unlike(server: Server, **change: str) -> str:
    return server.uri(fresh_schema(), **change)


WRONG = "wr0ng/@"
STARTS: dict[str, tuple[Callable[[Server], str], str]] = {
    "wrong password": (lambda server: _unlike(server, password=WRONG), "password authentication failed for user"),
    "unknown user": (lambda server: _unlike(server, user="stranger"), "password authentication failed for user"),
    "database missing": (lambda server: _unlike(server, database="nowhere"), 'database "nowhere" does not exist'),
    "server not there": (
        lambda server: server.uri(fresh_schema()).replace(f":{server.port}/", f":{postgresql.free_port()}/"),
        "Connection refused",
    ),
    "no tables": (lambda server: server.uri(fresh_schema()), "is empty: 'persistence serve --init' prepares it"),
}


@pytest.mark.parametrize("command", ["serve", "forms"])
@pytest.mark.parametrize("fault", STARTS)
def test_a_database_that_cannot_be_used_is_one_line_at_the_start(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: str,
    command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    make, text = STARTS[fault]
    said = ended([command, "--data", make(server)], monkeypatch, capsys)
    assert said.status == 1
    assert said.out == ""
    assert len(said.errors) == 1, said.errors
    assert text in said.errors[0]
    require_no_password(said.errors[0])
    assert "wr0ng" not in said.errors[0]


@pytest.mark.parametrize("command", ["init", "serve", "forms", "upgrade"])
def test_a_server_that_is_too_old_is_one_line(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("persistence.postgresql.database.OLDEST_SERVER", 1000)
    said = ended([command, "--data", server.uri(fresh_schema())], monkeypatch, capsys)
    assert (said.status, len(said.errors)) == (1, 1)
    assert said.errors[0].endswith("is older than PostgreSQL 1000")


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (lambda steps: (*steps, Step("more", "SELECT 1")), "of an older version of the service: 'persistence upgrade'"),
        (lambda steps: steps[:-1], "of a newer version of the service than this one"),
    ],
)
def test_tables_of_another_version_are_one_line(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    steps: Callable[[tuple[Step, ...]], tuple[Step, ...]],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    uri = postgresql.prepared(server.uri(fresh_schema()))
    monkeypatch.setattr(schema, "STEPS", steps(schema.STEPS))
    said = ended(["serve", "--data", uri], monkeypatch, capsys)
    assert (said.status, len(said.errors)) == (1, 1)
    assert text in said.errors[0]


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        ("", "CREATE SCHEMA IF NOT EXISTS"),
        ("CREATE SCHEMA {s} AUTHORIZATION keeper", "CREATE EXTENSION IF NOT EXISTS pg_trgm"),
        ("CREATE SCHEMA {s} AUTHORIZATION keeper; CREATE EXTENSION pg_trgm", "CREATE SCHEMA IF NOT EXISTS {s}_flat"),
    ],
)
def test_what_a_role_may_not_make_is_one_line_that_says_what_to_run(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    prepare: str,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    name = fresh_schema()
    server.execute("CREATE DATABASE bare", "postgres")
    try:
        if prepare:
            server.execute(prepare.format(s=name), "bare")
        said = ended(["init", "--data", server.uri(name, database="bare")], monkeypatch, capsys)
        assert (said.status, len(said.errors)) == (1, 1)
        assert "an administrator of the database has to run" in said.errors[0]
        assert text.format(s=name) in said.errors[0].replace('"', "").replace("\\", "")
        require_no_password(said.errors[0])
    finally:
        server.execute("DROP DATABASE bare WITH (FORCE)", "postgres")


# While it is served.


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


def test_a_password_that_changes_and_connections_that_are_refused_say_nothing_of_it(asked: ServedDatabase) -> None:
    for fault, mend, text in (
        ("PASSWORD 'another'", f"PASSWORD '{PASSWORD}'", "password authentication failed"),
        ("CONNECTION LIMIT 0", "CONNECTION LIMIT -1", "too many connections for role"),
        ("NOLOGIN", "LOGIN", "is not permitted to log in"),
    ):
        asked.execute(f"ALTER ROLE keeper {fault}")
        asked.end_connections()
        try:
            unavailable(asked.get(), "")  # a connection may end while it is used
            unavailable(asked.get(), text)
            unavailable(asked.is_ready(), "no connection to database forms at 127.0.0.1")
        finally:
            asked.execute(f"ALTER ROLE keeper {mend}")
        recovers(asked)


def recovers(asked: ServedDatabase) -> None:
    """The service finds the database again by itself, soon, and reads what is stored."""
    ends = time.monotonic() + PATIENCE
    while (answer := asked.get()).status != 200:
        unavailable(answer, "")
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert answer.body == order("Ada")


def becomes_ready(asked: ServedDatabase) -> None:
    """The service finds out that it can store; what it found before counts for two seconds."""
    ends = time.monotonic() + PATIENCE
    while asked.is_ready().status != 200:
        assert time.monotonic() < ends
        time.sleep(0.1)


@contextmanager
def locked(asked: ServedDatabase, table: str) -> Iterator[None]:
    """Keep everybody from a table for a block."""
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
            answers = at_once(*[asked.get] * 4)
            for answer in answers:
                unavailable(answer, "")
        recovers(asked)


def at_once(*work: Callable[[], Answer]) -> list[Answer]:
    """The answers of threads that each do something; none takes longer than it may."""
    answers: list[Answer] = []
    threads = [threading.Thread(target=lambda each=each: answers.append(each()), daemon=True) for each in work]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert time.monotonic() - began < PATIENCE
    assert len(answers) == len(work)
    return answers


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
            at_once(*[asked.get] * 4)
        with stopped(server):
            began = time.monotonic()
            for answer in at_once(*kinds[:4]):
                unavailable(answer, "")
            assert time.monotonic() - began < 4 + 3
            began = time.monotonic()
            for answer in at_once(*kinds[3:]):
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
        assert asked.get().body == order("Ada")
        unavailable(asked.put("Cid"), "no synchronous replica confirms commits")
        unavailable(asked.is_ready(), "no synchronous replica confirms commits")
        began = time.monotonic()
        large = asked.service.put("acme/order/data/D/large.bin", b"x" * 600_000)
        for answer in (asked.put("Cid"), asked.is_ready(), large):
            unavailable(answer, "no synchronous replica confirms commits")
        assert time.monotonic() - began < 6
    becomes_ready(asked)
    assert asked.get().body == order("Bob")
    assert asked.put("Cid").status == 204


@pytest.mark.parametrize("is_forwarded", [True, False])
def test_a_commit_that_is_cut_is_found_out_by_the_entity_tag(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, *, is_forwarded: bool
) -> None:
    with Cutter(server.port, is_forwarded=is_forwarded) as cutter:
        uri = server.uri("SCHEMA").replace(f":{server.port}/", f":{cutter.port}/")
        with served(tmp_path, server, monkeypatch, uri=uri) as asked:
            for name in ("Amy", "Ada"):  # statements that are repeated are sent by a name
                for _ in range(6):
                    assert asked.put(name).status == 204
            before = asked.get()["ETag"] or ""
            cutter.arm()
            unavailable(asked.put("Bob", If_Match=before), "lost within the commit")
            found = asked.get()
            assert (found.body, found["ETag"] != before) == (
                (order("Bob"), True) if is_forwarded else (order("Ada"), False)
            )
            again = asked.put("Bob", If_Match=before)
            assert again.status == (412 if is_forwarded else 204)
            assert asked.get().body == order("Bob")


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
                    asked.service.put(f"acme/order/data/{number}/data.xml", order("x" * 50_000)) for number in range(40)
                ]
                full = [answer for answer in answers if answer.status != 201]
                assert full
                for answer in full:
                    unavailable(answer, "could not extend file", 507)
                assert asked.get().body == order("Ada")
                (disk / "fill").unlink()
                assert asked.put("Bob").status == 204
                assert asked.get().body == order("Bob")
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
    monkeypatch.setattr("persistence.postgresql.connections.CONNECT_SECONDS", 1)
    with postgresql.running() as own, served(tmp_path, own, monkeypatch, start=start) as asked:
        own.stop(how)
        for answer in at_once(asked.get, asked.get, asked.is_ready, lambda: asked.put("Bob")):
            unavailable(answer, "")
        unavailable(asked.put("Bob"), "no connection to database forms at 127.0.0.1")
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
