"""Addresses of databases: what they say, and that no password of one is ever in a text."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from persistence.errors import ConfigurationError
from persistence.postgresql.connections import parse


@pytest.mark.parametrize(
    ("uri", "schema", "described"),
    [
        ("postgresql://u:p@h:5432/d", "persistence", "database d at h:5432 as u, schema persistence"),
        ("postgres://h/d?schema=hr", "hr", "database d at h, schema hr"),
        (
            "postgresql://u:p%2F%40@a:1,b:2/d?sslmode=require&schema=hr&target_session_attrs=read-write",
            "hr",
            "database d at a:1,b:2 as u, schema hr",
        ),
        ("postgresql:///d?host=/run/pg&user=me", "persistence", "database d at /run/pg as me, schema persistence"),
        ("postgresql://[::1]:7/d", "persistence", "database d at ::1:7, schema persistence"),
    ],
)
def test_an_address_says_where_a_database_is(uri: str, schema: str, described: str) -> None:
    address = parse(uri)
    assert (address.schema, str(address)) == (schema, described)
    assert "schema" not in conninfo_to_dict(address.conninfo)


def test_what_libpq_knows_reaches_it() -> None:
    known = conninfo_to_dict(parse("postgresql://u:p%2F@a:1,b:2/d?sslmode=require&connect_timeout=2").conninfo)
    assert (known["host"], known["port"], known["sslmode"]) == ("a,b", "1,2", "require")
    assert (known["password"], known["connect_timeout"]) == ("p/", "2")


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://u:se/cret@h/d",
        "postgresql://u:se@cret@h/d",
        "postgresql://u:se%zzcret@h/d",
        "postgresql://u:secret@h:port/d",
        "postgresql://u:secret@h/d?unknown=1",
        "postgresql://u:secret@h/d?schema=",
        "postgresql://u:secret@h/d?schema=a-b",
        f"postgresql://u:secret@h/d?schema={'s' * 64}",
        "host=h password=secret",
        "http://u:secret@h/d",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_any_of_it(uri: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse(uri)
    assert "cret" not in str(refused.value)


def test_a_schema_cannot_be_that_of_the_flat_views_of_another() -> None:
    taken = parse("postgresql://u@h/d?schema=x").flat_schema
    with pytest.raises(ConfigurationError, match="must not end in _flat"):
        parse(f"postgresql://u@h/d?schema={taken}")
