"""A PostgreSQL server for benchmarks, with fsync, on the disk of a directory; and documents laid down in it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import LiteralString

import msgspec
import psycopg
from orders import APP, FORM, Orders, documents, published
from servers import free_port

from persistence.postgresql import schema
from persistence.postgresql.database import DATA, DEFINITION, Database

UNSAFE = ("fsync=off", "full_page_writes=off")
"""While documents are laid down: nobody waits for the disk."""

_SETTINGS = ("shared_buffers=1GB", "max_wal_size=4GB", "max_connections=100", "listen_addresses=127.0.0.1")
"""Besides PostgreSQL's defaults, which have fsync and synchronous_commit. The page for administrators names them."""

_ROWS = "COPY revision (form, kind, folder, name, modified, is_current, id, sidecar, body) FROM STDIN"
_READY = 60.0
_STOPPING = 600.0


@dataclass(frozen=True)
class Server:
    """A server that runs: its port, and its first process."""

    port: int
    process: int

    @property
    def uri(self) -> str:
        """Its address for the service."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def size(self) -> int:
        """The bytes of the database."""
        return self._number("SELECT pg_database_size(current_database())")

    def settle(self) -> None:
        """Vacuum what was laid down, as the server does by itself some minutes later."""
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")

    def written(self) -> int:
        """The bytes of write-ahead log so far."""
        return self._number("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")

    def _number(self, statement: LiteralString) -> int:
        with psycopg.connect(self.uri, autocommit=True) as connection:
            row = connection.execute(statement).fetchone()
        return int(row[0]) if row else 0


def made(directory: Path) -> Path:
    """Make an empty database server below a directory; returns the directory of its data."""
    data = directory / "postgresql"
    data.mkdir()
    shutil.chown(data, _user())
    directory.chmod(0o755)
    initdb = [program("initdb"), "--pgdata", str(data), "--auth", "trust", "--encoding", "UTF8"]
    command = [*initdb, "--locale", "C.UTF-8", "--username", "postgres"]
    subprocess.run(command, check=True, user=_user(), cwd=data, stdout=subprocess.DEVNULL)
    return data


@contextmanager
def running(data: Path, *settings: str) -> Iterator[Server]:
    """A server for the length of a block, with more settings."""
    port = free_port()
    own = (f"port={port}", "unix_socket_directories=")
    options = [word for setting in (*_SETTINGS, *own, *settings) for word in ("-c", setting)]
    with data.with_name("postgresql.log").open("ab") as log:
        command = [program("postgres"), "-D", str(data), *options]
        process = subprocess.Popen(command, user=_user(), cwd=data, stdout=log, stderr=log)
    try:
        _await(port)
        yield Server(port, process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(_STOPPING)


def _user() -> str:
    """The user as whom a server runs, which refuses to be root's."""
    return "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name


def fill(server: Server, orders: Orders) -> None:
    """Lay down the form and its documents as the service leaves them, without its index."""
    with Database(server.uri, lock_timeout=10) as database:
        schema.init(database)
        with database.connected() as connection:
            values = f"INSERT INTO form (app, name) VALUES ('{APP}', '{FORM}') RETURNING id"
            (number,) = connection.execute(values.encode()).fetchone() or (0,)
            with connection.cursor().copy(_ROWS) as copy:
                for path, body, sidecar in chain([published()], documents(orders)):
                    kind, folder, name = path.split("/")
                    encoded = msgspec.json.encode(sidecar)
                    at = (number, DATA if kind == "data" else DEFINITION, folder, name, sidecar.modified)
                    copy.write_row((*at, True, sidecar.id, encoded, body))
            connection.execute("VACUUM ANALYZE revision")


def program(name: str) -> str:
    """Return the path of a program of PostgreSQL: of the newest one that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name) or name


def _await(port: int) -> None:
    deadline = time.monotonic() + _READY
    while True:
        try:
            psycopg.connect(host="127.0.0.1", port=port, user="postgres").close()
        except psycopg.OperationalError:  # it does not listen yet, or is starting up
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
