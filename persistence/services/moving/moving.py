"""A move: a first pass while the source is written to, and a last one while it can only be read.

The first pass remembers a number for the state of each document that is the same in both places. The last one reads the
current sidecars of the source again, and copies what has another number. It also removes from the destination what the
source has no more. The destination of a form is this move's own if there was nothing of the form at its beginning,
which ``Arrivals`` records. Otherwise nothing in it is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from persistence.errors import BadRequestError, ConflictError, DamagedError
from persistence.limits.imports import MOST_REMEMBERED
from persistence.model.addresses import Collection, Form
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
from persistence.services.moving.states import (
    NOTHING,
    MovedUnit,
    UnitState,
    definition_unit,
    digest_of,
    document_unit,
    state_of,
)
from persistence.storage.storage import Arrivals, Readable, Revisions, Storage

_ATTEMPTS = 5
_REFUSED = (BadRequestError, ConflictError, DamagedError)
"""Errors of one document, which is named. Others end the move: a disk or a database that refuses."""


@dataclass(frozen=True, slots=True)
class MoveSource:
    """The forms to be moved: ``storage`` has them, and ``revisions`` returns those of a form with their bodies.

    ``name`` says where they are, without passwords. ``keeps_apart`` says of which forms the bodies of attachments stay
    where they are, and only their records are moved.
    """

    name: str
    storage: Readable
    revisions: Callable[[Form], Revisions]
    keeps_apart: Callable[[Form], bool] = lambda _: False


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """The destination, and its record of what is being moved there."""

    storage: Storage
    arrivals: Arrivals


@dataclass(slots=True)
class Move:
    """Moves the forms that match ``patterns``; with ``is_dry``, everything is only read and compared.

    Then there may be no ``target`` yet.
    """

    source: MoveSource
    target: MoveTarget | None
    patterns: Sequence[FormPattern] = (FormPattern(),)
    is_dry: bool = False
    copied_bytes: int = 0
    _known: set[int] = field(default_factory=set)
    _ours: set[Form] = field(default_factory=set)

    def count(self) -> int:
        """Count the documents with their drafts, and the versions of definitions: one outcome each."""
        return sum(1 for form in self._forms(self.source.storage) for _ in self._units(form))

    def first(self) -> Iterator[MoveOutcome]:
        """Copy everything, while others may write to the source; yield the outcome for each document and version.

        Raises:
            PersistenceError: one of the storages cannot be used any more.
        """
        if self.target is not None:
            self._ours = set(filter(self._matches, self.target.arrivals.begun(self.source.name)))
        for form in self._forms(self.source.storage):
            self._claim(form)
            for unit in self._units(form):
                yield self._brought(form, unit, is_last=False)

    def last(self) -> Iterator[MoveOutcome]:
        """Copy what has changed since the first pass; nobody may write to the source. Raises as ``first``.

        Outcomes are those of the whole move, except for what the first pass has copied.
        """
        moved = set[Form]()
        for form in self._forms(self.source.storage):
            moved.add(form)
            self._claim(form)
            found = set[int]()
            for unit in self._units(form):
                found.add(hash(unit))
                yield self._brought(form, unit, is_last=True)
            yield from self._removed(form, found)
        for form in self._ours - moved:
            yield from self._removed(form, set())

    def end(self) -> None:
        """Record that the forms are whole in the destination, and no longer this move's own."""
        if self.target is not None:
            self.target.arrivals.end(self.source.name, self._ours)

    def _forms(self, storage: Readable) -> list[Form]:
        return sorted(filter(self._matches, storage.forms()), key=lambda form: (form.app, form.name))

    def _matches(self, form: Form) -> bool:
        return any(pattern.matches(form) for pattern in self.patterns)

    def _units(self, form: Form) -> Iterator[MovedUnit]:
        storage = self.source.storage
        yield from (definition_unit(form, version) for version in storage.versions(form))
        yield from (document_unit(form, document) for document in storage.documents(form))
        for document in storage.documents(form, Collection.DRAFT):
            unit = document_unit(form, document)
            if not storage.names(unit.main):
                yield unit

    def _claim(self, form: Form) -> None:
        """Record that the destination of a form is this move's own, if there is nothing of it yet."""
        if self.target is None or self.is_dry or form in self._ours:
            return
        if _is_empty(self.target.storage, form):
            self.target.arrivals.begin(self.source.name, form)
            self._ours.add(form)

    def _brought(self, form: Form, unit: MovedUnit, *, is_last: bool) -> MoveOutcome:
        revisions = self.source.revisions(form)
        try:
            if is_last and _key(unit, digest_of(revisions, unit)) in self._known:
                return MoveOutcome(unit.name, MoveResult.THERE, unit.is_definition)
            for _ in range(_ATTEMPTS):
                try:
                    return self._copied(form, unit, revisions)
                except SourceChangedError as error:
                    changed = error
            if not is_last:
                return MoveOutcome(unit.name, MoveResult.CHANGING, unit.is_definition)
            raise changed
        except _REFUSED as error:
            return MoveOutcome(unit.name, MoveResult.REFUSED, unit.is_definition, cause=str(error))

    def _copied(self, form: Form, unit: MovedUnit, revisions: Revisions) -> MoveOutcome:
        there = state_of(revisions, unit)
        here = NOTHING if self.target is None else state_of(self.target.storage, unit)
        plan = plan_copy(unit, there, here, is_ours=form in self._ours)
        result = MoveResult.THERE if plan.is_empty else MoveResult.MOVED
        count = self._carried_out(unit, plan, here, revisions)
        if len(self._known) < MOST_REMEMBERED:
            self._known.add(_key(unit, there.digest))
        return MoveOutcome(unit.name, result, unit.is_definition, count)

    def _carried_out(self, unit: MovedUnit, plan: CopyPlan, here: UnitState, revisions: Revisions) -> int:
        if self.target is None or self.is_dry:
            self.copied_bytes += read_through(self._contents(unit, revisions), plan)
            return len(plan.copied)
        if plan.is_empty:
            return 0
        copier = Copier(self._contents(unit, revisions), self.target.storage)
        try:
            return copier.copy(unit, plan, here)
        finally:
            self.copied_bytes += copier.copied_bytes

    def _contents(self, unit: MovedUnit, revisions: Revisions) -> SourceContents:
        return SourceContents(revisions, self.source.keeps_apart(unit.main.form))

    def _removed(self, form: Form, found: set[int]) -> Iterator[MoveOutcome]:
        """Remove the documents of a form that is this move's own, and that the source does not have any more."""
        if self.target is None or self.is_dry or form not in self._ours:
            return
        storage = self.target.storage
        every = (each for collection in Collection for each in storage.documents(form, collection))
        for document in {each for each in every if hash(document_unit(form, each)) not in found}:
            unit = document_unit(form, document)
            with storage.writing(unit.main) as writer:
                writer.discard_draft(form, document)
                writer.discard_document(form, document)
            yield MoveOutcome(unit.name, MoveResult.REMOVED)


def _key(unit: MovedUnit, digest: int) -> int:
    return hash((unit, digest))


def _is_empty(storage: Readable, form: Form) -> bool:
    """Return whether a storage has nothing of a form."""
    names = (each for collection in Collection for each in storage.documents(form, collection))
    return next(storage.versions(form), None) is None and next(names, None) is None
