"""The state of a document or of a version of a definition in a storage: the revisions of each of its files.

Two storages with equal states have the same revisions: an entity tag is made once. Re-encryption changes the digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from persistence.model.addresses import (
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
)
from persistence.model.instants import Instant
from persistence.model.sidecar import described
from persistence.storage.marks import StateMark, StateMarks, sum_of_revisions


@dataclass(frozen=True, slots=True)
class RevisionState:
    """The instant and entity tag of a revision, and the size and digest of its content.

    ``id`` is the content id, which is not the same in each storage. If it ``is_apart``, the content is elsewhere.
    """

    instant: Instant
    etag: str
    size: int
    digest: str | None
    id: str = field(compare=False)
    is_apart: bool = field(default=False, compare=False)


FileStates = Mapping[Address, tuple[RevisionState, ...]]
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
        return [state.etag for states in self.draft.values() for state in states]

    def has(self, mark: StateMark) -> bool:
        """Return whether a mark was made from this very state."""
        if mark.is_sum:
            return mark.value == str(
                sum_of_revisions(
                    (is_draft, address.name, each.instant, each.id, each is states[-1])
                    for is_draft, files in ((False, self.saved), (True, self.draft))
                    for address, states in files.items()
                    for each in states
                )
            )
        return bool(mark.value) and (mark.has_saved, mark.has_draft) == (bool(self.saved), bool(self.draft))


NOTHING = UnitState({}, {})


def state_of(storage: StateMarks, unit: MovedUnit) -> UnitState:
    """Read the state of a unit, without a draft that is older than the last save: the next writer removes it."""
    saved = _file_states(storage, unit.main)
    draft: FileStates = {}
    if unit.draft is not None:
        draft = _file_states(storage, unit.draft)
        if unit.draft in draft and unit.main in saved and draft[unit.draft][-1].instant <= saved[unit.main][-1].instant:
            draft = {}
    return UnitState(saved, draft)


def _file_states(storage: StateMarks, main: Address) -> FileStates:
    found = dict[Address, list[RevisionState]]()
    for name, instant, sidecar in storage.sidecars(main):
        whole = described(sidecar)
        state = RevisionState(instant, whole.etag, whole.size, whole.digest, whole.id, sidecar.body is not None)
        found.setdefault(replace(main, name=name), []).append(state)
    return {address: tuple(states) for address, states in found.items()}
