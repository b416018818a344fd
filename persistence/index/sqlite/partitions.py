"""The partitions of an index, the SQL of conditions on their documents, and of those that a user may see.

A partition has the saved documents of one version, or its drafts. Pieces of SQL are put together and bound to the
partitions of a search.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from persistence.index.cards import Fact, key_of
from persistence.index.queries import OwnerFacts, owner_groups, searched_owners
from persistence.model.search import Scope
from persistence.model.users import OwnerPattern, OwnerSet, OwnerSets

Parameter = str | int

_FEW_PARTITIONS = 4
"""Partitions on each of which a document is looked for: their index is small, the documents themselves are large."""


@dataclass(frozen=True, slots=True)
class NumberedControls:
    """The numbers of the indexed controls by path; a document may have more than one value of ``several``."""

    numbers: Mapping[str, int]
    several: frozenset[int]

    @staticmethod
    def of(connection: sqlite3.Connection) -> NumberedControls:
        """Return the controls that an index knows."""
        found = connection.execute("SELECT path, number, several FROM controls").fetchall()
        return NumberedControls(
            {path: number for path, number, _ in found}, frozenset(row[1] for row in found if row[2])
        )


@dataclass(frozen=True, slots=True)
class Partition:
    """The saved documents, or the drafts, of one version, and the controls that its documents have entries of.

    ``owner_sets`` are those whose documents of the version the user may see.
    """

    number: int
    documents: int
    controls: frozenset[int]
    is_draft: bool = False
    owner_sets: OwnerSets = frozenset()


def partitions_of(connection: sqlite3.Connection, scope: Scope) -> list[Partition]:
    """Return the partitions that a search looks at, without empty ones and those in which the user sees nothing."""
    found = connection.execute(
        "SELECT p.number, p.documents, v.controls, p.version, p.draft FROM partitions p JOIN versions v USING (version)"
        " WHERE NOT p.hidden AND p.documents > 0 ORDER BY p.number"
    )
    return [
        Partition(number, documents, frozenset(json.loads(controls or "[]")), bool(draft), owner_sets)
        for number, documents, controls, version, draft in found.fetchall()
        if (owner_sets := searched_owners(scope, version, is_draft=bool(draft))) is not None
    ]


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL with its parameters.

    ``{partitions}`` stands for the list of the partitions that are searched, and ``{indexed}`` for how a document on
    one of them is found by its row.
    """

    text: str
    parameters: tuple[Parameter, ...] = ()

    def on(self, partitions: Iterable[int]) -> Sql:
        """Return the piece with the numbers of the partitions filled in."""
        numbers = tuple(partitions)
        indexed = "INDEXED BY documents_by_partition" if len(numbers) <= _FEW_PARTITIONS else "NOT INDEXED"
        listed = f"({', '.join(map(str, numbers))})"
        return Sql(self.text.replace("{partitions}", listed).replace("{indexed}", indexed), self.parameters)


@dataclass(frozen=True, slots=True)
class Arms:
    """Pieces of SQL, each for partitions of its own."""

    arms: tuple[tuple[frozenset[int], Sql | Arms], ...]

    def on(self, partitions: Iterable[int]) -> Sql:
        """Return the union of the pieces for some partitions, with their numbers filled in."""
        numbers = frozenset(partitions)
        parts = [sql.on(sorted(own & numbers)) for own, sql in self.arms if not own.isdisjoint(numbers)]
        return joined(" UNION ALL ", parts)


def joined(separator: str, parts: Sequence[Sql]) -> Sql:
    """Return several pieces as one, with a separator between."""
    return Sql(separator.join(part.text for part in parts), parameters_of(parts))


def parameters_of(parts: Iterable[Sql]) -> tuple[Parameter, ...]:
    """Return the parameters of several pieces, one after the other."""
    return tuple(parameter for part in parts for parameter in part.parameters)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The SQL for the texts of some documents, among which are all that meet a condition.

    Above the share ``worth`` of all documents, looking at everything is quicker than looking at each of these.
    """

    narrows: Sql
    worth: float


@dataclass(frozen=True, slots=True)
class CardTest:
    """One value of a control has the folded ``text`` in it, or all of its words if they ``are_words``."""

    number: int
    text: str
    are_words: bool


@dataclass(frozen=True, slots=True)
class SqlCondition:
    """One condition of a search.

    ``selects`` gives ``row`` and ``partition`` of the documents that meet it, each once; with ``is_scan`` it looks at
    every document. ``test`` is an expression that is true of ``c``, a row and its partition, where the document meets
    the condition; with ``is_quick`` it need not look at the document. With ``is_ordered``, ``selects`` goes by row in a
    partition, and can be counted quickly. ``card_test`` is the condition where it asks of the document's card only.
    ``texts`` selects the texts that meet it on any partition, where that is quicker than ``selects``.
    """

    selects: Sql | Arms
    test: Sql
    narrowing: Narrowing | None = None
    is_scan: bool = False
    is_quick: bool = False
    is_ordered: bool = False
    card_test: CardTest | None = None
    texts: Sql | None = None


_ON_PARTITIONS = "partition IN {partitions}"
_AN_ENTRY = "EXISTS (SELECT 1 FROM entries e WHERE e.number = ? AND e.partition = c.partition"
_ON_CARD = (
    "EXISTS (SELECT 1 FROM json_each((SELECT card FROM documents d WHERE d.row = c.row), ?) o"
    " WHERE o.value IN (SELECT value FROM json_each(?)))"
)
"""The paths lead to the fields of ``Card``, and of its ``reader``."""
_ONE_OF = "(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))"


def keyed(number: int, text: str) -> tuple[Sql, Sql]:
    """Return the SQL that selects the documents with exactly this value under a number, and the one that tests one."""
    key = key_of(text)
    return (
        Sql(
            f"SELECT row, partition FROM entries c WHERE number = ? AND {_ON_PARTITIONS} AND fold = ? AND value = ?",
            (number, *key),
        ),
        Sql(f"{_AN_ENTRY} AND e.fold = ? AND e.value = ? AND e.row = c.row)", (number, *key)),
    )


# The documents that a user may see, by the owners that the index has entered under facts.

_FEW_ORGANIZATIONS = 8
"""Organizations for each of which an entry is looked for; of more, the card is read."""


def visible(searched: Sequence[Partition], *, is_by_saved: bool) -> SqlCondition | None:
    """Return the condition that documents on some partitions are seen; ``None`` where all are.

    With ``is_by_saved``, the owner of a saved document also owns its draft. The index has entered
    it under facts of drafts, so that a search looks at one document only.
    """
    if not any(partition.owner_sets for partition in searched):
        return None
    groups = owner_groups(searched, is_by_saved=is_by_saved)
    each = [(numbers, _of_owners(owner_sets, facts)) for (owner_sets, facts), numbers in groups.items()]
    if len(each) == 1:
        return each[0][1]
    return SqlCondition(
        Arms(tuple((frozenset(numbers), one.selects) for numbers, one in each)),
        _case([(Sql(f"c.partition IN ({', '.join(map(str, numbers))})"), one.test) for numbers, one in each]),
        is_scan=any(one.is_scan for _, one in each),
        is_quick=True,
        is_ordered=all(one.is_ordered for _, one in each),
    )


def _of_owners(owner_sets: OwnerSets, facts: OwnerFacts) -> SqlCondition:
    if not owner_sets:
        everything = Sql(f"SELECT row, partition FROM documents WHERE {_ON_PARTITIONS}")
        return SqlCondition(everything, Sql("1"), is_scan=True, is_quick=True, is_ordered=True)
    leading, *others = sorted(owner_sets, key=lambda owner_set: len(owner_set.holders))
    tests = [_test(owner_set, facts) for owner_set in others]
    selecting = [_selecting(holder, facts, tests) for holder in leading.holders]
    return SqlCondition(
        joined(" UNION ", selecting),
        joined(" AND ", [_test(leading, facts), *tests]),
        is_quick=True,
        is_ordered=len(selecting) == 1 and all((holder.creator or holder.group) for holder in leading.holders),
    )


def _selecting(holder: OwnerPattern, facts: OwnerFacts, tests: Iterable[Sql]) -> Sql:
    (selects, _), *others = _conditions(holder, facts)
    return joined(" AND ", [selects, *(test for _, test in others), *tests])


def _test(owner_set: OwnerSet, facts: OwnerFacts) -> Sql:
    each = [joined(" AND ", [test for _, test in _conditions(holder, facts)]) for holder in owner_set.holders]
    return each[0] if len(each) == 1 else _case([(one, Sql("1")) for one in each])


def _conditions(holder: OwnerPattern, facts: OwnerFacts) -> list[tuple[Sql, Sql]]:
    by, group, organization = facts
    return [
        *([keyed(by, holder.creator)] if holder.creator is not None else ()),
        *([keyed(group, holder.group)] if holder.group is not None else ()),
        *(_in_organization(organization, each) for each in holder.organizations),
    ]


def _in_organization(number: int, names: frozenset[str]) -> tuple[Sql, Sql]:
    keys = json.dumps([key_of(name) for name in sorted(names)])
    test = Sql(f"{_AN_ENTRY} AND (e.fold, e.value) IN {_ONE_OF} AND e.row = c.row)", (number, keys))
    if len(names) > _FEW_ORGANIZATIONS:
        place = "$[5]" if number == Fact.ORGANIZATION else "$[9][2]"
        test = Sql(_ON_CARD, (place, json.dumps(sorted(names))))
    return (
        Sql(
            f"SELECT DISTINCT row, partition FROM entries c WHERE number = ? AND {_ON_PARTITIONS}"
            f" AND (fold, value) IN {_ONE_OF}",
            (number, keys),
        ),
        test,
    )


def _case(cases: Sequence[tuple[Sql, Sql]]) -> Sql:
    """Return the first case that holds. With hundreds of cases, an expression with OR would be too deep for SQLite."""
    text = " ".join(f"WHEN {when.text} THEN {then.text}" for when, then in cases)
    return Sql(f"CASE {text} ELSE 0 END", parameters_of(part for case in cases for part in case))
