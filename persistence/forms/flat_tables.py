"""The flat views of a form version, tables for reports: their names, columns and rows (spec search 7)."""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from persistence.errors import BadRequestError
from persistence.forms.controls import GridPaths, path_in, template_uses
from persistence.forms.definition_tree import (
    SECTION,
    BodyElement,
    Bound,
    DefinitionTree,
    FormPart,
    Names,
    is_template_use,
    on_definition,
)
from persistence.forms.form_data import PathState, is_value_encrypted, path_matcher
from persistence.limits import MOST_CELLS, MOST_COLUMNS, MOST_VIEW_CHARACTERS, MOST_VIEWS
from persistence.model.addresses import LIBRARY_FORM, Form
from persistence.model.versions import V4_0_0, PathStep
from persistence.xml import Streaming

DOCUMENT_COLUMN = "metadata_document_id"
METADATA_COLUMNS = (DOCUMENT_COLUMN, "metadata_created", "metadata_last_modified_time", "metadata_last_modified_by")


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """The column of a control, with the element names that lead to it from below the root; without, it is empty."""

    name: str
    path: tuple[str, ...]

    @property
    def row(self) -> tuple[str, str]:
        """The column in a catalogue."""
        return self.name, "/".join(self.path)


@dataclass(frozen=True, slots=True)
class FlatView:
    """A view with a row for each document, or one for each iteration of a repeated section or grid."""

    name: str
    columns: tuple[FlatColumn, ...] = ()
    around: str | None = None  # of iterations, the name of the view of the repeat or document around them
    path: tuple[str, ...] = ()  # names that lead to the iterations from below the root
    repetitions: tuple[str, ...] = ()  # columns of their numbers, the outermost first

    @property
    def column_names(self) -> tuple[str, ...]:
        first = METADATA_COLUMNS if self.around is None else (DOCUMENT_COLUMN, *self.repetitions)
        return first + tuple(column.name for column in self.columns)

    @property
    def row(self) -> tuple[str, str | None, str, str | None]:
        """The view in a catalogue: name, view around it, path with ``/`` between names, and column of its numbers."""
        return self.name, self.around, "/".join(self.path), self.repetitions[-1] if self.repetitions else None


def from_catalogue(
    listed: Iterable[tuple[str, str | None, str, str | None, Iterable[tuple[str, str]]]],
) -> tuple[FlatView, ...]:
    """Return the views of ``rows``, each with the rows of its columns."""
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
    """The rules for names of views, which begin with ``prefix`` and have at most ``longest`` characters."""

    prefix: str
    longest: int
    prefixes_in_main: bool  # columns of the view of documents have the name of the whole path
    limit: int = sys.maxsize  # for columns of numbers of repetitions, which may be longer (spec search 7.2)
    most_columns: int = MOST_COLUMNS


_NOT_IN_IDENTIFIERS = re.compile("[^A-Za-z0-9_]")


def identifier(name: str) -> str:
    return _NOT_IN_IDENTIFIERS.sub("", name.replace("-", "_")).strip("_") or "_"


def joined(parts: Sequence[str], longest: int) -> str:
    """Return the parts with ``_`` between, in at most ``longest`` characters."""
    # While they are too long, the first of the longest parts loses its last character and the ``_`` before it. That is
    # computed at once down to the length at which only some of the longest parts lose one more.
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


def read_flat_views(
    stored: bytes, form: Form, version: int, naming: FlatNaming, taken: Iterable[str] = ()
) -> tuple[FlatView, ...]:
    """Read the views of a definition, that of documents first, named unlike the ``taken`` ones; a library has none."""
    if form.name == LIBRARY_FORM:
        return ()
    parts = (identifier(form.app), identifier(form.name), str(version))
    return on_definition(stored, lambda definition: _Walk(definition, parts, naming, taken).views()) or ()


@dataclass(slots=True)
class _Growing:
    """A view while columns are added."""

    view: FlatView
    names: UniqueNames
    around: _Growing | None
    columns: list[FlatColumn]

    def holding(self, path: Names) -> _Growing:
        """Return the innermost view whose rows have the element at a path inside."""
        view = self
        while view.around is not None and not (view.inside(path) and path[: len(view.view.path)] == view.view.path):
            view = view.around
        return view

    def inside(self, path: Names) -> Names:
        return path[len(self.view.path) :]


_Position = tuple[_Growing, Names]  # A view, and the names of sections and repeats around the element


class _Walk:
    """A walk through the body of a definition and its section templates, which makes the views (spec search 7.4)."""

    def __init__(
        self, definition: DefinitionTree, parts: tuple[str, ...], naming: FlatNaming, taken: Iterable[str]
    ) -> None:
        self._definition = definition
        self._grids = GridPaths.listed(definition)
        self._uses = {use.section: use.path for use in template_uses(definition)}
        self._parts = parts
        self._naming = naming
        self._names = UniqueNames(taken, naming.longest)
        self._growing: list[_Growing] = []
        self._size = Bound(MOST_VIEW_CHARACTERS, "the form has too many controls for flat views, or too long names")

    def views(self) -> tuple[FlatView, ...]:
        self._walk(self._definition.main, (), (self._add(FlatView(self._name(())), None), ()), None)
        return tuple(replace(each.view, columns=tuple(each.columns)) for each in self._growing)

    def _walk(self, part: FormPart, start: Names | None, outer: _Position, section: str | None) -> None:
        places: dict[BodyElement | None, _Position | None] = {None: outer}
        for each in part.elements:
            self._count()
            place, name, element = places[each.outer], each.name, each.element
            if place is None:
                places[each] = None
            elif each.is_container:
                places[each] = place = self._inside(part, each, place, start)
                template = self._definition.template(element) if section is None and element.tag == SECTION else None
                if template is not None and name:
                    self._walk(template, self._uses.get(element), place, name)
            elif name and not is_template_use(element):
                own, _ = part.paths(each)
                steps = None if start is None or not own else self._grids.control_steps(start + own)
                self._column(name, place, section, () if steps is None else path_in(V4_0_0, steps))
                places[each] = None  # what is inside has no columns
            else:
                places[each] = place

    def _inside(self, part: FormPart, each: BodyElement, place: _Position, start: Names | None) -> _Position:
        view, names = place
        if not each.name:
            return place
        _, iterations = part.paths(each)
        if start is None or iterations is None:
            return (view, (*names, each.name)) if each.element.tag == SECTION else place
        path = path_in(V4_0_0, self._grids.steps(start + iterations))
        around = view.holding(path)
        outer, limit = around.view.repetitions, self._naming.limit
        number = joined((identifier(each.name), "repetition"), limit)
        repetitions = (*outer, UniqueNames(outer, limit).take(number))
        self._count(*around.inside(path), *repetitions)
        repeat = FlatView(self._name((each.name,)), (), around.view.name, path, repetitions)
        return self._add(repeat, around), (*names, each.name)

    def _column(self, name: str, place: _Position, section: str | None, path: Names) -> None:
        view, around = place
        view = view.holding(path) if path else view
        self._count(*view.inside(path), name)
        if self._naming.prefixes_in_main and view.around is None:
            names = (*around, name)
        else:
            names = (section, name) if section else (name,)
        column = view.names.take(joined([identifier(each) for each in names], self._naming.longest))
        view.columns.append(FlatColumn(column, path))
        most = self._naming.most_columns
        if len(view.view.column_names) + len(view.columns) > most:
            raise BadRequestError(f"a flat view of the form would have more than {most} columns")

    def _name(self, repeat: tuple[str, ...]) -> str:
        prefix, longest = self._naming.prefix, self._naming.longest
        return self._names.take(prefix + joined((*self._parts, *map(identifier, repeat)), longest - len(prefix)))

    def _add(self, view: FlatView, around: _Growing | None) -> _Growing:
        names = UniqueNames((*METADATA_COLUMNS, *view.repetitions), self._naming.longest)
        growing = _Growing(view, names, around, [])
        self._growing.append(growing)
        if len(self._growing) > MOST_VIEWS:
            raise BadRequestError(f"the form would have more than {MOST_VIEWS} flat views")
        return growing

    def _count(self, *names: str) -> None:
        self._size.count(sum(map(len, names)) + 1)


Cell = str | int | None  # A value in a row: the number of a repetition, the text of a control, or nothing


_Place = tuple[int, int | None]  # A view, and the column whose text an element has; ``None`` if it begins a row


class RowReader:
    """A reader of the rows of ``views`` in documents."""

    def __init__(self, views: tuple[FlatView, ...]) -> None:
        numbers = {view.name: number for number, view in enumerate(views)}
        self.views = views
        self.around = [None if view.around is None else numbers[view.around] for view in views]
        self.inside = [
            [at for at, around in enumerate(self.around) if around == number] for number in range(len(views))
        ]
        paths: list[tuple[tuple[str, ...], _Place]] = []
        for number, view in enumerate(views):
            if (around := self.around[number]) is not None:
                self.inside[around].append(number)
            paths.append((view.path, (number, None)))
            columns = enumerate(view.columns, len(view.repetitions))
            paths += [(each.path, (number, column)) for column, each in columns if each.path]
        self.start = path_matcher((tuple(map(PathStep, path)), found) for path, found in paths)

    def read(self, pieces: Iterable[bytes]) -> dict[str, list[tuple[Cell, ...]]]:
        """Read the rows of a document by the name of the view: repetition numbers, then values of controls."""
        rows = _Rows(self).read(pieces).rows
        return {view.name: list(map(tuple, each)) for view, each in zip(self.views, rows, strict=True)}


class _Rows(Streaming):
    """A parser that fills rows: a cell has the first text node at its path, if it is not encrypted."""

    def __init__(self, reader: RowReader) -> None:
        super().__init__()
        self.rows: list[list[list[Cell]]] = [[] for _ in reader.views]
        self._reader = reader
        self._columns = [len(view.columns) for view in reader.views]
        self._opened = [0] * len(reader.views)
        self._cells = 0
        self._encrypted_from = 0
        self._parts: list[str] = []
        self._places: list[PathState[_Place]] = []
        self._place = reader.start
        self.parser.buffer_text = True
        self.parser.CharacterDataHandler = self._parts.append
        self.parser.CommentHandler = self._settle
        self.parser.ProcessingInstructionHandler = self._settle

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self._settle()
        self._places.append(self._place)
        self._place = self._place.entered(name, attributes)
        if attributes and not self._encrypted_from and is_value_encrypted(attributes):
            self._encrypted_from = self.depth
        for view, column in self._place.found:
            if column is not None:
                continue
            numbers: list[Cell] = []
            around = self._reader.around[view]
            if around is not None:
                self._opened[view] += 1
                outer = self.rows[around][-1]
                numbers = [*outer[: len(outer) - self._columns[around]], self._opened[view]]
            row = [*numbers, *[None] * self._columns[view]]
            self._cells += len(row) + 1
            if self._cells > MOST_CELLS:
                raise BadRequestError(
                    f"the document would have more than {MOST_CELLS} values in the flat views of its form"
                )
            self.rows[view].append(row)
            for inner in self._reader.inside[view]:
                self._opened[inner] = 0

    def end(self, name: str) -> None:
        super().end(name)
        self._settle()
        if self.depth < self._encrypted_from:
            self._encrypted_from = 0
        self._place = self._places.pop()

    def _settle(self, *_event: str) -> None:
        if not self._parts:
            return
        text = "".join(self._parts)
        self._parts.clear()
        if self._encrypted_from:
            return
        for view, column in self._place.found:
            if column is not None and self.rows[view][-1][column] is None:
                self.rows[view][-1][column] = text
