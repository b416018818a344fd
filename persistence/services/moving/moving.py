"""A move: a first pass while the source is written to, and a last one while it can only be read.

The first pass remembers the mark of each document that was the same in both places. The last one reads only documents
with another mark, and removes from the destination those that the source does not have any more. The destination of a
form is this move's own if it had nothing of the form before, which ``Arrivals`` records. Otherwise only drafts that a
move has stored are replaced.
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
    CopyPlan,
    SourceChangedError,
    SourceContents,
    plan_copy,
    read_through,
    transfer,
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
    """Moves the forms that match ``patterns``; with ``is_dry``, also without a ``target``, they are only compared."""

    source: MoveSource
    target: MoveTarget | None
    patterns: Sequence[FormPattern] = (FormPattern(),)
    is_dry: bool = False
    _known: set[int] = field(default_factory=set)
    _ours: set[Form] = field(default_factory=set)
    _begun_before: frozenset[Form] = frozenset()
    """Forms that an earlier run has begun: it may have been killed within a commit."""
    _moved_drafts: set[str] | None = None
    _published: dict[DefinitionAddress, None] = field(default_factory=dict)
    """Versions whose flat views in the destination will be made or dropped."""

    def count(self) -> int:
        """Count the outcomes: one for each document with its draft, and each version of a definition."""
        return sum(1 for form in self._forms(self.source.storage) for _ in self.source.storage.marks(form))

    def require_matches(self) -> None:
        """Check that each pattern matches a form in the source, or one that an earlier run has begun to move."""
        forms = self._forms(self.source.storage)
        if self.target is not None:
            forms.extend(self.target.arrivals.begun(self.source.name))
        for pattern in self.patterns:
            if pattern != FormPattern() and not any(map(pattern.matches, forms)):
                raise NotFoundError(f"no form here matches {pattern.app or '*'}/{pattern.name or '*'}")

    def first(self) -> Iterator[MoveOutcome]:
        """Copy everything, or again all that was changed since, while others may write to the source."""
        if self.target is not None:
            self._begun_before = frozenset(filter(self._matches, self.target.arrivals.begun(self.source.name)))
            self._ours |= self._begun_before
        for form in self._forms(self.source.storage):
            is_empty = self._claim(form)
            yield from self._copy_all(self.source.storage.marks(form), is_empty=is_empty, is_last=False)

    def last(self) -> Iterator[MoveOutcome]:
        """Copy all that was changed since the first pass; nobody may write to the source.

        Outcomes are those of the whole move, except for copies of the first pass.
        """
        moved = set[Form]()
        for form in self._forms(self.source.storage):
            moved.add(form)
            is_empty, found = self._claim(form), set[int]()
            marks = _recording(found, self.source.storage.marks(form))
            yield from self._copy_all(marks, is_empty=is_empty, is_last=True)
            yield from self._remove_others(form, found)
        if self.target is not None:
            for form in {*self._ours, *self._forms(self.target.storage)} - moved:
                yield from self._remove_others(form, set())

    def views(self) -> Iterator[str]:
        """Make the flat views of published versions in the destination; yield a line for each failure."""
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
        if self.target is None or self.is_dry or form in self._ours:
            return False
        storage = self.target.storage
        names = (each for collection in Collection for each in storage.documents(form, collection))
        if next(storage.versions(form), None) is not None or next(names, None) is not None:
            return False
        self.target.arrivals.begin(self.source.name, form)
        self._ours.add(form)
        return True

    def _copy_all(self, marks: Iterable[StateMark], *, is_empty: bool, is_last: bool) -> Iterator[MoveOutcome]:
        with ThreadPoolExecutor(MOVED_AT_ONCE, "moving") as pool:
            begun = deque[Future[MoveOutcome]]()
            try:
                for mark in marks:
                    unit = MovedUnit(mark.main)
                    if _key(mark) in self._known:
                        yield MoveOutcome(unit.name, MoveResult.THERE, unit.is_definition)
                        continue
                    begun.append(pool.submit(self._copy_unit, unit, mark, is_empty=is_empty, is_last=is_last))
                    if unit.is_definition or len(begun) > MOVED_AT_ONCE:
                        yield begun.popleft().result()
                while begun:
                    yield begun.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _copy_unit(self, unit: MovedUnit, mark: StateMark, *, is_empty: bool, is_last: bool) -> MoveOutcome:
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    return self._compare_and_copy(unit, mark, is_new=is_empty and not attempt, is_last=is_last)
                except SourceChangedError as error:
                    changed = error
            if not is_last:
                return MoveOutcome(unit.name, MoveResult.CHANGING, unit.is_definition)
            raise changed
        except _REFUSED as error:
            return MoveOutcome(unit.name, MoveResult.REFUSED, unit.is_definition, cause=str(error))

    def _compare_and_copy(self, unit: MovedUnit, mark: StateMark, *, is_new: bool, is_last: bool) -> MoveOutcome:
        target, is_ours = self.target, unit.main.form in self._ours
        contents = self.source.contents(unit.main.form, None if target is None else target.bodies)
        there = state_of(self.source.storage, unit)
        here, fault = NOTHING, None
        if target is not None and not is_new:
            here = state_of(target.storage, unit)
            fault = target.fault(unit, there, here, keeps_apart=contents.keeps_apart, is_ours=is_ours)
        plan = plan_copy(unit, there, here, is_ours=is_ours, fault=fault, has_brought=self._has_brought)
        result = MoveResult.THERE if plan.is_empty else MoveResult.MOVED
        size = self._carry_out(unit, plan, here, contents)
        if isinstance(unit.main, DefinitionAddress) and not self.is_dry and (plan.copied or not is_last):
            self._published[unit.main] = None
        if there.has(mark) and len(self._known) < MOST_REMEMBERED:
            self._known.add(_key(mark))
        return MoveOutcome(unit.name, result, unit.is_definition, len(plan.copied), size)

    def _carry_out(self, unit: MovedUnit, plan: CopyPlan, here: UnitState, contents: SourceContents) -> int:
        if self.target is None or self.is_dry:
            return read_through(contents, plan)
        known = (*here.saved, *here.draft)
        if known and unit.main.form in self._begun_before:
            with self.target.storage.writing(unit.main) as writer:
                for address in known:
                    writer.current(address)  # it finishes a commit
        if plan.is_empty:
            return 0
        drafts = [state.etag for address, state in plan.copied if not address.keeps_history]
        if drafts:
            self.target.arrivals.bring_drafts(self.source.name, drafts)
            self._drafts().update(drafts)
        return transfer(contents, self.target.attached, unit, plan, here)

    def _remove_others(self, form: Form, found: set[int]) -> Iterator[MoveOutcome]:
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
