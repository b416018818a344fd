"""Fixtures that every suite shares: a real service in both dialects, through the faces that behave alike."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.service import PROVIDER, PUBLIC, Service, running


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> None:
    """Settings in the environment of whoever runs the tests must not reach them."""
    for name in [name for name in os.environ if name.startswith("PERSISTENCE_")]:
        del os.environ[name]


@pytest.fixture(scope="session")
def in_dialect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Service]]:
    """One service in each dialect, shared by the tests of a process."""
    with ExitStack() as stack:

        @cache
        def started(dialect: str) -> Service:
            directory = tmp_path_factory.mktemp(f"service-{dialect}")
            return stack.enter_context(running(directory, dialect=dialect, env={"PERSISTENCE_MAX_BODY": str(8 << 20)}))

        yield started


@pytest.fixture(
    params=[("svc", PROVIDER), ("svc", PUBLIC), ("orbeon", PUBLIC)], ids=["svc-provider", "svc-public", "orbeon-public"]
)
def service(request: pytest.FixtureRequest, in_dialect: Callable[[str], Service]) -> Service:
    """The service of each dialect through each face that behaves as the public one.

    Orbeon's provider face has a contract of its own, and tests of its own: tests/http/test_provider_contract.py.
    """
    dialect, face = request.param
    return replace(in_dialect(dialect), face=face)


@pytest.fixture(scope="session")
def svc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service in the default dialect, for what does not depend on dialect or face."""
    with running(tmp_path_factory.mktemp("service"), env={"PERSISTENCE_MAX_BODY": str(8 << 20)}) as service:
        yield service


@pytest.fixture
def form() -> str:
    """An application and form that no other test uses, as they stand in a path."""
    return f"app-{uuid.uuid4().hex[:8]}/form"


@pytest.fixture
def corpus() -> Path:
    """The folder of real input, where there is one beside the project."""
    folder = Path(__file__).parents[2] / "shared" / "corpus"
    if not folder.is_dir():
        pytest.skip("no folder of real input beside the project")
    return folder
