"""Indexes of what is in memory: that of a tree and that of a database."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import pytest

from tests.index.memory import Indexed, indexed_tree
from tests.postgresql.indexing import indexed_memory

Made = Callable[[], AbstractContextManager[Indexed]]


@pytest.fixture(params=["tree", "database"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of an index; a test that is of one kind sets it."""
    return str(request.param)


@pytest.fixture
def made(request: pytest.FixtureRequest, kind: str) -> Made:
    """Makes an empty index of the kind."""
    if kind == "tree":
        return indexed_tree
    return partial(indexed_memory, request.getfixturevalue("database_server"))
