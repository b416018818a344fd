"""The load: processes at work on a real service whose workers are killed at random, and the judgement of it."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.rigs import weakened
from tests.rigs.linear.checker import Verdict, check
from tests.rigs.linear.client import Plan, Record, meet_at, perform
from tests.rigs.linear.history import Kind, Operation
from tests.rigs.linear.register import State, resolved
from tests.service import Service, running

HEADINGS = (
    *("run", "clients", "workers", "operations", "kills", "unknown outcomes", "documents", "segments"),
    *("undecided", "violations", "seconds"),
)


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


@dataclass(slots=True)
class Report:
    """What came of a load; ``hardest`` is how many steps the checker tried for one segment, at most."""

    load: Load
    kills: int = 0
    operations: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    segments: int = 0
    hardest: int = 0
    undecided: list[str] = field(default_factory=list)
    not_linear: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def row(self) -> tuple[object, ...]:
        violations = len(self.not_linear) + len(self.faults)
        documents = len(set(self.load.rounds))
        return (
            *(self.load.name, self.load.clients, self.load.workers, self.operations, self.kills),
            *(self.unknown.total(), documents, self.segments, len(self.undecided), violations, f"{self.seconds:.0f}"),
        )

    @property
    def is_good(self) -> bool:
        return not (self.undecided or self.not_linear or self.faults)


def run(load: Load, directory: Path, weakness: str = "") -> Report:
    began, own = time.monotonic(), dict[str, Any]()
    if weakness:
        own = {"module": weakened.__name__, "env": weakened.environment(weakness)}
    with running(directory, workers=load.workers, threads=4, **own) as service, _killing(service, load) as kills:
        records = _performed(service, load)
    report = _judged(load, records)
    report.kills = len(kills)
    report.seconds = time.monotonic() - began
    return report


def _performed(service: Service, load: Load) -> list[Record]:
    context = multiprocessing.get_context("spawn")
    each = load.operations // (load.clients * len(load.rounds))
    plans = [Plan(service.port, number, load.rounds, each, load.seed * 1000 + number) for number in range(load.clients)]
    barrier = context.Barrier(load.clients)
    with ProcessPoolExecutor(load.clients, mp_context=context, initializer=meet_at, initargs=(barrier,)) as pool:
        return list(pool.map(perform, plans))


@contextmanager
def _killing(service: Service, load: Load) -> Iterator[list[int]]:
    """Kill a worker now and then for the length of a block; gives the process ids of those killed so far."""
    rng = random.Random(load.seed)
    over = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        while not over.wait(rng.uniform(*load.kills)):
            if workers := service.workers():
                with suppress(ProcessLookupError):
                    worker = rng.choice(workers)
                    os.kill(worker, signal.SIGKILL)
                    killed.append(worker)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        over.set()
        killer.join()


def _judged(load: Load, records: Sequence[Record]) -> Report:
    """Check every document's rounds in their order, each from the state in which the one before was read at its end.

    A round without known end is over when the next begins: a request without an answer died with its worker.
    """
    report = Report(load, faults=[fault for record in records for fault in record.faults])
    report.unknown = sum((record.unknown for record in records), Counter[str]())
    segments: dict[str, list[list[Operation]]] = {document: [] for document in load.rounds}
    for number, document in enumerate(load.rounds):
        segments[document].append([operation for record in records for operation in record.rounds[number]])
    for document, rounds in segments.items():
        _, contradictions = resolved(operation for operations in rounds for operation in operations)
        report.faults += [f"{document}: {contradiction}" for contradiction in contradictions]
        state: State | None = State()
        for number, operations in enumerate(rounds, 1):
            if state is not None:
                state = _check(report, f"{document}, segment {number}", operations, state)
    report.operations = sum(len(operations) for rounds in segments.values() for operations in rounds)
    return report


def _check(report: Report, name: str, operations: Sequence[Operation], state: State) -> State | None:
    """Judge one segment; returns the state it ends in: what its last read saw, which nothing overlapped.

    Where that read was refused, the state is not known, and what follows cannot be judged.
    """
    finding = check(operations, state)
    report.segments += 1
    report.hardest = max(report.hardest, finding.tried)
    if finding.verdict is Verdict.UNDECIDED:
        report.undecided.append(f"{name}: {finding.why}")
    elif finding.verdict is Verdict.VIOLATED:
        report.not_linear.append(f"{name}: {finding.why}")
    settled = max(operations, key=lambda operation: operation.start)
    last = max(operation.end or 0 for operation in operations if operation is not settled)
    if settled.kind is not Kind.READ or settled.start < last:
        return None
    newest = max([state.instant, *(operation.instant for operation in operations if operation.instant)])
    return State(settled.tag, state.existed or newest != "", newest)
