"""The journal of changes, and finding and replacing the index rows that are out of date.

This is the whole protocol that keeps an index in step with its tree.

1.  Before a document changes, its name is written to the ``Journal``. After the change the updater replaces
    its rows and strikes the name off (``updater``). A process that is killed leaves its journal to the others.
2.  A search reads the journal first and the index after it: entries that are removed in between are in the index by
    then.
    Documents in the journal whose fingerprints differ from those in the index are read again before the answer.
3.  A search compares the fingerprints of the definitions of all versions. If the indexed controls of a version have
    changed, its documents are read again before the answer. If its definition was deleted, they are hidden.
4.  The documents on a page are compared with their files: one may have been edited by hand.
5.  The fingerprint of a document is taken before it is read, and again within the transaction that replaces its rows,
    unless no other transaction has changed the index since: whoever changed the document meanwhile has a later one. A
    document that was read before the transaction, while others may write, is read again in it if it has changed, or its
    definition. Transactions come one after the other, so the last one has what was written last: it does not matter
    who replaces which rows, how often, and in what order (``Refresh``).
6.  An index says of which tree it is: device and inode of the root, and the start of the machine. After another start
    it is compared with the whole tree, as a power cut may have taken the last changes. In another place it is rebuilt:
    the files of a copied tree may have been copied at different moments (``IndexCondition``).
7.  An index and a file beside it count its changes. SQLite keeps the last changes in a log of its own. If a person
    removes that while no process has it open, or puts an older copy in the place of the index, SQLite notices nothing;
    the number in the index is then behind the other, and the index is rebuilt.
8.  A new index is built beside the one in use, which lists what changes meanwhile. At the end this is read again while
    no process can change the one in use, and the new one takes its place. A process that has changed the old one looks
    whether it is still in use, and if it is not, changes the new one (``rebuild``).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

import msgspec

from persistence.closable import Closable, closed
from persistence.index.protocol import VersionState, prepared
from persistence.index.sources import UNKNOWN, DefinitionState, DocumentName, IndexedDefinition, IndexedDocument, Source
from persistence.index.sqlite.engine import IndexedRow, IndexState, IndexWriter
from persistence.limits import MOST_READ_AHEAD
from persistence.model.addresses import Form
from persistence.model.sidecar import fresh_id
from persistence.storage import files
from persistence.storage.layout import JOURNAL, Layout
from persistence.storage.locks import try_lock

# The journal of documents that change: an entry is written before the change, and removed when the index has it.
#
# Every process that changes documents has logs of its own in one directory, and holds their locks for as long as it
# lives. So an entry outlives a process that is killed, and others can tell that it was. Entries are not made durable:
# the kernel keeps the writes of a process, and after a power cut the index is compared with the whole tree.
#
# A log only grows, until nothing in it is outstanding.


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


_BATCH = 1_000

BEFORE_ALL = -1 << 63  # Before the ``seq`` of every document

CHANGES = "-changes"  # The end of the name of the file that has the number of changes to an index


class IndexCondition(Enum):
    """How far an index file can be trusted."""

    READY = "ready"
    EARLIER = "perhaps of an earlier time"
    NONE = "none that can be used"


def condition_of(index: IndexState, tree: str, changes: int) -> IndexCondition:
    """Return how far an index can be trusted, by its own state."""
    # ``tree`` is the identity of the tree that it should be of. ``changes`` is the number beside it, read before.
    if not index.is_complete:
        return IndexCondition.NONE
    known = index.tree
    if known == tree:
        return IndexCondition.READY if index.changes >= changes else IndexCondition.NONE
    return IndexCondition.EARLIER if _place(known) == _place(tree) else IndexCondition.NONE


def tree_identity(root: str) -> str:
    """Return what names a tree and the start of the machine; raises ``OSError``."""
    status = os.stat(root)
    return f"{_boot()} {status.st_dev:x} {status.st_ino:x}"


def _place(identity: str) -> str:
    return identity.partition(" ")[2]


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def changes_beside(path: str) -> int:
    """Return the number of changes in the file beside an index; 0 without a file, the largest where it is damaged."""
    try:
        descriptor = files.open_to_read(path + CHANGES)
    except FileNotFoundError:
        return 0
    try:
        number = files.read_small(descriptor)
    finally:
        os.close(descriptor)
    return int(number) if number.isdigit() else sys.maxsize


def count_change(index: IndexState) -> None:
    """Count a change, before the transaction that makes it is committed. Raises ``OSError``."""
    index.changes = changes = index.changes + 1
    if changes > changes_beside(index.path):  # else some are missing, which is still to be noticed
        _write(index.path, changes)


def reconcile_changes(index: IndexState) -> None:
    """Make both numbers agree, within a transaction: the index has been compared with the tree. Raises ``OSError``."""
    beside = changes_beside(index.path)
    if beside == sys.maxsize:
        _write(index.path, index.changes)
    elif beside > index.changes:
        index.changes = beside


def _write(path: str, changes: int) -> None:
    if not os.path.exists(path):  # another index is in its place: its files are removed, and nothing counts any more
        return
    files.overwrite(path + CHANGES, str(changes).encode())  # in place: without the file nothing would be missing


class Stale(NamedTuple):
    """The parts of an index that are out of date, for the most part none."""

    documents: Sequence[str]
    definitions: Sequence[int]  # versions whose definitions have changed
    versions: Sequence[int]  # those whose documents must be read again


def look(index: IndexState, partitions: list[Any], source: Source, documents: Iterable[str]) -> Stale:
    """Return which of some documents and of all definitions are out of date in an index with some partitions."""
    definitions = {version: fingerprint for _, version, *_, fingerprint, _ in partitions}
    return Stale(
        [each for each in documents if index.fingerprints(each) != source.fingerprints(each)],
        [version for version, known in definitions.items() if known != source.definition_fingerprint(version)],
        outdated(partitions),
    )


def outdated(partitions: list[Any]) -> list[int]:
    """Return the versions that have documents to be read again, except of hidden ones."""
    return sorted(
        {
            version
            for _, version, _, generation, documents, current, state, *_ in partitions
            if documents and generation < current and state != DefinitionState.DELETED.name
        }
    )


def differing(index: IndexState, source: Source) -> Iterator[str | None]:
    """Compare the whole tree: yield each document that differs, and ``None`` for each that does not."""
    # Raises as ``look`` does.
    same = 0
    for name in source.documents():
        fingerprint = source.fingerprint(name)
        known = index.fingerprints(name.document)[0 if name.is_draft else 1]
        if known == fingerprint:
            same += known != ""
            yield None
        elif known or source.read(name, fingerprint, lambda _: UNKNOWN):
            yield name.document
        else:
            yield None  # deleted, or damaged: there should be no row
    if same < index.count():
        last = BEFORE_ALL
        while rows := index.names(last, _BATCH):
            yield from (name.document for _, name in rows if not source.fingerprint(name))
            last = rows[-1][0]


_CHANGED_AT_ONCE = 200  # Documents in one transaction: others who write wait for it

_NEVER = -1  # No number of changes that an index has


class _DocumentState(NamedTuple):
    """The fingerprint of a document or draft, empty where there is none, and its row in the index."""

    name: DocumentName
    fingerprint: str
    kept: IndexedRow | None


class Refresh:
    """Brings one index up to date with its tree, by a connection that writes. Raises the errors of both."""

    def __init__(self, index: IndexWriter, source: Source) -> None:
        self._index = index
        self._source = source
        self._versions: dict[int, VersionState] = {}
        self._ahead: dict[DocumentName, tuple[IndexedDefinition, IndexedDocument]] = {}
        self._is_changed = False

    def documents(self, documents: Iterable[str]) -> None:
        """Replace the rows of some documents and their drafts, where they have changed."""
        documents = list(documents)
        for at in range(0, len(documents), _CHANGED_AT_ONCE):
            part = documents[at : at + _CHANGED_AT_ONCE]
            changes, states = self._look_ahead(part)
            with self._changing():
                self._is_changed = True  # also where nothing is to be replaced: others may have looked before
                self._replace(states if changes == self._index.changes else self._changed(part))

    def definitions(self, versions: Iterable[int]) -> None:
        """Store the new state of the definitions of some versions."""
        with self._changing():
            for version in versions:
                self.keys(version)

    def version(self, version: int) -> Iterator[None]:
        """Read the documents of an outdated version again, in batches; yield after each."""
        last = BEFORE_ALL
        while rows := self._index.names_of(version, last, _CHANGED_AT_ONCE):
            with self._changing():
                keys = self.keys(version)
                self._replace(
                    each
                    for each in self._states(document for _, document in rows)
                    if each.kept is not None
                    and each.kept.version == version
                    and each.kept.generation != keys.generation
                )
            last = rows[-1][0]
            yield

    def everything(self) -> Iterator[int]:
        """Compare the whole tree, and replace all rows that differ; yield the number of documents in each batch."""
        names = differing(self._index, self._source)
        while batch := list(islice(names, _CHANGED_AT_ONCE)):
            self.documents(document for document in batch if document is not None)
            yield len(batch)

    def keys(self, version: int) -> VersionState:
        """Return the state by which documents of a version must be read now."""
        # One that the index does not know as it is, is stored in it: to be called in a transaction.
        if version not in self._versions:
            definition, state = self._source.definition(version), self._index.version(version)
            self._is_changed = True
            if state is None or state.fingerprint != definition.fingerprint:
                numbers = self._index.numbers(definition.paths)
                now = VersionState.of(definition, self._source.described.data_format, numbers)
                state = now if state is None else state.following(now)
                self._index.store_version(version, state)
            self._versions[version] = state
        return self._versions[version]

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._index.changing():
            self._versions.clear()  # others may have changed them
            self._is_changed = False
            yield
            if self._is_changed:
                count_change(self._index)

    def _look_ahead(self, documents: Iterable[str]) -> tuple[int, list[_DocumentState]]:
        """Look for documents that have changed, and read them, before the transaction: it is shorter then."""
        # Return the number of changes to the index before the look, and the states. As long as the number is the same,
        # they need not be looked for again.
        self._ahead.clear()
        if not self._index.is_complete:
            return _NEVER, []
        changes, states = self._index.changes, list(self._changed(documents))
        definitions, size = cache(self._source.definition), 0
        for each in states:
            document = self._source.read(each.name, each.fingerprint, definitions)
            if document is not None:
                self._ahead[each.name] = definitions(document.hit.facts.version), document
                size += len(document.free_text) + sum(
                    len(text) for texts in document.hit.values.values() for text in texts
                )
            if size > MOST_READ_AHEAD:
                break
        return changes, states

    def _changed(self, documents: Iterable[str]) -> Iterator[_DocumentState]:
        return (
            each for each in self._states(documents) if each.kept is None or each.kept.fingerprint != each.fingerprint
        )

    def _states(self, documents: Iterable[str]) -> Iterator[_DocumentState]:
        for document in dict.fromkeys(documents):
            kept = self._index.kept(document)
            for is_draft, fingerprint in zip((True, False), self._source.fingerprints(document), strict=True):
                row = kept.get(is_draft)
                if fingerprint or row is not None:
                    yield _DocumentState(DocumentName(document, is_draft), fingerprint, row)

    def _replace(self, states: Iterable[_DocumentState]) -> None:
        states = list(states)
        if not states:
            return
        self._is_changed = True
        if self._index.is_rebuilding:
            self._index.miss(each.name.document for each in states)
        if not self._index.is_complete:
            return
        self._index.remove([each.kept for each in states if each.kept is not None])
        documents = filter(None, map(self._read, states))
        self._index.add(prepared(document, self.keys(document.hit.facts.version)) for document in documents)

    def _read(self, state: _DocumentState) -> IndexedDocument | None:
        definition, document = self._ahead.pop(state.name, (None, None))
        if document is not None and document.fingerprint == state.fingerprint:
            current = self.keys(document.hit.facts.version)
            if current.definition == definition:
                return document
        return self._source.read(state.name, state.fingerprint, lambda version: self.keys(version).definition)
