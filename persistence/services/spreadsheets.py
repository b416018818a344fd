"""Documents as an XLSX workbook: a sheet with a row for each document, and one for the rows of each repeat.

Headings are labels, items stand by their labels, and numbers, dates and booleans are cells of these types. The writer
holds one row of each sheet in memory; the workbook grows in temporary files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from tempfile import TemporaryFile
from typing import IO

from xlsxwriter import Workbook  # type: ignore[import-untyped]
from xlsxwriter.worksheet import Worksheet  # type: ignore[import-untyped]

from persistence.errors import disk_errors
from persistence.forms.controls import Outline, OutlineNode
from persistence.forms.diffs import DataNode
from persistence.limits import CHUNK, MOST_SHEETS, SHEET_CHARACTERS, SHEET_COLUMNS, SHEET_ROWS
from persistence.model.addresses import DocumentAddress
from persistence.model.sidecar import DocumentFacts
from persistence.services.shown_documents import shown_values

_FACTS = ("Document", "Created (UTC)", "Last modified (UTC)", "Owner", "Last modified by", "Stage", "Form version")
_OF_ROWS = ("Document", "Row")
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


@dataclass(slots=True)
class _Sheet:
    """A sheet with the columns of controls, by their paths in the document or the iteration, and its next row."""

    sheet: Worksheet
    columns: dict[Path, int] = field(default_factory=dict)
    headings: set[str] = field(default_factory=set)
    row: int = 1


class SpreadsheetWriter:
    """Writes documents with the controls of ``outlines``; ``problems`` says what does not fit into a workbook."""

    def __init__(self, file: IO[bytes], outlines: Iterable[Outline], language: str | None) -> None:
        options = {"constant_memory": True, "strings_to_urls": False, "strings_to_formulas": False}
        self._book = Workbook(file, options)
        self._language = language
        self._bold = self._book.add_format({"bold": True})
        self._day = self._book.add_format({"num_format": "yyyy-mm-dd"})
        self._moment = self._book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
        self._sheets: dict[Path, _Sheet] = {}
        self._names = {"history"}  # which Excel keeps for itself
        self.problems: dict[str, None] = {}
        self._main = self._added((), "Documents", _FACTS)
        for outline in outlines:
            self._define(outline.root, self._main, (), ())

    def _added(self, repeat: Path, name: str, facts: Sequence[str]) -> _Sheet:
        known = self._sheets.get(repeat)
        if known is not None:
            return known
        stem = _cut(" ".join(_UNSAFE.sub(" ", name).split()), _LONGEST_NAME) or "Rows"
        unique, number = stem, 1
        while unique.lower() in self._names:
            number += 1
            unique = f"{_cut(stem, _LONGEST_NAME - 1 - len(str(number)))} {number}"
        self._names.add(unique.lower())
        self._sheets[repeat] = found = _Sheet(self._book.add_worksheet(unique))
        found.sheet.freeze_panes(1, 1)
        for column, heading in enumerate(facts):
            found.sheet.write_string(0, column, heading, self._bold)
        found.columns = {("", fact): column for column, fact in enumerate(facts)}
        found.headings = set(facts)
        return found

    def _define(self, node: OutlineNode, sheet: _Sheet, repeat: Path, at: Path) -> None:
        for name, inner in node.inside.items():
            here = (*at, name)
            label = inner.name if inner.label is None else inner.label.text(self._language)
            if inner.is_iteration:
                own = (*repeat, *here, "")
                if own not in self._sheets and len(self._sheets) >= MOST_SHEETS:
                    self.problems[f"a workbook has at most {MOST_SHEETS} sheets: {'/'.join(here)} has none"] = None
                    continue
                heading = label if inner.label is not None or node.label is None else node.label.text(self._language)
                self._define(inner, self._added(own, heading or name, _OF_ROWS), own, ())
                continue
            if inner.has_value and here not in sheet.columns:
                if len(sheet.columns) >= SHEET_COLUMNS:
                    self.problems[f"a sheet has at most {SHEET_COLUMNS} columns: {'/'.join(here)} has none"] = None
                    continue
                heading = label or name
                heading = f"{heading} ({'/'.join(here)})" if heading in sheet.headings else heading
                sheet.headings.add(heading)
                sheet.sheet.write_string(0, len(sheet.columns), heading[:SHEET_CHARACTERS], self._bold)
                sheet.columns[here] = len(sheet.columns)
            self._define(inner, sheet, repeat, here)

    def add(self, address: DocumentAddress, facts: DocumentFacts, outline: Outline, data: DataNode) -> None:
        row = self._next(self._main)
        if row is None:
            return
        sheet = self._main.sheet
        sheet.write_string(row, 0, address.document)
        for column, text in enumerate((facts.created, facts.modified), 1):
            sheet.write_datetime(row, column, datetime.fromisoformat(text).replace(tzinfo=None), self._moment)
        for column, name in enumerate((facts.creator, facts.modifier, facts.stage), 3):
            sheet.write_string(row, column, (name or "")[:SHEET_CHARACTERS])
        sheet.write_number(row, len(_FACTS) - 1, facts.version)
        self._fill(address, data, outline.root, (self._main, row), (), (), "")

    def _next(self, sheet: _Sheet) -> int | None:
        if sheet.row >= SHEET_ROWS:
            self.problems[f"a sheet has at most {SHEET_ROWS} rows: the others are left out"] = None
            return None
        sheet.row += 1
        return sheet.row - 1

    def _fill(  # noqa: PLR0913, PLR0917 - a walk of data, outline and sheets at once
        self,
        address: DocumentAddress,
        data: DataNode,
        outline: OutlineNode,
        into: tuple[_Sheet, int],
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
                    if known.has_value and here in sheet.columns:
                        self._write(address, inner, known, sheet.sheet, row, sheet.columns[here])
                    self._fill(address, inner, known, into, repeat, here, number)
                elif rows is not None and (own := self._next(rows)) is not None:
                    place = f"{number}.{position}".lstrip(".")
                    rows.sheet.write_string(own, 0, address.document)
                    rows.sheet.write_string(own, 1, place)
                    self._fill(address, inner, known, (rows, own), (*repeat, *here, ""), (), place)

    def _write(  # noqa: PLR0913, PLR0917 - a value and its cell
        self, address: DocumentAddress, node: DataNode, known: OutlineNode, sheet: Worksheet, row: int, column: int
    ) -> None:
        held = [each for each in (node.value, *node.items) if not each.is_empty]
        if not held:
            return
        text = held[0].text.strip()
        if len(held) == 1 and not held[0].is_encrypted and not known.choices:
            with suppress(ValueError):
                if known.type == "boolean" and text in {"true", "false"}:
                    sheet.write_boolean(row, column, text == "true")
                    return
                if known.type in _NUMBERS and len(text) <= _MOST_DIGITS and _DECIMAL.fullmatch(text):
                    sheet.write_number(row, column, float(text))
                    return
                if (
                    known.type == "date"
                    and _DAY.fullmatch(text)
                    and (day := date.fromisoformat(text)).year >= _FIRST_YEAR
                ):
                    sheet.write_datetime(row, column, day, self._day)
                    return
        most = SHEET_CHARACTERS + 1
        values = (value for each in held for value in shown_values(each, known, address, self._language, most))
        shown = _BETWEEN.join("[encrypted]" if each.is_encrypted else each.text or "[picture]" for each in values)
        if len(shown) > SHEET_CHARACTERS:
            self.problems[f"{address}: a cell has at most {SHEET_CHARACTERS} characters: a value is cut"] = None
        sheet.write_string(row, column, shown[:SHEET_CHARACTERS])

    def list_problems(self, problems: Iterable[str]) -> None:
        """Write a last sheet of problems, as many as fit into it."""
        sheet = self._added(("", _PROBLEMS), _PROBLEMS, (_PROBLEMS,))
        for problem, row in zip(problems, range(1, SHEET_ROWS), strict=False):
            sheet.sheet.write_string(row, 0, problem[:SHEET_CHARACTERS])

    def close(self) -> None:
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
        if problems and lists_problems:
            writer.list_problems(problems)
        writer.close()
        file.seek(0)
        while piece := file.read(CHUNK):
            yield piece
