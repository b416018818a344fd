"""Calls to a provider that behaves badly below HTTP."""

from __future__ import annotations

import threading

import pytest

from persistence.dialect import SVC
from persistence.errors import RemoteError
from persistence.remote.client import CallLimits, Client, Connections, RemoteCall
from persistence.remote.headers import ProviderNames
from tests.opened import opened
from tests.providers import Received, Reply, providing

LIMITS = CallLimits(connect=0.5)


@pytest.mark.parametrize(("seconds", "asked"), [(0.0, 2), (0.6, 1)])
def test_a_question_is_asked_again_only_if_it_is_hung_up_on_at_once(seconds: float, asked: int) -> None:
    def hang_up(_: Received) -> Reply:
        threading.Event().wait(seconds)
        return Reply(raw=b"")

    with providing(hang_up) as provider:
        connections = opened(Connections(f"http://127.0.0.1:{provider.port}", LIMITS))
        client = Client("far", ProviderNames(SVC, SVC), connections)
        with pytest.raises(RemoteError, match="gives no proper answer"):
            client.send(RemoteCall("GET", "/crud"))
        assert len(provider.received) == asked


def test_a_cookie_of_the_provider_is_not_sent_with_the_next_request() -> None:
    """All users share the connections; one user's cookie would let the provider take another for the first."""
    with providing(lambda _: Reply(200, {"Set-Cookie": "session=ada; Path=/"})) as provider:
        connections = opened(Connections(f"http://127.0.0.1:{provider.port}", LIMITS))
        client = Client("far", ProviderNames(SVC, SVC), connections)
        for _ in range(2):
            client.ask("/crud")
        assert len(provider.received) == 2
        assert not [name for each in provider.received for name in each.headers if name.lower() == "cookie"]
