"""Documents as Parquet files in a ZIP archive, one for each sheet that a workbook of them would have.

It needs pyarrow, of the extra ``parquet``. Rows are in memory until a row group is full; files grow as temporary ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import parquet

from persistence.errors import disk_errors
from persistence.forms.controls import Outline, OutlineNode
from persistence.forms.diffs import HeldValue
from persistence.limits import CHUNK, PARQUET_HELD, PARQUET_ROWS
from persistence.model.addresses import DocumentAddress
from persistence.model.texts import OrderedType, key_of_value, next_after, type_named
from persistence.services.exporting import ZipStream
from persistence.services.spreadsheets import Path, Sheet, SheetColumn, SheetDocument, SheetWriter

_PROBLEMS_ENTRY = "problems.txt"
_CELL_COSTS = 100  # bytes of a value in memory, beside its characters
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1  # of an int64
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_TYPES = {
    OrderedType.DATE: pa.date32(),
    OrderedType.DATE_TIME: pa.timestamp("ms", "UTC"),
    OrderedType.INTEGER: pa.int64(),
    OrderedType.DECIMAL: pa.float64(),
    OrderedType.DOUBLE: pa.float64(),
}


def _type_of(name: str) -> Any:
    if name == "boolean":
        return pa.bool_()
    ordered = type_named(name)
    return pa.string() if ordered is None else _TYPES.get(ordered, pa.string())


def _typed(text: str, name: str) -> object:
    """Return a value as its column has it; ``None`` if it is not of the column's type."""
    of = type_named(name)
    if name == "boolean" or of is None:
        return _BOOLEANS.get(text)
    if of is OrderedType.DOUBLE and text == "NaN":
        return float(text)
    key = key_of_value(text, of)
    if key is None:
        return None
    if of is OrderedType.DATE:
        return date.fromisoformat(key)
    if of is OrderedType.DATE_TIME:
        return datetime.fromisoformat(key).replace(tzinfo=UTC)
    if of is OrderedType.INTEGER:
        return number if _LEAST <= (number := int(text)) <= _MOST else None
    return float(text)


def _field(column: SheetColumn) -> Any:
    about = {"path": "/".join(column.path), "type": column.type} if column.path else None
    return pa.field(column.heading, _type_of(column.type), metadata=about)


@dataclass(slots=True)
class _File:
    """The file of a sheet, with the rows of its next row group: the values of each by their columns."""

    file: IO[bytes]
    schema: Any
    writer: Any
    rows: list[dict[int, object]] = field(default_factory=list)

    def flush(self) -> None:
        if self.rows:
            arrays = (pa.array([row.get(at) for row in self.rows], of.type) for at, of in enumerate(self.schema))
            table = pa.Table.from_arrays(list(arrays), schema=self.schema)
            self.writer.write_table(table, row_group_size=len(self.rows))
            self.rows.clear()


class ParquetWriter(SheetWriter):
    """Writes a file for each sheet, which ``opened`` closes."""

    kind = "an export as Parquet"

    def __init__(self, outlines: Iterable[Outline], language: str | None, opened: ExitStack) -> None:
        super().__init__(outlines, language)
        self._held = 0
        self._files: dict[str, _File] = {}
        for sheet in self.sheets:
            file = opened.enter_context(TemporaryFile())  # noqa: SIM115 - closed with the export
            schema = pa.schema(map(_field, sheet.columns.values()))
            writer = parquet.ParquetWriter(file, schema)
            opened.callback(writer.close)
            self._files[sheet.name] = _File(file, schema, writer)

    def next_row(self, sheet: Sheet) -> int | None:
        if sheet is self.main and self._held > PARQUET_HELD:  # between two documents, so that all rows are complete
            for each in self._files.values():
                each.flush()
            self._held = 0
        into = self._files[sheet.name]
        if len(into.rows) >= PARQUET_ROWS:
            into.flush()
        into.rows.append({})
        return len(into.rows) - 1

    def write_fact(self, sheet: Sheet, row: int, column: int, value: str | int | datetime) -> None:
        self._write(sheet, row, column, None if value == "" else value)

    def _write(self, sheet: Sheet, row: int, column: int, value: object) -> None:
        self._files[sheet.name].rows[row][column] = value
        self._held += _CELL_COSTS + (len(value) if isinstance(value, str) else 0)

    def write_values(
        self, address: DocumentAddress, held: Sequence[HeldValue], known: OutlineNode, cell: tuple[Sheet, int, Path]
    ) -> None:
        sheet, row, path = cell
        column = sheet.columns[path]
        if any(each.is_encrypted for each in held):
            self.note(f"{'/'.join(column.path)} has encrypted values: they are null")
            return
        text = held[0].text.strip()
        if _type_of(column.type) == pa.string():
            # What an older version of the form has as a number or a date is not written as a page shows it.
            is_shown = len(held) > 1 or known.choices or _type_of(known.type) == pa.string()
            self._write(sheet, row, column.at, self.shown(address, held, known) if is_shown else text)
        elif text:
            value = _typed(text, column.type) if len(held) == 1 else None
            if value is None:
                name = "/".join(column.path)
                self.note(f"{address}: a value of {name} is not a valid {column.type}: it is null")
            else:
                self._write(sheet, row, column.at, value)

    def close(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Write the rest, and yield the names of the files with their contents."""
        for sheet in self.sheets:
            written = self._files[sheet.name]
            written.flush()
            written.writer.close()
            written.file.seek(0)
            yield f"{'documents' if sheet is self.main else sheet.name}.parquet", written.file


def parquet_files(
    documents: Iterable[SheetDocument],
    outlines: Iterable[Outline],
    language: str | None,
    problems: list[str],
    *,
    lists_problems: bool = False,
) -> Iterator[bytes]:
    """Yield a ZIP archive of Parquet files in pieces, when all are written; add what is not exact to ``problems``."""
    with disk_errors("writing Parquet files"), ExitStack() as opened:
        writer = ParquetWriter(outlines, language, opened)
        for each in documents:
            writer.add(*each)
        files, now = list(writer.close()), next_after(None)
        problems += writer.problems
        with ZipStream() as archive:
            for name, file in files:
                pieces = iter(partial(file.read, CHUNK), b"")
                yield from archive.add(name, (now, now), pieces, None, compresses=False)
            if problems and lists_problems:
                lines = "".join(f"{line}\n" for line in problems).encode()
                yield from archive.add(_PROBLEMS_ENTRY, (now, now), [lines], len(lines), compresses=True)
            yield from archive.end()
