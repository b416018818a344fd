"""The values of controls in form data as the cells of a row, with encrypted ones as they are stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from persistence.errors import BadRequestError
from persistence.forms.form_data import ITEM
from persistence.forms.values import PathState, path_matcher
from persistence.limits import MOST_CELL_CHARACTERS
from persistence.model.versions import PathStep
from persistence.xml.streaming import Streaming


class Column(NamedTuple):
    """The path of a control below the root, and that of the iterations of the innermost repeat around it, if any."""

    path: tuple[str, ...]
    takes_files: bool = False
    iteration: tuple[str, ...] = ()


class CellPlace(NamedTuple):
    """An element with a value of a column, or an iteration around such elements."""

    column: int
    is_iteration: bool


class CellReader(Streaming):
    """A parser that collects the values of columns in document order: ``cells`` are those with any.

    Of an attachment the file name counts, if its holder has one. Blank values do not count, but an iteration without a
    value has an empty one: the first value of a column is then not taken for that of the first iteration.
    """

    def __init__(self, start: PathState[CellPlace]) -> None:
        super().__init__()
        self.cells: dict[int, list[str]] = {}
        self._places = [start]
        self._open: list[tuple[list[str], str]] = []
        self._iterations: list[
            dict[int, int]
        ] = []  # for each open one the columns, and how many values they had before
        self._left = MOST_CELL_CHARACTERS
        self.parser.buffer_text = True
        self.parser.CharacterDataHandler = self._text

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        place = self._places[-1].entered(name, attributes)
        self._places.append(place)
        if place.found:
            columns = [column for column, is_iteration in place.found if is_iteration]
            if columns:
                self._iterations.append({column: len(self.cells.get(column, ())) for column in columns})
            if len(columns) < len(place.found):
                self._open.append(([], attributes.get("filename", "")))

    def end(self, name: str) -> None:
        super().end(name)
        place = self._places.pop()
        if place.found:
            columns = [column for column, is_iteration in place.found if not is_iteration]
            if columns:
                parts, file_name = self._open.pop()
                value = "".join(parts)
                if value.strip():
                    for column in columns:
                        self.cells.setdefault(column, []).append(file_name or value)
            if len(columns) < len(place.found):
                for column, before in self._iterations.pop().items():
                    values = self.cells.setdefault(column, [])
                    if len(values) == before:
                        self._count(1)
                        values.append("")

    def _text(self, text: str) -> None:
        if self._open:
            self._count(len(text))
            self._open[-1][0].append(text)

    def _count(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise BadRequestError(f"the form data has more than {MOST_CELL_CHARACTERS} characters in its controls")


def cell_matcher(columns: Iterable[Column]) -> PathState[CellPlace]:
    """Return the matcher of columns, which are known by their index."""
    paths: list[tuple[tuple[PathStep, ...], CellPlace]] = []
    for at, column in enumerate(columns):
        steps = tuple(map(PathStep, column.path))
        paths.append((steps, CellPlace(at, is_iteration=False)))
        if column.takes_files:
            paths.append(((*steps, PathStep(ITEM)), CellPlace(at, is_iteration=False)))
        if column.iteration:
            paths.append((steps[: len(column.iteration)], CellPlace(at, is_iteration=True)))
    return path_matcher(paths)
