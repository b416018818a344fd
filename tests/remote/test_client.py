"""Calls to a provider that behaves badly below HTTP, and a content elsewhere as a file: what is asked for, and when."""

import io
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import httpcore
import pytest

from persistence import client_request
from persistence.client_request import ClientRequest
from persistence.dialect import SVC
from persistence.errors import RemoteError, RemoteTimeoutError
from persistence.limits import CHUNK
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.remote.remote_calls import Client, ProviderNames
from persistence.remote.remote_reader import RemoteReader, opened_remotely
from persistence.storage.layout import SPOOL
from persistence.wire import Answer, Call, CallPolicy, Connection, Peer
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


# A content elsewhere as a file: what is asked for, and when.

BODY = bytes(range(256)) * 40
PIECE = 1000
FAR = Peer("far", "far gives no proper answer")


@dataclass
class Answered:
    """An answer that has a content from an offset on, or a part of it."""

    begin: int
    end: int
    is_closed: bool = False

    def __iter__(self) -> Iterator[bytes]:
        return (BODY[at : min(at + PIECE, self.end)] for at in range(self.begin, self.end, PIECE))

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Asked:
    """Remembers what was asked for; the first answer ends at ``ends``."""

    ends: int = len(BODY)
    answers: list[Answered] = field(default_factory=list)

    def __call__(self, at: int) -> Answered:
        self.answers.append(Answered(at, len(BODY) if self.answers else self.ends))
        return self.answers[-1]

    @property
    def offsets(self) -> list[int]:
        return [answer.begin for answer in self.answers]


def content(asked: Asked) -> BinaryIO:
    return opened_remotely(len(BODY), asked)  # type: ignore[arg-type]  # what there is of an answer


@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 4096, len(BODY), len(BODY) + 1])
def test_reads_are_as_long_as_was_asked_for_until_the_end(size: int) -> None:
    asked = Asked()
    pieces = list(iter(partial(content(asked).read, size), b""))
    assert b"".join(pieces) == BODY
    assert all(len(piece) == size for piece in pieces[:-1])
    assert asked.offsets == [0]


Step = tuple[int, int, int | None]
"""Where to seek, from where, and how much to read there, if anything."""

STEPS: dict[str, tuple[list[Step], list[bytes], list[int]]] = {
    "nothing is asked for before something is read": ([(77, 0, None), (77, 0, 10)], [BODY[77:87]], [77]),
    "all that is left, and then nothing": ([(5, 0, -1), (0, 1, -1)], [BODY[5:], b""], [5]),
    "the beginning of the first piece again": ([(0, 0, 9), (0, 0, -1)], [BODY[:9], BODY], [0]),
    "what lies elsewhere is asked for again": ([(0, 0, 9), (5000, 0, 3)], [BODY[:9], BODY[5000:5003]], [0, 5000]),
    "from the end and from here": ([(-7, 2, -1), (-9, 1, 3)], [BODY[-7:], BODY[-9:-6]], [len(BODY) - 7, len(BODY) - 9]),
}


@pytest.mark.parametrize(("steps", "expected", "offsets"), STEPS.values(), ids=STEPS)
def test_what_is_asked_for(steps: list[Step], expected: list[bytes], offsets: list[int]) -> None:
    asked, found = Asked(), []
    with content(asked) as file:
        for offset, whence, size in steps:
            at = file.seek(offset, whence)
            if size is None:
                assert asked.offsets == []
            else:
                found.append(file.read(size))
                assert file.tell() == at + len(found[-1])
        with pytest.raises(ValueError, match="before the beginning"):
            file.seek(-len(BODY) - 1, io.SEEK_END)
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()
    assert (found, asked.offsets) == (expected, offsets)
    assert all(each.is_closed for each in asked.answers)


def test_more_than_the_range_that_a_client_wanted_is_asked_for() -> None:
    asked = Asked(ends=100)
    assert content(asked).read(300) == BODY[:300]
    assert asked.offsets == [0, 100]


def test_a_content_without_a_length_is_not_received_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("persistence.remote.remote_reader.MOST_RECEIVED", 1000)
    names = ProviderNames(SVC, SVC)
    received = list[int]()

    def endless() -> Iterator[bytes]:
        while True:
            received.append(100)
            yield b" " * 100

    sent = Content(endless())
    response = httpcore.Response(200, headers=_described(names), content=sent)
    client = Client("far", names, SimpleNamespace(call=lambda *_: Answer(response, FAR, "GET")))  # type: ignore[arg-type]
    (tmp_path / SPOOL).mkdir()
    reader = RemoteReader(client, str(tmp_path))
    client_request.begin(ClientRequest("GET", "", ()))
    try:
        with pytest.raises(RemoteError, match="sends more than 1000 bytes"):
            reader.read(DocumentAddress(Form("hr", "leave"), Collection.DATA, "1", DATA_XML), content=True)
    finally:
        client_request.begin(None)
    assert sent.is_closed
    assert sum(received) < 8 * CHUNK


class Content:
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def close(self) -> None:
        self.is_closed = True


def _described(names: ProviderNames) -> dict[str, str]:
    return {names.theirs.header("Form-Definition-Version"): "1", "Last-Modified": "Tue, 04 Mar 2025 05:06:07 GMT"}


def test_an_answer_that_does_not_describe_its_content_gives_its_connection_back() -> None:
    """A range is wanted of an attachment; its length is not known before, and the GET says less than the HEAD."""
    names, contents = ProviderNames(SVC, SVC), list[Content]()

    def answered(call: Call, _: Peer) -> Answer:
        headers = _described(names) if call.method == "HEAD" else {}
        contents.append(Content([BODY]))
        return Answer(httpcore.Response(200, headers=headers, content=contents[-1]), FAR, call.label)

    client = Client("far", names, SimpleNamespace(call=answered))  # type: ignore[arg-type]
    reader = RemoteReader(client, None)  # type: ignore[arg-type]  # nothing is received
    client_request.begin(ClientRequest("GET", "", (("Range", "bytes=0-9"),)))
    try:
        with pytest.raises(RemoteError, match="when it was modified"):
            reader.read(DocumentAddress(Form("hr", "leave"), Collection.DATA, "1", "a.bin"), content=True)
    finally:
        client_request.begin(None)
    assert [each.is_closed for each in contents] == [True, True]
