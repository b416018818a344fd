"""Making the flat views of form versions: their tables, and the rows of all documents.

Each version is made in one transaction, so nobody sees half of it. That a form has flat views is written down before,
in a transaction of its own: whoever changes a document from then on waits for the other to end, and then replaces the
document's rows; what was changed earlier is read. So no change is lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from persistence.index.damage import UnusableError
from persistence.index.flat.catalogue import Catalogue, Entry
from persistence.index.flat.file import FlatFile, is_lost

from persistence.errors import BadRequestError, BusyError, DamagedError, PersistenceError, disk_errors
from persistence.forms.flat_tables import read_flat_views
from persistence.index import connections, identity
from persistence.index.flat import tables
from persistence.index.flat.documents import Documents
from persistence.limits import LARGEST_TREE
from persistence.model.addresses import FORM_XHTML, DefinitionAddress, Form
from persistence.model.flat_views import FlatNaming
from persistence.storage.storage import Readable

_LONGEST_WAIT = 600
"""Seconds for which it is waited for whoever makes other views."""

_CHECKPOINT = 1000
"""Milliseconds to wait for those who read, so that the log can be emptied; otherwise the next one empties it."""
_ATTEMPTS = 5
_RETRY_AFTER = 5


@dataclass(frozen=True, slots=True)
class FlatMaker:
    """Makes the flat views of one form, called as ``naming`` says.

    Methods raise ``DiskError``, ``BusyError`` and the domain errors of reading a definition.
    """

    view: Readable
    root: str
    form: Form
    naming: FlatNaming

    def create(self, version: int) -> None:
        """Make the views of a version by its definition, in the place of those it has; none of one that is deleted."""

        def work(connection: sqlite3.Connection) -> None:
            Catalogue(connection).ask(self.form, version)
            self._make(connection, version)

        self._changing(work)

    def drop(self, version: int) -> None:
        """Drop the views of a version if its definition is deleted."""

        def work(connection: sqlite3.Connection) -> None:
            if version in Catalogue(connection).entries(self.form):
                self._make(connection, version)

        if self._file.identity is not None:
            self._changing(work)

    def refill(self, version: int, *, but: str = "") -> None:
        """Read the rows of a version anew, unless they are of the tree ``but``; its columns stay.

        Where its views were lost, they are made again.
        """

        def work(connection: sqlite3.Connection) -> None:
            catalogue = Catalogue(connection)
            if version not in catalogue.entries(self.form) and self._is_wished(version):
                catalogue.ask(self.form, version)
            self._make(connection, version, but)

        if self._file.identity is not None or self._is_wished(version):
            self._changing(work)

    def refill_all(self, *, but: str = "") -> Iterator[str]:
        """The same for all versions; yields why some cannot be made."""
        known: set[int] = set()
        if self._file.identity is not None:
            self._changing(lambda connection: known.update(Catalogue(connection).entries(self.form)))
        for version in sorted({*known, *filter(self._is_wished, self.view.versions(self.form))}):
            try:
                self.refill(version, but=but)
            except PersistenceError as error:
                yield f"{self.form}, version {version}: {error}"

    @property
    def _file(self) -> FlatFile:
        return FlatFile(self.root)

    def _changing(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Work by a connection to the file, which is made where there is none that can be used."""
        what = f"making flat views of {self.form}"
        with disk_errors(what):
            for _ in range(_ATTEMPTS):
                found = None
                try:
                    self._file.make()
                    found = self._file.identity
                    with closing(self._file.opened()) as connection:
                        connection.execute(f"PRAGMA busy_timeout = {_LONGEST_WAIT * 1000}")
                        work(connection)
                        connection.execute(f"PRAGMA busy_timeout = {_CHECKPOINT}")
                        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what is gone is in the log, too
                except UnusableError:
                    self._file.discard(found)
                except sqlite3.Error as error:
                    if not is_lost(error):
                        raise connections.as_told(error, what) from error
                    self._file.discard(found)
                else:
                    if self._file.identity == found:
                        return
        raise BusyError("the file of flat views is being made again and again", _RETRY_AFTER)

    def _make(self, connection: sqlite3.Connection, version: int, but: str = "") -> None:
        """Make the tables of a version that is in the catalogue, and fill them, unless they are of a tree already.

        Where no views can be made by its definition, those it has are filled anew, and then the cause is raised.
        """
        cause: PersistenceError | None = None
        with connections.transaction(connection):
            catalogue = Catalogue(connection)
            known = catalogue.entries(self.form).get(version)
            if known is None or (but and known.tree == but):
                return
            views, tag = catalogue.views(self.form, version), known.definition
            catalogue.remove(self.form, version)
            tables.drop(connection, views)
            address = DefinitionAddress(self.form, version, FORM_XHTML)
            found = self.view.read(address, content=True)
            if found is None or found.file is None:
                return
            with found.file as file, disk_errors("reading", address):
                if not tag:
                    tag = found.etag
                    try:
                        stored = file.read(LARGEST_TREE + 1)
                        views = read_flat_views(stored, self.form, version, self.naming, catalogue.names())
                    except (BadRequestError, DamagedError) as error:
                        cause = error
            if views:
                for view in views:
                    tables.create(connection, view)
                catalogue.enter(self.form, version, Entry(tag, identity.of(self.root)), views)
                for filled in Documents(self.view, self.form, {version: views}).all():
                    tables.add(connection, filled)
        if cause is not None:
            raise cause

    def _is_wished(self, version: int) -> bool:
        """Whether flat views of a version were asked for, as its definition's sidecar knows for ever."""
        try:
            sidecar = self.view.sidecar(DefinitionAddress(self.form, version, FORM_XHTML))
        except DamagedError:
            return False
        return sidecar is not None and sidecar.flat_view
