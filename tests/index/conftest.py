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
    return str(request.param)


@pytest.fixture
def made(request: pytest.FixtureRequest, kind: str) -> Made:
    if kind == "tree":
        return indexed_tree
    return partial(indexed_memory, request.getfixturevalue("database_server"))
