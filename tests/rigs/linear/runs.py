"""Processes at work on a real service whose workers are killed at random, and the judgement of them."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from threading import Barrier

from tests.rigs.linear.checker import MOST_TRIED, NOTHING_STORED, Kind, Operation, State, Verdict, check, resolved
from tests.rigs.report import Report, Tally, prefixed
from tests.rigs.server import Variant, weak, working
from tests.rigs.weakened import OF_CONCURRENCY
from tests.service import PUBLIC, Answer, Service, running

NOT_LINEAR = "not linearizable"
JUDGED = ("operations", "unknown outcomes", "documents", "segments", "most steps tried", "undecided", NOT_LINEAR)
_HEADINGS = ("clients", "workers", "kills", *JUDGED)


@dataclass(frozen=True, slots=True)
class Load:
    """How much is asked: ``rounds`` names the document of each, and one named again goes on where it was left.

    ``kills`` are the shortest and the longest pause between two, in seconds.
    """

    name: str
    rounds: Sequence[str]
    operations: int
    clients: int = 4
    workers: int = 4
    kills: tuple[float, float] = (0.2, 0.8)
    seed: int = 1


_LOADS = (
    Load("100 documents", tuple(f"document-{number}" for number in range(100)), 20_000),
    Load("one document", ("document",) * 100, 20_000, seed=2),
    Load("one document, 2 workers", ("document",) * 25, 5_000, workers=2, seed=3),
)
_WEAK = Load("weakened", tuple(f"document-{number}" for number in range(10)), 2_000, seed=4)


def long_run(report: Report, directory: Path) -> None:
    for number, load in enumerate(_LOADS):
        tally = run(load, directory / str(number))
        if not tally["kills"]:
            tally.violations.append("no worker was killed")
        report.add(tally)
    for number, name in enumerate(OF_CONCURRENCY):
        tally = run(replace(_WEAK, name=f"weakened: {name}"), directory / f"weak-{number}", weak(name))
        report.add(tally, is_planted=True, found_as=NOT_LINEAR)


def run(load: Load, directory: Path, variant: Variant | None = None) -> Tally:
    tally, rng, variant = Tally(load.name, _HEADINGS), random.Random(load.seed), variant or Variant()
    tally["clients"], tally["workers"] = load.clients, load.workers
    own = {"module": variant.module, "env": variant.environment}
    with running(directory, workers=load.workers, threads=4, **own) as service:

        def kill() -> None:
            if workers := service.workers():
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(workers), signal.SIGKILL)
                    tally["kills"] += 1

        each = load.operations // (load.clients * len(load.rounds))
        seeds = ((number, load.seed * 1000 + number) for number in range(load.clients))
        plans = [Plan(service.port, number, load.rounds, each, seed) for number, seed in seeds]
        with working((), [(kill, load.kills)], load.seed):
            records = performed(plans)
    _judge_rounds(tally, load, records)
    return tally.ended()


def performed(plans: Sequence[Plan]) -> list[Record]:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(plans))
    with ProcessPoolExecutor(len(plans), mp_context=context, initializer=meet_at, initargs=(barrier,)) as pool:
        return list(pool.map(perform, plans))


def count(tally: Tally, records: Iterable[Record], histories: Iterable[Sequence[Operation]]) -> None:
    """Count what was done to each document, and note what must not be, whatever the order."""
    for record in records:
        tally.violations += record.faults
        tally["unknown outcomes"] += record.unknown.total()
    for history in histories:
        tally["documents"] += 1
        tally["operations"] += len(history)


def judge(
    tally: Tally, name: str, history: Iterable[Operation], state: State = NOTHING_STORED, most: int = MOST_TRIED
) -> None:
    finding = check(history, state, most)
    tally["segments"] += 1
    tally["most steps tried"] = max(tally["most steps tried"], finding.tried)
    if finding.verdict is not Verdict.LINEAR:
        tally[finding.verdict.value] += 1
        tally.violations.append(f"{name}: {finding.verdict.value}: {finding.why}")


def _judge_rounds(tally: Tally, load: Load, records: Sequence[Record]) -> None:
    """Check every document's rounds in their order, each from the state in which the one before was read at its end.

    A round without known end is over when the next begins: a request without an answer died with its worker.
    """
    segments = defaultdict[str, list[list[Operation]]](list)
    for number, document in enumerate(load.rounds):
        segments[document].append([operation for record in records for operation in record.rounds[number]])
    histories = {document: sum(rounds, list[Operation]()) for document, rounds in segments.items()}
    count(tally, records, histories.values())
    for document, rounds in segments.items():
        tally.violations += prefixed(document, resolved(histories[document])[1])
        state: State | None = NOTHING_STORED
        for number, operations in enumerate(rounds, 1):
            if state is not None:
                judge(tally, f"{document}, segment {number}", operations, state)
                state = _state_after(operations, state)


def _state_after(operations: Sequence[Operation], state: State) -> State | None:
    """The state that the last read of a segment saw, which nothing overlapped.

    Where that read was refused, the state is not known, and what follows cannot be judged.
    """
    settled = max(operations, key=lambda operation: operation.start)
    last = max(operation.end or 0 for operation in operations if operation is not settled)
    if settled.kind is not Kind.READ or settled.start < last:
        return None
    newest = max([state.instant, *(operation.instant for operation in operations if operation.instant)])
    return State(settled.tag, state.existed or newest != "", newest)


# One of the processes that work on a document at once, and record what they did and saw.

PATIENCE = 60.0
_MEETING = 4 * PATIENCE
_SETTLING = 15.0
_BETWEEN = 0.25
_REMEMBERED = 6
_OUTCOME_UNKNOWN = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
_EXPECTED = {"GET": {200, 404}, "HEAD": {200, 404}, "PUT": {201, 204, 412}, "DELETE": {204, 404, 410, 412}}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a process has to do: in each round so many operations on that round's document.

    ``pause`` is before each round, in seconds. ``outage`` is for how long the service may be away: after a request
    whose outcome is unknown the process goes on when a read has been answered, at most so many seconds later. So few
    outcomes of each document are unknown.
    """

    port: int
    number: int
    rounds: Sequence[str]
    operations: int
    seed: int
    pause: float = 0.0
    outage: float = 0.0


@dataclass(slots=True)
class Record:
    rounds: list[list[Operation]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)


def path_of(document: str) -> str:
    return f"{PUBLIC}/crud/app/form/data/{document}/data.xml"


def body_of(token: str) -> bytes:
    """The content that a token stands for; its length depends on it, so that no two fit into one another."""
    number = sum(place * byte for place, byte in enumerate(token.encode(), 1))  # the same in every process
    return f"<d>{token} {'x' * (number % 3000)}</d>".encode()


_meeting: list[Barrier] = []


def meet_at(barrier: Barrier) -> None:
    _meeting[:] = [barrier]


def perform(plan: Plan) -> Record:
    """Do what was planned, all processes at once; between two rounds nothing is under way but one settled read."""
    client = _Client(plan)
    (barrier,) = _meeting
    for number, document in enumerate(plan.rounds):
        barrier.wait(_MEETING)
        time.sleep(plan.pause)
        client.begin(document)
        for count in range(plan.operations):
            client.act(f"{plan.number}.{number}.{count}")
        barrier.wait(_MEETING)
        if plan.number == 0:
            client.settle()
    return client.record


class _Client:
    """Chooses operations at random, sends each on a connection of its own, and keeps what came back."""

    def __init__(self, plan: Plan) -> None:
        self.record = Record()
        self._service = Service(plan.port, Path(), Path(), None, timeout=PATIENCE)
        self._outage = plan.outage
        self._is_away = False
        self._random = random.Random(plan.seed)
        self._document = ""
        self._tags: list[str] = []

    def begin(self, document: str) -> None:
        """Start a round; tags of another document are not worth remembering."""
        if document != self._document:
            self._document = document
            self._tags = []
        self.record.rounds.append([])

    def settle(self) -> None:
        """Read until there is an answer: nothing else happens, so it is the state that the round has left.

        Where reading is refused there is none, and a fault instead.
        """
        patience = self._outage or _SETTLING
        deadline = time.monotonic() + patience
        before = len(self.record.rounds[-1]), len(self.record.faults)
        while (len(self.record.rounds[-1]), len(self.record.faults)) == before:
            if time.monotonic() > deadline:
                self.record.faults.append(f"no read was answered for {patience:g} seconds")
            if self._is_away and self._outage:
                time.sleep(_BETWEEN)
            self._read("GET")

    def act(self, token: str) -> None:
        """One operation; what is chosen often is what two clients can get wrong between them."""
        choices: dict[Callable[[], None], int] = {
            lambda: self._read("GET"): 25,
            lambda: self._read("HEAD"): 10,
            lambda: self._put(token): 15,
            lambda: self._put(token, if_match=self._tag()): 30,
            lambda: self._put(token, if_absent=True): 10,
            self._delete: 4,
            lambda: self._delete(if_match=self._tag()): 6,
        }
        (choice,) = self._random.choices(list(choices), list(choices.values()))
        choice()
        if self._is_away and self._outage:
            self.settle()

    def _tag(self) -> str | None:
        """The newest tag this client knows, now and then an older one; none before it has seen any."""
        if not self._tags:
            return None
        return self._tags[-1] if self._random.random() < 0.8 else self._random.choice(self._tags)

    def _read(self, method: str) -> None:
        start, answer = self._ask(method)
        if answer is None:
            return  # a read without an answer says nothing
        token = answer["Svc-Workflow-Stage"] if answer.status == HTTPStatus.OK else None
        if token is not None and method == "GET" and answer.body != body_of(token):
            self.record.faults.append(f"a content with the headers of {token}: {answer.body[:80]!r}")
        if token is not None and answer["Content-Length"] != str(len(body_of(token))):
            self.record.faults.append(f"{method} says a length of {answer['Content-Length']} for {token}")
        self._keep(Kind.READ, start, answer, token=token)

    def _put(self, token: str, *, if_match: str | None = None, if_absent: bool = False) -> None:
        headers = {"Svc-Form-Definition-Version": "1", "Svc-Workflow-Stage": token, "Content-Type": "application/xml"}
        headers |= {"If-Match": if_match} if if_match else {}
        headers |= {"If-None-Match": "*"} if if_absent else {}
        asked = self._ask("PUT", headers, body_of(token))
        self._keep(Kind.PUT, *asked, token=token, if_match=if_match, if_absent=if_absent)

    def _delete(self, *, if_match: str | None = None) -> None:
        self._keep(Kind.DELETE, *self._ask("DELETE", {"If-Match": if_match} if if_match else {}), if_match=if_match)

    def _ask(
        self, method: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> tuple[int, Answer | None]:
        """When it was sent, and the answer if its outcome is known."""
        self._is_away = True
        start, record = time.monotonic_ns(), self.record
        try:
            answer = self._service.raw(method, path_of(self._document), headers, body)
        except (OSError, HTTPException) as error:
            record.unknown[type(error).__name__] += 1
            if isinstance(error, TimeoutError):
                record.faults.append(f"{method} was not answered in {PATIENCE:g} seconds")
            return start, None
        if answer.status in _OUTCOME_UNKNOWN:
            record.unknown[str(answer.status)] += 1
            return start, None
        if answer.status not in _EXPECTED[method]:
            record.faults.append(f"{method} was answered {answer.status}: {answer.body[:200]!r}")
            return start, None
        self._is_away = False
        return start, answer

    def _keep(self, kind: Kind, start: int, answer: Answer | None, **asked: str | bool | None) -> None:
        known: dict[str, int | str | None] = {"end": None, "status": None}
        if answer is not None:
            known = {"end": time.monotonic_ns(), "status": answer.status, "instant": answer["Svc-Last-Modified"]}
            if answer.status < HTTPStatus.BAD_REQUEST and kind is not Kind.DELETE:
                known["tag"] = answer["ETag"]
                self._tags = [*self._tags, str(answer["ETag"])][-_REMEMBERED:]
        self.record.rounds[-1].append(Operation(kind, start, **asked, **known))
