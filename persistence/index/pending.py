"""Which documents the index has still to take in: noted before they change, struck off when it has heard of them.

Every process that changes documents has logs of its own in one directory, and holds their locks for as long as it
lives. So a note outlives a process that is killed, and others can tell that it was. Notes are not made durable: the
kernel keeps what a process has written, and what a power cut takes is not the logs' to know.

A log only grows, until nothing in it is outstanding. Whoever searches looks here first and reads the index after it:
what is struck off meanwhile is in the index by then.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from persistence.closable import Closable, closed
from persistence.model.addresses import Form
from persistence.model.sidecar import fresh_id
from persistence.storage import directories, files, nofollow
from persistence.storage.locks import try_lock

_FULL = 1 << 13
"""Bytes in a log at which another one is begun: others read all of it, also what is struck off already."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A document that has changed, or is about to, in ``data``, in ``draft`` or in both."""

    form: Form
    document: str


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """One note, which is to be struck off; two of the same document are two."""

    noted: Noted


class Pending(Closable):
    """The notes of all processes below one directory, which is made with the first. For all threads, and across forks.

    It owns the logs of this process. Methods raise ``OSError``.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._logs: list[_Log] = []
        self._is_closed = False
        _in_use.add(self)

    def note(self, form: Form, document: str) -> Ticket:
        """Note a document, before anything of its change can be seen; others know it from now on.

        Raises:
            BusyError: the notes were closed.
        """
        ticket = Ticket(Noted(form, document))
        with self._lock:
            if self._is_closed:
                raise closed("the index")
            if not self._logs or (len(self._logs) == 1 and self._logs[0].is_full):
                self._logs.append(_Log(self._directory))
            self._logs[-1].add(ticket)
        return ticket

    def settle(self, tickets: Iterable[Ticket]) -> None:
        """Strike off what the index has taken in, of this process's notes; what is struck off already stays so."""
        struck = set(tickets)
        with self._lock:
            for log in self._logs:
                log.strike(struck)
            while len(self._logs) > 1 and not self._logs[0].tickets:
                self._logs.pop(0).remove()

    def leave(self) -> None:
        """Leave all notes to others, as if the process had ended; no change that was noted may still be under way."""
        with self._lock:
            while self._logs:
                self._logs.pop().close()

    def close(self) -> None:
        """Leave what is outstanding to others, and remove the logs in which nothing is."""
        with self._lock:
            self._is_closed = True
            while self._logs:
                with suppress(OSError):
                    self._logs.pop().end()

    def outstanding(self) -> tuple[Noted, ...]:
        """What is noted, by this process or another, living or not, and perhaps struck off by another: each once."""
        with self._lock:
            own = {log.name for log in self._logs}
            noted = {ticket.noted: None for log in self._logs for ticket in log.tickets}
        for entry in self._others(own):
            try:
                if entry.stat(follow_symlinks=False).st_size:
                    with open(nofollow.open_to_read(entry.path), "rb") as file:
                        noted.update(dict.fromkeys(_decoded(file.read())))
            except FileNotFoundError:  # all of it has been struck off since it was listed
                continue
        return tuple(noted)

    def abandoned(self) -> Iterator[Abandoned]:
        """The logs of processes that have ended, each locked until the next is asked for; empty ones are removed."""
        with self._lock:
            own = {log.name for log in self._logs}
        for entry in self._others(own):
            try:
                descriptor = nofollow.open_to_read(entry.path)
            except FileNotFoundError:
                continue
            with open(descriptor, "rb") as file:
                # One without a name was taken up by another process in between.
                if not try_lock(descriptor) or not os.fstat(descriptor).st_nlink:
                    continue
                found = Abandoned(tuple(dict.fromkeys(_decoded(file.read()))), entry.path)
                if found.noted:
                    yield found
                else:
                    found.remove()

    def left(self, seconds: float) -> Iterator[str]:
        """The paths of the logs of processes that have ended, if they were last written to so long ago."""
        with self._lock:
            own = {log.name for log in self._logs}
        for entry in self._others(own):
            with suppress(FileNotFoundError):
                descriptor = nofollow.open_to_read(entry.path)
                try:
                    is_old = time.time() - os.fstat(descriptor).st_mtime > seconds
                    if is_old and try_lock(descriptor):
                        yield entry.path
                finally:
                    os.close(descriptor)

    def _others(self, own: set[str]) -> Iterator[os.DirEntry[str]]:
        try:
            entries = os.scandir(self._directory)
        except FileNotFoundError:
            return
        with entries:
            for entry in entries:
                if entry.name not in own and entry.is_file(follow_symlinks=False):
                    yield entry

    def forked(self) -> None:
        """In a child: the notes are its parent's, and so are the locks, which last until both have closed them."""
        self._lock = threading.Lock()
        self.leave()


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A log whose process has ended: what is noted in it, to be taken in. Nobody else takes it up meanwhile."""

    noted: tuple[Noted, ...]
    _path: str

    def remove(self) -> None:
        """Remove the log, once the index has taken all of it in."""
        files.remove(self._path)


class _Log:
    """One file of notes of this process, locked while it is open, and the notes in it that are outstanding."""

    def __init__(self, directory: str) -> None:
        self.tickets: set[Ticket] = set()
        self._directory = directory
        self.name, self._descriptor = _begun(directory)

    @property
    def is_full(self) -> bool:
        """Whether it is long enough for another one to be begun."""
        return os.fstat(self._descriptor).st_size >= _FULL

    def add(self, ticket: Ticket) -> None:
        if not os.fstat(self._descriptor).st_nlink:
            self._begin_anew()
        files.write_all(self._descriptor, _encoded(ticket.noted))
        self.tickets.add(ticket)

    def strike(self, tickets: set[Ticket]) -> None:
        outstanding = len(self.tickets)
        self.tickets -= tickets
        if outstanding and not self.tickets:
            files.cut(self._descriptor)

    def remove(self) -> None:
        try:
            files.remove(f"{self._directory}/{self.name}")
        finally:
            self.close()

    def end(self) -> None:
        """Close the log, and remove it where nothing in it is outstanding."""
        if self.tickets:
            self.close()
        else:
            self.remove()

    def close(self) -> None:
        os.close(self._descriptor)

    def _begin_anew(self) -> None:
        """Somebody has removed the whole index, as he may: from now on notes go where others find them."""
        name, descriptor = _begun(self._directory)
        try:
            for ticket in self.tickets:
                files.write_all(descriptor, _encoded(ticket.noted))
        except OSError:
            os.close(descriptor)
            raise
        os.close(self._descriptor)
        self.name, self._descriptor = name, descriptor


def _begun(directory: str) -> tuple[str, int]:
    """The name of a new file in a directory, which is made if it is missing, and the file, open and locked."""
    directories.ensure(directory)
    while True:
        name = fresh_id()
        descriptor = files.open_log(f"{directory}/{name}")
        try:
            # Before it is locked it looks abandoned, and empty: whoever saw it so has it, or has removed it.
            is_own = try_lock(descriptor) and os.fstat(descriptor).st_nlink
        except OSError:
            os.close(descriptor)
            raise
        if is_own:
            return name, descriptor
        os.close(descriptor)


def _encoded(noted: Noted) -> bytes:
    """A line of a log. It begins with its newline: one that a full disk has cut off spoils no other."""
    return b"\n" + msgspec.json.encode((noted.form.app, noted.form.name, noted.document))


_LINE = msgspec.json.Decoder(tuple[str, str, str])


def _decoded(text: bytes) -> Iterator[Noted]:
    """What is noted in a log. A line that is not whole was never noted: its change has not begun."""
    for line in text.split(b"\n"):
        try:
            app, form, document = _LINE.decode(line)
        except msgspec.DecodeError:
            continue
        yield Noted(Form(app, form), document)


_in_use: weakref.WeakSet[Pending] = weakref.WeakSet()
"""All notes of this process. What is registered for forks cannot be taken back: it is registered once, for all."""


def _forked() -> None:
    for each in tuple(_in_use):
        each.forked()


os.register_at_fork(after_in_child=_forked)
