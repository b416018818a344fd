"""Databases of the shape of a form runtime's, on each engine, and rows in them.

Times are wall clocks of Berlin, as a runtime there stores them: SQLite has the milliseconds that its driver makes of
them, or texts.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Engine, create_engine, text

from tests.postgresql import server as postgresql
from tests.postgresql.server import Server

ZONE = "Europe/Berlin"
MARIADB = shutil.which("mariadbd")
_STARTING = 60.0

_FACTS = {"created": "time", "last_modified_time": "time", "last_modified_by": "name"}
_FORM = {"app": "name", "form": "name", "form_version": "number"}
_OWNER = {"username": "name", "groupname": "name", "organization_id": "number"}
_FILE = {"file_name": "name", "file_content": "bytes", "hash_algorithm": "name", "hash_value": "name"}
TABLES: dict[str, dict[str, str]] = {
    "orbeon_form_definition": {**_FACTS, **_FORM, "form_metadata": "name", "deleted": "flag", "xml": "xml"},
    "orbeon_form_definition_attach": {**_FACTS, **_FORM, "deleted": "flag", **_FILE},
    "orbeon_form_data": {
        "id": "serial",
        **_FACTS,
        **_OWNER,
        **_FORM,
        "stage": "name",
        "document_id": "name",
        "draft": "flag",
        "deleted": "flag",
        "xml": "xml",
    },
    "orbeon_form_data_attach": {
        **_FACTS,
        **_OWNER,
        **_FORM,
        "document_id": "name",
        "draft": "flag",
        "deleted": "flag",
        **_FILE,
    },
    "orbeon_form_data_lease": {"document_id": "name", "username": "name", "groupname": "name", "expiration": "time"},
    "orbeon_organization": {"id": "number", "depth": "number", "pos": "number", "name": "name"},
}
"""The columns of each table, with their kinds."""

_TYPES = {
    "postgresql": {"time": "TIMESTAMP", "xml": "XML", "bytes": "BYTEA", "serial": "SERIAL PRIMARY KEY"},
    "mysql": {"time": "TIMESTAMP(6) NULL", "xml": "MEDIUMTEXT", "bytes": "LONGBLOB", "serial": "SERIAL PRIMARY KEY"},
    "sqlite": {"time": "TIMESTAMP", "xml": "TEXT", "bytes": "BLOB", "serial": "INTEGER PRIMARY KEY AUTOINCREMENT"},
}
_COMMON = {"name": "VARCHAR(255)", "number": "INT", "flag": "CHAR(1)"}


@dataclass
class RuntimeDatabase:
    """An empty database: its address for the command, and an engine to fill it."""

    address: str
    engine: Engine
    has_texts: bool = False
    _columns: dict[str, list[str]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.engine.dialect.name

    def make(self, *left_out: str) -> None:
        """Make the tables, without those that are ``left_out``, and without columns that are as TABLE.COLUMN."""
        types = {**_COMMON, **_TYPES[self.kind]}
        with self.engine.begin() as connection:
            for name, columns in TABLES.items():
                own = {each: kind for each, kind in columns.items() if f"{name}.{each}" not in left_out}
                if name not in left_out:
                    declared = ", ".join(f"{each} {types[kind]}" for each, kind in own.items())
                    connection.execute(text(f"CREATE TABLE {name} ({declared})"))
                    self._columns[name] = list(own)

    def add(self, table: str, **values: object) -> None:
        """Add a row; values of columns that are left out are dropped."""
        kept = {name: self._value(value) for name, value in values.items() if name in self._columns[table]}
        names = {
            name: f"CAST(:{name} AS XML)" if self.kind == "postgresql" and name == "xml" else f":{name}"
            for name in kept
        }
        with self.engine.begin() as connection:
            statement = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(names.values())})"  # noqa: S608
            connection.execute(text(statement), kept)

    def clear(self, table: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(f"DELETE FROM {table}"))  # noqa: S608

    def _value(self, value: object) -> object:
        if not isinstance(value, datetime) or self.kind != "sqlite":
            return value
        if self.has_texts:
            return value.isoformat(" ", "milliseconds")
        return int(value.replace(tzinfo=ZoneInfo(ZONE)).timestamp() * 1000)

    def definition(self, modified: str, xml: str | None, **own: object) -> None:
        self.add("orbeon_form_definition", **{**_defaults(modified), "xml": xml, **own})

    def definition_file(self, modified: str, name: str, content: bytes | None, **own: object) -> None:
        self.add(
            "orbeon_form_definition_attach",
            **{**_defaults(modified), "file_name": name, "file_content": content, **own},
        )

    def data(self, document: str | None, modified: str, xml: str | None, **own: object) -> None:
        self.add("orbeon_form_data", **{**_of_data(document, modified), "xml": xml, **own})

    def file(self, document: str | None, modified: str, name: str | None, content: bytes | None, **own: object) -> None:
        values = {**_of_data(document, modified), "file_name": name, "file_content": content, **own}
        self.add("orbeon_form_data_attach", **values)


def wall(text_: str) -> datetime:
    return datetime.fromisoformat(text_)


def _defaults(modified: str) -> Mapping[str, object]:
    return {
        "created": wall("2024-01-10 09:00:00"),
        "last_modified_time": wall(modified),
        "last_modified_by": "ann",
        "app": "hr",
        "form": "leave",
        "form_version": 1,
        "deleted": "N",
    }


def _of_data(document: str | None, modified: str) -> Mapping[str, object]:
    return {**_defaults(modified), "document_id": document, "draft": "N", "username": "ann", "groupname": "staff"}


@contextmanager
def sqlite(directory: Path, *, has_texts: bool = False) -> Iterator[RuntimeDatabase]:
    path = directory / "orbeon demo#1.sqlite"  # characters that an address has to escape
    engine = create_engine(f"sqlite:///{path}")
    yield RuntimeDatabase(f"sqlite:///{path}", engine, has_texts)
    engine.dispose()


@contextmanager
def on_postgresql(server: Server) -> Iterator[RuntimeDatabase]:
    schema = postgresql.fresh_schema()
    server.execute(f"CREATE SCHEMA {schema} AUTHORIZATION {postgresql.USER}")
    address = server.uri(schema)
    url = address.partition("?")[0].replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url, connect_args={"options": f"-csearch_path={schema}"})
    yield RuntimeDatabase(address, engine)
    engine.dispose()
    server.execute(f"DROP SCHEMA {schema} CASCADE")


@contextmanager
def mariadb_server() -> Iterator[Path]:
    """A server on a socket in a directory of its own, whose path is short; its clock is that of Berlin."""
    if MARIADB is None:
        pytest.skip("MariaDB is not installed (mariadbd)")
    directory = Path(tempfile.mkdtemp(prefix="maria-"))
    user = [] if os.getuid() else ["--user=mysql"]
    if user:
        shutil.chown(directory, "mysql")
        assert pwd.getpwnam("mysql")
    own = ["--no-defaults", f"--datadir={directory}/data", *user]
    install = ["mariadb-install-db", *own, "--auth-root-authentication-method=normal", "--skip-test-db"]
    made = subprocess.run(install, check=False, timeout=_STARTING, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    options = [
        f"--socket={directory}/s",
        "--skip-networking",
        f"--pid-file={directory}/pid",
        "--max-allowed-packet=64M",
    ]
    server = subprocess.Popen(
        [MARIADB, *own, *options],
        env={**os.environ, "TZ": ZONE},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        ends = time.monotonic() + _STARTING
        while not (directory / "s").exists():
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < ends, "the server does not start"
            time.sleep(0.05)
        yield directory / "s"
    finally:
        server.terminate()
        server.wait(_STARTING)
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def on_mariadb(socket: Path) -> Iterator[RuntimeDatabase]:
    schema = postgresql.fresh_schema()
    admin = create_engine(f"mysql+pymysql://root@localhost/?unix_socket={socket}")
    with admin.begin() as connection:
        connection.execute(text(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"))
    engine = create_engine(f"mysql+pymysql://root@localhost/{schema}?unix_socket={socket}")
    yield RuntimeDatabase(f"mysql://root@localhost/{schema}?unix_socket={socket}", engine)
    engine.dispose()
    with admin.begin() as connection:
        connection.execute(text(f"DROP DATABASE {schema}"))
    admin.dispose()
