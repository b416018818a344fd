"""The state of a document or of a version of a definition in a storage: the revisions of each of its files.

Two storages have the same of it if the states are equal: a content id is made once, and names the bytes, the facts and
the instant of a revision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from persistence.errors import DamagedError
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.instants import Instant
from persistence.storage.revision_list import RevisionList
from persistence.storage.storage import Revisions

T = TypeVar("T")

_DIGEST = 8
"""Bytes of a digest of a state, of which there is one in memory for each document."""


@dataclass(frozen=True, slots=True, order=True)
class RevisionMark:
    """The instant of a revision, and its content id."""

    instant: Instant
    id: str


FileStates = Mapping[Address, tuple[RevisionMark, ...]]
"""The revisions of each file, the oldest first."""


@dataclass(frozen=True, slots=True)
class MovedUnit:
    """A document with its draft, or a version of a definition, by its ``data.xml`` or ``form.xhtml``."""

    main: Address

    @property
    def is_definition(self) -> bool:
        """Return whether it is a version of a definition."""
        return isinstance(self.main, DefinitionAddress)

    @property
    def name(self) -> str:
        """The name for people."""
        if isinstance(self.main, DefinitionAddress):
            return f"{self.main.form}/form/{self.main.version}"
        return f"{self.main.form}/{self.main.collection.value}/{self.main.document}"

    @property
    def draft(self) -> Address | None:
        """The ``data.xml`` of the draft; ``None`` for a definition."""
        return self.main.moved(Collection.DRAFT) if isinstance(self.main, DocumentAddress) else None


def definition_unit(form: Form, version: int) -> MovedUnit:
    """Return a version of a definition."""
    return MovedUnit(DefinitionAddress(form, version, FORM_XHTML))


def document_unit(form: Form, document: str) -> MovedUnit:
    """Return a document with its draft."""
    return MovedUnit(DocumentAddress(form, Collection.DATA, document, DATA_XML))


@dataclass(frozen=True, slots=True)
class UnitState:
    """The files of a unit that keep their history, and those of its draft."""

    saved: FileStates
    draft: FileStates

    @property
    def revisions(self) -> int:
        """The number of revisions."""
        return sum(map(len, (*self.saved.values(), *self.draft.values())))

    @property
    def digest(self) -> int:
        """Return a number that hardly any other state has, by the current revisions and the numbers of older ones."""
        files = {address: (marks[-1], len(marks)) for address, marks in {**self.saved, **self.draft}.items()}
        return _digest(files)


NOTHING = UnitState({}, {})


def state_of(storage: Revisions, unit: MovedUnit) -> UnitState:
    """Read the state of a unit, with the sidecar of each revision.

    A draft that a save or a deletion has outdated is left out, as the next writer would remove it.

    Raises:
        DamagedError: a sidecar cannot be read.
    """
    saved = _each(storage, unit.main, _marks)
    draft = {} if unit.draft is None else _each(storage, unit.draft, _marks)
    if unit.draft in draft and unit.main in saved and draft[unit.draft][-1].instant <= saved[unit.main][-1].instant:
        draft = {}
    return UnitState(saved, draft)


def digest_of(storage: Revisions, unit: MovedUnit) -> int:
    """Return the digest that ``state_of`` would have, without reading the sidecars of older revisions.

    Raises:
        DamagedError: a sidecar cannot be read.
    """
    saved = _each(storage, unit.main, _counted)
    draft = {} if unit.draft is None else _each(storage, unit.draft, _counted)
    if unit.draft in draft and unit.main in saved and draft[unit.draft][0].instant <= saved[unit.main][0].instant:
        draft = {}
    return _digest({**saved, **draft})


def _digest(files: Mapping[Address, tuple[RevisionMark, int]]) -> int:
    text = repr(sorted((str(address), mark.id, count) for address, (mark, count) in files.items()))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest())


def _each(storage: Revisions, main: Address, look: Callable[[Revisions, Address], T | None]) -> dict[Address, T]:
    found = (
        (address, look(storage, address)) for address in (replace(main, name=name) for name in storage.names(main))
    )
    return {address: each for address, each in found if each}


def _counted(storage: Revisions, address: Address) -> tuple[RevisionMark, int] | None:
    """Return the current revision of a file, and how many there are."""
    revisions = storage.history(address)
    return None if revisions is None else (_page(revisions, 1, address)[0], revisions.total)


def _marks(storage: Revisions, address: Address) -> tuple[RevisionMark, ...]:
    revisions = storage.history(address)
    return () if revisions is None else tuple(reversed(_page(revisions, revisions.total, address)))


def _page(revisions: RevisionList, count: int, address: Address) -> list[RevisionMark]:
    """Return the newest revisions."""
    found = [RevisionMark(each.instant, each.sidecar.id) for each in revisions.page(0, count) if each.sidecar]
    if len(found) < count:
        raise DamagedError(f"a sidecar of {address} cannot be read")
    return found
