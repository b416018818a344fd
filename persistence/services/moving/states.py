"""The state of a document or of a version of a definition in a storage: the revisions of each of its files.

Two storages have the same of it if the states are equal: an entity tag is made once, and names the facts and the
instant of a revision. Its bytes may be re-encrypted, and so have another digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from persistence.model.addresses import (
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
)
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar, described
from persistence.storage.marks import StateMark, StateMarks, sum_of_revisions


@dataclass(frozen=True, slots=True)
class RevisionMark:
    """The instant of a revision, its entity tag, and the size and digest of its content, wherever that is.

    ``id`` is the content id, which may be another one in another storage. With ``is_apart`` there is only a record of
    the content, which is elsewhere.
    """

    instant: Instant
    etag: str
    size: int
    digest: str | None
    id: str = field(compare=False)
    is_apart: bool = field(default=False, compare=False)


FileStates = Mapping[Address, tuple[RevisionMark, ...]]
"""The revisions of each file, the oldest first."""


@dataclass(frozen=True, slots=True)
class MovedUnit:
    """A document with its draft, or a version of a definition, by its ``data.xml`` or ``form.xhtml``."""

    main: Address

    @property
    def is_definition(self) -> bool:
        return isinstance(self.main, DefinitionAddress)

    @property
    def name(self) -> str:
        if isinstance(self.main, DefinitionAddress):
            return f"{self.main.form}/form/{self.main.version}"
        return f"{self.main.form}/{self.main.collection.value}/{self.main.document}"

    @property
    def draft(self) -> Address | None:
        """The ``data.xml`` of the draft; ``None`` for a definition."""
        return self.main.moved(Collection.DRAFT) if isinstance(self.main, DocumentAddress) else None


@dataclass(frozen=True, slots=True)
class UnitState:
    """The files of a unit that keep their history, and those of its draft."""

    saved: FileStates
    draft: FileStates

    @property
    def revisions(self) -> int:
        return sum(map(len, (*self.saved.values(), *self.draft.values())))

    @property
    def etags_of_draft(self) -> list[str]:
        """The entity tags of the files of the draft."""
        return [mark.etag for marks in self.draft.values() for mark in marks]

    def has(self, mark: StateMark) -> bool:
        """Return whether a mark that was made before the state was read is sure to be its own."""
        if mark.is_sum:
            return mark.value == str(sum_of_revisions(self._listed()))
        return bool(mark.value) and (mark.has_saved, mark.has_draft) == (bool(self.saved), bool(self.draft))

    def _listed(self) -> Iterator[tuple[bool, str, Instant, str, bool]]:
        for is_draft, files in ((False, self.saved), (True, self.draft)):
            for address, marks in files.items():
                yield from ((is_draft, address.name, each.instant, each.id, each is marks[-1]) for each in marks)


NOTHING = UnitState({}, {})


def state_of(storage: StateMarks, unit: MovedUnit) -> UnitState:
    """Read the state of a unit, with the sidecar of each revision.

    A draft that a save or a deletion has outdated is left out, as the next writer would remove it.
    """
    saved = _each(storage, unit.main)
    draft: FileStates = {}
    if unit.draft is not None:
        draft = _each(storage, unit.draft)
        if unit.draft in draft and unit.main in saved and draft[unit.draft][-1].instant <= saved[unit.main][-1].instant:
            draft = {}
    return UnitState(saved, draft)


def _each(storage: StateMarks, main: Address) -> FileStates:
    found = dict[Address, list[RevisionMark]]()
    for name, instant, sidecar in storage.sidecars(main):
        found.setdefault(replace(main, name=name), []).append(_mark(instant, sidecar))
    return {address: tuple(marks) for address, marks in found.items()}


def _mark(instant: Instant, sidecar: Sidecar) -> RevisionMark:
    whole = described(sidecar)
    return RevisionMark(instant, whole.etag, whole.size, whole.digest, whole.id, sidecar.body is not None)
