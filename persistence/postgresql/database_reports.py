"""The flat views of a database: made when a definition is published, and kept in the transactions of saves.

How no save is lost while views are filled, and nobody sees half of them:

1. A transaction lists a new generation of the views in the catalogue. Saves that see it keep its rows from then on.
2. The publication waits for the transactions that have changed a revision before, and may not have seen it.
3. Batches of documents are read. The current revision of each is locked meanwhile: a save that replaces it waits for
   the batch, and writes its own rows after it. One that has replaced it already has written its rows itself.
4. A transaction puts the views over the new rows, in the place of those over the rows of the generation before.
5. The rows of the generation before are removed, after the saves that still kept them.

Saves wait for one batch at most, and never for a publication. What a publication that was interrupted has left is
removed by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice

from psycopg import Cursor
from psycopg import errors as codes
from psycopg.rows import TupleRow

from persistence.bounded_cache import BoundedCache
from persistence.errors import BusyError, ConflictError, DiskError, DiskFullError, PersistenceError
from persistence.forms.flat_tables import RowReader, read_flat_views
from persistence.index.sources import DocumentRows, Source, flat_definition, flat_rows
from persistence.limits import DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES
from persistence.model.addresses import Form
from persistence.model.flat_views import FlatNaming, FlatView
from persistence.postgresql import flat_catalogue
from persistence.postgresql.connections import cause
from persistence.postgresql.database import Database, Rows, lock_key
from persistence.postgresql.flat_catalogue import Generation, GenerationState
from persistence.postgresql.index_rows import SourceOf

_BATCH = 100  # Documents whose rows are written in one transaction; saves of them wait for it

_ROWS = 5000  # Rows that are written by one statement, if they are not of one document

_WAITS_FOR_WRITERS = 60.0
_PAUSE = 0.02
_ATTEMPTS = 5
_RETRY_AFTER = 5


def naming(prefix: str, longest: int, *, prefixes_in_main: bool) -> FlatNaming:
    limit = flat_catalogue.LONGEST_NAME
    return FlatNaming(prefix, min(longest, limit), prefixes_in_main, limit, flat_catalogue.MOST_COLUMNS)


class FlatRows:
    """Keeps the rows of documents, in the transactions that change these."""

    def __init__(self, database: Database, source_of: SourceOf) -> None:
        self._database = database
        self._source_of = source_of
        self._kept: BoundedCache[_FormViews] = BoundedCache(DEFINITIONS_KEPT, DEFINITIONS_KEPT_BYTES)

    def ask(self, form: Form) -> Cursor[TupleRow]:
        """Ask for the views of a form, in the transaction of a change: the answer comes with that of others."""
        with self._database.reading("writing the flat views of", form) as connection:
            asked = connection.asked[form] = flat_catalogue.ask_states(connection, form)
            return asked

    def changed(self, form: Form, document: str) -> None:
        """Bring the rows of a saved document up to date after a change, in its transaction."""
        with self._database.reading("writing the flat views of", form) as connection:
            if found := tuple(connection.asked.pop(form, None) or self.ask(form)):
                self._views(connection, form, found).write(connection, self._source_of(form), [document])

    def fill(self, connection: Rows, form: Form, number: int, documents: Sequence[str]) -> bool:
        """Bring the rows of documents up to date in one generation; return whether that is kept.

        A document that another transaction changes meanwhile is left to it.
        """
        found = tuple(each for each in flat_catalogue.ask_states(connection, form) if each[0] == number)
        if not found or found[0][-1] == GenerationState.DROPPED:
            return False
        if unchanged := flat_catalogue.lock_documents(connection, form, documents):
            self._views(connection, form, found).write(connection, self._source_of(form), unchanged)
        return True

    def _views(self, connection: Rows, form: Form, found: tuple[TupleRow, ...]) -> _FormViews:
        return self._kept.get((form, found), lambda: _FormViews(flat_catalogue.generations(connection, found)))


class _FormViews:
    """The views of versions of a form, as they are at one time."""

    def __init__(self, generations: Sequence[Generation]) -> None:
        self._numbers = [number for each in generations for number in each.numbers.values()]
        self._layers = [
            {each.version: (each, RowReader(each.views)) for each in generations if each.state is state}
            for state in (GenerationState.READY, GenerationState.FILLING)
        ]

    def write(self, connection: Rows, source: Source, documents: Sequence[str]) -> None:
        read: list[str] = []
        found: list[tuple[DocumentRows, Generation]] = []
        for document in documents:
            read.append(document)
            for layer in filter(None, self._layers):
                readers = {version: reader for version, (_, reader) in layer.items()}
                rows = flat_rows(source.view, source.form, readers, document)
                if rows is not None:
                    found.append((rows, layer[rows.version][0]))
            if sum(len(rows.rows[view.name]) for rows, _ in found for view in rows.views) >= _ROWS:
                flat_catalogue.write_rows(connection, self._numbers, read, found)
                read, found = [], []
        if read:
            flat_catalogue.write_rows(connection, self._numbers, read, found)


class DatabaseReports:
    """The flat views of a database. Raises ``ConflictError`` where other views were made of a view to be removed."""

    def __init__(self, database: Database, rows: FlatRows, source_of: SourceOf) -> None:
        self._database = database
        self._rows = rows
        self._source_of = source_of

    def create(self, form: Form, version: int) -> None:
        """Make the views of a version by its stored definition, with the rows of all its documents."""
        number = self._begin(form, version)
        if number is not None:
            try:
                self._await_writers(form)
                if self._fill(form, number):
                    self._install(form, version, number)
            except BaseException:
                with suppress(PersistenceError):
                    with self._changing(form) as connection:
                        flat_catalogue.set_state(connection, [number], GenerationState.DROPPED)
                    self._clean(form)
                raise
        self._clean(form)

    def drop(self, form: Form, version: int) -> None:
        """Drop the views of a version whose definition was deleted, unless it is there again."""
        with self._changing(form) as connection:
            own = self._generations(connection, form, version)
            if own and self._defined(form, version) is None:
                flat_catalogue.set_state(connection, [each.number for each in own], GenerationState.DROPPED)
        self._clean(form)

    def refill(self, form: Form, version: int | None = None) -> None:
        """Read the rows of a version, or of all versions, again; make the views that are missing."""
        catalog = self._source_of(form).catalog
        with self._database.reading("looking at the flat views of", form) as connection:
            found = flat_catalogue.ask_states(connection, form).fetchall()
        ready = {each: number for number, each, state in found if state == GenerationState.READY}
        wanted = (each for each in catalog.storage.versions(form) if catalog.of(form, each).has_flat_views)
        for each in sorted({*(each for _, each, _ in found), *wanted}):
            if version not in {None, each}:
                continue
            if each in ready and catalog.of(form, each).published is not None:
                self._fill(form, ready[each])
                with self._database.transaction("filling the flat views of", form) as connection:
                    for own in self._generations(connection, form, each):
                        if own.number == ready[each]:
                            flat_catalogue.remove_purged(connection, form, list(own.numbers.values()))
            else:
                self.create(form, each)
        self._clean(form)

    def _begin(self, form: Form, version: int) -> int | None:
        with self._changing(form) as connection:
            own = self._generations(connection, form, version)
            stored = self._defined(form, version)
            views: tuple[FlatView, ...] = ()
            if stored is not None:
                taken = flat_catalogue.taken_names(connection, self._database.address, own)
                views = read_flat_views(stored[1], form, version, self._source_of(form).described.naming, taken)
            same = [each for each in own if each.state is GenerationState.READY and views in ((), each.views)]
            outdated = [each.number for each in own if each.state is GenerationState.FILLING]
            flat_catalogue.set_state(connection, outdated, GenerationState.DROPPED)
            if not views:
                flat_catalogue.set_state(connection, [each.number for each in same], GenerationState.DROPPED)
            return None if same or not views else flat_catalogue.add(connection, form, version, views)

    def _defined(self, form: Form, version: int) -> tuple[str, bytes] | None:
        return flat_definition(self._source_of(form).catalog, form, version)

    def _fill(self, form: Form, number: int) -> bool:
        documents = self._source_of(form).view.documents(form)
        while batch := list(islice(documents, _BATCH)):
            with self._database.transaction("filling the flat views of", form) as connection:
                if not self._rows.fill(connection, form, number, batch):
                    return False
        return True

    def _install(self, form: Form, version: int, number: int) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._changing(form) as connection:
                    self._replace(connection, self._generations(connection, form, version), number)
            except BusyError as error:
                if attempt == _ATTEMPTS:
                    text = f"reports that are running keep the flat views of {form} from being replaced"
                    raise BusyError(text, _RETRY_AFTER) from error
            else:
                return

    def _replace(self, connection: Rows, own: Sequence[Generation], number: int) -> None:
        new = next((each for each in own if each.number == number and each.state is GenerationState.FILLING), None)
        if new is None:
            return
        before = [each for each in own if each.state is GenerationState.READY]
        gone = {name for each in before for name in each.numbers if name not in new.numbers}
        try:
            flat_catalogue.replace_views(connection, self._database.address, gone, new)
        except codes.DependentObjectsStillExist as error:
            text = "the flat views cannot be replaced, because other views in the database are made of them"
            raise ConflictError(f"{text}: {cause(error)}") from error
        flat_catalogue.set_state(connection, [each.number for each in before], GenerationState.DROPPED)
        flat_catalogue.set_state(connection, [number], GenerationState.READY)

    def _clean(self, form: Form) -> None:
        """Remove the dropped generations. What is in the way is left to the next publication."""
        with suppress(BusyError, DiskFullError):
            with self._database.reading("looking at the flat views of", form) as connection:
                dropped = [
                    each for each in self._generations(connection, form) if each.state is GenerationState.DROPPED
                ]
            if not dropped:
                return
            is_hidden = self._hide(form)
            self._await_writers(form)
            for each in dropped:
                with self._database.reading("emptying the flat views of", form) as connection:
                    while flat_catalogue.remove_rows(connection, list(each.numbers.values())):
                        pass
                if is_hidden:
                    with self._changing(form) as connection:
                        flat_catalogue.forget(connection, each.number)

    def _hide(self, form: Form) -> bool:
        try:
            with self._changing(form) as connection:
                every = self._generations(connection, form)
                shown = {name for each in every if each.state is GenerationState.READY for name in each.numbers}
                gone = {name for each in every if each.state is GenerationState.DROPPED for name in each.numbers}
                flat_catalogue.drop_views(connection, self._database.address, gone - shown)
        except (BusyError, DiskError):  # a report is running, or others made views of them
            return False
        return True

    def _await_writers(self, form: Form) -> None:
        deadline = time.monotonic() + _WAITS_FOR_WRITERS
        action = "looking for writers while making the flat views of"
        with self._database.reading(action, form) as connection:
            left = flat_catalogue.writers(connection)
        while left:
            if time.monotonic() > deadline:
                raise BusyError(f"a request has been storing for so long that no flat views of {form} can be made")
            time.sleep(_PAUSE)
            with self._database.reading(action, form) as connection:
                left &= flat_catalogue.writers(connection)

    def _generations(self, connection: Rows, form: Form, version: int | None = None) -> list[Generation]:
        found = [each for each in flat_catalogue.ask_states(connection, form) if version in {None, each[1]}]
        return flat_catalogue.generations(connection, found)

    @contextmanager
    def _changing(self, form: Form) -> Iterator[Rows]:
        with self._database.transaction("making flat views of", form) as connection:
            # Nobody else changes the catalogue until the transaction ends. Saves do not wait.
            key = lock_key(self._database.address.schema, "flat views")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
            yield connection
