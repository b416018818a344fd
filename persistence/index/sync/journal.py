"""The journal of documents that change: an entry is written before the change, and removed when the index has it.

Every process that changes documents has logs of its own in one directory, and holds their locks for as long as it
lives. So an entry outlives a process that is killed, and others can tell that it was. Entries are not made durable: the
kernel keeps the writes of a process, and after a power cut the index is compared with the whole tree.

A log only grows, until nothing in it is outstanding.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from persistence.closable import Closable, closed
from persistence.model.addresses import Form
from persistence.model.sidecar import fresh_id
from persistence.storage import files
from persistence.storage.layout import JOURNAL, Layout
from persistence.storage.locks import try_lock

_FULL = 1 << 13  # Bytes in a log at which another one is begun: others read all of it, also removed entries


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A document that has changed, or is about to, in ``data``, in ``draft`` or in both."""

    form: Form
    document: str


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """One entry, which is removed later; two of the same document are two."""

    entry: JournalEntry


class Journal(Closable):
    """The entries of all processes below one directory, which is made with the first. For all threads."""

    # It owns the logs of this process. Methods raise ``OSError``.
    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._logs: list[_Log] = []
        self._is_closed = False

    def write(self, form: Form, document: str) -> Ticket:
        """Write an entry, before anything of the change can be seen; others know of it from now on."""
        ticket = Ticket(JournalEntry(form, document))
        with self._lock:
            if self._is_closed:
                raise closed("the index")
            if not self._logs or (len(self._logs) == 1 and self._logs[0].is_full):
                self._logs.append(_Log(self._directory))
            self._logs[-1].add(ticket)
        return ticket

    def strike(self, tickets: Iterable[Ticket]) -> None:
        """Remove entries of this process, which the index has now; it may be done twice."""
        removed = set(tickets)
        with self._lock:
            for log in self._logs:
                log.strike(removed)
            while len(self._logs) > 1 and not self._logs[0].tickets:
                self._logs.pop(0).remove()

    def leave(self) -> None:
        """Leave all entries to others, as if the process had ended; no change of an entry may still be under way."""
        with self._lock:
            while self._logs:
                self._logs.pop().close()

    def close(self) -> None:
        """Leave outstanding entries to others, and remove the logs that have none."""
        with self._lock:
            self._is_closed = True
            while self._logs:
                log = self._logs.pop()
                with suppress(OSError):
                    if log.tickets:
                        log.close()
                    else:
                        log.remove()

    def outstanding(self) -> tuple[JournalEntry, ...]:
        """Return the entries of all processes, dead or alive, each once; others may have removed some already."""
        with self._lock:
            own = {log.name for log in self._logs}
            entries = {ticket.entry: None for log in self._logs for ticket in log.tickets}
        for each in self._others(own):
            try:
                if each.stat(follow_symlinks=False).st_size:
                    with open(files.open_to_read(each.path), "rb") as file:
                        entries.update(dict.fromkeys(_decoded(file.read())))
            except FileNotFoundError:  # all its entries have been removed since it was listed
                continue
        return tuple(entries)

    def abandoned(self) -> Iterator[AbandonedLog]:
        """Yield the logs of dead processes, each locked until the next is asked for; empty ones are removed."""
        for path, file in self._dead():
            found = AbandonedLog(tuple(dict.fromkeys(_decoded(file.read()))), path)
            if found.entries:
                yield found
            else:
                found.remove()

    def orphaned(self, seconds: float) -> Iterator[str]:
        """Yield the paths of the logs of dead processes that were last written to so long ago."""
        for path, file in self._dead():
            if time.time() - os.fstat(file.fileno()).st_mtime > seconds:
                yield path

    def _dead(self) -> Iterator[tuple[str, BinaryIO]]:
        with self._lock:
            own = {log.name for log in self._logs}
        for entry in self._others(own):
            try:
                descriptor = files.open_to_read(entry.path)
            except FileNotFoundError:
                continue
            with open(descriptor, "rb") as file:
                # One without a name was taken up by another process in between.
                if try_lock(descriptor) and os.fstat(descriptor).st_nlink:
                    yield entry.path, file

    def _others(self, own: set[str]) -> Iterator[os.DirEntry[str]]:
        try:
            entries = os.scandir(self._directory)
        except FileNotFoundError:
            return
        with entries:
            for entry in entries:
                if entry.name not in own and entry.is_file(follow_symlinks=False):
                    yield entry


@dataclass(frozen=True, slots=True)
class AbandonedLog:
    """A log of a dead process, locked so that no other process recovers it meanwhile."""

    entries: tuple[JournalEntry, ...]
    _path: str

    def remove(self) -> None:
        """Remove the log, once the index has all of its entries."""
        files.remove(self._path)


class _Log:
    """One file of entries of this process, locked while it is open, and the tickets that are outstanding."""

    def __init__(self, directory: str) -> None:
        self.tickets: set[Ticket] = set()
        self._directory = directory
        self.name, self._descriptor = _begun(directory)

    @property
    def is_full(self) -> bool:
        return os.fstat(self._descriptor).st_size >= _FULL

    def add(self, ticket: Ticket) -> None:
        if not os.fstat(self._descriptor).st_nlink:
            # The whole index was removed, which is allowed: others would not find this log.
            name, descriptor = _begun(self._directory)
            try:
                for each in self.tickets:
                    files.write_all(descriptor, _encoded(each.entry))
            except OSError:
                os.close(descriptor)
                raise
            os.close(self._descriptor)
            self.name, self._descriptor = name, descriptor
        files.write_all(self._descriptor, _encoded(ticket.entry))
        self.tickets.add(ticket)

    def strike(self, tickets: set[Ticket]) -> None:
        outstanding = len(self.tickets)
        self.tickets -= tickets
        if outstanding and not self.tickets:
            files.set_size(self._descriptor, 0)

    def remove(self) -> None:
        try:
            files.remove(f"{self._directory}/{self.name}")
        finally:
            self.close()

    def close(self) -> None:
        os.close(self._descriptor)


def _begun(directory: str) -> tuple[str, int]:
    files.ensure(directory)
    while True:
        name = fresh_id()
        descriptor = files.open_log(f"{directory}/{name}")
        try:
            # Before it is locked it looks abandoned, and empty: a process that saw it so has locked it, or removed it.
            is_own = try_lock(descriptor) and os.fstat(descriptor).st_nlink
        except OSError:
            os.close(descriptor)
            raise
        if is_own:
            return name, descriptor
        os.close(descriptor)


def _encoded(entry: JournalEntry) -> bytes:
    return b"\n" + msgspec.json.encode((entry.form.app, entry.form.name, entry.document))


_LINE = msgspec.json.Decoder(tuple[str, str, str])


def _decoded(text: bytes) -> Iterator[JournalEntry]:
    for line in text.split(b"\n"):
        try:
            app, form, document = _LINE.decode(line)
        except msgspec.DecodeError:
            continue
        yield JournalEntry(Form(app, form), document)


_AT_ONCE = 100
"""Documents after which entries are left to the service, which would look at all of them with every search."""


class OfflineJournal(Closable):
    """Writes journal entries for a command that changes documents, and leaves them to the service."""

    # If an entry cannot be written, the index of the form is invalidated. A ``ChangeListener``.
    def __init__(self, root: str) -> None:
        self._layout = Layout(os.path.realpath(root))
        self._journal = Journal(self._layout.own(JOURNAL))
        self._invalid: set[Form] = set()
        self._count = 0

    def changing(self, form: Form, document: str) -> None:
        """Write an entry, before a document changes."""
        try:
            self._journal.write(form, document)
        except OSError:
            self._invalid.add(form)
            self._invalidate(form)

    def changed(self, form: Form, document: str) -> None:  # noqa: ARG002 - as a listener has it
        """Invalidate the index where there is no entry: it may have been rebuilt before the document changed."""
        if form in self._invalid:
            self._invalidate(form)
        self._count += 1
        if self._count % _AT_ONCE == 0:
            self.leave()

    def leave(self) -> None:
        """Leave all entries to others, this process too: nothing is being changed any more."""
        with suppress(OSError):
            self._journal.leave()

    def close(self) -> None:
        """Leave all entries to others, and write no more."""
        self._journal.close()

    def _invalidate(self, form: Form) -> None:
        with suppress(OSError):
            files.remove(self._layout.current_index(form))
