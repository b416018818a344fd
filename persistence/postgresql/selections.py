"""Queries for the documents that meet one condition of a search, and the pieces of SQL that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from persistence.index.cards import key_of
from persistence.postgresql.index_rows import plain


@dataclass(frozen=True, slots=True)
class BoundSql:
    """A piece of SQL and its parameters."""

    text: str
    parameters: tuple[object, ...] = ()


def joined(separator: str, pieces: Iterable[BoundSql]) -> BoundSql:
    pieces = tuple(pieces)
    return BoundSql(
        separator.join(piece.text for piece in pieces),
        tuple(parameter for piece in pieces for parameter in piece.parameters),
    )


@dataclass(frozen=True, slots=True)
class EntryKey:
    """One value of a control or a fact: the documents with it are one range of entries, each of them once."""

    control: int
    fold: str
    value: str

    @classmethod
    def of(cls, control: int, text: str) -> EntryKey:
        fold, value = key_of(text)
        return cls(control, plain(str(fold)), plain(str(value)))

    def on(self, partitions: Sequence[int]) -> BoundSql:
        """Return the query for the documents on some partitions."""
        # An index of texts would find one fold, too, but all of its documents at once.
        on = "control = %s AND partition = ANY(%s::int[]) AND fold = ANY(%s::text[]) AND value = %s"
        parameters = self.control, list(partitions), [self.fold], self.value
        return BoundSql(f"SELECT seq FROM entry WHERE {on}", parameters)


class Reach(Enum):
    """How the documents of a selection are found."""

    RANGES = "in ranges of an index, so that they are quickly counted up to a limit"
    TEXTS = "by an index of texts, which finds all of them at once"
    SCAN = "by looking at all"


@dataclass(frozen=True, slots=True)
class Selection:
    """A query for the ``seq`` of documents, which may return one repeatedly unless ``is_distinct``.

    ``is_of_all``: it finds documents of other partitions and forms, too. ``is_of_time``: they are of a span of time,
    and so near each other in the order of saves.
    """

    sql: BoundSql
    reach: Reach
    is_of_all: bool = False
    is_distinct: bool = False
    is_of_time: bool = False

    @property
    def test(self) -> BoundSql:
        """The condition that it has the document ``d``: always looked up, and never all of it read."""
        return BoundSql(f"(SELECT true FROM ({self.sql.text}) s WHERE s.seq = d.seq LIMIT 1)", self.sql.parameters)
