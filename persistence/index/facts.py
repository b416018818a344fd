"""Facts about an index as a whole, in a table of its own."""

from __future__ import annotations

import sqlite3

SCHEMA_FACT = "schema"
TREE = "tree"
"""Of which tree it was when it was last known to be up to date (``identity``)."""
COMPLETE = "complete"
"""Whether it has rows of all documents; otherwise it stands for one that is being built, and has none."""
REBUILDING = "rebuilding"
"""Whether another index is being built, for which is taken down what it may miss."""
CHANGES = "changes"
"""How often it has been changed (``tally``)."""


def read(connection: sqlite3.Connection, name: str) -> str | int | None:
    """A fact; ``None`` where it is not known."""
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def write(connection: sqlite3.Connection, name: str, value: str | int) -> None:
    """Take a fact down."""
    connection.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))
