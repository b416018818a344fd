"""The outbox of a tree, in one file: what is recorded before and after a commit, and what is found after a crash.

A commit is the rename of a sidecar, so its event cannot be in the same transaction. This is the protocol:

1.  Under the lock of a document, before the commit, an *intent* is recorded. It survives the process, not a power cut.
2.  Still under the lock, after the commit, one transaction records the event, the revision as the *latest* of the
    document, and removes the intent. Neither transaction waits for the disk.
3.  Who finds under the lock another current revision than the latest first records its event, and those of the older
    revisions since: the next writer of the document, and ``recover``, which looks at documents with intents that are
    some seconds old (their process was killed, or the outbox refused), and after a start of the machine at all that
    were written since events were last durable (a power cut takes the last transactions of SQLite).
4.  ``settle`` commits with a sync, which makes all earlier transactions durable, too. Only then an event has a number.

A revision that was written before the outbox was made has no event. A file that cannot be read, or that came with a
copy of the tree from elsewhere, is put aside for a new one, with another feed.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

import msgspec

from persistence.closable import Closable
from persistence.errors import BusyError, PersistenceError, as_disk_error
from persistence.index.outbox import TABLES, Before, Outbox, Statements, event_of, has_events
from persistence.index.sqlite.tables import FAILURES, UnusableError, connected, meaning_of, require_space, transaction
from persistence.model.addresses import Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.sidecar import SCHEMA, Sidecar, fresh_id
from persistence.model.texts import Instant, from_datetime
from persistence.storage import files
from persistence.storage.layout import EVENTS, Layout
from persistence.storage.locks import Machine
from persistence.storage.storage import EventRecorder, OlderRevisions, Storage
from persistence.storage.store import JobFile

_OWN_TABLES = """
CREATE TABLE latest (
    address text PRIMARY KEY,
    modified text NOT NULL,
    version integer NOT NULL,
    stage text,
    is_deleted integer NOT NULL
) WITHOUT ROWID;
CREATE TABLE intent (
    address text PRIMARY KEY,
    began real NOT NULL
) WITHOUT ROWID;
"""
_SCHEMA = 1  # The version of the tables, as `user_version`
_LONGEST_COMMIT = 2.0  # Seconds after which an intent is looked into, under the lock that a living writer holds
_UNSURE = 120.0  # Seconds by which the clock of the file system may differ, and in which `settle` may be late
_FILE = re.compile(r"outbox-([0-9]{1,9})\.sqlite", re.ASCII)
_KEY = msgspec.json.Decoder(tuple[str, str, str, str])


class TreeOutbox(Outbox, EventRecorder, Closable):
    """The outbox of the tree of a root, for all threads of a process. It owns two connections.

    Writers use one that syncs nothing. Every other transaction is durable when it ends.
    """

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)
        self._directory = Layout(self._root).own(EVENTS)
        self.turn = JobFile("delivery of events", f"{self._directory}/turn", f"{self._directory}/turn")
        self._lock = threading.RLock()
        self._connections: dict[str, sqlite3.Connection] = {}
        self._path = ""
        self._state = 0
        self._born = 0.0

    def close(self) -> None:
        with self._lock:
            self._forget()

    # Before and after a commit, under the lock of the resource.

    def prepare(self) -> None:
        with self._lock:  # another thread may be making it
            if not self._state:
                with self._using("looking at the outbox"):  # a power cut may take what it records first, not the file
                    pass

    def begin(self, address: Address, found: Sidecar | None, written: float, older: OlderRevisions) -> None:
        if has_events(address):
            with self._using("recording a change") as run:
                self._catch_up(run, address, found, written, older)
                run("INSERT OR REPLACE INTO intent VALUES (?, ?)", _key(address), time.time())

    def end(self, address: Address, sidecar: Sidecar, before: Sidecar | None, *, is_erased: bool = False) -> None:
        if has_events(address):
            with suppress(PersistenceError), self._using("recording an event") as run:  # else the intent stays
                _record(run, address, sidecar, Before.of(before), is_erased=is_erased)
                run("DELETE FROM intent WHERE address = ?", _key(address))

    def catch_up(self, address: Address, found: Sidecar | None, written: float, older: OlderRevisions) -> None:
        if has_events(address):
            with self._using("recording an event") as run:
                self._catch_up(run, address, found, written, older)
                run("DELETE FROM intent WHERE address = ?", _key(address))

    def _catch_up(
        self, run: Statements, address: Address, found: Sidecar | None, written: float, older: OlderRevisions
    ) -> None:
        rows = run("SELECT modified, version, stage, is_deleted FROM latest WHERE address = ?", _key(address))
        if rows:
            latest = msgspec.convert(rows[0], _Latest)
            before, last = Before(bool(latest.is_deleted), latest.stage), latest.modified
        elif found is not None and written >= self._born:
            before, last = None, from_datetime(datetime.fromtimestamp(self._born - 0.001, UTC))
        else:
            return
        if found is None:
            gone = Sidecar(schema=SCHEMA, id=fresh_id(), version=latest.version, modified=last, created=last, size=0)
            _record(run, address, gone, before, is_erased=True)
        elif not rows or found.modified != last:
            # A power cut takes the events of the last moments, and leaves the revisions.
            between = (each for each in older(last) if each.modified < found.modified)
            for each in (*between, found):
                _record(run, address, each, before)
                before = Before.of(each)

    # After a crash.

    def recover(self, storage: Storage, is_ending: Callable[[], bool]) -> None:
        boot, now = _boot(), time.time()
        with self.transaction("looking for changes without an event") as run:
            facts = {str(name): str(value) for name, value in run("SELECT name, value FROM outbox_fact")}
            # Those of a time to come were recorded before the clock was set back.
            rows = run(
                "SELECT address FROM intent WHERE NOT began BETWEEN ? AND ?", now - _LONGEST_COMMIT, now + _UNSURE
            )
        due: Iterator[Address] = (_address(str(key)) for (key,) in rows)
        if facts["boot"] != boot:
            due = self._changed_since(storage, float(facts["synced"]) - _UNSURE)
        for address in due:
            if is_ending():
                return
            with storage.writing(address) as writing:
                writing.catch_up(address)
        if facts["boot"] != boot:
            with self.transaction("recording a comparison") as run:
                run("UPDATE outbox_fact SET value = ? WHERE name = 'boot'", boot)

    def _changed_since(self, storage: Storage, moment: float) -> Iterator[Address]:
        """Yield every document and definition that was written since, or is gone."""
        layout = Layout(self._root)
        for form in storage.forms():
            definitions = (DefinitionAddress(form, each) for each in storage.versions(form))
            documents = (_document(form, each) for each in storage.documents(form))
            found: Iterator[Address] = chain[Address](definitions, documents)
            for address in found:
                with suppress(OSError):
                    if os.lstat(layout.paths(address).sidecar).st_mtime >= moment:
                        yield address
        last = ""
        while True:
            with self.transaction("comparing events with the tree") as run:
                rows = run("SELECT address FROM latest WHERE address > ? ORDER BY address LIMIT 1000", last)
            if not rows:
                return
            for (key,) in rows:
                last = str(key)
                if not files.exists(layout.paths(_address(last)).sidecar):
                    yield _address(last)

    # The file.

    @contextmanager
    def transaction(self, action: str) -> Iterator[Statements]:
        with self._using(action, "FULL") as run:
            yield run

    @contextmanager
    def _using(self, action: str, syncs: str = "NORMAL") -> Iterator[Statements]:
        with self._lock:
            try:
                require_space(self._root)
                connection = self._connection(syncs)
                with transaction(connection):
                    yield lambda statement, *values: connection.execute(statement, values).fetchall()
            except FAILURES as error:
                found = meaning_of(error, self._path, action)
                if isinstance(found, UnusableError):
                    self._begin_another()
                    raise BusyError(f"{action}: the outbox could not be read; another one was begun") from error
                raise found from error
            except OSError as error:
                raise as_disk_error(error, action) from error

    def _connection(self, syncs: str) -> sqlite3.Connection:
        try:
            state = os.stat(self._directory).st_mtime_ns
        except FileNotFoundError:
            state = 0
        if state != self._state or not state:
            self._choose()
        if syncs not in self._connections:
            connection = connected(self._path)
            connection.execute(f"PRAGMA synchronous = {syncs}")
            # A checkpoint waits for the disk: those who deliver make it.
            connection.execute(f"PRAGMA wal_autocheckpoint = {0 if syncs == 'NORMAL' else 1000}")
            self._connections[syncs] = connection
        return self._connections[syncs]

    def _choose(self) -> None:
        """Use the newest file, which is made where there is none, or where it came with a copy of the tree."""
        files.ensure(self._directory)
        place = _place(self._root)
        newest = max(self._numbers(), default=1)
        path = self._file(newest)
        if path != self._path or not self._state or not os.path.exists(path):
            self._forget()
            self._path = path
            files.ensure_file(path)
            with closing(connected(path)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                with transaction(connection):
                    if connection.execute("PRAGMA user_version").fetchall() == [(0,)]:
                        _make(connection, place)
                facts = dict(connection.execute("SELECT name, value FROM outbox_fact").fetchall())
            if facts["place"] != place:
                self._begin_another()
                self._choose()
                return
            self._born = float(facts["born"])
        self._state = os.stat(self._directory).st_mtime_ns

    def _begin_another(self) -> None:
        """Begin another file; the one before it stays, to be looked at."""
        self._forget()
        number = max(self._numbers(), default=0)
        files.ensure_file(self._file(number + 1))
        for each in range(1, number):
            files.remove_quietly(*(self._file(each) + end for end in ("", "-wal", "-shm")))

    def _numbers(self) -> list[int]:
        found = (_FILE.fullmatch(each) for each in files.names_in(self._directory))
        return [int(each[1]) for each in found if each]

    def _file(self, number: int) -> str:
        return f"{self._directory}/outbox-{number}.sqlite"

    def _forget(self) -> None:
        for connection in self._connections.values():
            with suppress(sqlite3.Error):
                connection.close()
        self._connections, self._path = {}, ""


class _Latest(NamedTuple):
    modified: Instant
    version: int
    stage: str | None
    is_deleted: int


def _record(
    run: Statements, address: Address, sidecar: Sidecar, before: Before | None, *, is_erased: bool = False
) -> None:
    event = event_of(address, sidecar, before, is_erased=is_erased)
    run("INSERT INTO outbox_event (recorded, body) VALUES (?, ?)", time.time(), msgspec.json.encode(event))
    if is_erased:
        run("DELETE FROM latest WHERE address = ?", _key(address))
    else:
        latest = (_key(address), sidecar.modified, sidecar.version, sidecar.stage, int(sidecar.deleted))
        run("INSERT OR REPLACE INTO latest VALUES (?, ?, ?, ?, ?)", *latest)


def _place(root: str) -> str:
    return "{0.st_dev:x} {0.st_ino:x}".format(os.stat(root))


def _boot() -> str:
    return Machine.this().boot


def _make(connection: sqlite3.Connection, place: str) -> None:
    own = TABLES.format(identity="integer PRIMARY KEY AUTOINCREMENT", seconds="real", bytes="blob")
    for statement in filter(str.strip, (own + _OWN_TABLES).split(";")):  # `executescript` would commit
        connection.execute(statement)
    now, boot = str(time.time()), _boot()
    facts = {"feed": fresh_id()[:16], "last": "0", "place": place, "boot": boot, "born": now, "synced": now}
    connection.executemany("INSERT INTO outbox_fact VALUES (?, ?)", facts.items())
    connection.execute(f"PRAGMA user_version = {_SCHEMA}")


def _key(address: Address) -> str:
    own = ("form", str(address.version)) if isinstance(address, DefinitionAddress) else ("data", address.document)
    return msgspec.json.encode((address.form.app, address.form.name, *own)).decode()


def _address(key: str) -> Address:
    app, name, kind, folder = _KEY.decode(key)
    return DefinitionAddress(Form(app, name), int(folder)) if kind == "form" else _document(Form(app, name), folder)


def _document(form: Form, document: str) -> DocumentAddress:
    return DocumentAddress(form, Collection.DATA, document)
