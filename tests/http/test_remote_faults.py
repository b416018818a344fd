"""A provider that is down, hangs, lies or dies: what the client is told, and that nothing is half-done."""

import http.client
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.in_process import serving
from tests.providers import STORED, Provider, Received, Reply, providing, wired
from tests.service import PUBLIC, V1, Service, alone

DATA = "acme/order/data/D/data.xml"
FILE = "acme/order/data/D/film.bin"
EMPTY_LIST = Reply(body=b'<forms search-total="0"/>', headers={"Content-Type": "application/xml"})
FOUND = Reply(headers=STORED, body=b"<d/>")


def settings(directory: Path, port: int) -> Path:
    file = directory / "remote.toml"
    file.write_text(
        f'"svc.persistence.files.uri" = "http://127.0.0.1:{port}/base"\n"svc.persistence.files.dialect" = "orbeon"\n'
        '"svc.persistence.files.datasource" = "fr"\n'
    )
    return file


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with providing(lambda _: FOUND) as provider:
        yield provider


@pytest.fixture(scope="module")
def service(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("faults")
    env = {"PERSISTENCE_CONFIG": str(settings(directory, provider.port)), "PERSISTENCE_REMOTE_TIMEOUT": "0.5"}
    with serving(directory, env=env, alone=True) as service:
        yield service


def answering(provider: Provider, **replies: Reply) -> None:
    """Let a provider answer each method so; forms there are none, and what is not named succeeds."""

    def answer(got: Received) -> Reply:
        if got.path.startswith("/base/form"):
            return EMPTY_LIST
        if got.path.endswith("form.xhtml"):
            return Reply(404)
        return replies.get(got.method, FOUND if got.method in ("GET", "HEAD") else Reply(204, STORED))

    provider.answers = answer
    provider.received.clear()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        *((400, 400), (401, 502), (403, 403), (404, 404), (405, 502), (409, 409), (412, 412), (413, 413), (418, 502)),
        *((423, 423), (429, 503), (500, 502), (501, 501), (502, 502), (503, 503), (507, 507), (302, 502), (204, 502)),
    ],
)
def test_a_refusal_is_passed_on_as_it_is_meant(provider: Provider, service: Service, theirs: int, ours: int) -> None:
    said = {"Content-Type": "text/plain", "Location": "/elsewhere", "Retry-After": "7"}
    answering(provider, GET=Reply(theirs, said, b"" if theirs == 204 else b"because of this\nand more"))
    answer = service.get(DATA)
    assert answer.status == ours
    assert theirs in (204, 404) or "because of this" in answer.cause
    assert ("and more" not in answer.cause, answer["Retry-After"]) == (True, "7" if ours == 503 else None)


@pytest.mark.parametrize("status", [409, 423, 507, 500])
def test_a_refused_write_is_no_success(provider: Provider, service: Service, status: int) -> None:
    answering(provider, PUT=Reply(status), DELETE=Reply(status))
    for answer in (service.put(DATA), service.delete(DATA)):
        assert answer.status == (502 if status == 500 else status)
        assert answer.cause.startswith("provider 'files' answers ")


def _without(name: str) -> dict[str, str]:
    return {key: value for key, value in STORED.items() if not key.endswith(name)}


@pytest.mark.parametrize(
    "reply",
    [
        Reply(headers=_without("Last-Modified"), body=b"<d/>"),
        Reply(headers=_without("Form-Definition-Version"), body=b"<d/>"),
        Reply(headers={**STORED, "Orbeon-Form-Definition-Version": "next"}, body=b"<d/>"),
        Reply(headers={**STORED, "Orbeon-Last-Modified": "yesterday", "Last-Modified": "soon"}, body=b"<d/>"),
        Reply(headers={**STORED, "Content-Encoding": "gzip"}, body=b"<d/>"),
        Reply(raw=b"\x00\x01 nothing that is HTTP\r\n\r\n"),
        Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nOrbeon-Form-Definition-Version: 1\r\n"
              b"Orbeon-Last-Modified: 2025-03-04T05:06:07.089Z\r\n\r\n<d>"),
        Reply(raw=b""),
    ],
    ids=["no-time", "no-version", "odd-version", "odd-time", "coded", "garbage", "short", "hung-up"],
)  # fmt: skip
def test_an_odd_answer_is_a_bad_gateway_with_a_cause(provider: Provider, service: Service, reply: Reply) -> None:
    answering(provider, GET=reply)
    answer = service.get(DATA)
    assert answer.status == 502
    assert len(answer.cause.splitlines()) == 1
    assert "127.0.0.1" not in answer.cause, "where a provider is, may have a password in it"


@pytest.mark.parametrize("modified", ["9999-12-31T23:59:59.999Z", "9999-12-31T22:59:59.9999999-01:00"])
def test_nothing_is_written_over_what_was_modified_at_the_end_of_time(
    provider: Provider, service: Service, modified: str
) -> None:
    answering(provider, HEAD=Reply(headers={**STORED, "Orbeon-Last-Modified": modified}))
    for answer in (service.put(DATA), service.delete(DATA)):
        assert answer.status == 502
        assert answer.cause.endswith(", which nothing can follow")
    assert provider.of("PUT") == provider.of("DELETE") == []


def test_lists_and_searches_that_are_none_are_bad_gateways(provider: Provider, service: Service) -> None:
    provider.answers = lambda _: Reply(body=b"<forms")
    assert service.raw("GET", f"{PUBLIC}/form").status == 502
    for body in (b"<documents", b"<documents/>", b'<documents search-total="1"><document name="d"/></documents>'):
        answering(provider, POST=Reply(body=body))
        headers = {"Content-Type": "application/xml"}
        assert service.raw("POST", f"{PUBLIC}/search/acme/order", headers, b"<search/>").status == 502


def test_a_download_that_breaks_off_is_no_whole_answer(provider: Provider, service: Service) -> None:
    head = "".join(f"{name}: {value}\r\n" for name, value in STORED.items())
    raw = f"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n{head}\r\n".encode() + bytes(500_000)
    answering(provider)
    ordinary = provider.answers
    provider.answers = lambda got: Reply(raw=raw) if got.path.endswith(".bin") else ordinary(got)
    with pytest.raises(http.client.IncompleteRead):
        service.get(FILE)


def test_nothing_that_was_sent_is_sent_again(provider: Provider, service: Service) -> None:
    answering(provider, PUT=Reply(raw=b""), DELETE=Reply(raw=b""))
    assert service.put(DATA).status == service.delete(DATA).status == 502
    assert (len(provider.of("PUT")), len(provider.of("DELETE"))) == (1, 1)


def test_a_question_is_asked_again_once(provider: Provider, service: Service) -> None:
    answering(provider)
    replies = [Reply(raw=b"")]
    ordinary = provider.answers
    provider.answers = lambda got: (
        replies.pop() if got.method == "GET" and got.path.endswith("xml") and replies else ordinary(got)
    )
    assert service.get(DATA).status == 200


def test_a_provider_that_is_down_is_a_bad_gateway(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with serving(tmp_path, env={"PERSISTENCE_CONFIG": str(settings(tmp_path, port))}, alone=True) as service:
        for answer in (service.get(DATA), service.put(DATA), service.delete(DATA)):
            assert answer.status == 502
            assert answer.cause.startswith("provider 'files' cannot be reached: ")
        assert service.raw("GET", f"{PUBLIC}/form").status == 502
        assert service.raw("GET", "/readyz").status == 200, "what is kept here can be served"


def test_a_provider_that_hangs_is_given_up_and_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections, and says nothing
        file = settings(tmp_path, silent.getsockname()[1])
        file.write_text(file.read_text() + '"svc.persistence.provider.here.*.*" = "tree"\n')
        env = {"PERSISTENCE_CONFIG": str(file), "PERSISTENCE_REMOTE_TIMEOUT": "0.5"}
        with serving(tmp_path, env=env, alone=True) as service:
            answer = service.get(DATA)
            assert (answer.status, answer.cause.split(": ")[0]) == (504, "provider 'files' does not answer in time")
            assert service.put(DATA).status == 504
            assert service.put("here/order/data/D/data.xml", **V1).status == 201


def test_what_is_cut_off_half_way_is_not_there(tmp_path: Path) -> None:
    """The issue: the remote down in the middle of a PUT is 502, and nothing is half-done."""
    with alone(tmp_path / "behind", dialect="orbeon") as behind, wired(behind.port) as wire:
        with serving(
            tmp_path, env={"PERSISTENCE_CONFIG": str(settings_at(tmp_path, wire.port))}, alone=True
        ) as service:
            assert service.put(DATA, **V1).status == 201
            wire.cut_after = 1 << 20
            answer = service.put(FILE, bytes(4 << 20))
            assert (answer.status, answer.cause.startswith("provider 'files' ")) == (502, True)
            wire.cut_after = None
            assert service.get(FILE).status == 404
            assert behind.leftovers() == []
            assert service.put(FILE, bytes(4 << 20)).status == 201
            assert len(service.get(FILE).body) == 4 << 20
            for pid in (behind.process.pid, *behind.workers()):
                os.kill(pid, signal.SIGKILL)
            assert service.put(FILE, bytes(4 << 20)).status == 502
        assert service.leftovers() == []


def settings_at(directory: Path, port: int) -> Path:
    file = settings(directory, port)
    file.write_text(
        "\n".join(line for line in file.read_text().replace("/base", "").splitlines() if "source" not in line)
    )
    return file
