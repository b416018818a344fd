"""Checking the indexes of a tree while both change: findings come out, each with its repair."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

from persistence.errors import BusyError, DiskError, StartupError, disk_errors
from persistence.index.protocol import prepared
from persistence.index.sources import UNKNOWN, DocumentName
from persistence.index.sqlite import engine
from persistence.index.sync import staleness
from persistence.index.sync.staleness import JournalEntry
from persistence.index.sync.updater import TreeIndex
from persistence.model.addresses import Collection, Form
from persistence.storage import files, owner
from persistence.storage.findings import Finding, FindingKind
from persistence.storage.layout import INDEX, Layout, is_escaped, unescape
from persistence.storage.reader import StoreReader

T = TypeVar("T")

_LOOKS = 3  # Times that a difference must be looked at while others change the document
_MOST_LOOKS = 5  # Looks at a document after which it counts as being changed all the time
_BATCH = 1_000
_ABANDONED_AFTER = 60.0  # Seconds that the service may take to find the notes of a killed process


class _BrokenError(Exception):
    """An index that cannot be read; the message is half a line."""


class _Look(NamedTuple):
    """One look at a document: the index file, the fingerprint of its files, and the one that the index has."""

    path: str
    name: DocumentName
    current: str
    known: str


class IndexCheck:
    """Compares the indexes of a tree with it; ``deep`` reads every document again, and all of the index."""

    # The service repairs some states itself before it answers, which are no findings: a missing index, one of another
    # version of the service, a document that has just changed. Once an index is found broken, nothing more is reported
    # about it. A user who may not write the tree compares nothing: opening an index would leave files beside it. For
    # one thread; methods raise ``DiskError``.
    def __init__(self, indexes: TreeIndex) -> None:
        self._indexes = indexes
        self._layout = Layout(indexes.root)
        self._broken: set[str] = set()

    def of_document(self, form: Form, name: DocumentName, *, deep: bool) -> Iterator[Finding]:
        if self._is_possible:
            yield from self._unless_broken(form, self._of_document(form, name, deep=deep))

    def of_forms(self, only: tuple[str, ...], *, deep: bool) -> Iterator[Finding]:
        """Find fault with the indexes of the forms below some names, and with what lies beside them."""
        if not self._is_possible:
            return
        directory = self._layout.own(INDEX)
        for app in _names(directory, only[:1]):
            for name in _names(f"{directory}/{app}", only[1:2]):
                form = Form(unescape(app), unescape(name))
                yield from self._unless_broken(form, self._of_form(form, deep=deep))
        if not only:
            with disk_errors("looking what the index has still to take in"):
                for path in self._indexes.journal.orphaned(_ABANDONED_AFTER):
                    what = "a process that has ended has noted changes, and nobody has taken them in"
                    yield FindingKind.INDEX_NOTES.at(path, what, mend=self._indexes.recover)

    @cached_property
    def _is_possible(self) -> bool:
        root = self._indexes.root
        try:
            StoreReader(root)
        except StartupError:
            return False
        directory = self._layout.own(INDEX)
        return os.path.isdir(directory) and owner.of(root) == os.geteuid() and os.access(directory, os.W_OK)

    def _unless_broken(self, form: Form, found: Iterator[Finding]) -> Iterator[Finding]:
        try:
            yield from found
        except _BrokenError as error:
            yield self._damaged(form, str(error))

    def _damaged(self, form: Form, what: str) -> Finding:
        mend = partial(self._indexes.invalidate, form)
        return FindingKind.INDEX_DAMAGED.at(self._layout.index(form), what, mend=mend)

    def _of_form(self, form: Form, *, deep: bool) -> Iterator[Finding]:
        path = self._layout.index(form)
        if not os.path.isdir(self._layout.form(form)):
            what = "the index of a form that is gone"
            yield FindingKind.STRAY_OWN.at(path, what, mend=partial(files.remove_tree, path))
            return
        with disk_errors("looking at the index of", form):
            left = self._indexes.generations(form).stray_files()
        for each in left:
            what = "left by who was killed making an index"
            yield FindingKind.STRAY_OWN.at(each, what, mend=partial(files.remove, each))
        reader, last = engine.IndexReader, staleness.BEFORE_ALL
        for compare in (reader.integrity, reader.counts) if deep else (reader.counts,):
            wrong = self._ask(form, compare)
            if wrong is not None:
                yield self._damaged(form, wrong)
        while rows := self._ask(form, reader.names, last, _BATCH):
            for last, name in rows:  # noqa: B007 - the last one is where the next rows begin
                if not os.path.lexists(self._document(form, name)):
                    yield from self._of_document(form, name, deep=deep)

    def _of_document(self, form: Form, name: DocumentName, *, deep: bool) -> Iterator[Finding]:
        path, kind = self._document(form, name), FindingKind.INDEX_STALE
        mend: Callable[[], object] = partial(self._indexes.update, form, [name.document])
        try:
            found = self._lasting(form, name, self._difference)
            if found is None and deep:
                kind, mend = FindingKind.INDEX_WRONG, partial(self._indexes.invalidate, form)
                found = self._lasting(form, name, self._wrong_values)
        except BusyError:  # it is being written
            return
        except DiskError as error:
            yield FindingKind.UNREADABLE.at(path, str(error))
            return
        if found is not None:
            yield kind.at(path, found, mend=mend)

    def _document(self, form: Form, name: DocumentName) -> str:
        return self._layout.document(form, Collection.DRAFT if name.is_draft else Collection.DATA, name.document)

    def _lasting(self, form: Form, name: DocumentName, find: Callable[[Form, _Look], str | None]) -> str | None:
        for _ in range(_LOOKS):
            seen = self._look(form, name)
            found = None if seen is None else find(form, seen)
            # A process that removes an entry has updated the rows before: if nothing changes between two looks, and
            # there is no entry in between, no process is changing the document.
            if found is None or self._look(form, name) == seen:
                return found
        return None

    def _look(self, form: Form, name: DocumentName) -> _Look | None:
        current = self._indexes.source(form).fingerprint(name)
        at = 0 if name.is_draft else 1
        return self._ask(form, lambda index: _Look(index.path, name, current, index.fingerprints(name.document)[at]))

    def _difference(self, form: Form, seen: _Look) -> str | None:
        if seen.known == seen.current:
            return None
        with disk_errors("reading the journal of", form):
            if JournalEntry(form, seen.name.document) in self._indexes.journal.outstanding():
                return None
        if not seen.current:
            return "the index still has it"
        if seen.known:
            return "the index has an older state of it"
        try:
            found = self._indexes.source(form).read(seen.name, seen.current, lambda _: UNKNOWN)
        except BusyError:
            return None
        return None if found is None else "the index does not have it"

    def _wrong_values(self, form: Form, seen: _Look) -> str | None:
        if not seen.current or seen.current != seen.known:
            return None
        source = self._indexes.source(form)

        def compare(index: engine.IndexReader) -> str | None:
            kept = index.kept(seen.name.document).get(seen.name.is_draft)
            if kept is None or kept.fingerprint != seen.current:
                return None
            known = index.version(kept.version)
            if known is None or (known.fingerprint, known.generation) != (
                source.definition_fingerprint(kept.version),
                kept.generation,
            ):
                return None  # to be read again, before any answer
            read = source.read(seen.name, seen.current, source.definition)
            if read is None:
                return "the index has it, and it cannot be read"
            return index.difference(prepared(read, known))

        return self._ask(form, compare)

    def _ask(self, form: Form, work: Callable[..., T], *values: object) -> T | None:
        """Return what some work finds in the index of a form; ``None`` where there is none to be compared."""
        # Raises ``_BrokenError`` once.
        for look in range(_MOST_LOOKS):
            with disk_errors("looking at the index of", form):
                path = self._indexes.generations(form).current()
                if path is None or path in self._broken:
                    return None
                try:
                    file = self._indexes.pool.opened(form, path)
                    if not self._indexes.is_trusted(file):
                        return None
                    with file.reading() as index:
                        return work(index, *values)
                except engine.OutdatedError:
                    return None
                except engine.UnusableError as error:
                    self._indexes.pool.discard(form)
                    if self._indexes.generations(form).current() == path:
                        self._broken.add(path)
                        is_there = os.path.exists(error.path)
                        cause = "it is not whole" if is_there else "the file in use is missing"
                        raise _BrokenError(error.cause or cause) from error
                except (DiskError, BusyError):
                    # Others open and close it all the time, which may be in the way for a moment.
                    self._indexes.pool.discard(form)
                    if look == _MOST_LOOKS - 1:
                        raise
        return None


def _names(directory: str, only: tuple[str, ...]) -> list[str]:
    return sorted(each for each in files.names_in(directory) if is_escaped(each) and (not only or each == only[0]))
