"""Calls to a provider that behaves badly below HTTP."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from persistence.dialect import SVC
from persistence.errors import RemoteError, RemoteTimeoutError
from persistence.remote.remote_calls import Client, ProviderNames
from persistence.wire import Answer, Call, CallPolicy, Connection
from tests.opened import opened
from tests.providers import Received, Reply, dripping, providing


def calling(url: str, policy: CallPolicy) -> Client:
    return Client("far", ProviderNames(SVC, SVC), opened(Connection(url, policy, is_provider=True)))


@pytest.mark.parametrize(("seconds", "asked"), [(0.0, 2), (0.6, 1)])
def test_a_question_is_asked_again_only_if_it_is_hung_up_on_at_once(seconds: float, asked: int) -> None:
    def hang_up(_: Received) -> Reply:
        threading.Event().wait(seconds)
        return Reply(raw=b"")

    with providing(hang_up) as provider:
        client = calling(f"http://127.0.0.1:{provider.port}", CallPolicy(connect=0.5))
        with pytest.raises(RemoteError, match="gives no proper answer"):
            client.send(Call("GET", "/crud"))
        assert len(provider.received) == asked


def test_a_cookie_of_the_provider_is_not_sent_with_the_next_request() -> None:
    """All users share the connections; one user's cookie would let the provider take another for the first."""
    with providing(lambda _: Reply(200, {"Set-Cookie": "session=ada; Path=/"})) as provider:
        client = calling(f"http://127.0.0.1:{provider.port}", CallPolicy(connect=0.5))
        for _ in range(2):
            client.ask(Call("GET", "/crud"))
        assert len(provider.received) == 2
        assert not [name for each in provider.received for name in each.headers if name.lower() == "cookie"]


def test_a_password_in_the_address_is_sent_in_the_place_of_what_a_client_sends() -> None:
    with providing(lambda _: Reply(200)) as provider:
        client = calling(f"http://ada:s%20e@127.0.0.1:{provider.port}", CallPolicy(connect=0.5))
        client.ask(Call("GET", "/crud", [("Authorization", "Bearer other")]))
        sent = provider.received[0].headers
        assert [text for name, text in sent.items() if name.lower() == "authorization"] == ["Basic YWRhOnMgZQ=="]
        assert sent.get("Host") == f"127.0.0.1:{provider.port}"


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-Line: x\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
    ],
    ids=["lines", "bytes", "100", "103"],
)
def test_a_head_without_an_end_is_waited_for_no_longer_than_a_silence(first: bytes, piece: bytes) -> None:
    began = time.monotonic()
    with dripping(first, piece) as url:
        client = calling(url, CallPolicy(silence=0.3))
        with pytest.raises(RemoteTimeoutError, match="does not answer in time: GET /crud"):
            client.send(Call("GET", "/crud"))
        assert 0.3 <= time.monotonic() - began < 2


@contextmanager
def endless(status: str, piece: bytes) -> Iterator[Answer]:
    """The answer of a provider that never comes to its end."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    with (
        dripping(head.encode(), b"%x\r\n%s\r\n" % (len(piece), piece)) as url,
        calling(url, CallPolicy(answer=0.2)).send(Call("GET", "/crud")) as answer,
    ):
        yield answer


@pytest.mark.parametrize("read", [lambda answer: answer.whole(1000), Answer.beginning])
def test_what_is_read_into_memory_has_a_deadline(read: Callable[[Answer], bytes]) -> None:
    """A provider that sends a byte now and then is never silent."""
    with endless("200 OK", b"x") as answer, pytest.raises(RemoteTimeoutError, match="does not answer in time"):
        read(answer)


def test_a_refusal_whose_text_never_comes_is_its_status() -> None:
    """The request may be silent for a day, as one that rebuilds an index."""
    head = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\n"
    began = time.monotonic()
    with dripping(head, b"") as url:
        client = calling(url, CallPolicy(answer=0.2))
        answer = client.send(Call("POST", "/reindex", silence=86_400))
        with pytest.raises(RemoteError, match=r"^provider 'far' answers POST /reindex with 502$"):
            client.require(answer, "POST /reindex", 200)
        assert time.monotonic() - began < 5


def test_a_refusal_that_never_ends_is_its_status() -> None:
    client = calling("", CallPolicy())
    text = "^provider 'far' answers GET /crud with 502$"
    with endless("502 Bad Gateway", b"x") as answer, pytest.raises(RemoteError, match=text):
        client.require(answer, "GET /crud", 200)


@pytest.mark.parametrize("piece", [b"x", b"x" * 100_000])
def test_an_answer_without_an_end_is_given_up_when_it_is_closed(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("persistence.wire._LEFT_WITHIN", 0.1)
    began = time.monotonic()
    with endless("200 OK", piece) as answer:
        answer.close()
    assert time.monotonic() - began < 5, "the provider sends until its client hangs up"


def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    with endless("200 OK", b"x" * 100_000) as answer, pytest.raises(RemoteError, match="more than 1000 bytes"):
        answer.whole(1000)
