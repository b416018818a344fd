"""Sending the cases to a server, and judging what it did by what is stored when it has stopped."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from tests import nginx
from tests.rigs.connections.cases import BASE, Case, cases
from tests.service import Service, running

HEADINGS = ("group", "through", "cases", "answers", "stored as announced", "carried out", "faults")
DIRECT, NGINX = "gunicorn", "nginx"
_QUIET = 0.5
_PATIENCE = 30.0
_AT_ONCE = 12
_BASE_CONTENT = b"<base/>"
_OWN_STATUSES = {501, 505}  # a coding and a version that are not spoken: the answers HTTP has for them


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case as it was sent through a server, what came back, and what was done."""

    case: Case
    through: str
    reply: Reply
    stored: bool
    carried_out: bool
    faults: list[str]

    @property
    def answer(self) -> str:
        statuses = " ".join(map(str, self.reply.statuses)) or ("no status" if self.reply.content else "no answer")
        return f"{statuses}{', closed' if self.reply.is_closed else ''}"


def run(directory: Path) -> list[Outcome]:
    with ExitStack() as stack:
        direct = stack.enter_context(running(directory / "service", workers=2, threads=16, command="gunicorn"))
        faces = {DIRECT: direct}
        if nginx.NGINX is not None:
            faces[NGINX] = stack.enter_context(nginx.in_front_of(direct, directory / "nginx"))
        assert direct.raw("PUT", BASE.decode(), {}, _BASE_CONTENT).status == 201
        jobs = [
            (case.of(f"{through[0]}{number:06}".encode()), through, f"{through[0]}{number:06}")
            for number, case in enumerate(cases())
            for through in faces
        ]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            replies = list(pool.map(lambda job: _send(job[0], faces[job[1]]), jobs))
    # Only now is everything that was received carried out, or never will be.
    document = direct.data / "base/form/data/base/data.xml"
    assert document.read_bytes() == _BASE_CONTENT, "a refused request changed what was there"
    return [
        _judged(case, through, direct.data / app, *reply)
        for (case, through, app), reply in zip(jobs, replies, strict=True)
    ]


def _send(case: Case, face: Service) -> tuple[Reply, bool]:
    """What came back, and whether the next client was served."""
    reply = exchange(face.port, case.request, answers=2 if case.is_control else 1)
    try:
        return reply, face.raw("GET", BASE.decode()).body == _BASE_CONTENT
    except (OSError, HTTPException):
        return reply, False


def _judged(case: Case, through: str, place: Path, reply: Reply, next_is_served: bool) -> Outcome:  # noqa: FBT001
    files = [path for path in place.rglob("*") if path.is_file() and path.suffix != ".json"]
    names = {path.relative_to(place).as_posix(): path.read_bytes() for path in files}
    contents = {name: content for name, content in names.items() if "/." not in f"/{name}"}
    carried_out = contents.pop("form/data/hidden/data.xml", None) is not None
    outer, faults = contents.pop("form/data/outer/a.bin", None), []
    if carried_out != case.is_control:
        faults.append(f"the {'hidden request was' if carried_out else 'second request was not'} carried out")
    if outer is not None and outer not in case.may_store:
        faults.append(f"stored what was not announced: {outer[:60]!r}")
    faults += [f"stored {name}" for name in contents]
    faults += [f"answered {status}" for status in reply.statuses if status >= 500 and status not in _OWN_STATUSES]
    if not reply.content and not reply.is_closed:
        faults.append(f"neither answered nor closed in {reply.seconds:.0f} s")
    if not next_is_served:
        faults.append("the next client was not served")
    return Outcome(case, through, reply, outer is not None, carried_out, faults)


def rows(outcomes: Sequence[Outcome]) -> Iterator[tuple[object, ...]]:
    for group, through in dict.fromkeys((outcome.case.group, outcome.through) for outcome in outcomes):
        own = [one for one in outcomes if (one.case.group, one.through) == (group, through)]
        answers = Counter(" ".join(map(str, one.reply.statuses)) or "none" for one in own)
        shown = ", ".join(f"{count} of {answer}" for answer, count in sorted(answers.items()))
        done = sum(one.stored for one in own), sum(one.carried_out for one in own)
        yield group, through, len(own), shown, *done, sum(bool(one.faults) for one in own)


def listed(outcomes: Sequence[Outcome]) -> Iterator[str]:
    by_case: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        by_case.setdefault((outcome.case.group, outcome.case.name), []).append(outcome)
    for (group, name), both in by_case.items():
        answers = "; ".join(f"{one.through} {one.answer}{' STORED' * one.stored}" for one in both)
        yield f"{group}: {name}: {answers}"


def faults(outcomes: Sequence[Outcome]) -> list[str]:
    return [
        f"{outcome.case.group}: {outcome.case.name}, {outcome.through}: {fault} ({outcome.answer})"
        for outcome in outcomes
        for fault in outcome.faults
    ]


# Bytes sent as they are, and what comes back.

_STATUS = re.compile(rb"^HTTP/\d\.\d (\d{3}) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: everything, whether the server ended it by closing, and how long that took in seconds."""

    content: bytes
    is_closed: bool
    seconds: float

    @property
    def statuses(self) -> tuple[int, ...]:
        return tuple(int(status) for status in _STATUS.findall(self.content))


def exchange(port: int, request: bytes, *, answers: int) -> Reply:
    """Send a request and read until so many answers are there and nothing more comes for a while, or the server closes.

    Where nothing came at all, the client says that it has no more to send; then the server has to answer or close.
    """
    began = time.monotonic()
    content, is_closed = bytearray(), False
    with socket.create_connection(("127.0.0.1", port), _PATIENCE) as connection:
        with suppress(ConnectionError):  # a server may close in the middle of what it refuses
            connection.sendall(request)
        try:
            while chunk := _received(connection, content, answers):
                content += chunk
            is_closed = True
        except TimeoutError:
            pass
        except OSError:
            is_closed = True
    return Reply(bytes(content), is_closed, time.monotonic() - began)


def _received(connection: socket.socket, content: bytearray, answers: int) -> bytes:
    connection.settimeout(_QUIET)
    with suppress(TimeoutError):
        return connection.recv(65536)
    final = [status for status in _STATUS.findall(content) if not status.startswith(b"1")]
    if not content:
        connection.shutdown(socket.SHUT_WR)
    elif len(final) >= answers or not _STATUS.match(content):
        raise TimeoutError
    connection.settimeout(_PATIENCE)
    return connection.recv(65536)
