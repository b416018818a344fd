"""What clients know: every acknowledged change, and what may therefore be read after a cut.

Order is counted, not timed: each request takes a number before it is sent and another after its answer was read, a cut
one before it begins and one when it is done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from operator import attrgetter
from typing import NamedTuple

from persistence.model.addresses import DATA_XML

FORM = "hr/leave"
"""The form that all clients save to, and that is searched afterwards."""

_SAVED, _DRAFT, _PUBLISHED = "data", "draft", "form"


class Resource(NamedTuple):
    """A path below ``crud/``; of a definition's file also the version, which its path does not tell."""

    path: str
    version: int | None = None

    @property
    def collection(self) -> str:
        return self.path.split("/")[2]

    @property
    def is_draft(self) -> bool:
        """Whether nothing older is kept of it."""
        return self.collection == _DRAFT

    @property
    def is_published(self) -> bool:
        return self.collection == _PUBLISHED

    @property
    def main(self) -> Resource:
        """The document it belongs to, without which it is not served; itself, where there is none."""
        return self if self.is_published else Resource(f"{self.path.rpartition('/')[0]}/{DATA_XML}")

    @property
    def saved(self) -> Resource:
        """The saved document that a draft is one of."""
        return Resource(self.main.path.replace(f"/{_DRAFT}/", f"/{_SAVED}/"))


@dataclass(frozen=True, slots=True)
class Revision:
    """What a PUT stored, as every later GET must show it; ``created`` and ``owner`` follow from those before it."""

    digest: str
    size: int
    content_type: str
    version: str
    stage: str
    user: str
    created: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """What a resource is after a change; no ``revision`` means that it is gone.

    A draft that went because its document was saved or deleted has that change's entity tag in ``removed_by``.
    """

    revision: Revision | None = None
    etag: str = ""
    instant: str = ""
    removed_by: str = ""

    @property
    def served(self) -> str | None:
        """The entity tag of a GET; ``None`` where that finds nothing."""
        return self.etag if self.revision is not None else None


NEVER_STORED = State()


@dataclass(frozen=True, slots=True)
class Change:
    """One acknowledged change of one resource, and the numbers of its request's begin and answer."""

    resource: Resource
    begun: int
    acknowledged: int
    state: State


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment of the disk, somewhere between two numbers."""

    began: int
    ended: int

    def is_acknowledged(self, change: Change) -> bool:
        return change.acknowledged < self.began

    def is_possible(self, change: Change) -> bool:
        """Whether it had begun before the cut was over."""
        return change.begun < self.ended


@dataclass(frozen=True, slots=True)
class Expected:
    """The states of a resource in their order, from never stored on; those from ``settled`` on may be read."""

    resource: Resource
    states: tuple[State, ...]
    settled: int

    def older(self, current: int) -> Iterator[State]:
        """The revisions that must be kept where the state of that number is there."""
        if not self.resource.is_draft:
            yield from (state for state in self.states[:current] if state.revision is not None)

    def current(self, served: str | None) -> int | None:
        """The number of the state in which this entity tag is served, or nothing; ``None`` where none may be.

        Where several changes may have removed it, that is the first: it promises the least.
        """
        possible = range(self.settled, len(self.states))
        return next((number for number in possible if self.states[number].served == served), None)

    def position(self, etag: str) -> int:
        """The number of the state with an entity tag; beyond the last where there is none."""
        tags = [state.etag for state in self.states]
        return tags.index(etag) if etag in tags else len(tags)


class Ledger:
    def __init__(self) -> None:
        self._numbers = count(1)
        self._changes: list[Change] = []

    def tick(self) -> int:
        """The next number; threads may ask at once."""
        return next(self._numbers)

    def add(self, change: Change) -> None:
        self._changes.append(change)

    @property
    def writes(self) -> int:
        return len({change.begun for change in self._changes})

    def at(self, cut: Cut) -> list[Expected]:
        """What may be there after a cut; ask when every request is answered, because those may be there too."""
        return expected(self._changes, cut)

    def acknowledged(self, cut: Cut) -> int:
        return len({change.begun for change in self._changes if cut.is_acknowledged(change)})

    def in_flight(self, cut: Cut) -> int:
        return len(
            {change.begun for change in self._changes if cut.is_possible(change) and not cut.is_acknowledged(change)}
        )


def expected(changes: Iterable[Change], cut: Cut) -> list[Expected]:
    by_resource: defaultdict[Resource, list[Change]] = defaultdict(list)
    for change in changes:
        if cut.is_possible(change):
            by_resource[change.resource].append(change)
    return [_expected(resource, ordered(resource, found), cut) for resource, found in sorted(by_resource.items())]


def ordered(resource: Resource, changes: list[Change]) -> list[Change]:
    """The order in which the service made the changes.

    Instants tell it, also among several clients. A draft that goes leaves none, and has one client, who waits.
    """
    return sorted(changes, key=attrgetter("begun" if resource.is_draft else "state.instant"))


def _expected(resource: Resource, changes: list[Change], cut: Cut) -> Expected:
    settled = max((number for number, change in enumerate(changes, 1) if cut.is_acknowledged(change)), default=0)
    return Expected(resource, (NEVER_STORED, *_with_origins(change.state for change in changes)), settled)


def _with_origins(states: Iterable[State]) -> Iterator[State]:
    """Creation and owner are those of the first revision since the resource was last gone."""
    origin: State | None = None
    for state in states:
        if state.revision is None:
            origin = None
            yield state
        else:
            origin = origin or state
            revision = replace(state.revision, created=origin.instant, owner=origin.revision.user)
            yield replace(state, revision=revision)
