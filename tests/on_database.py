"""Services over a database in the place of each data directory: what one suite shows of trees it then shows of it.

A directory's place is taken by a schema of its own, the same each time, so that a service may be started again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.postgresql.server import Server

_OF_FILES = "it is about the files of a tree"

FILES_ONLY: dict[str, str] = {}
"""Tests that say nothing of a database, by the beginning of their name, and why: they are skipped."""

DIFFERENT: dict[str, str] = {}
"""What a database does otherwise on purpose, and why: the test must fail."""


def address(server: Server, directory: Path) -> str:
    """The address of the schema that stands for a directory."""
    return server.uri(f"d_{hashlib.sha256(str(directory).encode()).hexdigest()[:16]}")
