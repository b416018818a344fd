"""Facts about an index as a whole, in a table of its own."""

from __future__ import annotations

import sqlite3
from functools import lru_cache

from persistence.index.schema import SCHEMA

SCHEMA_FACT = "schema"
TREE = "tree"
"""The start of the machine in which the index was last known to be of the tree, and the tree's root directory."""
COMPLETE = "complete"
"""Whether it has rows of all documents; otherwise it only takes down what has been missed."""
REBUILDING = "rebuilding"
"""Whether another index is being built, which is to hear of what changes meanwhile."""
RETIRED = "retired"
"""Whether another index has taken its place."""


def read(connection: sqlite3.Connection, name: str) -> str | int | None:
    """A fact; ``None`` where it is not known."""
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def write(connection: sqlite3.Connection, name: str, value: str | int) -> None:
    """Take a fact down."""
    connection.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))


def begin(connection: sqlite3.Connection) -> None:
    """The facts of a new index."""
    write(connection, SCHEMA_FACT, SCHEMA)


@lru_cache(1)
def boot() -> str:
    """The start of the machine, as Linux names it; empty where it does not."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
