"""The source and the destination of a move, and where either has the bodies of attachments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from persistence.index.protocol import ReportTables
from persistence.model.addresses import Address, DocumentAddress, Form
from persistence.model.object_places import Bucket
from persistence.services.moving.copying import SourceContents
from persistence.services.moving.states import MovedUnit, RevisionMark, UnitState
from persistence.storage.managed import ListedBodies, ManagedStorage
from persistence.storage.marks import StateMarks
from persistence.storage.split_attachments import SplitStorage
from persistence.storage.storage import Arrivals, Revisions, RevisionStorage


@dataclass(frozen=True, slots=True)
class MoveSource:
    """The forms to be moved: ``storage`` has them, and ``revisions`` returns those of a form with the bodies that move.

    ``name`` says where they are, without passwords. ``bucket_of`` returns where the bodies of attachments of a
    form are, if they are in an object store. With ``keeps_objects`` they stay there, and only their records are moved.
    """

    name: str
    storage: StateMarks
    revisions: Callable[[Form], Revisions]
    bucket_of: Callable[[Form], Bucket | None] = lambda _: None
    keeps_objects: bool = True

    def contents(self, form: Form, bodies: ListedBodies | None) -> SourceContents:
        """Return the contents of a form, for a destination whose ``bodies`` are in an object store, if they are."""
        place = self.bucket_of(form)
        if place is None:
            return SourceContents(self.revisions(form))
        if self.keeps_objects:
            return SourceContents(self.revisions(form), keeps_apart=True)
        are_there = bodies is not None and bodies.place.meets(place)
        return SourceContents(self.revisions(form), are_objects=True, are_there=are_there)


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """The destination, its record of what is being moved there, and its flat views, if it has any.

    ``bodies`` are those of its attachments in an object store. Without them, attachments come to their data.
    """

    storage: ManagedStorage
    arrivals: Arrivals
    reports: ReportTables | None = None
    bodies: ListedBodies | None = None

    @property
    def attached(self) -> RevisionStorage:
        """The storage with the bodies of attachments."""
        return self.storage if self.bodies is None else SplitStorage(self.storage, self.bodies)

    def fault(
        self, unit: MovedUnit, there: UnitState, here: UnitState, *, keeps_apart: bool, is_ours: bool
    ) -> str | None:
        """Return the first revision ``here`` whose body is missing, or is in a place where this move puts none.

        ``there`` is the state in the source. An earlier call may have had other places. Where the destination is not
        this move's own, a body beside its record is right, too.
        """
        apart = [each for each in _each(here) if each[1].is_apart]
        wrong = apart
        if apart and keeps_apart:
            known = {(address, mark.id) for address, mark in _each(there)}
            wrong = [(address, mark) for address, mark in apart if (address, mark.id) not in known]
        elif apart and self.bodies is not None and isinstance(unit.main, DocumentAddress):
            held = self.bodies.held(unit.main.form, unit.main.document)
            wrong = [(address, mark) for address, mark in apart if held.get((address, mark.id)) != mark.size]
        if self.bodies is not None and is_ours:
            wrong += [each for each in _each(here) if _is_inside(*each)]
        return None if not wrong else f"the body of {wrong[0][0]} of {wrong[0][1].instant} is not in its place"


def _each(state: UnitState) -> Iterator[tuple[Address, RevisionMark]]:
    for files in (state.saved, state.draft):
        for address, marks in files.items():
            yield from ((address, mark) for mark in marks)


def _is_inside(address: Address, mark: RevisionMark) -> bool:
    return isinstance(address, DocumentAddress) and not address.is_main and not mark.is_apart and mark.size > 0
