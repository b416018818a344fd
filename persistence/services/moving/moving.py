"""A move: a first pass while the source is written to, and a last one while it can only be read.

The first pass remembers the mark that the state of each document had when it was the same in both places. The last one
lists the marks of the source again, and looks at nothing but what has another one. It also removes from the destination
what the source has no more. The destination of a form is this move's own if there was nothing of the form at its
beginning, which ``Arrivals`` records. Otherwise nothing in it is replaced but drafts that a move has stored there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from persistence.errors import BadRequestError, ConflictError, DamagedError, NotFoundError, PersistenceError
from persistence.limits import MOST_REMEMBERED, MOVED_AT_ONCE
from persistence.model.addresses import DATA_XML, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.exports import FormPattern
from persistence.services.moving.copying import (
    Copier,
    CopyPlan,
    SourceChangedError,
    SourceContents,
    plan_copy,
    read_through,
)
from persistence.services.moving.outcomes import MoveOutcome, MoveResult
from persistence.services.moving.places import MoveSource, MoveTarget
from persistence.services.moving.states import NOTHING, MovedUnit, UnitState, state_of
from persistence.storage.marks import StateMark, StateMarks
from persistence.storage.storage import Readable

_ATTEMPTS = 5
_REFUSED = (BadRequestError, ConflictError, DamagedError)
"""Errors of one document, which is named. Others end the move: a disk or a database that refuses."""


@dataclass(slots=True)
class Move:
    """Moves the forms that match ``patterns``; with ``is_dry``, everything is only read and compared.

    Then there may be no ``target`` yet.
    """

    source: MoveSource
    target: MoveTarget | None
    patterns: Sequence[FormPattern] = (FormPattern(),)
    is_dry: bool = False
    _known: set[int] = field(default_factory=set)
    _ours: set[Form] = field(default_factory=set)
    _begun_before: frozenset[Form] = frozenset()
    """Forms of this move that an earlier run has begun, which may have been killed within a commit."""
    _moved_drafts: set[str] | None = None
    _published: dict[DefinitionAddress, None] = field(default_factory=dict)
    """Versions whose flat views in the destination are to be made or dropped."""

    def count(self) -> int:
        """Count the documents with their drafts, and the versions of definitions: one outcome each."""
        return sum(1 for form in self._forms(self.source.storage) for _ in self.source.storage.marks(form))

    def require_matches(self) -> None:
        """Check that each pattern is of a form in the source, or of one that an earlier run has begun to move."""
        forms = self._forms(self.source.storage)
        if self.target is not None:
            forms.extend(self.target.arrivals.begun(self.source.name))
        for pattern in self.patterns:
            if pattern != FormPattern() and not any(map(pattern.matches, forms)):
                raise NotFoundError(f"no form here matches {pattern.app or '*'}/{pattern.name or '*'}")

    def first(self) -> Iterator[MoveOutcome]:
        """Copy everything, while others may write to the source; yield the outcome for each document and version.

        If it is called again, it copies what has changed since.
        """
        if self.target is not None:
            self._begun_before = frozenset(filter(self._matches, self.target.arrivals.begun(self.source.name)))
            self._ours |= self._begun_before
        for form in self._forms(self.source.storage):
            is_empty = self._claim(form)
            yield from self._all_brought(self.source.storage.marks(form), is_empty=is_empty, is_last=False)

    def last(self) -> Iterator[MoveOutcome]:
        """Copy what has changed since the first pass; nobody may write to the source. Raises as ``first``.

        Outcomes are those of the whole move, except for what the first pass has copied.
        """
        moved = set[Form]()
        for form in self._forms(self.source.storage):
            moved.add(form)
            is_empty, found = self._claim(form), set[int]()
            marks = _recording(found, self.source.storage.marks(form))
            yield from self._all_brought(marks, is_empty=is_empty, is_last=True)
            yield from self._removed(form, found)
        if self.target is not None:
            for form in {*self._ours, *self._forms(self.target.storage)} - moved:
                yield from self._removed(form, set())

    def views(self) -> Iterator[str]:
        """Make the flat views of the destination that a pass wants; yield a line for each that cannot be made.

        Documents that are moved afterwards come into them by themselves.
        """
        reports = None if self.target is None else self.target.reports
        while self.target is not None and reports is not None and self._published:
            address, _ = self._published.popitem()
            try:
                stored = self.target.storage.sidecar(address)
                if stored is not None and stored.deleted:
                    reports.drop(address.form, address.version)
                elif stored is not None and stored.flat_view:
                    reports.create(address.form, address.version)
            except PersistenceError as error:
                yield f"no flat views of {address.form}, version {address.version}: {error}"

    def end(self) -> None:
        """Record that the forms are whole in the destination, and no longer this move's own."""
        if self.target is not None:
            self.target.arrivals.end(self.source.name, self._ours)

    def _forms(self, storage: Readable) -> list[Form]:
        return sorted(filter(self._matches, storage.forms()), key=lambda form: (form.app, form.name))

    def _matches(self, form: Form) -> bool:
        return any(pattern.matches(form) for pattern in self.patterns)

    def _claim(self, form: Form) -> bool:
        if self.target is None or self.is_dry or form in self._ours or not _is_empty(self.target.storage, form):
            return False
        self.target.arrivals.begin(self.source.name, form)
        self._ours.add(form)
        return True

    def _all_brought(self, marks: Iterable[StateMark], *, is_empty: bool, is_last: bool) -> Iterator[MoveOutcome]:
        with ThreadPoolExecutor(MOVED_AT_ONCE, "moving") as pool:
            begun = deque[Future[MoveOutcome]]()
            try:
                for mark in marks:
                    unit = MovedUnit(mark.main)
                    if _key(mark) in self._known:
                        yield MoveOutcome(unit.name, MoveResult.THERE, unit.is_definition)
                        continue
                    begun.append(pool.submit(self._brought, unit, mark, is_empty=is_empty, is_last=is_last))
                    if unit.is_definition or len(begun) > MOVED_AT_ONCE:
                        yield begun.popleft().result()
                while begun:
                    yield begun.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _brought(self, unit: MovedUnit, mark: StateMark, *, is_empty: bool, is_last: bool) -> MoveOutcome:
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    return self._copied(unit, mark, is_new=is_empty and not attempt, is_last=is_last)
                except SourceChangedError as error:
                    changed = error
            if not is_last:
                return MoveOutcome(unit.name, MoveResult.CHANGING, unit.is_definition)
            raise changed
        except _REFUSED as error:
            return MoveOutcome(unit.name, MoveResult.REFUSED, unit.is_definition, cause=str(error))

    def _copied(self, unit: MovedUnit, mark: StateMark, *, is_new: bool, is_last: bool) -> MoveOutcome:
        target, is_ours = self.target, unit.main.form in self._ours
        contents = self.source.contents(unit.main.form, None if target is None else target.bodies)
        there = state_of(self.source.storage, unit)
        here, fault = NOTHING, None
        if target is not None and not is_new:
            here = state_of(target.storage, unit)
            fault = target.fault(unit, there, here, keeps_apart=contents.keeps_apart, is_ours=is_ours)
        plan = plan_copy(unit, there, here, is_ours=is_ours, fault=fault, has_brought=self._has_brought)
        result = MoveResult.THERE if plan.is_empty else MoveResult.MOVED
        size = self._carried_out(unit, plan, here, contents)
        if isinstance(unit.main, DefinitionAddress) and not self.is_dry and (plan.copied or not is_last):
            self._published[unit.main] = None
        if there.has(mark) and len(self._known) < MOST_REMEMBERED:
            self._known.add(_key(mark))
        return MoveOutcome(unit.name, result, unit.is_definition, len(plan.copied), size)

    def _carried_out(self, unit: MovedUnit, plan: CopyPlan, here: UnitState, contents: SourceContents) -> int:
        """Return how many bytes of contents were copied, or would be."""
        if self.target is None or self.is_dry:
            return read_through(contents, plan)
        known = (*here.saved, *here.draft)
        if known and unit.main.form in self._begun_before:
            with self.target.storage.writing(unit.main) as writer:
                for address in known:
                    writer.current(address)  # it finishes a commit
        if plan.is_empty:
            return 0
        drafts = [mark.etag for address, mark in plan.copied if not address.keeps_history]
        if drafts:
            self.target.arrivals.bring_drafts(self.source.name, drafts)
            self._drafts().update(drafts)
        return Copier(contents, self.target.attached).copy(unit, plan, here)

    def _removed(self, form: Form, found: set[int]) -> Iterator[MoveOutcome]:
        if self.target is None or self.is_dry:
            return
        storage, is_ours = self.target.storage, form in self._ours
        collections = Collection if is_ours else (Collection.DRAFT,)
        every = (each for collection in collections for each in storage.documents(form, collection))
        for document in {each for each in every if hash(each) not in found}:
            main = DocumentAddress(form, Collection.DATA, document, DATA_XML)
            if not is_ours and not self._is_draft_of_moves(storage, MovedUnit(main)):
                continue
            with self.target.attached.writing(main) as writer:
                writer.discard_draft(form, main.document)
                if is_ours:
                    writer.discard_document(form, main.document)
            yield MoveOutcome(MovedUnit(main).name, MoveResult.REMOVED)

    def _is_draft_of_moves(self, storage: StateMarks, unit: MovedUnit) -> bool:
        """Return whether a document was never saved, and its draft was stored by moves."""
        try:
            here = state_of(storage, unit)
        except DamagedError:
            return False
        return bool(here.draft) and not here.saved and self._has_brought(here.etags_of_draft)

    def _has_brought(self, etags: Iterable[str]) -> bool:
        return self._drafts().issuperset(etags)

    def _drafts(self) -> set[str]:
        if self._moved_drafts is None:
            self._moved_drafts = set() if self.target is None else self.target.arrivals.drafts_of(self.source.name)
        return self._moved_drafts


def _recording(found: set[int], marks: Iterator[StateMark]) -> Iterator[StateMark]:
    for mark in marks:
        if isinstance(mark.main, DocumentAddress):
            found.add(hash(mark.main.document))
        yield mark


def _key(mark: StateMark) -> int:
    return hash((mark.main, mark.value))


def _is_empty(storage: Readable, form: Form) -> bool:
    names = (each for collection in Collection for each in storage.documents(form, collection))
    return next(storage.versions(form), None) is None and next(names, None) is None
