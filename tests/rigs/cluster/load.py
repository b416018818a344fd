"""The load: clients that store, replace, read and search, and remember what was acknowledged; what is left of it."""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from urllib.parse import quote

from tests.orders import found
from tests.rigs.clients import XML, content, data
from tests.rigs.judging import mismatch
from tests.rigs.ledger import FORM, Revision, State
from tests.rigs.report import prefixed
from tests.service import PUBLIC, Answer, Service

SHARED = tuple(f"shared-{number}" for number in range(8))
"""The documents that all clients replace."""

_PATIENCE = 75.0
_PAUSE = 0.04
_AWAY = 0.2
_MOST_SMALL, _MOST_LARGE = 8_000, 900_000
"""Bytes in a document that is replaced or new, and in one of fifty: larger than what the database has in its row."""
_THREADS = 4
_SAMPLE = 50
_CUT = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
_EXPECTED = {"new": {201}, "over": {201, 204, 412}, "GET": {200}, "GET shared": {200, 404}, "search": {200}}


@dataclass(frozen=True, slots=True)
class Acknowledged:
    document: str
    token: str
    state: State

    @property
    def path(self) -> str:
        return data(FORM, self.document).path

    def faults(self, answer: Answer) -> list[str]:
        """How an answer differs from what was acknowledged. The creation of a shared document is not known."""
        if answer.status != HTTPStatus.OK:
            return [f"{self.document} is answered {answer.status}; acknowledged at {self.state.instant}"]
        state, revision = self.state, self.state.revision
        if self.document in SHARED:
            revision = replace(revision, created=answer["Svc-Created"], owner=answer["Svc-Username"])
            state = replace(state, revision=revision)
        return prefixed(self.document, mismatch(answer, state, data(FORM, self.document)))


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


def service_at(port: int) -> Service:
    return Service(port, Path(), Path(), None, timeout=_PATIENCE)


def run(port: int, number: int, over: Path) -> Seen:
    client = _Client(port, number)
    while not over.exists():
        client.act()
    return client.seen


class _Client:
    """Chooses at random; each request has a connection of its own, so that both instances get their part."""

    def __init__(self, port: int, number: int) -> None:
        self.seen = Seen()
        self._service = service_at(port)
        self._user = f"user-{number}"
        self._number = number
        self._count = 0
        self._chance = random.Random(number)

    def act(self) -> None:
        choices = {self._create: 40, self._replace: 20, self._check: 28, self._search: 12}
        (choice,) = self._chance.choices(list(choices), list(choices.values()))
        choice()
        time.sleep(self._chance.uniform(0, 2 * _PAUSE))

    def _create(self) -> None:
        self._count += 1
        if not self._put("new", f"d-t{self._number}x{self._count}x"):
            self.seen.unknown += 1

    def _replace(self) -> None:
        """Replace the shared document that was read, unless another client has been faster."""
        document = self._chance.choice(SHARED)
        read = self._ask("GET shared", "GET", f"crud/{data(FORM, document).path}")
        if read is not None:
            self._count += 1
            self._put("over", document, {"If-Match": read["ETag"]} if read.status == 200 else {"If-None-Match": "*"})

    def _put(self, what: str, document: str, condition: Mapping[str, str] | None = None) -> bool:
        """Store a document, and remember it if that was acknowledged; whether there was an answer."""
        is_large = self._chance.random() < 0.02
        room = self._chance.randint(*((_MOST_SMALL, _MOST_LARGE) if is_large else (0, _MOST_SMALL)))
        resource, token = data(FORM, document), f"t{self._number}x{self._count}x"
        body = content(resource, token, self._user, "f" * room)
        own = {"Workflow_Stage": token, "Form_Definition_Version": "1"}
        answer = self._ask(what, "PUT", f"crud/{resource.path}", body, condition, **own)
        if answer is not None and answer.status < HTTPStatus.BAD_REQUEST:
            self.seen.times.append(time.monotonic())
            instant, digest = str(answer["Svc-Last-Modified"]), hashlib.sha256(body).hexdigest()
            revision = Revision(digest, len(body), XML, "1", token, self._user, instant, self._user)
            self.seen.acknowledged.append(Acknowledged(document, token, State(revision, str(answer["ETag"]), instant)))
        return answer is not None

    def _check(self) -> None:
        """Read a document of its own: what was acknowledged is there, whichever instance is asked."""
        if own := list(_new(self.seen.acknowledged[-200:])):
            each = self._chance.choice(own)
            answer = self._ask("GET", "GET", f"crud/{each.path}")
            self.seen.faults += [] if answer is None else prefixed("read during the run", each.faults(answer))

    def _search(self) -> None:
        """Search for the newest document of its own: a search is never behind a save."""
        newest = next(_new(reversed(self.seen.acknowledged)), None)
        if newest is not None:
            answer = self._ask("search", "POST", f"search/{FORM}", _search_for(newest.token))
            if answer is not None and newest.document not in found(answer.body):
                self.seen.faults.append(f"a search does not find {newest.document}: {answer.body[:200]!r}")

    def _ask(
        self,
        what: str,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **own: str,
    ) -> Answer | None:
        answer, seen, sent = None, self.seen, {"Content-Type": XML, **(headers or {})}
        try:
            answer = self._service.raw(method, f"{PUBLIC}/{path}", sent, body, Username=self._user, **own)
        except (OSError, HTTPException) as error:
            seen.statuses[what, type(error).__name__] += 1
            if isinstance(error, TimeoutError):
                seen.faults.append(f"{what} was not answered in {_PATIENCE:g} s")
        else:
            seen.statuses[what, str(answer.status)] += 1
        if answer is None or answer.status in _CUT:
            seen.unanswered.append(time.monotonic())
            time.sleep(_AWAY)
            return None
        if answer.status not in _EXPECTED[what]:
            seen.faults.append(f"{what} {path} was answered {answer.status}: {answer.body[:200]!r}")
            return None
        return answer


def _new(acknowledged: Iterable[Acknowledged]) -> Iterator[Acknowledged]:
    return (each for each in acknowledged if each.document not in SHARED)


def _search_for(token: str) -> bytes:
    query = f'<query path="customer/name" match="exact">{token}</query>' if token else ""
    return f"<search><drafts>exclude</drafts>{query}</search>".encode()


def lost(ports: Sequence[int], seen: Iterable[Seen]) -> list[str]:
    """Each acknowledged write that is not there, or not as it was acknowledged; of a shared document the revision."""
    services = [service_at(port) for port in ports]

    def faults(number: int, each: Acknowledged) -> list[str]:
        query = f"?last-modified-time={quote(each.state.instant)}" if each.document in SHARED else ""
        return each.faults(services[number % len(services)].get(f"{each.path}{query}"))

    every = enumerate(each for client in seen for each in client.acknowledged)
    with ThreadPoolExecutor(_THREADS) as pool:
        return [line for lines in pool.map(lambda pair: faults(*pair), every) for line in lines]


def miscounted(ports: Sequence[int], seen: Sequence[Seen]) -> Iterator[str]:
    every = [each for client in seen for each in client.acknowledged]
    new, unknown = list(_new(every)), sum(client.unknown for client in seen)
    for document in SHARED:
        acknowledged = sum(each.document == document for each in every)
        total = _total(service_at(ports[0]).call("GET", f"history/{FORM}/{document}?page-size=100"))
        if total < acknowledged:
            yield f"{document} has {total} revisions; {acknowledged} were acknowledged"
    for port in ports:
        service = service_at(port)
        total = _total(service.post(f"search/{FORM}", _search_for("")))
        if not len(new) <= total <= len(new) + unknown + len(SHARED):
            yield f"a search finds {total}; {len(new)} were acknowledged, of {unknown} nothing is known"
        for each in new[port % _SAMPLE :: _SAMPLE]:
            answer = service.post(f"search/{FORM}", _search_for(each.token))
            if answer.status != HTTPStatus.OK or found(answer.body) != [each.document]:
                yield f"a search for {each.token} is answered {answer.status}: {answer.body[:200]!r}"


def _total(answer: Answer) -> int:
    said = re.search(rb'(?:search-)?total="(\d+)"', answer.body)
    return int(said[1]) if said and answer.status == HTTPStatus.OK else -1
