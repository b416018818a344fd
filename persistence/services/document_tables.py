"""Documents and definitions as tables and lines, for exports and for administrators."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Self

import msgspec

from persistence.errors import (
    BadRequestError,
    DamagedError,
    MalformedXmlError,
    NotFoundError,
    PersistenceError,
    disk_errors,
)
from persistence.forms.controls import DESIGNER_COLUMNS, DESIGNER_KEYS, NO_OUTLINE, Outline, OutlineNode
from persistence.forms.diffs import read_data
from persistence.forms.form_data import CellPlace, CellReader, Column, PathState, cell_matcher, readable
from persistence.index.protocol import Budget
from persistence.limits import CHUNK, MOST_OPTIONS, STORED_LISTED, VERSIONS_JOINED
from persistence.model import queries
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.sidecar import DocumentFacts, Sidecar
from persistence.model.typed_values import OrderedType
from persistence.providers.router import Route, loaded
from persistence.services.exporting import LEFT_OUT, ExportedRevision, Exporting, SelectedForm, found_by_creation
from persistence.services.spreadsheets import SheetDocument, workbook

FACTS = ("document", "created", "last-modified", "owner", "last-modified-by", "stage", "form-version")
"""The headings of the columns before those of controls."""

BETWEEN = "; "  # Stands between the values of a control that has several

_BOM = "\ufeff"
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Beginnings of formulas; the last four are the full-width signs of East Asia, which some spreadsheets take, too."""
_SKIPPED = " \v\f\x85\xa0\u2028\u2029\u3000\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
"""Blanks and invisible characters before a formula, which spreadsheets may skip."""
_BREAKS = ("\t", "\r", "\n")
_NUMBER = re.compile(r"[-+]?[0-9]+(?:[.,][0-9]+)?", re.ASCII)

# The export of form data as tables: a row for each document, with its values under the labels of their controls.
#
# A CSV file has the rows of one form version, for a spreadsheet; JSON lines may be of several, with values as they are.


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the controls of a version: their distinct headings, and the places of their values."""

    headings: tuple[str, ...]
    matcher: PathState[CellPlace]


@dataclass(frozen=True, slots=True)
class Row:
    """A document with its ``FACTS``: ``cells`` has the values of each column, none where all are empty."""

    address: DocumentAddress
    sidecar: Sidecar
    facts: tuple[str, ...]
    columns: Columns
    cells: tuple[tuple[str, ...], ...]


def facts_of(document: str, facts: DocumentFacts) -> tuple[str, ...]:
    names = (facts.creator or "", facts.modifier or "", facts.stage or "")
    return (document, facts.created, facts.modified, *names, str(facts.version))


def distinct_labels(labels: Sequence[str], paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the labels of controls, each that several columns have with the path of its control."""
    counts = Counter((*FACTS, *labels))
    named = zip(labels, paths, strict=True)
    return tuple(label if counts[label] == 1 else f"{label} ({'/'.join(path)})" for label, path in named)


def csv_pieces(
    labels: Iterable[str], rows: Iterable[tuple[tuple[str, ...], Iterable[Iterable[str]]]]
) -> Iterator[bytes]:
    """Yield a table as CSV in UTF-8; a row has facts, and values for each label."""
    # A cell that would be a formula in a spreadsheet begins with an apostrophe.
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(map(_without_formula, (*FACTS, *labels)))
    for facts, values in rows:
        writer.writerow(map(_without_formula, (*facts, *map(BETWEEN.join, values))))
        if file.tell() > CHUNK:
            yield file.getvalue().encode()
            file.seek(0)
            file.truncate()
    yield file.getvalue().encode()


def _without_formula(cell: str) -> str:
    is_formula = cell.startswith(_BREAKS) or cell.lstrip(_SKIPPED).startswith(_FORMULA)
    return f"'{cell}" if is_formula and not _NUMBER.fullmatch(cell) else cell


class TableExport:
    """One export of tables, with labels in a language: of all controls, or only of indexed ones."""

    def __init__(
        self, exporting: Exporting, query: queries.ExportQuery, language: str | None, *, has_all_controls: bool
    ) -> None:
        self._export = exporting(replace(query, contents=frozenset({queries.ExportedContent.DATA})))
        self.forms = self._export.forms
        self._language, self._has_all_controls = language, has_all_controls
        self._columns: dict[tuple[Form, int], Columns] = {}

    def count(self) -> int:
        return sum(1 for form in self.forms for _ in form.documents())

    def csv(self, report: Callable[[str], None], done: Callable[[], None], *, has_mark: bool) -> Iterator[bytes]:
        """Yield the rows of one version as CSV in UTF-8; ``has_mark`` begins it with the mark that Excel wants."""
        labels = self._columns_of(*self.only_version()).headings
        yield (_BOM if has_mark else "").encode()
        rows = self._rows(report, done)
        yield from csv_pieces(labels, ((row.facts, [map(readable, cell) for cell in row.cells]) for row in rows))

    def sheets(
        self, report: Callable[[str], None], done: Callable[[], None], *, kind: str, lists_problems: bool = False
    ) -> Iterator[bytes]:
        """Yield one form with all controls as ``xlsx`` or ``parquet``: sheets of documents and of each repeat."""
        # With ``lists_problems`` its last sheet or file names what is left out or cut, if anything is.
        write = workbook if kind == "xlsx" else loaded("persistence.services.parquet:parquet_files")
        form = self.only_form()
        numbers = form.versions.numbers
        published = {each.version for each in form.route.catalog.published(form.route.form)}
        latest = sorted(published if numbers is None else numbers, reverse=True)[:VERSIONS_JOINED]
        outlines = {number: outline_of(form.route, number) for number in latest}

        problems, reported = list[str](), list[str]()

        def note(problem: str) -> None:
            problems.append(problem)
            reported.append(problem)
            report(problem)

        def documents() -> Iterator[SheetDocument]:
            for _, found in self._revisions(note):
                version = found.sidecar.version
                outline = outlines.get(version) or outlines.setdefault(version, outline_of(form.route, version))
                try:
                    with closing(self._export.opened(found)) as file:
                        data = read_data(file.pieces(), outline)
                except (*LEFT_OUT, MalformedXmlError) as error:
                    note(f"{found.address}: {error}")
                    continue
                if data is None:
                    note(f"{found.address} has too many elements for a {'workbook' if kind == 'xlsx' else 'table'}")
                elif isinstance(found.address, DocumentAddress):
                    yield found.address, found.sidecar.facts, outline, data
                    done()

        numbered = [outlines[number] for number in latest]
        yield from write(documents(), numbered, self._language, problems, lists_problems=lists_problems)
        for problem in problems[len(reported) :]:
            report(problem)

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

    def _revisions(self, report: Callable[[str], None]) -> Iterator[tuple[SelectedForm, ExportedRevision]]:
        for form in self.forms:
            for group in form.groups():
                for found in group:
                    if isinstance(found, PersistenceError):
                        report(str(found))
                    elif found.address.is_main:
                        yield form, found

    def _rows(self, report: Callable[[str], None], done: Callable[[], None]) -> Iterator[Row]:
        for form, found in self._revisions(report):
            key = form.route.form, found.sidecar.version
            try:
                if key not in self._columns:
                    self._columns[key] = self._known_columns(form, found.sidecar.version, report)
                if isinstance(found.address, DocumentAddress):
                    yield self._row(self._columns[key], found, found.address)
                    done()
            except LEFT_OUT as error:
                report(str(error))

    def _row(self, columns: Columns, revision: ExportedRevision, address: DocumentAddress) -> Row:
        with closing(self._export.opened(revision)) as file, CellReader(columns.matcher) as reader:
            try:
                cells = reader.read(file.pieces()).cells
            except BadRequestError as error:
                raise BadRequestError(f"{address}: {error}") from error
        known = (cells.get(at, ()) for at in range(len(columns.headings)))
        ordered = tuple(tuple(values) if any(values) else () for values in known)
        return Row(address, revision.sidecar, facts_of(address.document, revision.sidecar.facts), columns, ordered)

    def only_form(self) -> SelectedForm:
        if len(self.forms) != 1:
            raise BadRequestError(f"a table has the rows of one form, and {len(self.forms)} forms match")
        return self.forms[0]

    def only_version(self) -> tuple[SelectedForm, int]:
        form = self.only_form()
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
        chosen = [each for each in controls if each.is_indexed or self._has_all_controls]
        paths = [each.path(data_format) for each in chosen]
        matcher = cell_matcher(
            Column(path, each.takes_files, outline.iteration(path)) for path, each in zip(paths, chosen, strict=True)
        )
        labels = [outline.label(path, self._language) or path[-1] for path in paths]
        return Columns(distinct_labels(labels, paths), matcher)


# The documents of a form as a table, for administrators: found, filtered and sorted by the index.
#
# Permissions of forms do not count. Values of encrypted controls are not in the index, at most tokens of them.


@dataclass(frozen=True, slots=True)
class TableColumn:
    """The column of an indexed control: its path in searches, its label, the labels of its items by value, its type."""

    path: str
    label: str
    choices: Mapping[str, str] = field(default_factory=dict)
    selects_many: bool = False
    type: OrderedType | None = None
    is_encrypted: bool = False  # so that only whole values are found

    @property
    def has_options(self) -> bool:
        """Return whether its values are items, few enough for a list to choose from."""
        return 0 < len(self.choices) <= MOST_OPTIONS

    @property
    def match(self) -> queries.TextMatch:
        if not self.has_options and not self.is_encrypted:
            return queries.TextMatch.SUBSTRING
        return queries.TextMatch.TOKEN if self.selects_many else queries.TextMatch.EXACT

    def shown(self, values: Iterable[str]) -> str:
        items = (each for value in values for each in (value.split() if self.selects_many else (value,)))
        return BETWEEN.join(self.choices.get(each) or each for each in items)


@dataclass(frozen=True, slots=True)
class DocumentTable:
    """The table of one version, or of all of them where ``version`` is ``None``."""

    route: Route
    version: int | None
    numbers: tuple[int, ...]
    columns: tuple[TableColumn, ...]

    @classmethod
    def of_designer(cls, route: Route) -> Self:
        keys = {key.steps[-1].name: key.path for key in DESIGNER_KEYS}
        return cls(route, None, (), tuple(TableColumn(keys[name], label) for name, label in DESIGNER_COLUMNS.items()))

    @classmethod
    def of(cls, route: Route, version: int | None, numbers: Iterable[int], language: str | None) -> Self:
        """Return a table with labels in a language, else in the first one of the form; ``numbers`` are all versions."""
        latest = tuple(sorted(numbers, reverse=True)[:VERSIONS_JOINED]) if version is None else (version,)
        found: dict[tuple[str, ...], TableColumn] = {}
        for number in latest:
            outline = outline_of(route, number)
            keys = route.indexed(route.catalog.of(route.form, number)).index_keys(route.properties.data_format).keys
            for key in keys:
                path = tuple(step.name for step in key.steps)
                node = outline.find(path) or OutlineNode()
                choices = {value: label.text(language) for value, label in node.choices.items()}
                label = outline.label(path, language) or path[-1]
                of = None if node.is_encrypted else key.type
                column = TableColumn(key.path, label, choices, node.selects_many, of, node.is_encrypted)
                found.setdefault(path, column)
        labels = distinct_labels([each.label for each in found.values()], tuple(found))
        columns = (replace(each, label=label) for each, label in zip(found.values(), labels, strict=True))
        return cls(route, version, latest, tuple(columns))

    def find(self, query: queries.Query, drafts: queries.Drafts, until: float = math.inf) -> queries.Hits:
        """Return a page; no document is looked at after ``until``, by the monotonic clock."""
        scope = queries.Scope(None if self.version is None else (self.version,), queries.DraftFilter(drafts))
        return self.route.search(scope, query, Budget(until))

    def stored(self, offset: int, size: int) -> queries.Hits:
        """Return a part of the saved documents without an index or values of controls, those saved last first."""
        # Of a large form, ``STORED_LISTED`` documents in any order are read.
        storage = self.route.data.storage
        names = list(islice(storage.documents(self.route.form), STORED_LISTED + 1))
        found = list[queries.Hit]()
        for document in names[:STORED_LISTED]:
            with suppress(DamagedError):
                sidecar = storage.sidecar(DocumentAddress(self.route.form, Collection.DATA, document))
                if sidecar is not None and not sidecar.deleted and self.version in {None, sidecar.version}:
                    found.append(queries.Hit(document=document, is_draft=False, facts=sidecar.facts))
        found.sort(key=lambda hit: (hit.facts.modified, hit.document), reverse=True)
        return queries.Hits(len(found), tuple(found[offset : offset + size]), has_more=len(names) > STORED_LISTED)

    def csv(self, query: queries.Query, drafts: queries.Drafts) -> Iterator[bytes]:
        """Return all documents that a query finds as CSV, in pieces, in the order in which they were created."""
        yield _BOM.encode()
        hits, paths = self._by_creation(query, drafts), [column.path for column in self.columns]
        rows = ((facts_of(hit.document, hit.facts), [hit.values.get(path, ()) for path in paths]) for hit in hits)
        yield from csv_pieces([column.label for column in self.columns], rows)

    def xlsx(self, query: queries.Query, drafts: queries.Drafts, language: str | None) -> Iterator[bytes]:
        """Return all documents that a query finds as a workbook, with all controls; values stay encrypted."""
        # Its last sheet names what is left out or cut, if anything is.
        problems = list[str]()
        outlines = {number: outline_of(self.route, number) for number in self.numbers}

        def documents() -> Iterator[SheetDocument]:
            for hit in self._by_creation(query, drafts):
                collection = Collection.DRAFT if hit.is_draft else Collection.DATA
                address = DocumentAddress(self.route.form, collection, hit.document)
                version = hit.facts.version
                outline = outlines.get(version) or outlines.setdefault(version, outline_of(self.route, version))
                try:
                    found = self.route.data.storage.read(address, content=True)
                    if found is None or found.file is None:
                        continue
                    with found.file as file, disk_errors(f"reading {address}"):
                        data = read_data(iter(partial(file.read, CHUNK), b""), outline)
                except (*LEFT_OUT, MalformedXmlError) as error:
                    problems.append(f"{address}: {error}")
                    continue
                if data is None:
                    problems.append(f"{address} has too many elements for a workbook")
                else:
                    yield address, hit.facts, outline, data

        numbered = [outlines[number] for number in self.numbers]
        yield from workbook(documents(), numbered, language, problems, lists_problems=True)

    def _by_creation(self, query: queries.Query, drafts: queries.Drafts) -> Iterator[queries.Hit]:
        scope = queries.Scope(None if self.version is None else (self.version,), queries.DraftFilter(drafts))
        find = partial(self.route.search, scope)
        return found_by_creation(find, replace(query, paths=tuple(column.path for column in self.columns)))


def outline_of(route: Route, version: int) -> Outline:
    """Return the outline of a version; an empty one where it is not published, or cannot be read."""
    try:
        return route.catalog.of(route.form, version).outline(route.properties.data_format) or NO_OUTLINE
    except (BadRequestError, DamagedError):
        return NO_OUTLINE
