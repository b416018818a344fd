"""The values of controls in form data as the cells of a row, with encrypted ones as they are stored."""

from __future__ import annotations

from collections.abc import Iterable

from persistence.errors import BadRequestError
from persistence.forms.form_data import ITEM
from persistence.forms.values import PathState, path_matcher
from persistence.limits.documents import MOST_CELL_CHARACTERS
from persistence.model.versions import PathStep
from persistence.xml.streaming import Streaming


class CellReader(Streaming):
    """A parser that collects the values of columns: ``cells`` has those of each that has any, in document order.

    Of an attachment the file name counts, if its holder says one. Blank values do not count.

    Raises, besides what ``Streaming`` does:
        BadRequestError: the values are too long.
    """

    def __init__(self, start: PathState[int]) -> None:
        super().__init__()
        self.cells: dict[int, list[str]] = {}
        self._places = [start]
        self._open: list[tuple[list[str], str]] = []
        self._left = MOST_CELL_CHARACTERS
        self.parser.buffer_text = True
        self.parser.CharacterDataHandler = self._text

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Begin an element, which may be a control."""
        super().start(name, attributes)
        place = self._places[-1].entered(name, attributes)
        self._places.append(place)
        if place.found:
            self._open.append(([], attributes.get("filename", "")))

    def end(self, name: str) -> None:
        """End an element, and take its value."""
        super().end(name)
        place = self._places.pop()
        if place.found:
            parts, file_name = self._open.pop()
            value = "".join(parts)
            if value.strip():
                for column in place.found:
                    self.cells.setdefault(column, []).append(file_name or value)

    def _text(self, text: str) -> None:
        if self._open:
            self._left -= len(text)
            if self._left < 0:
                raise BadRequestError(f"the form data has more than {MOST_CELL_CHARACTERS} characters in its controls")
            self._open[-1][0].append(text)


def cell_matcher(columns: Iterable[tuple[tuple[str, ...], bool]]) -> PathState[int]:
    """Return the matcher of columns: the path of each control below the root, and whether it takes files."""
    paths = [(tuple(map(PathStep, path)), at, takes_files) for at, (path, takes_files) in enumerate(columns)]
    items = (((*steps, PathStep(ITEM)), at) for steps, at, takes_files in paths if takes_files)
    return path_matcher([*((steps, at) for steps, at, _ in paths), *items])
