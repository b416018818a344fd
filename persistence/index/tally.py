"""How often an index has been changed, counted in it and in a file beside it.

SQLite keeps what was changed last in a log of its own. If somebody removes that while no process has it open, or puts
an older copy in the place of the index, SQLite notices nothing; the count in the index is then behind the other.
"""

from __future__ import annotations

import os
import sqlite3
import sys

from persistence.index import facts
from persistence.storage import files, nofollow

BESIDE = "-changes"
"""The end of the name of the file."""


def beside(path: str) -> int:
    """The count in the file; that of more changes than there are where it cannot be told, 0 without a file."""
    try:
        descriptor = nofollow.open_to_read(path + BESIDE)
    except FileNotFoundError:
        return 0
    try:
        said = nofollow.read_small(descriptor)
    finally:
        os.close(descriptor)
    return int(said) if said.isdigit() else sys.maxsize


def inside(connection: sqlite3.Connection) -> int:
    """The count in the index."""
    return int(facts.read(connection, facts.CHANGES) or 0)


def add(connection: sqlite3.Connection, path: str) -> None:
    """Count a change, before the transaction that makes it is committed. Raises ``OSError``."""
    changes = inside(connection) + 1
    facts.write(connection, facts.CHANGES, changes)
    if changes > beside(path):  # else some are missing, which is still to be noticed
        _write(path, changes)


def settle(connection: sqlite3.Connection, path: str) -> None:
    """Let both agree, within a transaction: the index is as the tree is, whatever was missing. Raises ``OSError``."""
    changes = beside(path)
    if changes == sys.maxsize:
        _write(path, inside(connection))
    elif changes > inside(connection):
        facts.write(connection, facts.CHANGES, changes)


def _write(path: str, changes: int) -> None:
    if not os.path.exists(path):  # another index is in its place: its files are removed, and nothing counts any more
        return
    files.overwrite(path + BESIDE, str(changes).encode())  # in place: without the file nothing would be missing
