"""Requests that two servers may read differently, so that the end of one hides a second.

Every case tries to have a second request carried out, one that a proxy in front would not have seen. It hides in a
body: who takes that to be shorter than announced, or refuses it and goes on reading behind the head, carries it out.
"""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path

from tests import nginx
from tests.service import Service, running

APP = b"APP0000"
"""Stands for an application of the case's own, of the same length."""

HIDDEN = (
    b"PUT /crud/%b/form/data/hidden/data.xml HTTP/1.1\r\nHost: localhost\r\nSvc-Form-Definition-Version: 1\r\n"
    b"Content-Length: 9\r\n\r\n<hidden/>"
) % APP
BASE = b"/crud/base/form/data/base/data.xml"
"""A document that is there."""

_TARGET = b"/crud/%b/form/data/outer/a.bin" % APP
_SIZE = len(HIDDEN)
_ENDED = b"0\r\n\r\n" + HIDDEN
_CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (_SIZE, HIDDEN)
_FIXED = b"Content-Length: %d" % _SIZE
_LARGE = 70_000


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and which contents may be stored for it; ``is_control`` where its second request is a real one."""

    group: str
    name: str
    request: bytes
    may_store: frozenset[bytes] = frozenset()
    is_control: bool = False

    def of(self, app: bytes) -> Case:
        assert len(app) == len(APP), "lengths would no longer be right"
        contents = frozenset(content.replace(APP, app) for content in self.may_store)
        return replace(self, request=self.request.replace(APP, app), may_store=contents)


def cases() -> list[Case]:
    return [*_controls(), *_codings(), *_lengths(), *_chunks(), *_heads(), *_request_lines(), *_refusals()]


def _asked(
    headers: bytes, body: bytes, *, line: bytes = b"PUT %b HTTP/1.1" % _TARGET, host: bytes = b"Host: localhost\r\n"
) -> bytes:
    return b"%b\r\n%bSvc-Form-Definition-Version: 1\r\n%b\r\n\r\n%b" % (line, host, headers, body)


def _controls() -> Iterator[Case]:
    request = _asked(b"Content-Length: 4", b"<d/>" + HIDDEN)
    yield Case("control", "two requests in one go", request, frozenset({b"<d/>"}), is_control=True)
    request = _asked(b"Transfer-Encoding: chunked", _ENDED)
    yield Case("control", "two requests, the first in chunks", request, frozenset({b""}), is_control=True)


def _codings() -> Iterator[Case]:
    """A body that has two ends: the length's and the last chunk's."""
    headers = {
        "plain": b"Transfer-Encoding: chunked",
        "capital letters": b"TRANSFER-ENCODING: CHUNKED",
        "blank before the colon": b"Transfer-Encoding : chunked",
        "tab before the colon": b"Transfer-Encoding\t: chunked",
        "tab after the colon": b"Transfer-Encoding:\tchunked",
        "no blank": b"Transfer-Encoding:chunked",
        "vertical tab": b"Transfer-Encoding: \x0bchunked",
        "form feed": b"Transfer-Encoding: chunked\x0c",
        "no-break space": b"Transfer-Encoding: \xa0chunked",
        "NUL behind": b"Transfer-Encoding: chunked\x00",
        "NUL in the name": b"Transfer-Encoding\x00: chunked",
        "quotes": b'Transfer-Encoding: "chunked"',
        "more letters": b"Transfer-Encoding: xchunked",
        "parameter": b"Transfer-Encoding: chunked;q=1",
        "empty": b"Transfer-Encoding:",
        "comma behind": b"Transfer-Encoding: chunked,",
        "comma before": b"Transfer-Encoding: ,chunked",
        "identity": b"Transfer-Encoding: identity",
        "chunked, identity": b"Transfer-Encoding: chunked, identity",
        "identity, chunked": b"Transfer-Encoding: identity, chunked",
        "chunked, chunked": b"Transfer-Encoding: chunked, chunked",
        "gzip, chunked": b"Transfer-Encoding: gzip, chunked",
        "twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "twice, identity last": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "twice, identity first": b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "folded value": b"Transfer-Encoding:\r\n chunked",
        "in a folded line": b"X: y\r\n Transfer-Encoding: chunked",
        "behind a bare LF": b"X: y\nTransfer-Encoding: chunked",
        "behind a bare CR": b"X: y\rTransfer-Encoding: chunked",
        "underscore": b"Transfer_Encoding: chunked",
    }
    for name, coding in headers.items():
        for order in ("length first", "length last"):
            length = b"Content-Length: %d" % len(_ENDED)
            lines = (length, coding) if order == "length first" else (coding, length)
            request = _asked(b"\r\n".join(lines), _ENDED)
            yield Case("both length and coding", f"{name}, {order}", request, frozenset({b"", _ENDED}))
    short = _asked(b"Transfer-Encoding: chunked\r\nContent-Length: 3", _CHUNKED)
    yield Case("both length and coding", "length ends in the first chunk", short, frozenset({HIDDEN}))
    for name in ("vertical tab", "quotes", "more letters", "chunked, identity", "gzip, chunked", "empty", "identity"):
        request = _asked(headers[name], _ENDED)
        yield Case("coding alone", name, request, frozenset({b""}))
    old = _asked(b"Transfer-Encoding: chunked", _CHUNKED, line=b"PUT %b HTTP/1.0" % _TARGET)
    yield Case("coding alone", "HTTP/1.0", old, frozenset({HIDDEN}))


def _lengths() -> Iterator[Case]:
    """A body that is a request, under a length that can be misread; taken as none, the body is carried out."""
    size = b"%d" % _SIZE
    values = {
        "plus": b"+" + size,
        "minus": b"-" + size,
        "leading zero": b"0" + size,
        "hexadecimal": b"0x%x" % _SIZE,
        "octal": b"0o%o" % _SIZE,
        "underscore": size[:1] + b"_" + size[1:],
        "fraction": size + b".0",
        "exponent": size + b"e0",
        "twice in one line": size + b", " + size,
        "two in one line": b"0, " + size,
        "blank inside": size[:1] + b" " + size[1:],
        "blank behind": size + b" ",
        "vertical tab": b"\x0b" + size,
        "NUL": size + b"\x00",
        "parameter": size + b";q=1",
        "other digits": "".join(chr(0x660 + int(digit)) for digit in size.decode()).encode(),
        "superscript": b"\xb2",
        "empty": b"",
        "over 64 bits": b"%d" % ((1 << 64) + _SIZE),
        "thousands of digits": b"9" * 5000,
        "zeros before": b"0" * 5000 + size,
    }
    for name, value in values.items():
        yield Case("length", name, _asked(b"Content-Length: " + value, HIDDEN), frozenset({HIDDEN}))
    lines = {
        "two equal": _FIXED + b"\r\n" + _FIXED,
        "two, zero first": b"Content-Length: 0\r\n" + _FIXED,
        "two, zero last": _FIXED + b"\r\nContent-Length: 0",
        "folded": b"Content-Length:\r\n %d" % _SIZE,
        "blank before the colon": b"Content-Length : %d" % _SIZE,
        "underscore in the name": b"Content_Length: 0\r\n" + _FIXED,
        "named by the connection": b"Connection: Content-Length\r\n" + _FIXED,
        "behind a bare CR": b"X: y\r" + _FIXED + b"\r\nContent-Length: %d" % _SIZE,
    }
    for name, line in lines.items():
        yield Case("length", name, _asked(line, HIDDEN), frozenset({HIDDEN}))
    yield Case("length", "never reached", _asked(b"Content-Length: 100000", HIDDEN))


def _chunks() -> Iterator[Case]:
    """A chunk that is a request, with something odd about the chunk."""
    size, rest = b"%x" % _SIZE, HIDDEN + b"\r\n0\r\n\r\n"
    bodies = {
        "plus": b"+%b\r\n%b" % (size, rest),
        "minus": b"-%b\r\n%b" % (size, rest),
        "0x": b"0x%b\r\n%b" % (size, rest),
        "underscore": b"0_%b\r\n%b" % (size, rest),
        "leading zeros": b"0000%b\r\n%b" % (size, rest),
        "blank before": b" %b\r\n%b" % (size, rest),
        "blank behind": b"%b \r\n%b" % (size, rest),
        "tab behind": b"%b\t\r\n%b" % (size, rest),
        "vertical tab behind": b"%b\x0b\r\n%b" % (size, rest),
        "extension": b"%b;a=b\r\n%b" % (size, rest),
        "extension in quotes": b'%b;a="b;c"\r\n%b' % (size, rest),
        "extension with a line end": b'%b;a="b\r\nc"\r\n%b' % (size, rest),
        "extension with a bare LF": b"%b;a\n%b" % (size, rest),
        "extension with a bare CR": b"%b;a\rb\r\n%b" % (size, rest),
        "extension of 64 KiB": b"%b;%b\r\n%b" % (size, b"a" * 65536, rest),
        "bare LF behind the size": b"%b\n%b" % (size, rest),
        "bare CR behind the size": b"%b\r%b" % (size, rest),
        "trailer": _CHUNKED[:-2] + b"X: y\r\n\r\n",
        "trailer that is a length": _CHUNKED[:-2] + b"Content-Length: 0\r\n\r\n",
        "trailer that is a coding": _CHUNKED[:-2] + b"Transfer-Encoding: identity\r\n\r\n",
        "last chunk of many zeros": b"%b\r\n%b\r\n00000000000000000000\r\n\r\n" % (size, HIDDEN),
        "bare LF behind the chunk": b"%b\r\n%b\n0\r\n\r\n" % (size, HIDDEN),
        "nothing behind the chunk": b"%b\r\n%b0\r\n\r\n" % (size, HIDDEN),
        "bare LF at the end": b"%b\r\n%b\r\n0\n\n" % (size, HIDDEN),
    }
    for name, body in bodies.items():
        yield Case("chunks", name, _asked(b"Transfer-Encoding: chunked", body), frozenset({HIDDEN}))
    broken = {
        "size over 64 bits": b"1%016x\r\n%b" % (_SIZE, rest),
        "size of 70 digits": b"%b%b\r\n%b" % (b"f" * 70, size, rest),
        "size missing": b"\r\n" + HIDDEN,
        "size no number": b"zz\r\n" + HIDDEN,
        "size other digits": b"\xd9\xa1\r\n" + HIDDEN,
        "two bytes more than the size": b"4\r\n<d/>xx\r\n0\r\n\r\n" + HIDDEN,
        "end missing": b"%b\r\n%b\r\n" % (size, HIDDEN),
        "trailer without a colon": b"4\r\n<d/>\r\n0\r\n" + HIDDEN,
        "trailers of 64 KiB": b"4\r\n<d/>\r\n0\r\n" + b"X: y\r\n" * 11000 + b"\r\n",
    }
    # What ends behind the four bytes may be taken for those, if the rest is not carried out.
    for name, body in broken.items():
        yield Case("chunks", name, _asked(b"Transfer-Encoding: chunked", body), frozenset({b"<d/>"}))


def _heads() -> Iterator[Case]:
    lines = {
        "blank before a colon": b"X : y",
        "no colon": b"X",
        "no name": b": y",
        "folded line": b"X: y\r\n z",
        "first line folded": b" X: y",
        "NUL in a value": b"X: a\x00b",
        "NUL in a name": b"X\x00Y: z",
        "bare CR in a value": b"X: a\rb",
        "bare LF between lines": b"X: a\nY: b",
        "bare LF before the end": b"X: a\n\r\nY: b",
        "control character": b"X: a\x01b",
        "DEL": b"X: a\x7fb",
        "letters that are no ASCII": "Xé: y".encode(),
        "name with brackets": b"X(y): z",
        "value of 20 KB": b"X: " + b"y" * 20_000,
        "300 lines": b"\r\n".join(b"X-%d: y" % number for number in range(300)),
        "two hosts": b"Host: y",
        "Connection: close, twice": b"Connection: keep-alive\r\nConnection: close",
        "Connection names Host": b"Connection: Host",
        "Expect": b"Expect: 100-continue",
        "Expect, unknown": b"Expect: 200-maybe",
        "Upgrade to h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
        "Upgrade to websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "method override": b"X-HTTP-Method-Override: DELETE",
        "script name": b"Script-Name: /crud",
        "PROXY line": b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2",
    }
    for name, line in lines.items():
        yield Case("head", name, _asked(line + b"\r\n" + _FIXED, HIDDEN), frozenset({HIDDEN}))
    everywhere = _asked(_FIXED, b"").replace(b"\r\n", b"\n") + HIDDEN
    yield Case("head", "bare LF everywhere", everywhere, frozenset({HIDDEN}))
    yield Case("head", "bare CR everywhere", _asked(_FIXED, b"").replace(b"\r\n", b"\r") + HIDDEN)
    yield Case("head", "no host", _asked(_FIXED, HIDDEN, host=b""), frozenset({HIDDEN}))
    yield Case("head", "host with a blank", _asked(_FIXED, HIDDEN, host=b"Host: x y\r\n"), frozenset({HIDDEN}))


def _request_lines() -> Iterator[Case]:
    lines = {
        "absolute form": b"PUT http://other%b HTTP/1.1" % _TARGET,
        "absolute form, other port and user": b"PUT http://a:b@other:1%b HTTP/1.1" % _TARGET,
        "HTTP/1.0": b"PUT %b HTTP/1.0" % _TARGET,
        "HTTP/0.9": b"PUT %b" % _TARGET,
        "HTTP/1.2": b"PUT %b HTTP/1.2" % _TARGET,
        "HTTP/2.0": b"PUT %b HTTP/2.0" % _TARGET,
        "HTTP/9.9": b"PUT %b HTTP/9.9" % _TARGET,
        "lower case http": b"PUT %b http/1.1" % _TARGET,
        "two versions": b"PUT %b HTTP/1.1 HTTP/1.1" % _TARGET,
        "two blanks": b"PUT  %b  HTTP/1.1" % _TARGET,
        "tabs": b"PUT\t%b\tHTTP/1.1" % _TARGET,
        "blank in the target": b"PUT %b x HTTP/1.1" % _TARGET,
        "bare CR in the target": b"PUT %b\rHTTP/1.1" % _TARGET,
        "NUL in the target": b"PUT %b\x00 HTTP/1.1" % _TARGET,
        "a whole request in the target": b"PUT %b?%%0d%%0a HTTP/1.1" % _TARGET,
        "no slash": b"PUT %b HTTP/1.1" % _TARGET[1:],
        "lower case method": b"put %b HTTP/1.1" % _TARGET,
        "odd method": b"P\x01T %b HTTP/1.1" % _TARGET,
        "empty line before": b"\r\nPUT %b HTTP/1.1" % _TARGET,
        "CONNECT": b"CONNECT other:80 HTTP/1.1",
        "CONNECT to a path": b"CONNECT %b HTTP/1.1" % _TARGET,
        "TRACE": b"TRACE %b HTTP/1.1" % _TARGET,
        "OPTIONS *": b"OPTIONS * HTTP/1.1",
        "GET with a body": b"GET %b HTTP/1.1" % BASE,
        "HEAD with a body": b"HEAD %b HTTP/1.1" % BASE,
        "DELETE with a body": b"DELETE %b HTTP/1.1" % _TARGET,
    }
    for name, line in lines.items():
        yield Case("request line", name, _asked(_FIXED, HIDDEN, line=line), frozenset({HIDDEN}))
    yield Case("request line", "fragment", _asked(_FIXED, HIDDEN, line=b"PUT %b#x HTTP/1.1" % _TARGET))
    for name in ("GET with a body", "HEAD with a body", "DELETE with a body", "TRACE", "CONNECT"):
        request = _asked(b"Transfer-Encoding: chunked", _CHUNKED, line=lines[name])
        yield Case("request line", f"{name}, chunked", request)
    yield Case("request line", "preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN)
    yield Case("request line", "TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + HIDDEN)


def _refusals() -> Iterator[Case]:
    """Requests that the service itself refuses, perhaps without reading the body; the body is a request."""
    for name, headers, line in (
        ("400", b"", b"PUT /crud/%b/form/data/../a.bin HTTP/1.1" % APP),
        ("404", b"", b"PUT /crud/%b/form/other/a.bin HTTP/1.1" % APP),
        ("404, nothing of the service", b"", b"PUT /%b HTTP/1.1" % APP),
        ("405", b"", b"POST %b HTTP/1.1" % _TARGET),
        ("412", b'If-Match: "other"\r\n', b"PUT %b HTTP/1.1" % BASE),
        ("412, Expect", b'Expect: 100-continue\r\nIf-Match: "other"\r\n', b"PUT %b HTTP/1.1" % BASE),
        ("415", b"Content-Encoding: gzip\r\n", b"PUT %b HTTP/1.1" % _TARGET),
    ):
        large = b"x" * _LARGE + b"\r\n\r\n" + HIDDEN
        yield Case("refusal", name, _asked(headers + _FIXED, HIDDEN, line=line))
        yield Case("refusal", f"{name}, chunked", _asked(headers + b"Transfer-Encoding: chunked", _CHUNKED, line=line))
        yield Case("refusal", f"{name}, large", _asked(headers + b"Content-Length: %d" % len(large), large, line=line))
    yield Case("refusal", "413", _asked(b"Content-Length: %d" % (1 << 40), HIDDEN))
    yield Case("refusal", "malformed XML", _asked(_FIXED, HIDDEN, line=b"PUT %b HTTP/1.1" % BASE))


# Sending the cases to a server, and judging what it did by what is stored when it has stopped.

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
