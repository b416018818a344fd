"""SQL for the documents that a user may see, by the owners that the index has entered under facts.

With ``is_by_saved``, the owner of a draft of a saved document is that of the saved document. The index has entered it
under facts of drafts, so that a search looks at one document only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from persistence.errors import BadRequestError
from persistence.index.sqlite.partitions import Arms, Partition, Sql, parameters_of
from persistence.index.sqlite.records import OF_DRAFTS, Fact, key_of
from persistence.limits import SEARCHED_OWNERS
from persistence.model.users import OwnerPattern, OwnerSet, OwnerSets

_FEW = 8
"""Organizations for each of which an entry is looked for; of more, the card is read."""

_OWN = (Fact.CREATED_BY, Fact.GROUP, Fact.ORGANIZATION)
_Facts = tuple[Fact, Fact, Fact]


@dataclass(frozen=True, slots=True)
class VisibleSql:
    """The SQL that selects the documents that are seen, and tests one of them, as in a ``SqlCondition``."""

    selects: Sql | Arms
    test: Sql
    is_scan: bool
    is_ordered: bool


def visible(searched: Sequence[Partition], *, is_by_saved: bool) -> VisibleSql | None:
    """Return the SQL for the documents that are seen on some partitions; ``None`` where all are.

    Raises:
        BadRequestError: the permissions have too many conditions on owners.
    """
    if not any(partition.sights for partition in searched):
        return None
    groups: dict[tuple[OwnerSets, _Facts], list[int]] = {}
    for partition in searched:
        facts = OF_DRAFTS if is_by_saved and partition.is_draft else _OWN
        groups.setdefault((partition.sights, facts), []).append(partition.number)
    if sum(_size(sights) for sights, _ in groups) > SEARCHED_OWNERS:
        raise BadRequestError(
            f"permissions of the versions that are searched have more than {SEARCHED_OWNERS} conditions on owners for"
            " this user: search one version at a time"
        )
    each = [(numbers, _of_sights(sights, facts)) for (sights, facts), numbers in groups.items()]
    if len(each) == 1:
        return VisibleSql(*each[0][1])
    return VisibleSql(
        Arms(tuple((frozenset(numbers), one.selects) for numbers, one in each)),
        _case([(Sql(f"c.shelf IN ({', '.join(map(str, numbers))})"), one.test) for numbers, one in each]),
        is_scan=any(one.is_scan for _, one in each),
        is_ordered=all(one.is_ordered for _, one in each),
    )


class _One(NamedTuple):
    """The SQL of partitions that have the same sights; fields as in ``VisibleSql``."""

    selects: Sql
    test: Sql
    is_scan: bool
    is_ordered: bool


def _size(sights: OwnerSets) -> int:
    """Return the number of conditions on owners in sights."""
    return sum(max(1, len(holder.organizations)) for sight in sights for holder in sight.holders)


def keyed(number: int, text: str) -> tuple[Sql, Sql]:
    """Return the SQL that selects the documents with exactly this value under a number, and the one that tests one."""
    key = key_of(text)
    return (
        Sql(
            f"SELECT row, shelf FROM entries c WHERE number = ? AND {_ON_PARTITIONS} AND fold = ? AND value = ?",
            (number, *key),
        ),
        Sql(f"{_AN_ENTRY} AND e.fold = ? AND e.value = ? AND e.row = c.row)", (number, *key)),
    )


_ON_PARTITIONS = "shelf IN {partitions}"
_AN_ENTRY = "EXISTS (SELECT 1 FROM entries e WHERE e.number = ? AND e.shelf = c.shelf"
_ON_CARD = (
    "EXISTS (SELECT 1 FROM json_each((SELECT card FROM documents d WHERE d.row = c.row), ?) o"
    " WHERE o.value IN (SELECT value FROM json_each(?)))"
)
"""The paths are those of the fields of ``Card``, and of its ``reader``."""
_ONE_OF = "(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))"


def _in_organization(number: int, names: frozenset[str]) -> tuple[Sql, Sql]:
    """Return the same for documents whose owner belongs to one of some organizations."""
    keys = json.dumps([key_of(name) for name in sorted(names)])
    test = Sql(f"{_AN_ENTRY} AND (e.fold, e.value) IN {_ONE_OF} AND e.row = c.row)", (number, keys))
    if len(names) > _FEW:
        place = "$[5]" if number == Fact.ORGANIZATION else "$[9][2]"
        test = Sql(_ON_CARD, (place, json.dumps(sorted(names))))
    return (
        Sql(
            f"SELECT DISTINCT row, shelf FROM entries c WHERE number = ? AND {_ON_PARTITIONS}"
            f" AND (fold, value) IN {_ONE_OF}",
            (number, keys),
        ),
        test,
    )


def _of_sights(sights: OwnerSets, facts: _Facts) -> _One:
    """Return the SQL for the documents that are in all sights; the one with the fewest holders selects."""
    if not sights:
        everything = Sql(f"SELECT row, shelf FROM documents WHERE {_ON_PARTITIONS}")
        return _One(everything, Sql("1"), is_scan=True, is_ordered=True)
    leading, *others = sorted(sights, key=lambda sight: len(sight.holders))
    tests = [_test(sight, facts) for sight in others]
    test = _all([_test(leading, facts), *tests])
    selecting = [_selecting(holder, facts, tests) for holder in leading.holders]
    selects = Sql(" UNION ".join(one.text for one in selecting), parameters_of(selecting))
    is_by_one_value = len(selecting) == 1 and all((holder.creator or holder.group) for holder in leading.holders)
    return _One(selects, test, is_scan=False, is_ordered=is_by_one_value)


def _selecting(holder: OwnerPattern, facts: _Facts, tests: Iterable[Sql]) -> Sql:
    """Return the SQL that selects the documents of a holder that pass further tests."""
    (selects, _), *others = _conditions(holder, facts)
    own = [test for _, test in others]
    return Sql(" AND ".join(one.text for one in (selects, *own, *tests)), parameters_of((selects, *own, *tests)))


def _test(sight: OwnerSet, facts: _Facts) -> Sql:
    """Return an expression that is true for a document in a sight."""
    each = [_all([test for _, test in _conditions(holder, facts)]) for holder in sight.holders]
    return each[0] if len(each) == 1 else _case([(one, Sql("1")) for one in each])


def _conditions(holder: OwnerPattern, facts: _Facts) -> list[tuple[Sql, Sql]]:
    """Return the conditions of a holder, at least one, the rarest first."""
    by, group, organization = facts
    return [
        *([keyed(by, holder.creator)] if holder.creator is not None else ()),
        *([keyed(group, holder.group)] if holder.group is not None else ()),
        *(_in_organization(organization, each) for each in holder.organizations),
    ]


def _all(tests: Sequence[Sql]) -> Sql:
    return Sql(" AND ".join(one.text for one in tests), parameters_of(tests))


def _case(cases: Sequence[tuple[Sql, Sql]]) -> Sql:
    """Return the first case that holds. With hundreds of cases, an expression with OR would be too deep for SQLite."""
    text = " ".join(f"WHEN {when.text} THEN {then.text}" for when, then in cases)
    return Sql(f"CASE {text} ELSE 0 END", parameters_of(part for case in cases for part in case))
