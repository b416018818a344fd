"""The releases of the runtime, and the service that is their provider."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.http.runtime.proxy import RELEASES, Proxy, Release
from tests.service import PROVIDER, Service


@pytest.fixture
def provider(in_dialect: Callable[[str], Service]) -> Service:
    return replace(in_dialect("orbeon"), face=PROVIDER)


@pytest.fixture(
    params=[
        pytest.param(each, id=each.name, marks=() if each in (RELEASES[0], RELEASES[-1]) else pytest.mark.long)
        for each in RELEASES
    ]
)
def release(request: pytest.FixtureRequest) -> Release:
    """The oldest release and the newest; ``make test-runtime`` takes all."""
    found: Release = request.param
    return found


@pytest.fixture
def lea(provider: Service, release: Release) -> Iterator[Proxy]:
    """A proxy of the release, for the requests of Lea."""
    with ExitStack() as opened:
        yield Proxy(provider, release, opened)
