"""One PostgreSQL server for all tests of a session, and a schema of its own for each test.

Processes of xdist share it: the first one that asks starts it, and it ends with the process that began the session.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from persistence.postgresql import schema
from persistence.postgresql.database import Database

_USERS = ("postgres", "nobody")
"""Users as whom a server runs where the tests are root's: it refuses to be."""
_ROOM = 2 << 30
"""Bytes that must be free in memory for the data of a server to be there."""
_STARTING = 60.0
_SESSION = "session"
"""The file in which a server has the process of its session."""
DATABASE = "forms"
PASSWORD = "a+b/c@d e"  # noqa: S105 - of servers of tests only
USER = "keeper"


@cache
def programs() -> Path | None:
    """The directory of PostgreSQL's programs; ``None`` where it is not installed.

    ``POSTGRESQL_BIN`` in the environment chooses one, for another version.
    """
    chosen = os.environ.get("POSTGRESQL_BIN")
    if chosen is not None:
        return Path(chosen)
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    versions = sorted(installed, key=lambda path: int(path.parts[-3]) if path.parts[-3].isdigit() else 0)
    return versions[-1].parent if versions else None


MISSING = None if programs() is not None else "PostgreSQL is not installed (initdb)"
requires_postgresql = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
"""The mark of tests that need a server."""


def owner() -> str | None:
    if os.getuid():
        return None
    known = {each.pw_name for each in pwd.getpwall()}
    return next(each for each in _USERS if each in known)


@dataclass(frozen=True)
class Server:
    """A server that runs: the directory of its data and its socket, its port, and its process."""

    directory: Path
    port: int
    pid: int

    def uri(self, schema_name: str, *, user: str = USER, password: str = PASSWORD, database: str = DATABASE) -> str:
        """The address of a schema, on the loopback."""
        return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}?schema={schema_name}"

    def execute(self, statement: str, database: str = DATABASE) -> list[tuple[object, ...]]:
        """Run a statement as the superuser; returns rows where it has some."""
        conninfo = f"host={self.directory} port={self.port} dbname={database} user=admin"
        with psycopg.connect(conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def stop(self, how: int = signal.SIGINT) -> None:
        """End it, by default at once and cleanly; wait until it is gone."""
        os.kill(self.pid, how)
        ends = time.monotonic() + _STARTING
        while (self.directory / "data/postmaster.pid").exists() and _is_alive(self.pid):
            assert time.monotonic() < ends, "the server does not end"
            time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


def _run(*command: str, timeout: float = _STARTING) -> None:
    directory = programs()
    assert directory is not None
    user = owner()
    subprocess.run(  # a server must not keep the pipes of who started it
        [str(directory / command[0]), *command[1:]],
        check=True,
        user=user,
        group=None if user is None else pwd.getpwnam(user).pw_gid,
        extra_groups=None if user is None else [],
        cwd="/",
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def new_place() -> Path:
    """A new directory for a server: in memory where there is room. Its path is short, as that of a socket has to be.

    Without PostgreSQL, the test is skipped that wants it.
    """
    if MISSING:
        pytest.skip(MISSING)
    memory = Path("/dev/shm")
    is_roomy = memory.is_dir() and shutil.disk_usage(memory).free > _ROOM
    made = Path(tempfile.mkdtemp(prefix="pg-", dir=memory if is_roomy else "/tmp"))
    made.chmod(0o755)
    user = owner()
    if user is not None:
        shutil.chown(made, user)
    return made


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind((address, 0))
        return int(listening.getsockname()[1])


def start(directory: Path, *, fsync: bool = False, options: str = "", port: int = 0, wal: Path | None = None) -> Server:
    """Make a server in an empty directory of its own, or start again the one that is there; ``wal`` is for its log."""
    data, port = directory / "data", port or free_port()
    if not data.exists():
        own = () if wal is None else ("-X", str(wal))
        _run("initdb", "-D", str(data), "-U", "admin", "-E", "UTF8", "--locale=C", "--no-sync", "-A", "trust", *own)
        user = owner()
        hosts = "local all admin trust\nhost all admin 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (data / "pg_hba.conf").write_text(hosts)
        if user is not None:
            shutil.chown(data / "pg_hba.conf", user)
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": str(directory),
        "fsync": "on" if fsync else "off",
        "full_page_writes": "on" if fsync else "off",
        "max_connections": "200",
        "shared_buffers": "64MB",
        "log_min_messages": "warning",
        "password_encryption": "scram-sha-256",  # the default of 14 and later
    }
    flags = " ".join(f"-c {name}={value}" for name, value in settings.items())
    log = directory / "log"
    _run("pg_ctl", "-D", str(data), "-o", f"-p {port} {flags} {options}", "-l", str(log), "-w", "-t", "60", "start")
    return Server(directory, port, int((data / "postmaster.pid").read_text().split()[0]))


def make_database(server: Server) -> None:
    """Make the database of the tests, with a user who may make schemas there, and the extension."""
    quoted = PASSWORD.replace("'", "''")
    server.execute(f"CREATE ROLE {USER} LOGIN PASSWORD '{quoted}'", "postgres")
    server.execute(f"CREATE DATABASE {DATABASE} OWNER {USER}", "postgres")
    server.execute("CREATE EXTENSION pg_trgm WITH SCHEMA public")


def shared(session: Path) -> Server:
    """Return the server of a session, and start it if this is the first process that asks."""
    with (session / "postgresql.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = session / "postgresql.server"
        if known.exists():
            return _known(known)
        _end_orphans()
        place = new_place()
        (place / _SESSION).write_text(str(os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()))
        server = start(place)
        make_database(server)
        known.write_text(f"{server.directory} {server.port} {server.pid}")
        return server


def _known(file: Path) -> Server:
    place, port, pid = file.read_text().split()
    return Server(Path(place), int(port), int(pid))


def _end_orphans() -> None:
    """End servers whose sessions were killed."""
    for place in (*Path("/dev/shm").glob("pg-*"), *Path("/tmp").glob("pg-*")):
        with suppress(FileNotFoundError, PermissionError, ValueError):
            if not _is_alive(int((place / _SESSION).read_text())):
                end(Server(place, 0, 0))


def session_directory(factory: pytest.TempPathFactory) -> Path:
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@contextmanager
def running(*, fsync: bool = False, options: str = "") -> Iterator[Server]:
    directory = new_place()
    server = start(directory, fsync=fsync, options=options)
    try:
        make_database(server)
        yield server
    finally:
        end(server)


def end(server: Server) -> None:
    """End a server, at once, and remove its data."""
    data = server.directory / "data"
    with suppress(FileNotFoundError, ProcessLookupError):  # a server that was killed leaves its file
        pid = int((data / "postmaster.pid").read_text().split()[0])
        if Path(f"/proc/{pid}/cwd").resolve() == data.resolve():  # else another process has the number
            Server(server.directory, server.port, pid).stop(signal.SIGQUIT)
    shutil.rmtree(server.directory, ignore_errors=True)


def end_shared(session: Path) -> None:
    known = session / "postgresql.server"
    if known.exists():
        server = _known(known)
        known.unlink()
        end(server)


def fresh_schema() -> str:
    return f"t_{secrets.token_hex(6)}"


def prepared(uri: str) -> str:
    """Make the tables in a schema, and return its address."""
    with Database(uri, lock_timeout=10) as database:
        schema.init(database)
    return uri


def require_no_password(text: str) -> None:
    """No text has the password of a server, as it is or as it stands in an address."""
    for secret in (PASSWORD, quote(PASSWORD, safe="")):
        assert secret not in text


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Stop all processes of a server for a block, which begins when they have stopped."""
    processes = _signal(server, signal.SIGSTOP)
    try:
        while any(map(_runs, processes)):
            time.sleep(0.01)
        yield
    finally:
        _signal(server, signal.SIGCONT)


def _signal(server: Server, which: int) -> list[int]:
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
    processes = [server.pid, *map(int, children.split())]
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, which)
    return processes


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"T", "Z"}
