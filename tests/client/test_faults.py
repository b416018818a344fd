"""What the client does when a service is busy, silent, gone or odd: it repeats what is safe, and nothing else."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from persistence.client import CallPolicy, FormClient, PersistenceClient, Query, SavedDocument
from persistence.errors import (
    BadRequestError,
    BusyError,
    DiskFullError,
    LockedError,
    PersistenceError,
    PreconditionError,
    RemoteError,
    RemoteFailureError,
    RemoteTimeoutError,
)
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.texts import Instant
from tests.providers import Provider, Reply, providing

FACTS = "Svc-Form-Definition-Version: 1\r\nETag: x\r\n"
FOUND = f"HTTP/1.1 200 OK\r\n{FACTS}Content-Length: 4\r\n\r\n<a/>"
SAVED = f"HTTP/1.1 204 No Content\r\n{FACTS}\r\n"
_TEXT = "Connection: close\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nbusy\n"
BUSY = f"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\n{_TEXT}"
LOST = ""
CUT = f"HTTP/1.1 200 OK\r\n{FACTS}Content-Length: 9\r\n\r\n<a/>"
KNOWN = SavedDocument(
    address=DocumentAddress(Form("a", "f"), Collection.DATA, "d", DATA_XML),
    etag='"x"',
    version=1,
    modified=Instant("2025-01-01T00:00:00.000Z"),
)


def refused(status: int, line: str = "no\n", headers: str = "") -> str:
    kind = "" if "Content-Type" in headers else "Content-Type: text/plain; charset=utf-8\r\n"
    return f"HTTP/1.1 {status} X\r\n{kind}{headers}Content-Length: {len(line)}\r\n\r\n{line}"


@contextmanager
def scripted(*script: str) -> Iterator[Provider]:
    """A server that answers each request with the next text of a script, and closes; an empty text is no answer."""
    texts = iter(script)
    with providing(lambda _: Reply(raw=next(texts).encode())) as server:
        yield server


@contextmanager
def form(port: int, **policy: float) -> Iterator[FormClient]:
    given = CallPolicy(**policy)  # type: ignore[arg-type]  # attempts is whole
    with PersistenceClient(f"http://127.0.0.1:{port}", key="k", policy=given) as client:
        yield client.form("a", "f")


@pytest.mark.parametrize("failure", [BUSY, LOST, CUT])
def test_a_read_is_repeated(failure: str) -> None:
    with scripted(failure, failure, FOUND) as server, form(server.port) as client:
        assert client.load("d").xml == b"<a/>"
        assert [each.method for each in server.received] == ["GET"] * 3
        assert server.received[2].headers["Authorization"] == "Bearer k"


def test_a_change_is_repeated_with_a_precondition_only() -> None:
    with scripted(LOST, SAVED, BUSY, SAVED) as server, form(server.port) as client:
        assert client.save(KNOWN, "<a/>").version == 1
        client.delete(KNOWN)
        assert [each.method for each in server.received] == ["PUT", "PUT", "DELETE", "DELETE"]
        first, again = server.received[:2]
        assert (first.path, first.headers.items()) == (again.path, again.headers.items())
        assert first.body == again.body == b"<a/>"
    for change in (lambda client: client.save("d", "<a/>"), lambda client: client.attach(KNOWN, b"x")):
        for failure, error in ((LOST, RemoteError), (BUSY, BusyError)):
            with scripted(failure, SAVED) as server, form(server.port) as client, pytest.raises(error):
                change(client)
            assert len(server.received) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda client: client.delete_all(),
        lambda client: client.purge_revision(KNOWN, KNOWN.modified),
        lambda client: client.purge_attachment(KNOWN, "scan.bin"),
        lambda client: client.issue_token(KNOWN, ["read"], "1h"),
        lambda client: client.reindex(1),
        lambda client: client.reencrypt(),
    ],
    ids=["delete_all", "purge_revision", "purge_attachment", "issue_token", "reindex", "reencrypt"],
)
def test_what_has_no_precondition_is_sent_once(change: Callable[[FormClient], object]) -> None:
    with scripted(LOST, SAVED) as server, form(server.port) as client, pytest.raises(RemoteError):
        change(client)
    assert len(server.received) == 1


def test_a_repetition_that_fails_says_that_the_first_may_have_been_done() -> None:
    line = 'current ETag "y", saved at 2025-01-01T00:00:00.001Z by me: somebody has saved since\n'
    with scripted(LOST, refused(412, line)) as server, form(server.port) as client:
        with pytest.raises(PreconditionError) as error:
            client.save(KNOWN, "<a/>")
        assert "may have been carried out" in error.value.__notes__[-1]
        assert (error.value.etag, error.value.saved) == ("y", "2025-01-01T00:00:00.001Z")


def test_pieces_that_cannot_be_read_again_are_sent_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"<file/>")
    with scripted(LOST, SAVED) as server, form(server.port) as client, pytest.raises(RemoteError):
        client.save(KNOWN, iter([b"<a", b"/>"]))
    assert len(server.received) == 1
    with scripted(LOST, SAVED) as server, form(server.port) as client:
        client.save(KNOWN, tmp_path / "file")
    assert [each.body for each in server.received] == [b"<file/>"] * 2
    with scripted(LOST, SAVED) as server, form(server.port) as client, (tmp_path / "file").open("rb") as file:
        file.seek(5)
        client.save(KNOWN, file)
    assert [each.body for each in server.received] == [b"/>"] * 2


def test_repetitions_are_bounded_in_number_and_time() -> None:
    with scripted(*[BUSY] * 9) as server, form(server.port) as client, pytest.raises(BusyError, match="busy"):
        client.load("d")
    assert len(server.received) == 4
    late = BUSY.replace("Retry-After: 0", "Retry-After: 100")
    began = time.monotonic()
    with scripted(late) as server, form(server.port) as client, pytest.raises(BusyError) as error:
        client.load("d")
    assert (error.value.retry_after, len(server.received)) == (100, 1)
    assert time.monotonic() - began < 10


def test_redirects_are_not_followed() -> None:
    answer = refused(307, "elsewhere\n", "Location: http://127.0.0.1:1/\r\n")
    with scripted(answer) as server, form(server.port) as client, pytest.raises(RemoteError, match="redirects"):
        client.load("d")


def test_a_large_answer_is_not_held_in_memory() -> None:
    with (
        scripted(FOUND) as server,
        form(server.port, largest=3) as client,
        pytest.raises(BadRequestError, match="3 bytes"),
    ):
        client.load("d")


def test_a_download_that_breaks_off_raises() -> None:
    with scripted(CUT) as server, form(server.port) as client, client.attachment("d", "a.bin") as found:
        assert found.length == 9
        with pytest.raises(RemoteError, match="broke"):
            found.read()


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (refused(507, "the disk is full\n"), DiskFullError, "the disk is full"),
        (refused(500, "two\nlines\n"), RemoteFailureError, "two"),
        (refused(502), RemoteError, "no"),
        (refused(504), RemoteTimeoutError, "no"),
        (refused(405), RemoteError, "no"),
        (refused(431, "<html>", "Content-Type: text/html\r\n"), RemoteError, "was answered with 431"),
        (refused(423, "lea has it\n", "Timeout: Second-7\r\n"), LockedError, "lea has it"),
        (FOUND.replace("Svc-Form", "Other-Form"), RemoteError, "is it a service of dialect svc"),
    ],
)
def test_every_odd_answer_is_an_error_of_one_line(answer: str, error: type[PersistenceError], text: str) -> None:
    with scripted(answer) as server, form(server.port) as client, pytest.raises(error, match=text) as raised:
        client.load("d")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("body", ["no xml", '<documents><document created="x"/>', "<!DOCTYPE a><documents/>"])
def test_an_answer_that_is_no_xml_is_an_error(body: str) -> None:
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    with scripted(answer, answer) as server, form(server.port) as client:
        with pytest.raises(RemoteError, match="no proper answer"):
            list(client.search("x"))
        with pytest.raises(RemoteError, match="no proper answer"):
            list(client.history("d"))


def test_a_page_with_fewer_documents_than_it_has_room_for_is_not_taken_for_the_last() -> None:
    """A service leaves out documents of another service that the user may not read."""
    pages = (
        f'<documents search-total="5">{documents}</documents>'
        for documents in ('<document name="a"/>', "", '<document name="b"/>')
    )
    answers = [f"HTTP/1.1 200 OK\r\nContent-Length: {len(page)}\r\n\r\n{page}" for page in pages]
    with scripted(*answers) as server, form(server.port) as client:
        assert [each.document for each in client.search(Query(size=2))] == ["a", "b"]
    assert [b"<page-number>%d<" % number in each.body for number, each in enumerate(server.received, 1)] == [True] * 3


def test_a_download_in_a_content_coding_is_no_content() -> None:
    coded = FOUND.replace("ETag", "Content-Encoding: gzip\r\nETag")
    for ask in (lambda client: client.attachment("d", "x.bin"), lambda client: client.load("d")):
        with scripted(coded) as server, form(server.port) as client, pytest.raises(RemoteError, match="content coding"):
            ask(client)


@pytest.mark.parametrize("key", ["\xe9", "a b", "a\r\nX: y", " ", ""])
def test_a_key_that_no_service_has_is_refused_unseen(key: str) -> None:
    with pytest.raises(BadRequestError, match="a key has") as raised:
        PersistenceClient(key=key)
    assert "X: y" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://ada:secret@localhost/", "http://ada:secret@[/"])
def test_an_address_with_a_password_is_not_repeated(url: str) -> None:
    with pytest.raises(BadRequestError, match="not a valid address") as raised:
        PersistenceClient(url)
    assert "secret" not in str(raised.value)


def test_a_closed_client_sends_nothing() -> None:
    with scripted() as server, form(server.port) as client:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        client.load("d")
