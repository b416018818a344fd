"""SQL for whose documents a search finds: by the owners that the index has entered under facts.

The owner of a draft of a saved document is, where ``is_by_saved`` says so, that of the saved document. The index has
entered it under facts of drafts, so that a search looks at one document only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from persistence.errors import BadRequestError
from persistence.index.records import OF_DRAFTS, Fact, key_of
from persistence.index.shelves import Shelf
from persistence.index.sql import Arms, Sql, parameters_of
from persistence.limits import SEARCHED_OWNERS
from persistence.model.users import OwnerPattern, OwnerSet, OwnerSets

_FEW = 8
"""Organizations for each of which an entry is looked for; of more, the card is read."""

_OWN = (Fact.CREATED_BY, Fact.GROUP, Fact.ORGANIZATION)
_Facts = tuple[Fact, Fact, Fact]


@dataclass(frozen=True, slots=True)
class Seeing:
    """The SQL that leads to the documents that are seen, and tells of one whether it is, as in a condition."""

    leads: Sql | Arms
    tells: Sql
    is_scan: bool
    is_ordered: bool


def seen(searched: Sequence[Shelf], *, is_by_saved: bool) -> Seeing | None:
    """The SQL for the documents that are seen on some shelves; ``None`` where all are.

    Raises:
        BadRequestError: the permissions ask for too much of an owner.
    """
    if not any(shelf.sights for shelf in searched):
        return None
    shelves: dict[tuple[OwnerSets, _Facts], list[int]] = {}
    for shelf in searched:
        facts = OF_DRAFTS if is_by_saved and shelf.is_draft else _OWN
        shelves.setdefault((shelf.sights, facts), []).append(shelf.number)
    if sum(_size(sights) for sights, _ in shelves) > SEARCHED_OWNERS:
        raise BadRequestError(
            f"permissions of the versions that are searched have more than {SEARCHED_OWNERS} conditions on owners for"
            " this user: search one version at a time"
        )
    each = [(numbers, _of_sights(sights, facts)) for (sights, facts), numbers in shelves.items()]
    if len(each) == 1:
        return Seeing(*each[0][1])
    return Seeing(
        Arms(tuple((frozenset(numbers), one.leads) for numbers, one in each)),
        _case([(Sql(f"c.shelf IN ({', '.join(map(str, numbers))})"), one.tells) for numbers, one in each]),
        is_scan=any(one.is_scan for _, one in each),
        is_ordered=all(one.is_ordered for _, one in each),
    )


class _One(NamedTuple):
    """The same of shelves that have the same sights."""

    leads: Sql
    tells: Sql
    is_scan: bool
    is_ordered: bool


def _size(sights: OwnerSets) -> int:
    """The conditions on owners in sights."""
    return sum(max(1, len(holder.organizations)) for sight in sights for holder in sight.holders)


def keyed(number: int, text: str) -> tuple[Sql, Sql]:
    """The SQL that leads to the documents which have exactly this value under a number, and tells of one."""
    key = key_of(text)
    return (
        Sql(
            f"SELECT row, shelf FROM entries c WHERE number = ? AND {_ON_SHELVES} AND fold = ? AND value = ?",
            (number, *key),
        ),
        Sql(f"{_AN_ENTRY} AND e.fold = ? AND e.value = ? AND e.row = c.row)", (number, *key)),
    )


_ON_SHELVES = "shelf IN {shelves}"
_AN_ENTRY = "EXISTS (SELECT 1 FROM entries e WHERE e.number = ? AND e.shelf = c.shelf"
_ON_CARD = (
    "EXISTS (SELECT 1 FROM json_each((SELECT card FROM documents d WHERE d.row = c.row), ?) o"
    " WHERE o.value IN (SELECT value FROM json_each(?)))"
)
"""The places are those of the fields of ``Card``, and of its ``reader``."""
_ONE_OF = "(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))"


def _in_organization(number: int, names: frozenset[str]) -> tuple[Sql, Sql]:
    """The same of documents whose owner belongs to one of some organizations."""
    keys = json.dumps([key_of(name) for name in sorted(names)])
    told = Sql(f"{_AN_ENTRY} AND (e.fold, e.value) IN {_ONE_OF} AND e.row = c.row)", (number, keys))
    if len(names) > _FEW:
        place = "$[5]" if number == Fact.ORGANIZATION else "$[9][2]"
        told = Sql(_ON_CARD, (place, json.dumps(sorted(names))))
    return (
        Sql(
            f"SELECT DISTINCT row, shelf FROM entries c WHERE number = ? AND {_ON_SHELVES}"
            f" AND (fold, value) IN {_ONE_OF}",
            (number, keys),
        ),
        told,
    )


def _of_sights(sights: OwnerSets, facts: _Facts) -> _One:
    """The documents of one shelf that are in all sights; the sight with the fewest holders leads."""
    if not sights:
        everything = Sql(f"SELECT row, shelf FROM documents WHERE {_ON_SHELVES}")
        return _One(everything, Sql("1"), is_scan=True, is_ordered=True)
    leading, *others = sorted(sights, key=lambda sight: len(sight.holders))
    tests = [_told(sight, facts) for sight in others]
    tells = _all([_told(leading, facts), *tests])
    led = [_led(holder, facts, tests) for holder in leading.holders]
    leads = Sql(" UNION ".join(one.text for one in led), parameters_of(led))
    is_by_one_value = len(led) == 1 and all((holder.creator or holder.group) for holder in leading.holders)
    return _One(leads, tells, is_scan=False, is_ordered=is_by_one_value)


def _led(holder: OwnerPattern, facts: _Facts, tests: Iterable[Sql]) -> Sql:
    """The SQL that leads to the documents of a holder that pass further tests."""
    (leads, _), *others = _conditions(holder, facts)
    told = [tells for _, tells in others]
    return Sql(" AND ".join(one.text for one in (leads, *told, *tests)), parameters_of((leads, *told, *tests)))


def _told(sight: OwnerSet, facts: _Facts) -> Sql:
    """An expression that is true of a document which is in a sight."""
    each = [_all([tells for _, tells in _conditions(holder, facts)]) for holder in sight.holders]
    return each[0] if len(each) == 1 else _case([(one, Sql("1")) for one in each])


def _conditions(holder: OwnerPattern, facts: _Facts) -> list[tuple[Sql, Sql]]:
    """The conditions of a holder, at least one, the rarest first."""
    by, group, organization = facts
    return [
        *([keyed(by, holder.creator)] if holder.creator is not None else ()),
        *([keyed(group, holder.group)] if holder.group is not None else ()),
        *(_in_organization(organization, each) for each in holder.organizations),
    ]


def _all(tests: Sequence[Sql]) -> Sql:
    return Sql(" AND ".join(one.text for one in tests), parameters_of(tests))


def _case(cases: Sequence[tuple[Sql, Sql]]) -> Sql:
    """The truth of the first case that holds; of hundreds, an expression with OR would be too deep for SQLite."""
    text = " ".join(f"WHEN {when.text} THEN {then.text}" for when, then in cases)
    return Sql(f"CASE {text} ELSE 0 END", parameters_of(part for case in cases for part in case))
