"""Finding and replacing index rows that are out of date.

This is the whole protocol that keeps an index in step with its tree.

1.  Before a document changes, its name is written to the journal (``journal``). After the change the updater replaces
    its rows and strikes the name off (``updater``). A process that is killed leaves its journal to the others.
2.  A search reads the journal first and the index after it: what is struck off in between is in the index by then.
    Documents in the journal whose fingerprints differ from those in the index are read again before the answer.
3.  A search compares the fingerprints of the definitions of all versions. If the indexed controls of a version have
    changed, its documents are read again before the answer. If its definition was deleted, they are hidden.
4.  The documents on a page are compared with their files: somebody may have edited one by hand.
5.  A document is read within the transaction that replaces its rows, and its fingerprint is taken before it is read.
    Transactions come one after the other, so the last one has read what was written last: it does not matter who
    replaces which rows, how often, and in what order (``Refresh``).
6.  An index says of which tree it is: device and inode of the root, and the start of the machine. After another start
    it is compared with the whole tree, as a power cut may have taken the last changes. In another place it is rebuilt:
    the files of a copied tree may have been copied at different moments (``generations``).
7.  An index and a file beside it count its changes. SQLite keeps the last changes in a log of its own. If somebody
    removes that while no process has it open, or puts an older copy in the place of the index, SQLite notices nothing;
    the number in the index is then behind the other, and the index is rebuilt.
8.  A new index is built beside the one in use, which lists what changes meanwhile. At the end this is read again while
    nobody can change the one in use, and the new one takes its place. Whoever has changed the old one then looks
    whether it is still in use, and if it is not, changes the new one (``builder``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from persistence.index.extraction import IndexedDocument
from persistence.index.sources import UNKNOWN, DefinitionState, IndexedDefinition, Source
from persistence.index.sqlite.connections import transaction
from persistence.index.sqlite.records import VersionKeys, prepared
from persistence.index.sqlite.rows import KeptRow, Rows
from persistence.index.sqlite.state import Connection, IndexedVersion, IndexState, controls_json
from persistence.index.sync.generations import count_change

_BATCH = 1_000


class Stale(NamedTuple):
    """The parts of an index that are out of date, for the most part none.

    ``definitions`` are the versions whose definitions have changed, and the documents of ``versions`` must be read
    again.
    """

    documents: Sequence[str]
    definitions: Sequence[int]
    versions: Sequence[int]


def look(connection: Connection, source: Source, documents: Iterable[str]) -> Stale:
    """Return which of some documents and of all definitions are out of date in an index.

    Raises:
        EngineError: the index cannot be read.
        DiskError: the tree cannot be read.
    """
    state = IndexState(connection)
    return Stale(
        [each for each in documents if state.fingerprints(each) != source.fingerprints(each)],
        [version for version, known in state.definitions() if known != source.definition_fingerprint(version)],
        state.outdated(),
    )


def differing(connection: Connection, source: Source) -> Iterator[str | None]:
    """Compare the whole tree: yield each document that differs, and ``None`` for each that does not.

    Raises as ``look`` does.
    """
    state, same = IndexState(connection), 0
    for document, is_draft in source.documents():
        fingerprint = source.fingerprint(document, is_draft=is_draft)
        known = state.fingerprints(document)[0 if is_draft else 1]
        if known == fingerprint:
            same += known != ""
            yield None
        elif known or source.read(document, is_draft=is_draft, fingerprint=fingerprint, definitions=lambda _: UNKNOWN):
            yield document
        else:
            yield None  # deleted, or damaged: there should be no row
    if same < state.count():
        yield from _vanished(state, source)


def _vanished(state: IndexState, source: Source) -> Iterator[str]:
    last = 0
    while rows := state.names(last, _BATCH):
        for _, document, is_draft in rows:
            if not source.fingerprint(document, is_draft=is_draft):
                yield document
        last = rows[-1][0]


_CHANGED_AT_ONCE = 200
"""Documents in one transaction: others who write wait for it."""


class Refresh:
    """Brings one index up to date with its tree, by a connection that writes.

    Methods raise ``EngineError``, ``OSError`` and the domain errors of the storage.
    """

    def __init__(self, connection: Connection, path: str, source: Source) -> None:
        self._connection = connection
        self._path = path
        self._source = source
        self._state = IndexState(connection)

    def documents(self, documents: Iterable[str]) -> None:
        """Replace the rows of some documents and their drafts, where they have changed."""
        documents = list(documents)
        for at in range(0, len(documents), _CHANGED_AT_ONCE):
            with self._changing() as change:
                change.replace_changed(documents[at : at + _CHANGED_AT_ONCE])

    def definitions(self, versions: Iterable[int]) -> None:
        """Store the new state of the definitions of some versions."""
        with self._changing() as change:
            for version in versions:
                change.keys(version)

    def version(self, version: int) -> Iterator[None]:
        """Read the documents of an outdated version again, in batches; yield after each."""
        known, last = self._state.version(version), 0
        while rows := self._state.names_of(version, last, _CHANGED_AT_ONCE):
            with self._changing() as change:
                change.replace_outdated(version, [document for _, document in rows])
            last = rows[-1][0]
            yield
        if known is not None:
            self._state.settle_version(version, known.round)

    def everything(self) -> Iterator[int]:
        """Compare the whole tree, and replace all rows that differ; yield the number of documents in each batch."""
        names = differing(self._connection, self._source)
        while batch := list(islice(names, _CHANGED_AT_ONCE)):
            self.documents(document for document in batch if document is not None)
            yield len(batch)

    @contextmanager
    def _changing(self) -> Iterator[Change]:
        with transaction(self._connection):
            change = Change(self._connection, self._source)
            yield change
            if change.is_made:
                count_change(self._state, self._path)


class _DocumentState(NamedTuple):
    """The fingerprint of a document or draft, empty where there is none, and its row in the index."""

    document: str
    is_draft: bool
    fingerprint: str
    kept: KeptRow | None


class Change:
    """The changes of one transaction. Methods raise what those of ``Refresh`` do."""

    def __init__(self, connection: Connection, source: Source) -> None:
        self._state = IndexState(connection)
        self._source = source
        self._rows = Rows(connection)
        self._versions: dict[int, tuple[VersionKeys, IndexedDefinition]] = {}
        self.is_made = False

    def replace_changed(self, documents: Iterable[str]) -> None:
        """Replace the rows of documents and drafts whose fingerprints differ."""
        self._replace(
            each for each in self._states(documents) if each.kept is None or each.kept.fingerprint != each.fingerprint
        )

    def replace_outdated(self, version: int, documents: Iterable[str]) -> None:
        """Replace the rows of documents that were not read by the definition as it is."""
        keys, _ = self.keys(version)
        self._replace(
            each
            for each in self._states(documents)
            if each.kept is not None and each.kept.version == version and each.kept.round != keys.round
        )

    def keys(self, version: int) -> tuple[VersionKeys, IndexedDefinition]:
        """Return the keys and the definition by which documents of a version must be read now."""
        known = self._versions.get(version)
        if known is None:
            definition = self._source.definition(version)
            known = self._versions[version] = self._stored(version, definition), definition
        return known

    def _states(self, documents: Iterable[str]) -> Iterator[_DocumentState]:
        """Yield the states of documents and their drafts; drafts first, as they vanish when they are saved."""
        for document in dict.fromkeys(documents):
            draft, saved = self._source.fingerprints(document)
            for is_draft, fingerprint in ((True, draft), (False, saved)):
                kept = self._rows.kept(document, is_draft=is_draft)
                if fingerprint or kept is not None:
                    yield _DocumentState(document, is_draft, fingerprint, kept)

    def _replace(self, states: Iterable[_DocumentState]) -> None:
        states = list(states)
        if not states:
            return
        self.is_made = True
        if self._state.is_rebuilding:
            self._state.miss(each.document for each in states)
        if not self._state.is_complete:
            return
        self._rows.remove([each.kept for each in states if each.kept is not None])
        documents = filter(None, map(self._read, states))  # one at a time: they may be large
        self._rows.add(prepared(document, self.keys(document.facts.version)[0]) for document in documents)

    def _read(self, state: _DocumentState) -> IndexedDocument | None:
        return self._source.read(
            state.document,
            is_draft=state.is_draft,
            fingerprint=state.fingerprint,
            definitions=lambda version: self.keys(version)[1],
        )

    def _stored(self, version: int, definition: IndexedDefinition) -> VersionKeys:
        """Store the state of a definition, and return its keys."""
        self.is_made = True
        numbers = self._rows.numbers(definition.paths)
        is_published = definition.state is DefinitionState.PUBLISHED
        controls = controls_json(numbers.values()) if is_published else None
        known = self._state.version(version)
        if known is None:
            self._state.add_version(version, IndexedVersion(definition.fingerprint, controls, 1))
            return VersionKeys(version, 1, numbers)
        number = known.round
        if known.fingerprint != definition.fingerprint:
            if definition.state is DefinitionState.DELETED and known.controls is not None:
                self._state.hide_version(version)
            elif controls != known.controls:
                number += 1
            changed = IndexedVersion(definition.fingerprint, controls, number)
            self._state.change_version(version, changed, is_outdated=number != known.round)
        return VersionKeys(version, number, numbers)
