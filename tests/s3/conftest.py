"""A small S3 server for each test of bodies in buckets; without the library for it, they are skipped."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import in_process
from tests.s3.server import S3Server, serving_objects
from tests.service import Service

if importlib.util.find_spec("obstore") is not None:
    from tests.s3.places import fill

collect_ignore: list[str] = []
if importlib.util.find_spec("obstore") is None:
    collect_ignore += [path.name for path in Path(__file__).parent.glob("test_*.py")]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server whose credentials are in the environment, where the library looks for them."""
    with serving_objects() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Service]:
    """A service with a tree that has its attachments itself, as ``fill`` stores them."""
    with in_process.serving(tmp_path / "from", alone=True) as service:
        fill(service)
        yield service
