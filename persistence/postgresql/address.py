"""The address of a database: the parts of ``postgresql://…``, and its name, which has no password."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from persistence.errors import ConfigurationError
from persistence.limits import CONNECT_SECONDS, LONGEST_SCHEMA, SILENT_SECONDS

SCHEMES = ("postgresql", "postgres")
"""The schemes of addresses of databases, as libpq reads them."""

DEFAULT_SCHEMA = "persistence"

_FLAT = "_flat"
_SCHEMA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROBES = 3
"""Probes of the network without an answer after which a connection is lost."""


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The address of a database and its schema. ``conninfo`` is for libpq, and has the password."""

    conninfo: str = field(repr=False)
    schema: str
    described: str

    def __str__(self) -> str:
        return self.described

    @property
    def flat_schema(self) -> str:
        """Return the schema with the flat views, which a reporting role can be granted alone."""
        return f"{self.schema}{_FLAT}"


def parse(uri: str) -> DatabaseAddress:
    """Read an address ``postgresql://…``: that of libpq, and ``schema=NAME`` in its query."""
    address, schema = _without_schema(uri)
    if _SCHEMA_NAME.fullmatch(schema) is None or len(schema) > LONGEST_SCHEMA:
        raise ConfigurationError(
            f"the schema of a database's address must be a name of letters, digits and _ of at most {LONGEST_SCHEMA}"
        )
    if schema.endswith(_FLAT):
        raise ConfigurationError(
            f"the schema of a database's address must not end in {_FLAT}: so do those of flat views, beside the tables'"
        )
    try:
        known = {name: str(value) for name, value in conninfo_to_dict(address).items() if value is not None}
    except ProgrammingError:
        raise _unreadable() from None
    is_escaped = "@" not in known.get("host", "") + known.get("dbname", "")
    are_ports = all(port.isascii() and (port.isdigit() or not port) for port in known.get("port", "").split(","))
    if uri.partition("://")[0] not in SCHEMES or not is_escaped or not are_ports:
        raise _unreadable()
    between = SILENT_SECONDS // (_PROBES + 1)
    deadlines = {
        "connect_timeout": str(CONNECT_SECONDS),
        "keepalives_idle": str(between),
        "keepalives_interval": str(between),
        "keepalives_count": str(_PROBES),
        "tcp_user_timeout": str(SILENT_SECONDS * 1000),
        "application_name": "persistence",
        "client_encoding": "UTF8",
    }
    conninfo = make_conninfo(**{**deadlines, **known})
    return DatabaseAddress(conninfo, schema, f"{_described(known)}, schema {schema}")


def _unreadable() -> ConfigurationError:
    return ConfigurationError(
        "the address of a database cannot be read: it must be as postgresql://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…"
        " with known parameters, and %-escapes for characters such as / and @ in the password"
    )


def _without_schema(uri: str) -> tuple[str, str]:
    base, _, query = uri.partition("?")
    schema, rest = DEFAULT_SCHEMA, list[str]()
    for each in query.split("&"):
        name, _, value = each.partition("=")
        if name == "schema":
            schema = unquote(value)
        elif each:
            rest.append(each)
    return (f"{base}?{'&'.join(rest)}" if rest else base), schema


def _described(known: dict[str, str]) -> str:
    hosts = known.get("host", known.get("hostaddr", "")).split(",")
    ports = known.get("port", "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    places = ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False))
    user = known.get("user")
    return f"database {known.get('dbname') or user or ''} at {places or 'this machine'}{f' as {user}' if user else ''}"
