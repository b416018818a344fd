"""The load: clients that store, replace, read and search, and remember what was acknowledged."""

from __future__ import annotations

import hashlib
import http.client
import random
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

FORM = "cluster/paper"
SHARED = tuple(f"shared-{number}" for number in range(8))
"""The documents that all clients replace."""

_PATIENCE = 75.0
_PAUSE = 0.04
_AWAY = 0.2
_MOST_SMALL, _MOST_LARGE = 8_000, 900_000
"""Bytes of a document that is replaced or new, and of one in fifty: larger than what the database has in its row."""

_CUT = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
_EXPECTED = {
    "new": {HTTPStatus.CREATED},
    "over": {HTTPStatus.NO_CONTENT, HTTPStatus.CREATED, HTTPStatus.PRECONDITION_FAILED},
    "GET": {HTTPStatus.OK},
    "GET shared": {HTTPStatus.OK, HTTPStatus.NOT_FOUND},
    "search": {HTTPStatus.OK},
}


@dataclass(frozen=True, slots=True)
class Acknowledged:
    document: str
    token: str
    owner: str
    size: int
    tag: str
    instant: str

    @property
    def path(self) -> str:
        return path_of(self.document)

    def differs(self, answer: http.client.HTTPResponse, body: bytes, owner: str | None = None) -> str:
        """Return how an answer differs from the acknowledged document; empty if it does not."""
        if answer.status != HTTPStatus.OK:
            return f"{self.document} is {answer.status}, acknowledged with {self.tag} at {self.instant}"
        expected = {
            "ETag": self.tag,
            "Svc-Last-Modified": self.instant,
            "Svc-Workflow-Stage": self.token,
            "Svc-Form-Definition-Version": "1",
            "Svc-Username": owner or self.owner,
            "Content-Length": str(self.size),
        }
        wrong = [f"{name}: {answer.headers[name]}" for name, value in expected.items() if answer.headers[name] != value]
        if body != body_of(self.token, self.size):
            wrong.append(f"another content, of {len(body)} bytes with sha256 {hashlib.sha256(body).hexdigest()[:12]}")
        return f"{self.document} at {self.instant}: {', '.join(wrong)}" if wrong else ""


@dataclass(slots=True)
class Seen:
    acknowledged: list[Acknowledged] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """When each acknowledgement came, by the one clock that all processes read."""

    unanswered: list[float] = field(default_factory=list)
    """When requests were cut, or answered by something that does not say what happened."""

    unknown: int = 0
    """Writes of new documents without an answer, or with 503: each is done or not."""

    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def path_of(document: str) -> str:
    return f"/fr/service/persistence/crud/{FORM}/data/{document}/data.xml"


def body_of(token: str, size: int) -> bytes:
    """The content that belongs to a token: form data of so many bytes, no two of them alike."""
    head, tail = f"<form><paper><token>{token}</token><text>".encode(), b"</text></paper></form>"
    seed = hashlib.sha256(token.encode()).hexdigest().encode()
    room = size - len(head) - len(tail)
    return head + (seed * (room // len(seed) + 1))[:room] + tail


def run(port: int, number: int, over: Path) -> Seen:
    """Be one client until a file is there."""
    client = _Client(port, number)
    while not over.exists():
        client.act()
    return client.seen


class _Client:
    """Chooses at random; each request has a connection of its own, so that both instances get their part."""

    def __init__(self, port: int, number: int) -> None:
        self.seen = Seen()
        self._port = port
        self._number = number
        self._count = 0
        self._chance = random.Random(number)

    def act(self) -> None:
        choices = {self._create: 40, self._replace: 20, self._check: 28, self._search: 12}
        (choice,) = self._chance.choices(list(choices), list(choices.values()))
        choice()
        time.sleep(self._chance.uniform(0, 2 * _PAUSE))

    def _token(self) -> str:
        self._count += 1
        return f"t{self._number}x{self._count}"

    def _size(self) -> int:
        if self._chance.random() < 0.02:
            return self._chance.randint(_MOST_SMALL, _MOST_LARGE)
        return self._chance.randint(200, _MOST_SMALL)

    def _create(self) -> None:
        token, size = self._token(), self._size()
        answer, _ = self._ask("new", "PUT", path_of(f"d-{token}"), token, size)
        self._keep(f"d-{token}", token, size, answer)
        if answer is None:
            self.seen.unknown += 1

    def _replace(self) -> None:
        """Replace the shared document that was read, unless another client has been faster."""
        document = self._chance.choice(SHARED)
        read, _ = self._ask("GET shared", "GET", path_of(document))
        if read is None:
            return
        token, size = self._token(), self._size()
        is_there = read.status == HTTPStatus.OK
        condition = {"If-Match": read.headers["ETag"]} if is_there else {"If-None-Match": "*"}
        answer, _ = self._ask("over", "PUT", path_of(document), token, size, condition)
        if answer is not None and answer.status != HTTPStatus.PRECONDITION_FAILED:
            self._keep(document, token, size, answer)

    def _keep(self, document: str, token: str, size: int, answer: http.client.HTTPResponse | None) -> None:
        if answer is None:
            return
        self.seen.times.append(time.monotonic())
        headers = answer.headers
        tag, instant = str(headers["ETag"]), str(headers["Svc-Last-Modified"])
        self.seen.acknowledged.append(Acknowledged(document, token, f"user-{self._number}", size, tag, instant))

    def _check(self) -> None:
        """Read a document of its own: what was acknowledged is there, whichever instance is asked."""
        own = [each for each in self.seen.acknowledged[-200:] if each.document not in SHARED]
        if own:
            each = self._chance.choice(own)
            answer, body = self._ask("GET", "GET", each.path)
            if answer is not None and (wrong := each.differs(answer, body)):
                self.seen.faults.append(f"read during the run: {wrong}")

    def _search(self) -> None:
        """Search for the newest document of its own: a search is never behind a save."""
        newest = next((each for each in reversed(self.seen.acknowledged) if each.document not in SHARED), None)
        if newest is None:
            return
        answer, body = self._ask("search", "POST", search_path(), search=newest.token)
        if answer is not None and newest.document not in found(body):
            self.seen.faults.append(f"a search does not find {newest.document}: {body[:200]!r}")

    def _ask(
        self,
        what: str,
        method: str,
        path: str,
        token: str = "",
        size: int = 0,
        headers: Mapping[str, str] | None = None,
        search: str = "",
    ) -> tuple[http.client.HTTPResponse | None, bytes]:
        """The answer if there was one that says what happened, and its body."""
        sent = {**(headers or {}), "Content-Type": "application/xml", "Svc-Username": f"user-{self._number}"}
        body = body_of(token, size) if token else search_body(search) if search else None
        if token:
            sent |= {"Svc-Workflow-Stage": token, "Svc-Form-Definition-Version": "1"}
        try:
            answer, content = ask(self._port, method, path, body, sent)
        except (OSError, http.client.HTTPException) as error:
            self.seen.statuses[what, type(error).__name__] += 1
            self.seen.unanswered.append(time.monotonic())
            if isinstance(error, TimeoutError):
                self.seen.faults.append(f"{what} was not answered in {_PATIENCE:g} s")
            time.sleep(_AWAY)
            return None, b""
        self.seen.statuses[what, str(answer.status)] += 1
        if answer.status in _CUT:
            self.seen.unanswered.append(time.monotonic())
            time.sleep(_AWAY)
            return None, b""
        if answer.status not in _EXPECTED[what]:
            self.seen.faults.append(f"{what} {path} was answered {answer.status}: {content[:200]!r}")
            return None, b""
        return answer, content


def ask(
    port: int, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def search_path() -> str:
    return f"/fr/service/persistence/search/{FORM}"


def search_body(token: str = "") -> bytes:
    """A search for the documents with a token, or for all of them."""
    query = f'<query path="paper/token" match="exact">{token}</query>' if token else ""
    return f"<search><drafts>exclude</drafts>{query}</search>".encode()


def found(body: bytes) -> list[str]:
    """The documents on the page that a search answers."""
    return [name.decode() for name in re.findall(rb'<document [^>]*?name="([^"]*)"', body)]


DEFINITION = b"""<xh:html xmlns:xh="http://www.w3.org/1999/xhtml" xmlns:xf="http://www.w3.org/2002/xforms"
 xmlns:fr="http://orbeon.org/oxf/xml/form-runner"><xh:head><xf:model id="fr-form-model">
<xf:instance id="fr-form-instance"><form><paper><token/><text/></paper></form></xf:instance>
<xf:bind id="fr-form-binds" ref="instance('fr-form-instance')"><xf:bind id="paper-bind" name="paper" ref="paper">
<xf:bind id="token-bind" name="token" ref="token"/><xf:bind id="text-bind" name="text" ref="text"/></xf:bind></xf:bind>
<xf:instance id="fr-form-metadata"><metadata><application-name>cluster</application-name><form-name>paper</form-name>
</metadata></xf:instance></xf:model></xh:head><xh:body><fr:view><fr:body>
<fr:section id="paper-section" bind="paper-bind"><fr:grid id="g-grid">
<fr:c><xf:input id="token-control" bind="token-bind"><fr:index/></xf:input></fr:c>
<fr:c><xf:textarea id="text-control" bind="text-bind"/></fr:c>
</fr:grid></fr:section></fr:body></fr:view></xh:body></xh:html>"""
"""The form of the documents, whose control ``token`` is indexed."""


def publish(port: int) -> None:
    headers = {"Svc-Form-Definition-Version": "1", "Content-Type": "application/xhtml+xml"}
    path = f"/fr/service/persistence/crud/{FORM}/form/form.xhtml"
    answer, body = ask(port, "PUT", path, DEFINITION, headers)
    if answer.status not in (HTTPStatus.CREATED, HTTPStatus.NO_CONTENT):
        raise RuntimeError(f"publishing was answered {answer.status}: {body[:200]!r}")
