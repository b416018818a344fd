"""Pieces of SQL that are put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Parameter = str | int


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL with its parameters; ``{shelves}`` stands for the list of the shelves that are searched."""

    text: str
    parameters: tuple[Parameter, ...] = ()

    def on(self, shelves: Iterable[int]) -> Sql:
        """The same with the numbers of the shelves."""
        numbers = ", ".join(map(str, shelves))
        return Sql(self.text.replace("{shelves}", f"({numbers})"), self.parameters)


def parameters_of(parts: Iterable[Sql]) -> tuple[Parameter, ...]:
    """The parameters of several pieces, one after the other."""
    return tuple(parameter for part in parts for parameter in part.parameters)
