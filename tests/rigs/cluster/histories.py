"""Histories of concurrent requests to few documents through both instances, for ``tests.rigs.linear``."""

from __future__ import annotations

from collections.abc import Sequence

from tests.rigs.linear.client import Plan, Record
from tests.rigs.linear.load import count, judge, performed
from tests.rigs.linear.register import Operation
from tests.rigs.report import Tally

_CLIENTS = 4
_OF_A_ROUND = 10
_TOGETHER = 4
"""Documents that take turns."""

_ROUNDS_OF_EACH = 5
_OUTAGE = 60.0
_MOST_TRIED = 1_000_000
_OPERATIONS_OF_EACH = _CLIENTS * _OF_A_ROUND * _ROUNDS_OF_EACH


def rounds(operations: int) -> list[str]:
    """The document of each round, for so many operations in all: a few documents take turns, then the next few."""
    number = max(1, operations // _OPERATIONS_OF_EACH)
    documents = [f"linear-{each}" for each in range(number)]
    groups = [documents[at : at + _TOGETHER] for at in range(0, number, _TOGETHER)]
    return [document for group in groups for _ in range(_ROUNDS_OF_EACH) for document in group]


def perform_all(port: int, operations: int, seconds: float, seed: int) -> list[Record]:
    named = rounds(operations)
    own = {"pause": seconds / len(named), "outage": _OUTAGE}
    return performed(
        [Plan(port, number, named, _OF_A_ROUND, seed * 1000 + number, **own) for number in range(_CLIENTS)]
    )


def read_all(port: int, operations: int) -> Record:
    """Read each document once more, long after: what a later failure has taken back is found out."""
    documents = list(dict.fromkeys(rounds(operations)))
    (record,) = performed([Plan(port, 0, documents, 0, 0, outage=_OUTAGE)])
    return record


def judge_all(tally: Tally, records: Sequence[Record], last: Record, operations: int) -> None:
    """Check the whole history of each document.

    It is not cut into rounds: what was cut off in one may take effect in a later one, in a database that goes on.
    """
    named = rounds(operations)
    histories: dict[str, list[Operation]] = {document: [] for document in named}
    for number, document in enumerate(named):
        histories[document] += [operation for record in records for operation in record.rounds[number]]
    for document, found in zip(histories, last.rounds, strict=True):
        histories[document] += found
    count(tally, [*records, last], histories.values())
    for document, history in histories.items():
        judge(tally, document, history, most=_MOST_TRIED)
