"""Flat views: tables of the values of a form version for reports, and how they are named (spec search 7)."""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from persistence.limits import MOST_COLUMNS

DOCUMENT_COLUMN = "metadata_document_id"
METADATA_COLUMNS = (DOCUMENT_COLUMN, "metadata_created", "metadata_last_modified_time", "metadata_last_modified_by")


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """The column of a control, with the element names that lead to it from below the root; without, it is empty."""

    name: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FlatView:
    """A view with a row for each document, or one for each iteration of a repeated section or grid.

    For iterations, ``around`` is the name of the view of the repeat or document around them, ``path`` are the element
    names that lead to them from below the root, and ``repetitions`` the columns of their numbers, the outermost first.
    """

    name: str
    columns: tuple[FlatColumn, ...] = ()
    around: str | None = None
    path: tuple[str, ...] = ()
    repetitions: tuple[str, ...] = ()

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of all columns in order (spec search 7.3)."""
        first = METADATA_COLUMNS if self.around is None else (DOCUMENT_COLUMN, *self.repetitions)
        return first + tuple(column.name for column in self.columns)


class CataloguedView(NamedTuple):
    """A view in a catalogue, its paths with ``/`` between names; ``repetition`` is the column of its own numbers."""

    name: str
    around: str | None
    path: str
    repetition: str | None
    columns: tuple[tuple[str, str], ...]


def catalogued(views: Iterable[FlatView]) -> list[CataloguedView]:
    return [
        CataloguedView(
            view.name,
            view.around,
            "/".join(view.path),
            view.repetitions[-1] if view.repetitions else None,
            tuple((column.name, "/".join(column.path)) for column in view.columns),
        )
        for view in views
    ]


def from_catalogue(listed: Iterable[CataloguedView]) -> tuple[FlatView, ...]:
    found: dict[str, FlatView] = {}
    for name, around, path, repetition, columns in listed:
        outer = () if around is None or repetition is None else (*found[around].repetitions, repetition)
        own = tuple(FlatColumn(column, _steps(path)) for column, path in columns)
        found[name] = FlatView(name, own, around, _steps(path), outer)
    return tuple(found.values())


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split("/")) if path else ()


@dataclass(frozen=True, slots=True)
class FlatNaming:
    """The rules for names of views, which begin with ``prefix`` and have at most ``longest`` characters.

    With ``prefixes_in_main`` a column of the view of documents has the name of its whole path, else of its control.
    Columns of numbers of repetitions may be longer (spec search 7.2), up to the database's ``limit`` for any name.
    """

    prefix: str
    longest: int
    prefixes_in_main: bool
    limit: int = sys.maxsize
    most_columns: int = MOST_COLUMNS


_NOT_IN_IDENTIFIERS = re.compile("[^A-Za-z0-9_]")


def identifier(name: str) -> str:
    return _NOT_IN_IDENTIFIERS.sub("", name.replace("-", "_")).strip("_") or "_"


def joined(parts: Sequence[str], longest: int) -> str:
    """Return the parts with ``_`` between, in at most ``longest`` characters.

    While they are too long, the first of the longest parts loses its last character and the ``_`` before it. That is
    computed at once down to the length at which only some of the longest parts lose one more.
    """
    room = max(longest - (len(parts) - 1), 0)
    cut = list(parts)
    if sum(map(len, cut)) > room:
        lengths = range(max(map(len, cut)) + 1)
        length = bisect_right(lengths, room, key=lambda length: sum(len(_cut(part, length)) for part in parts))
        cut = [_cut(part, length) for part in parts]
        at = 0
        while sum(map(len, cut)) > room:
            cut[at] = _cut(cut[at], length - 1)
            at += 1
    return "_".join(cut)[: max(longest, 1)]


def _cut(part: str, length: int) -> str:
    return part[:length].rstrip("_") if len(part) > length else part


class UniqueNames:
    """A set of taken names, from which new ones differ in more than case: SQL ignores it."""

    def __init__(self, taken: Iterable[str], longest: int) -> None:
        self._taken = {name.lower() for name in taken}
        self._longest = longest

    def take(self, name: str) -> str:
        """Return the name, with the first counter that makes it free if it is taken."""
        free = name
        counters = count(1)
        while free.lower() in self._taken:
            digits = str(next(counters))
            free = name[: max(self._longest - len(digits), 0)] + digits
        self._taken.add(free.lower())
        return free
