"""What tells that the file of an index is not as it was written."""

from __future__ import annotations

import sqlite3

import msgspec

from persistence.index import schema

_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_SCHEMA,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_RANGE,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_CONSTRAINT,
    }
)
_GONE = frozenset({sqlite3.SQLITE_READONLY_DBMOVED})
_OF_DAMAGE = "user-defined function raised exception", "invalid fts5 file format", "vtable constructor failed"
"""Errors of statements that damage makes: functions of one's own fail only where a card cannot be read."""

SENSELESS = (LookupError, TypeError, ValueError, StopIteration, msgspec.DecodeError)
"""What reading an index comes to whose bytes have changed where SQLite does not notice."""


class UnusableError(Exception):
    """An index that must be made anew: it is damaged, or was made by another version of the service."""


class OutdatedError(UnusableError):
    """An index that was made by another version of the service."""


def is_damage(error: sqlite3.Error, connection: sqlite3.Connection) -> bool:
    """Whether an error says that the file is not what it was; otherwise it is the disk, or others are busy with it.

    Of a statement that SQLite refuses, the tables tell, seen through ``connection``: if they are as they should be, the
    statement is at fault, and an index made anew would not understand it either.
    """
    code = getattr(error, "sqlite_errorcode", None)
    if code is None or code in _GONE:
        return True
    if code & 0xFF != sqlite3.SQLITE_ERROR:
        return (code & 0xFF) in _DAMAGE
    if any(text in str(error) for text in _OF_DAMAGE):
        return True
    try:
        return not schema.is_whole(connection)
    except sqlite3.Error:
        return True
