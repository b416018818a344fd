"""The export of form data as tables: a row for each document, with its values under the labels of their controls.

A CSV file has the rows of one form version, for a spreadsheet; JSON lines may be of several, with values as they are.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import msgspec

from persistence.errors import BadRequestError, NotFoundError, PersistenceError
from persistence.forms.cells import CellPlace, CellReader, Column, cell_matcher
from persistence.forms.outline import NO_OUTLINE
from persistence.forms.values import PathState, readable
from persistence.limits import CHUNK
from persistence.model.addresses import DocumentAddress, Form
from persistence.model.exports import ExportedContent, ExportQuery
from persistence.model.sidecar import DocumentFacts, Sidecar
from persistence.services.export_source import LEFT_OUT, ExportedRevision, SelectedForm, select_forms
from persistence.services.exporting import Exporting

FACTS = ("document", "created", "last-modified", "owner", "last-modified-by", "stage", "form-version")
"""The headings of the columns before those of controls."""

BETWEEN = "; "
"""Stands between the values of a control that has several."""

_BOM = "\ufeff"
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of formulas; the last four are the full-width signs of East Asia, which some spreadsheets take, too."""
_SKIPPED = " \v\f\x85\xa0\u2028\u2029\u3000\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""Blanks and invisible characters before a formula, which spreadsheets may skip."""
_BREAKS = ("\t", "\r", "\n")
_NUMBER = re.compile(r"[-+]?[0-9]+(?:[.,][0-9]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The language of labels, and whether all controls have a column, or only indexed ones."""

    language: str | None = None
    has_all_controls: bool = False


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the controls of a version: their distinct headings, and the places of their values."""

    headings: tuple[str, ...]
    matcher: PathState[CellPlace]


@dataclass(frozen=True, slots=True)
class Row:
    """A document: ``cells`` has the values of each column, none where all are empty."""

    address: DocumentAddress
    sidecar: Sidecar
    columns: Columns
    cells: tuple[tuple[str, ...], ...]

    @property
    def facts(self) -> tuple[str, ...]:
        return facts_of(self.address.document, self.sidecar.facts)


def facts_of(document: str, facts: DocumentFacts) -> tuple[str, ...]:
    """Return the cells of a document under ``FACTS``."""
    names = (facts.creator or "", facts.modifier or "", facts.stage or "")
    return (document, facts.created, facts.modified, *names, str(facts.version))


class TableExport:
    """One export of tables."""

    def __init__(self, exporting: Exporting, query: ExportQuery, options: TableOptions) -> None:
        query = replace(query, contents=frozenset({ExportedContent.DATA}))
        self.forms = select_forms(exporting.router, query)
        self._exporting = exporting
        self._query = query
        self._options = options
        self._columns: dict[tuple[Form, int], Columns] = {}

    def count(self) -> int:
        """Count the documents and drafts that will be read."""
        return sum(1 for form in self.forms for _ in form.documents())

    def csv(self, report: Callable[[str], None], done: Callable[[], None], *, has_mark: bool) -> Iterator[bytes]:
        """Yield the rows of one version as CSV in UTF-8; ``has_mark`` begins it with the mark that Excel wants."""
        lines = CsvLines()
        lines.add([*FACTS, *self._columns_of(*self.only_version()).headings])
        yield (_BOM if has_mark else "").encode()
        for row in self._rows(report, done):
            lines.add([*row.facts, *(BETWEEN.join(map(readable, cell)) for cell in row.cells)])
            if lines.size > CHUNK:
                yield lines.taken()
        yield lines.taken()

    def json_lines(self, report: Callable[[str], None], done: Callable[[], None]) -> Iterator[bytes]:
        """Yield an object for each document, in lines; ``values`` has a list for each control that has a value."""
        held = bytearray()
        for row in self._rows(report, done):
            form = row.address.form
            facts = {"app": form.app, "form": form.name, "collection": row.address.collection.value}
            known = {name: value for name, value in zip(FACTS, row.facts, strict=True) if value}
            values = {name: cell for name, cell in zip(row.columns.headings, row.cells, strict=True) if cell}
            held += msgspec.json.encode(facts | known | {"form-version": row.sidecar.version, "values": values}) + b"\n"
            if len(held) > CHUNK:
                yield bytes(held)
                held.clear()
        yield bytes(held)

    def _rows(self, report: Callable[[str], None], done: Callable[[], None]) -> Iterator[Row]:
        for form in self.forms:
            for group in form.groups():
                for found in group:
                    try:
                        if isinstance(found, PersistenceError):
                            report(str(found))
                        elif found.address.is_main and isinstance(found.address, DocumentAddress):
                            key = form.route.form, found.sidecar.version
                            if key not in self._columns:
                                self._columns[key] = self._known_columns(form, found.sidecar.version, report)
                            yield self._row(self._columns[key], found, found.address)
                            done()
                    except LEFT_OUT as error:
                        report(str(error))

    def _row(self, columns: Columns, revision: ExportedRevision, address: DocumentAddress) -> Row:
        with closing(self._exporting.opened(revision, self._query)) as file, CellReader(columns.matcher) as reader:
            try:
                cells = reader.read(file.pieces()).cells
            except BadRequestError as error:
                raise BadRequestError(f"{address}: {error}") from error
        known = (cells.get(at, ()) for at in range(len(columns.headings)))
        ordered = tuple(tuple(values) if any(values) else () for values in known)
        return Row(address, revision.sidecar, columns, ordered)

    def only_version(self) -> tuple[SelectedForm, int]:
        if len(self.forms) != 1:
            raise BadRequestError(f"a table has the rows of one form, and {len(self.forms)} forms match")
        form = self.forms[0]
        published = (each.version for each in form.route.catalog.published(form.route.form))
        numbers = sorted(form.versions.numbers if form.versions.numbers is not None else published)
        if len(numbers) != 1:
            known = ", ".join(map(str, numbers)) or "none"
            raise BadRequestError(f"a table has the rows of one version of {form.route.form}: name one of {known}")
        return form, numbers[0]

    def _known_columns(self, form: SelectedForm, version: int, report: Callable[[str], None]) -> Columns:
        try:
            return self._columns_of(form, version)
        except LEFT_OUT as error:
            report(f"{error}: no values in the rows of {form.route.form} version {version}")
            return Columns((), cell_matcher(()))

    def _columns_of(self, form: SelectedForm, version: int) -> Columns:
        data_format = form.route.properties.data_format
        definition = form.route.catalog.of(form.route.form, version)
        controls = definition.controls
        if controls is None:
            raise NotFoundError(f"version {version} of {form.route.form} is not published: its controls are not known")
        outline = definition.outline(data_format) or NO_OUTLINE
        chosen = [each for each in controls if each.is_indexed or self._options.has_all_controls]
        paths = [each.path(data_format) for each in chosen]
        labels = [outline.label(path, self._options.language) or path[-1] for path in paths]
        matcher = cell_matcher(
            Column(path, each.takes_files, outline.iteration(path)) for path, each in zip(paths, chosen, strict=True)
        )
        return Columns(tuple(distinct_headings(labels, paths)), matcher)


def distinct_headings(labels: Sequence[str], paths: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield labels, each that several columns have with the path of its control."""
    counts = Counter((*FACTS, *labels))
    for label, path in zip(labels, paths, strict=True):
        yield label if counts[label] == 1 else f"{label} ({'/'.join(path)})"


class CsvLines:
    """Lines of CSV until they are taken. A cell that would be a formula in a spreadsheet begins with an apostrophe."""

    def __init__(self) -> None:
        self._file = io.StringIO(newline="")
        self._writer = csv.writer(self._file)

    @property
    def size(self) -> int:
        return self._file.tell()

    def add(self, cells: list[str]) -> None:
        self._writer.writerow(map(_without_formula, cells))

    def taken(self) -> bytes:
        """Return what is held, and forget it."""
        text = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return text.encode()


def _without_formula(cell: str) -> str:
    is_formula = cell.startswith(_BREAKS) or cell.lstrip(_SKIPPED).startswith(_FORMULA)
    return f"'{cell}" if is_formula and not _NUMBER.fullmatch(cell) else cell
