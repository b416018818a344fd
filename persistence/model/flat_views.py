"""Flat views: tables of the values of a form version, for reports (spec search 7)."""

from __future__ import annotations

from dataclasses import dataclass

DOCUMENT_COLUMN = "metadata_document_id"
METADATA_COLUMNS = (
    DOCUMENT_COLUMN,
    "metadata_created",
    "metadata_last_modified_time",
    "metadata_last_modified_by",
)


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """The column of a control, with the element names that lead to it from what a row is about."""

    name: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FlatView:
    """A view with a row for each document, or one for each iteration of a repeated section or grid.

    For iterations, ``around`` is the name of the view of the repeat or document they are in, ``path`` are the element
    names that lead to them from there, and ``repetitions`` the columns of their numbers, the outermost first.
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
