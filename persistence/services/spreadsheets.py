"""Documents as sheets, one with a row for each document and one for the rows of each repeat; XLSX workbooks of them.

Headings are labels, items stand by their labels, and numbers, dates and booleans are cells of these types. A workbook
has one row of each sheet in memory, and grows in temporary files.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import partial
from tempfile import TemporaryFile
from typing import IO

from xlsxwriter import Workbook  # type: ignore[import-untyped]
from xlsxwriter.worksheet import Worksheet  # type: ignore[import-untyped]

from persistence.errors import disk_errors
from persistence.forms.controls import Outline, OutlineNode
from persistence.forms.diffs import DataNode, HeldValue
from persistence.limits import CHUNK, MOST_EXPORT_PROBLEMS, MOST_SHEETS, SHEET_CHARACTERS, SHEET_COLUMNS, SHEET_ROWS
from persistence.model.addresses import DocumentAddress
from persistence.model.sidecar import DocumentFacts
from persistence.services.shown_documents import shown_values

_FACTS = {
    "Document": "string",
    "Created (UTC)": "dateTime",
    "Last modified (UTC)": "dateTime",
    "Owner": "string",
    "Last modified by": "string",
    "Stage": "string",
    "Form version": "integer",
}
_OF_ROWS = {"Document": "string", "Row": "string"}
_PROBLEMS = "Problems"
_NUMBERS = frozenset({"decimal", "integer", "double", "float", "long", "int"})
_LONGEST_NAME = 31
_FIRST_YEAR = 1900  # of dates in a workbook
_MOST_DIGITS = 15  # of a number that a spreadsheet keeps exactly
_UNSAFE = re.compile(r"[\[\]:*?/\\']")
_BETWEEN = "; "

_DECIMAL = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)

Path = tuple[str, ...]
SheetDocument = tuple[DocumentAddress, DocumentFacts, Outline, DataNode]


@dataclass(frozen=True, slots=True)
class SheetColumn:
    """A column: ``path`` is that of its control from the data root, empty of a fact; ``type`` that of its bind."""

    at: int
    heading: str
    path: Path
    type: str


@dataclass(slots=True)
class Sheet:
    """A sheet with its columns, those of controls by their paths in the document or the iteration, and its next row."""

    name: str
    columns: dict[Path, SheetColumn] = field(default_factory=dict)
    headings: set[str] = field(default_factory=set)
    row: int = 1

    def add(self, key: Path, heading: str, path: Path, of: str) -> None:
        self.columns[key] = SheetColumn(len(self.columns), heading, path, of)
        self.headings.add(heading)


class SheetWriter(ABC):
    """The sheets of documents with the controls of ``outlines``; ``problems`` says what does not fit into them."""

    kind: str

    def __init__(self, outlines: Iterable[Outline], language: str | None) -> None:
        self._language = language
        self._sheets: dict[Path, Sheet] = {}
        self._names = {"history"}  # which Excel keeps for itself
        self.problems: dict[str, None] = {}
        self.main = self.added((), "Documents", _FACTS)
        for outline in outlines:
            self._define(outline.root, self.main, (), ())

    def note(self, problem: str) -> None:
        """Note a problem, as many as fit into an export: each document may have some."""
        if len(self.problems) < MOST_EXPORT_PROBLEMS:
            self.problems[problem] = None

    @property
    def sheets(self) -> list[Sheet]:
        return list(self._sheets.values())

    @abstractmethod
    def next_row(self, sheet: Sheet) -> int | None:
        """Begin a row, after which those before it in the sheet do not change; ``None`` if there is no room."""

    @abstractmethod
    def write_fact(self, sheet: Sheet, row: int, column: int, value: str | int | datetime) -> None:
        """Write a fact of a document into its row."""

    @abstractmethod
    def write_values(
        self, address: DocumentAddress, held: Sequence[HeldValue], known: OutlineNode, cell: tuple[Sheet, int, Path]
    ) -> None:
        """Write the values of a control, at least one, into the row and the column of its path."""

    def added(self, repeat: Path, name: str, facts: Mapping[str, str]) -> Sheet:
        known = self._sheets.get(repeat)
        if known is not None:
            return known
        stem = _cut(" ".join(_UNSAFE.sub(" ", name).split()), _LONGEST_NAME) or "Rows"
        unique, number = stem, 1
        while unique.lower() in self._names:
            number += 1
            unique = f"{_cut(stem, _LONGEST_NAME - 1 - len(str(number)))} {number}"
        self._names.add(unique.lower())
        self._sheets[repeat] = found = Sheet(unique)
        for fact, of in facts.items():
            found.add(("", fact), fact, (), of)
        return found

    def _define(self, node: OutlineNode, sheet: Sheet, repeat: Path, at: Path) -> None:
        for name, inner in node.inside.items():
            here = (*at, name)
            label = inner.name if inner.label is None else inner.label.text(self._language)
            if inner.is_iteration:
                own = (*repeat, *here, "")
                if own not in self._sheets and len(self._sheets) >= MOST_SHEETS:
                    self.note(f"{self.kind} has at most {MOST_SHEETS} sheets: {'/'.join(here)} has none")
                    continue
                heading = label if inner.label is not None or node.label is None else node.label.text(self._language)
                self._define(inner, self.added(own, heading or name, _OF_ROWS), own, ())
                continue
            if inner.has_value and here not in sheet.columns:
                if len(sheet.columns) >= SHEET_COLUMNS:
                    self.note(f"a sheet has at most {SHEET_COLUMNS} columns: {'/'.join(here)} has none")
                    continue
                heading = label or name
                heading = f"{heading} ({'/'.join(here)})" if heading in sheet.headings else heading
                path = tuple(filter(None, (*repeat, *here)))
                sheet.add(here, heading, path, "string" if inner.choices else inner.type)
            self._define(inner, sheet, repeat, here)

    def add(self, address: DocumentAddress, facts: DocumentFacts, outline: Outline, data: DataNode) -> None:
        row = self.next_row(self.main)
        if row is None:
            return
        times = map(datetime.fromisoformat, (facts.created, facts.modified))
        names = ((name or "")[:SHEET_CHARACTERS] for name in (facts.creator, facts.modifier, facts.stage))
        values: tuple[str | int | datetime, ...] = (address.document, *times, *names, facts.version)
        for column, value in enumerate(values):
            self.write_fact(self.main, row, column, value)
        self._fill(address, data, outline.root, (self.main, row), (), (), "")

    def _fill(  # noqa: PLR0913, PLR0917 - a walk of data, outline and sheets at once
        self,
        address: DocumentAddress,
        data: DataNode,
        outline: OutlineNode,
        into: tuple[Sheet, int],
        repeat: Path,
        at: Path,
        number: str,
    ) -> None:
        sheet, row = into
        for name, known in outline.inside.items():
            here, found = (*at, name), data.at(name)
            rows = self._sheets.get((*repeat, *here, "")) if known.is_iteration else None
            for position, inner in enumerate(found if known.is_iteration else found[:1], 1):
                if not known.is_iteration:
                    held = [each for each in (inner.value, *inner.items) if not each.is_empty]
                    if held and known.has_value and here in sheet.columns:
                        self.write_values(address, held, known, (sheet, row, here))
                    self._fill(address, inner, known, into, repeat, here, number)
                elif rows is not None and (own := self.next_row(rows)) is not None:
                    place = f"{number}.{position}".lstrip(".")
                    self.write_fact(rows, own, 0, address.document)
                    self.write_fact(rows, own, 1, place)
                    self._fill(address, inner, known, (rows, own), (*repeat, *here, ""), (), place)

    def shown(self, address: DocumentAddress, held: Sequence[HeldValue], known: OutlineNode) -> str:
        """Return values as a text, which a cell of a spreadsheet has room for."""
        most = SHEET_CHARACTERS + 1
        values = (value for each in held for value in shown_values(each, known, address, self._language, most))
        text = _BETWEEN.join("[encrypted]" if each.is_encrypted else each.text or "[picture]" for each in values)
        if len(text) > SHEET_CHARACTERS:
            self.note(f"{address}: a cell has at most {SHEET_CHARACTERS} characters: a value is cut")
        return text[:SHEET_CHARACTERS]


class SpreadsheetWriter(SheetWriter):
    """Writes an XLSX workbook."""

    kind = "a workbook"

    def __init__(self, file: IO[bytes], outlines: Iterable[Outline], language: str | None) -> None:
        super().__init__(outlines, language)
        options = {"constant_memory": True, "strings_to_urls": False, "strings_to_formulas": False}
        self._book = Workbook(file, options)
        self._bold = self._book.add_format({"bold": True})
        self._day = self._book.add_format({"num_format": "yyyy-mm-dd"})
        self._moment = self._book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
        self._written: dict[str, Worksheet] = {}
        for sheet in self.sheets:
            self._begin(sheet)

    def _begin(self, sheet: Sheet) -> Worksheet:
        self._written[sheet.name] = written = self._book.add_worksheet(sheet.name)
        written.freeze_panes(1, 1)
        for column in sheet.columns.values():
            written.write_string(0, column.at, column.heading[:SHEET_CHARACTERS], self._bold)
        return written

    def next_row(self, sheet: Sheet) -> int | None:
        if sheet.row >= SHEET_ROWS:
            self.note(f"a sheet has at most {SHEET_ROWS} rows: the others are left out")
            return None
        sheet.row += 1
        return sheet.row - 1

    def write_fact(self, sheet: Sheet, row: int, column: int, value: str | int | datetime) -> None:
        written = self._written[sheet.name]
        if isinstance(value, datetime):
            written.write_datetime(row, column, value.replace(tzinfo=None), self._moment)
        elif isinstance(value, int):
            written.write_number(row, column, value)
        else:
            written.write_string(row, column, value)

    def write_values(
        self, address: DocumentAddress, held: Sequence[HeldValue], known: OutlineNode, cell: tuple[Sheet, int, Path]
    ) -> None:
        sheet, row, path = cell
        written, column, text = self._written[sheet.name], sheet.columns[path].at, held[0].text.strip()
        if len(held) == 1 and not held[0].is_encrypted and not known.choices:
            with suppress(ValueError):
                if known.type == "boolean" and text in {"true", "false"}:
                    written.write_boolean(row, column, text == "true")
                    return
                if known.type in _NUMBERS and len(text) <= _MOST_DIGITS and _DECIMAL.fullmatch(text):
                    written.write_number(row, column, float(text))
                    return
                if (
                    known.type == "date"
                    and _DAY.fullmatch(text)
                    and (day := date.fromisoformat(text)).year >= _FIRST_YEAR
                ):
                    written.write_datetime(row, column, day, self._day)
                    return
        written.write_string(row, column, self.shown(address, held, known))

    def close(self, problems: Sequence[str]) -> None:
        """Write a last sheet of problems, if there are any, as many as fit into it, and close the workbook."""
        if problems:
            written = self._begin(self.added(("", _PROBLEMS), _PROBLEMS, {_PROBLEMS: "string"}))
            for problem, row in zip(problems, range(1, SHEET_ROWS), strict=False):
                written.write_string(row, 0, problem[:SHEET_CHARACTERS])
        self._book.close()


def _cut(text: str, most: int) -> str:
    """Return a text cut as Excel counts characters: one beyond the first 65,536 is two."""
    return text.encode("utf-16-le")[: 2 * most].decode("utf-16-le", "ignore").strip()


def workbook(
    documents: Iterable[SheetDocument],
    outlines: Iterable[Outline],
    language: str | None,
    problems: list[str],
    *,
    lists_problems: bool = False,
) -> Iterator[bytes]:
    """Yield a workbook of documents in pieces, when all are written; add what does not fit to ``problems``."""
    with disk_errors("writing a workbook"), TemporaryFile() as file:
        writer = SpreadsheetWriter(file, outlines, language)
        for each in documents:
            writer.add(*each)
        problems += writer.problems
        writer.close(problems if lists_problems else ())
        file.seek(0)
        yield from iter(partial(file.read, CHUNK), b"")
