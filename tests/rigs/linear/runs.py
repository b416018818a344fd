"""The runs: processes at work on a real service whose workers are killed at random, and the judgement of them."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tests.rigs.linear.checker import MOST_TRIED, NOTHING_STORED, Kind, Operation, State, Verdict, check, resolved
from tests.rigs.linear.client import Plan, Record, meet_at, perform
from tests.rigs.report import Report, Tally, prefixed
from tests.rigs.server import Variant, weak, working
from tests.rigs.weakened import OF_CONCURRENCY
from tests.service import running

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
