"""Pieces of SQL that are put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Parameter = str | int

_FEW = 4
"""Shelves on each of which a document is looked for: their index is small, the documents themselves are large."""


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL with its parameters.

    ``{shelves}`` stands for the list of the shelves that are searched, and ``{indexed}`` for how a document that is on
    one of them is found by its row.
    """

    text: str
    parameters: tuple[Parameter, ...] = ()

    def on(self, shelves: Iterable[int]) -> Sql:
        """The same with the numbers of the shelves."""
        numbers = tuple(shelves)
        indexed = "INDEXED BY documents_by_shelf" if len(numbers) <= _FEW else "NOT INDEXED"
        listed = f"({', '.join(map(str, numbers))})"
        return Sql(self.text.replace("{shelves}", listed).replace("{indexed}", indexed), self.parameters)


@dataclass(frozen=True, slots=True)
class Arms:
    """Pieces of SQL, each of which is for shelves of its own."""

    arms: tuple[tuple[frozenset[int], Sql], ...]

    def on(self, shelves: Iterable[int]) -> Sql:
        """The pieces for some shelves, one after the other, with their numbers."""
        numbers = frozenset(shelves)
        parts = [sql.on(sorted(own & numbers)) for own, sql in self.arms if not own.isdisjoint(numbers)]
        return Sql(" UNION ALL ".join(part.text for part in parts), parameters_of(parts))


def parameters_of(parts: Iterable[Sql]) -> tuple[Parameter, ...]:
    """The parameters of several pieces, one after the other."""
    return tuple(parameter for part in parts for parameter in part.parameters)
