"""The flat views as the services know them: made when a definition is published, and filled as documents change."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import islice

from persistence.closable import Closable, closed
from persistence.errors import DamagedError, DiskError, disk_errors
from persistence.index import connections, facts, identity, room
from persistence.index.damage import UnusableError
from persistence.index.flat import tables
from persistence.index.flat.catalogue import Catalogue
from persistence.index.flat.documents import Documents
from persistence.index.flat.file import FlatFile, Identity, is_lost
from persistence.index.flat.making import FlatMaker
from persistence.index.making import SMALL
from persistence.index.processes import Processes
from persistence.index.sources import NOTHING_ELSEWHERE, Elsewhere
from persistence.index.work import FlatTask, Work
from persistence.limits import INDEXES_KEPT
from persistence.model.addresses import FORM_XHTML, DefinitionAddress, Form
from persistence.model.flat_views import FlatNaming, FlatView
from persistence.storage.integrity import Integrity
from persistence.storage.reader import StoreReader
from persistence.storage.routed import apart
from persistence.storage.storage import Readable

_TRANSIENT = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
    }
)
"""Codes of errors that say nothing of what is in the file."""

_PATIENCE = 1000
"""Milliseconds for which changes wait for whoever makes views: they are tried again later, and others not kept."""


class FlatViews(Closable):
    """The flat views of the tree of a root. ``naming_of`` says how those of a form are called.

    It owns a connection to their file and the processes that make them.
    ``elsewhere`` are the definitions that other trees have. Methods raise ``DiskError`` and ``BusyError``.
    """

    def __init__(
        self,
        root: str,
        naming_of: Callable[[Form], FlatNaming],
        elsewhere: Elsewhere = NOTHING_ELSEWHERE,
    ) -> None:
        self._root = os.path.realpath(root)
        self._integrity = Integrity(elsewhere.hand_edits)
        self._elsewhere = elsewhere
        self._naming = naming_of
        self._file = FlatFile(self._root)
        self._lock = threading.Lock()
        self._kept: _Kept | None = None
        self._inherited: _Kept | None = None
        self._is_closed = False
        self._processes = Processes()
        self._maker: subprocess.Popen[bytes] | None = None
        self._made_for: Identity | None = None
        self._is_asked = False

    def close(self) -> None:
        """End the processes that make views, and close the file."""
        self._processes.close()
        with self._lock:
            self._is_closed = True
            self._close()

    def create(self, form: Form, version: int) -> None:
        """Make the views of a version by its definition as it is stored, with rows of all its documents.

        Raises:
            BadRequestError: it has too much for views; those there were stay.
            DamagedError: it cannot be parsed.
        """
        view = StoreReader(self._root)
        if sum(1 for _ in islice(view.documents(form), SMALL + 1)) <= SMALL:
            self._of(form).create(version)
        else:
            self._made(self._task(form, version, is_new=True))
        self.restore()

    def drop(self, form: Form, version: int) -> None:
        """Drop the views of a version whose definition was deleted."""
        if self._file.identity is not None:
            self._of(form).drop(version)

    def task(self, form: Form, version: int | None = None) -> FlatTask:
        """The reading anew of the rows of a form, or of one version (``work``)."""
        return self._task(form, version)

    def take_in(self, form: Form, documents: Iterable[str]) -> None:
        """Put the rows of documents as they are in the place of those that were there; nothing, without views.

        Where that cannot be, because the file is not what it was, all is read anew (``restore``).
        """
        with self._using(f"bringing the flat views up to date of {form}", form) as kept:
            if kept is None or not Catalogue(kept.connection).entries(form):
                return
            with connections.transaction(kept.connection):
                views = kept.views(form)
                reading = Documents(StoreReader(self._root, self._integrity), form, views)
                every = [view for of_version in views.values() for view in of_version]
                for document in documents:
                    tables.remove(kept.connection, every, document)
                    filled = reading.read(document)
                    if filled is not None:
                        tables.add(kept.connection, filled)

    def restore(self) -> None:
        """Begin to make what may not be as the tree is, after a power cut, say, in a process of its own.

        Where the file is lost, that is all that the sidecars of definitions say there is to be; they are asked once.
        """
        if self._file.identity is None and not self._is_asked:
            self._is_asked = True
            if self._is_wanted():
                self._file.make()
        with self._using("looking at the flat views") as kept:
            if kept is None:
                return
            tree = identity.of(self._root)
            catalogue = Catalogue(kept.connection)
            is_complete = facts.read(kept.connection, facts.COMPLETE) is not None
            if is_complete and catalogue.is_of(tree):
                return
            if self._maker is not None and self._maker.poll() is None and self._made_for == kept.identity:
                return
            forms = catalogue.forms() if is_complete else self._forms()
            tasks = tuple(self._task(form, but=tree) for form in forms)
            self._maker, self._made_for = self._processes.begin(Work(self._root, flat=tasks)), kept.identity

    def _is_wanted(self) -> bool:
        """Whether a published definition has views."""
        for form in self._forms():
            view = self._view(form)
            for version in view.versions(form):
                with suppress(DamagedError):
                    sidecar = view.sidecar(DefinitionAddress(form, version, FORM_XHTML))
                    if sidecar is not None and sidecar.flat_view and not sidecar.deleted:
                        return True
        return False

    def _forms(self) -> Iterable[Form]:
        return {*StoreReader(self._root).forms(), *self._elsewhere.forms()}

    def _view(self, form: Form) -> Readable:
        return apart(self._root, self._elsewhere.root(form), self._integrity)

    def _of(self, form: Form) -> FlatMaker:
        return FlatMaker(self._view(form), self._root, form, self._naming(form))

    @contextmanager
    def _using(self, doing: str, form: Form | None = None) -> Iterator[_Kept | None]:
        """Use the connection of this process for a block; ``None`` where there is no file.

        One that turns out to be damaged is replaced by an empty one; where only the views of ``form`` are not as they
        were left, these are in doubt. Both are mended by ``restore``.
        """
        with self._lock, disk_errors(doing):
            if self._is_closed:
                raise closed("the file of flat views")
            room.require(self._root)
            found = self._file.identity
            try:
                yield self._opened(found)
            except (sqlite3.Error, UnusableError) as error:
                self._close()
                if isinstance(error, sqlite3.Error) and _is_transient(error):
                    raise connections.as_told(error, doing) from error
                self._doubt(error, found, form)
                is_doubtful = True
            else:
                is_doubtful = False
        if is_doubtful:
            self.restore()

    def _doubt(self, error: sqlite3.Error | UnusableError, found: Identity | None, form: Form | None) -> None:
        if form is not None and isinstance(error, sqlite3.Error) and not is_lost(error):
            with suppress(UnusableError), closing(self._file.opened()) as connection:
                Catalogue(connection).doubt(form)
                return
        self._file.discard(found)
        self._file.make()

    def _opened(self, found: Identity | None) -> _Kept | None:
        kept = self._kept
        if kept is not None and (kept.identity != found or kept.process != os.getpid()):
            self._close()
            kept = None
        if kept is None and found is not None:
            kept = self._kept = _Kept(self._file.opened(), found)
        return kept

    def _close(self) -> None:
        """Close the connection; one that a fork has got from its parent is the parent's, and is left as it is."""
        kept, self._kept = self._kept, None
        if kept is None:
            return
        if kept.process == os.getpid():
            kept.connection.close()
        else:
            self._inherited = kept

    def _task(self, form: Form, version: int | None = None, *, but: str = "", is_new: bool = False) -> FlatTask:
        there, hand_edits = self._elsewhere.root(form), self._elsewhere.hand_edits.value
        return FlatTask(form.app, form.name, self._naming(form), version, but, is_new, there, hand_edits)

    def _made(self, task: FlatTask) -> None:
        if not self._processes.run(Work(self._root, flat=(task,))):
            raise DiskError("the flat views could not be made; the log says why")


class _Kept:
    """A connection that stays open: as long as one does, others can read the file without being allowed to write."""

    def __init__(self, connection: sqlite3.Connection, identity: Identity) -> None:
        self.connection = connection
        self.identity = identity
        self.process = os.getpid()
        self._schema = 0
        self.connection.execute(f"PRAGMA busy_timeout = {_PATIENCE}")
        self._views: dict[Form, dict[int, tuple[FlatView, ...]]] = {}

    def views(self, form: Form) -> Mapping[int, tuple[FlatView, ...]]:
        """The views of the versions of a form; to be asked in a transaction."""
        schema = self.connection.execute("PRAGMA schema_version").fetchone()[0]
        if schema != self._schema:  # tables were made since
            self._schema = schema
            self._views.clear()
        found = self._views.get(form)
        if found is None:
            if len(self._views) >= INDEXES_KEPT:
                self._views.clear()
            catalogue = Catalogue(self.connection)
            found = self._views[form] = {version: catalogue.views(form, version) for version in catalogue.entries(form)}
        return found


def _is_transient(error: sqlite3.Error) -> bool:
    """Whether an error says nothing of what is in the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _TRANSIENT
