"""The source and the destination of a move, and where either has attachments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from persistence.index.protocol import ReportTables
from persistence.model.addresses import Address, DocumentAddress, Form
from persistence.model.object_places import Bucket
from persistence.services.moving.copying import SourceContents
from persistence.services.moving.states import MovedUnit, RevisionState, UnitState
from persistence.storage.managed import ListedBodies, ManagedStorage
from persistence.storage.marks import StateMarks
from persistence.storage.split_attachments import SplitStorage
from persistence.storage.storage import Arrivals, Revisions, RevisionStorage


@dataclass(frozen=True, slots=True)
class MoveSource:
    """The source: ``storage`` has the forms, ``revisions`` also their attachments; ``name`` has no passwords.

    ``bucket_of`` returns the object store with the attachments of a form, where ``keeps_objects`` leaves them.
    """

    name: str
    storage: StateMarks
    revisions: Callable[[Form], Revisions]
    bucket_of: Callable[[Form], Bucket | None] = lambda _: None
    keeps_objects: bool = True

    def contents(self, form: Form, bodies: ListedBodies | None) -> SourceContents:
        """Return the contents of a form, for a destination with its ``bodies`` in an object store, if any."""
        place = self.bucket_of(form)
        if place is None:
            return SourceContents(self.revisions(form))
        if self.keeps_objects:
            return SourceContents(self.revisions(form), keeps_apart=True)
        are_there = bodies is not None and bodies.place.meets(place)
        return SourceContents(self.revisions(form), are_objects=True, are_there=are_there)


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """The destination, its record of moves, and its flat views; with ``bodies``, attachments in an object store."""

    storage: ManagedStorage
    arrivals: Arrivals
    reports: ReportTables | None = None
    bodies: ListedBodies | None = None

    @property
    def attached(self) -> RevisionStorage:
        """The storage with its attachments."""
        return self.storage if self.bodies is None else SplitStorage(self.storage, self.bodies)

    def fault(
        self, unit: MovedUnit, there: UnitState, here: UnitState, *, keeps_apart: bool, is_ours: bool
    ) -> str | None:
        """Return the first revision ``here`` whose body is missing, or in a place of an earlier move.

        ``there`` is the state in the source. Unless the destination ``is_ours``, a body may be beside its record.
        """
        apart = [each for each in _each(here) if each[1].is_apart]
        wrong = apart
        if apart and keeps_apart:
            known = {(address, state.id) for address, state in _each(there)}
            wrong = [(address, state) for address, state in apart if (address, state.id) not in known]
        elif apart and self.bodies is not None and isinstance(unit.main, DocumentAddress):
            held = self.bodies.held(unit.main.form, unit.main.document)
            wrong = [(address, state) for address, state in apart if held.get((address, state.id)) != state.size]
        if self.bodies is not None and is_ours:
            wrong += [
                (address, state)
                for address, state in _each(here)
                if isinstance(address, DocumentAddress) and not (address.is_main or state.is_apart) and state.size > 0
            ]
        return None if not wrong else f"the body of {wrong[0][0]} of {wrong[0][1].instant} is not in its place"


def _each(unit: UnitState) -> Iterator[tuple[Address, RevisionState]]:
    for files in (unit.saved, unit.draft):
        for address, states in files.items():
            yield from ((address, state) for state in states)
