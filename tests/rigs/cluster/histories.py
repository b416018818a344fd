"""Histories of concurrent requests to few documents through both instances, for ``tests.rigs.linear``."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.rigs.linear.checker import Verdict, check
from tests.rigs.linear.client import Plan, Record, meet_at, perform
from tests.rigs.linear.history import Operation
from tests.rigs.linear.register import State

_CLIENTS = 4
_OF_A_ROUND = 10
_TOGETHER = 4
"""Documents that take turns."""

_ROUNDS_OF_EACH = 5
_OUTAGE = 60.0
_MOST_TRIED = 1_000_000
_OPERATIONS_OF_EACH = _CLIENTS * _OF_A_ROUND * _ROUNDS_OF_EACH


@dataclass(slots=True)
class Judgement:
    documents: int = 0
    operations: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    hardest: int = 0
    undecided: list[str] = field(default_factory=list)
    not_linear: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def rounds(operations: int) -> list[str]:
    """The document of each round, for so many operations in all: a few documents take turns, then the next few."""
    count = max(1, operations // _OPERATIONS_OF_EACH)
    documents = [f"linear-{number}" for number in range(count)]
    groups = [documents[at : at + _TOGETHER] for at in range(0, count, _TOGETHER)]
    return [document for group in groups for _ in range(_ROUNDS_OF_EACH) for document in group]


def perform_all(port: int, operations: int, seconds: float, seed: int) -> list[Record]:
    """Perform so many operations in about so many seconds, or in more."""
    named = rounds(operations)
    plans = [
        Plan(port, number, named, _OF_A_ROUND, seed * 1000 + number, pause=seconds / len(named), outage=_OUTAGE)
        for number in range(_CLIENTS)
    ]
    return _performed(plans)


def read_all(port: int, operations: int) -> Record:
    """Read each document once more, long after: what a later failure has taken back is found out."""
    documents = list(dict.fromkeys(rounds(operations)))
    (record,) = _performed([Plan(port, 0, documents, 0, 0, outage=_OUTAGE)])
    return record


def _performed(plans: Sequence[Plan]) -> list[Record]:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(plans))
    with ProcessPoolExecutor(len(plans), mp_context=context, initializer=meet_at, initargs=(barrier,)) as pool:
        return list(pool.map(perform, plans))


def judge(records: Sequence[Record], last: Record, operations: int) -> Judgement:
    """Check the whole history of each document.

    It is not cut into rounds: what was cut off in one may take effect in a later one, in a database that goes on.
    """
    named = rounds(operations)
    histories: dict[str, list[Operation]] = {document: [] for document in named}
    for number, document in enumerate(named):
        histories[document] += [operation for record in records for operation in record.rounds[number]]
    for document, found in zip(histories, last.rounds, strict=True):
        histories[document] += found
    every = [*records, last]
    judgement = Judgement(
        documents=len(histories),
        operations=sum(map(len, histories.values())),
        unknown=sum((record.unknown for record in every), Counter[str]()),
        faults=[fault for record in every for fault in record.faults],
    )
    for document, history in histories.items():
        finding = check(history, State(), _MOST_TRIED)
        judgement.hardest = max(judgement.hardest, finding.tried)
        if finding.verdict is Verdict.UNDECIDED:
            judgement.undecided.append(f"{document}: {finding.why}")
        elif finding.verdict is Verdict.VIOLATED:
            judgement.not_linear.append(f"{document}: {finding.why}")
    return judgement
