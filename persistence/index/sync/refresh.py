"""Replacing index rows that are out of date, in transactions of their own (``staleness``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from persistence.index.extraction import IndexedDocument
from persistence.index.sources import DefinitionState, IndexedDefinition, Source
from persistence.index.sqlite.connections import transaction
from persistence.index.sqlite.records import VersionKeys, prepared
from persistence.index.sqlite.rows import KeptRow, Rows
from persistence.index.sqlite.state import Connection, IndexedVersion, IndexState, controls_json
from persistence.index.sync import staleness
from persistence.index.sync.generations import count_change

_BATCH = 200
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
        for at in range(0, len(documents), _BATCH):
            with self._changing() as change:
                change.replace_changed(documents[at : at + _BATCH])

    def definitions(self, versions: Iterable[int]) -> None:
        """Store the new state of the definitions of some versions."""
        with self._changing() as change:
            for version in versions:
                change.keys(version)

    def version(self, version: int) -> Iterator[None]:
        """Read the documents of an outdated version again, in batches; yield after each."""
        known, last = self._state.version(version), 0
        while rows := self._state.names_of(version, last, _BATCH):
            with self._changing() as change:
                change.replace_outdated(version, [document for _, document in rows])
            last = rows[-1][0]
            yield
        if known is not None:
            self._state.settle_version(version, known.round)

    def everything(self) -> Iterator[int]:
        """Compare the whole tree, and replace all rows that differ; yield the number of documents in each batch."""
        differing = staleness.differing(self._connection, self._source)
        while batch := list(islice(differing, _BATCH)):
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
        self._rows.add(prepared(document, self.keys(document.version)[0]) for document in documents)

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
