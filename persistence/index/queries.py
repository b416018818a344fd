"""The parts of a search that every engine of an index decides in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from persistence.errors import BadRequestError
from persistence.index.cards import OF_DRAFTS, Fact
from persistence.limits import SEARCHED_OWNERS
from persistence.model.instants import Instant
from persistence.model.search import Comparison, Drafts, Field, FieldFilter, Scope
from persistence.model.users import NOBODY, OwnerSets

OWNER_FACTS = (Fact.CREATED_BY, Fact.GROUP, Fact.ORGANIZATION)
"""The facts of the owner of a document; those of the owner of a draft's saved document are ``OF_DRAFTS``."""

OwnerFacts = tuple[Fact, Fact, Fact]

_DRAFTS = {Drafts.INCLUDE: (False, True), Drafts.EXCLUDE: (False,), Drafts.ONLY: (True,)}
_BEFORE_ALL = Instant("0001-01-01T00:00:00.000Z")
_AFTER_ALL = Instant("9999-12-31T23:59:59.999Z")


class OwnedPartition(Protocol):
    """The saved documents, or the drafts, of one version, and the owners whose documents a user may see there."""

    @property
    def number(self) -> int:
        """Return its number."""

    @property
    def is_draft(self) -> bool:
        """Return whether its documents are drafts."""

    @property
    def owner_sets(self) -> OwnerSets:
        """Return the owners; all of them where it is empty."""


def searched_owners(scope: Scope, version: int, *, is_draft: bool) -> OwnerSets | None:
    """Return the owners whose documents are seen in a partition; ``None`` where it is not searched."""
    if is_draft not in _DRAFTS[scope.drafts.kind] or (scope.versions is not None and version not in scope.versions):
        return None
    owner_sets = scope.seen.of_version(version)
    return None if NOBODY in owner_sets else owner_sets


def owner_groups(
    searched: Iterable[OwnedPartition], *, is_by_saved: bool
) -> dict[tuple[OwnerSets, OwnerFacts], list[int]]:
    """Return the numbers of partitions by the owners whose documents are seen, and the facts that name these."""
    groups: dict[tuple[OwnerSets, OwnerFacts], list[int]] = {}
    for partition in searched:
        facts = OF_DRAFTS if is_by_saved and partition.is_draft else OWNER_FACTS
        groups.setdefault((partition.owner_sets, facts), []).append(partition.number)
    if sum(_size(owner_sets) for owner_sets, _ in groups) > SEARCHED_OWNERS:
        raise BadRequestError(
            f"permissions of the versions that are searched have more than {SEARCHED_OWNERS} conditions on owners for"
            " this user: search one version at a time"
        )
    return groups


def _size(owner_sets: OwnerSets) -> int:
    return sum(max(1, len(holder.organizations)) for owner_set in owner_sets for holder in owner_set.holders)


class TimeRange(NamedTuple):
    """The times of a field that are not before ``low`` and before ``high``."""

    field: Field
    low: Instant
    high: Instant


def time_ranges(filters: Iterable[FieldFilter]) -> Iterator[TimeRange]:
    limits: dict[Field, list[FieldFilter]] = {}
    for each in filters:
        if each.comparison is not Comparison.EXACT:
            limits.setdefault(each.field, []).append(each)
    for field, bounds in limits.items():
        low = max((each.value for each in bounds if each.comparison is Comparison.GTE), default=_BEFORE_ALL)
        high = min((each.value for each in bounds if each.comparison is Comparison.LT), default=_AFTER_ALL)
        yield TimeRange(field, Instant(low), Instant(high))
