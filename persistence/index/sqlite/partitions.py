"""The partitions of an index, and pieces of SQL that are put together and bound to the partitions of a search.

A partition has the saved documents of one version, or its drafts.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from persistence.model.search import Drafts, Scope
from persistence.model.users import NOBODY, OwnerSets

Parameter = str | int

_FEW = 4
"""Partitions on each of which a document is looked for: their index is small, the documents themselves are large."""


@dataclass(frozen=True, slots=True)
class NumberedControls:
    """The numbers of the indexed controls by path; a document may have more than one value of ``several``."""

    numbers: Mapping[str, int]
    several: frozenset[int]

    @staticmethod
    def of(connection: sqlite3.Connection) -> NumberedControls:
        """Return the controls that an index knows."""
        found = connection.execute("SELECT path, number, several FROM controls").fetchall()
        return NumberedControls(
            {path: number for path, number, _ in found}, frozenset(row[1] for row in found if row[2])
        )


@dataclass(frozen=True, slots=True)
class Partition:
    """The saved documents, or the drafts, of one version, and the controls that its documents have entries of.

    ``sights`` say whose documents of the version the user may see.
    """

    number: int
    documents: int
    controls: frozenset[int]
    is_draft: bool = False
    sights: OwnerSets = frozenset()


def partitions_of(connection: sqlite3.Connection, scope: Scope) -> list[Partition]:
    """Return the partitions that a search looks at, without empty ones and those in which the user sees nothing."""
    found = connection.execute(
        "SELECT s.number, s.documents, e.controls, s.version, s.draft FROM shelves s JOIN editions e USING (version)"
        " WHERE NOT s.hidden AND s.documents > 0 ORDER BY s.number"
    )
    wanted = {Drafts.INCLUDE: (0, 1), Drafts.EXCLUDE: (0,), Drafts.ONLY: (1,)}[scope.drafts.kind]
    sights_of = cache(scope.seen.of_version)
    return [
        Partition(number, documents, frozenset(json.loads(controls or "[]")), bool(draft), sights)
        for number, documents, controls, version, draft in found.fetchall()
        if draft in wanted
        and (scope.versions is None or version in scope.versions)
        and NOBODY not in (sights := sights_of(version))
    ]


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL with its parameters.

    ``{partitions}`` stands for the list of the partitions that are searched, and ``{indexed}`` for how a document on
    one of them is found by its row.
    """

    text: str
    parameters: tuple[Parameter, ...] = ()

    def on(self, partitions: Iterable[int]) -> Sql:
        """Return the piece with the numbers of the partitions filled in."""
        numbers = tuple(partitions)
        indexed = "INDEXED BY documents_by_shelf" if len(numbers) <= _FEW else "NOT INDEXED"
        listed = f"({', '.join(map(str, numbers))})"
        return Sql(self.text.replace("{partitions}", listed).replace("{indexed}", indexed), self.parameters)


@dataclass(frozen=True, slots=True)
class Arms:
    """Pieces of SQL, each for partitions of its own."""

    arms: tuple[tuple[frozenset[int], Sql], ...]

    def on(self, partitions: Iterable[int]) -> Sql:
        """Return the union of the pieces for some partitions, with their numbers filled in."""
        numbers = frozenset(partitions)
        parts = [sql.on(sorted(own & numbers)) for own, sql in self.arms if not own.isdisjoint(numbers)]
        return Sql(" UNION ALL ".join(part.text for part in parts), parameters_of(parts))


def parameters_of(parts: Iterable[Sql]) -> tuple[Parameter, ...]:
    """Return the parameters of several pieces, one after the other."""
    return tuple(parameter for part in parts for parameter in part.parameters)
