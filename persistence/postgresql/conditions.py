"""The conditions of a search in SQL: which documents meet them.

Most conditions are a *selection*, a query for the ``seq`` of documents, each perhaps several times; the others are a
*test* of a document ``d``. A selection is a test, too. The planner decides which one the database begins with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from persistence.index.cards import FACTS, Fact
from persistence.index.queries import OwnerFacts, owner_groups, time_ranges
from persistence.model.search import Comparison, Field, Query, Scope, TextMatch
from persistence.model.users import OwnerPattern, OwnerSets
from persistence.postgresql.selections import BoundSql, EntryKey, Reach, Selection, joined
from persistence.postgresql.texts import TRIGRAM, KnownTexts, KnownValues, like, matching


@dataclass(frozen=True, slots=True)
class SearchedPartition:
    """A partition that a search looks at.

    ``controls`` are the indexed controls of its version, by path; ``owner_sets`` are those whose documents are seen.
    """

    number: int
    documents: int
    controls: Mapping[str, int]
    is_draft: bool = False
    owner_sets: OwnerSets = frozenset()


@dataclass(slots=True)
class SearchConditions:
    """The conditions of a search on some partitions."""

    selections: list[Selection] = field(default_factory=list)
    tests: list[BoundSql] = field(default_factory=list)
    keys: list[EntryKey] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """True if every document meets them."""
        return not (self.selections or self.tests or self.keys)

    def all_selections(self, partitions: Sequence[int]) -> list[Selection]:
        keys = (Selection(key.on(partitions), Reach.RANGES, is_distinct=True) for key in self.keys)
        return [*keys, *self.selections]


def conditions(
    scope: Scope, query: Query, searched: Sequence[SearchedPartition], texts: KnownTexts
) -> SearchConditions | None:
    """Return the conditions of a search of some partitions; ``None`` where a control is not indexed."""
    found = SearchConditions()
    numbers = [partition.number for partition in searched]
    controls = {path: number for partition in searched for path, number in partition.controls.items()}
    _add_owners(found, searched, is_by_saved=scope.seen.is_by_saved)
    if scope.drafts.for_document is not None:
        found.tests.append(BoundSql("d.document = %s", (scope.drafts.for_document,)))
    elif scope.drafts.never_saved:
        saved = "SELECT FROM document s WHERE s.form = d.form AND s.document = d.document AND NOT s.draft"
        found.tests.append(BoundSql(f"NOT EXISTS ({saved})"))
    for control in dict.fromkeys(query.controls):
        number = controls.get(control.path)
        if number is None:
            return None
        if control.match is TextMatch.EXACT:
            found.keys.append(EntryKey.of(number, control.text))
        else:
            found.selections.append(matching(number, control, numbers, texts.get(control, KnownValues())))
    _add_fields(found, query, numbers)
    if query.text:
        _add_text(found, query.text.casefold(), sorted(controls.values()), numbers)
    return found


def _add_fields(found: SearchConditions, query: Query, partitions: list[int]) -> None:
    fields = tuple(dict.fromkeys(query.fields))
    found.keys += [EntryKey.of(FACTS[each.field], each.value) for each in fields if each.comparison is Comparison.EXACT]
    for of, low, high in time_ranges(fields):
        if of is Field.LAST_MODIFIED:
            found.tests.append(BoundSql("d.modified >= %s AND d.modified < %s", (low, high)))
        else:
            between = "control = %s AND partition = ANY(%s::int[]) AND fold >= %s AND fold < %s"
            parameters = int(FACTS[of]), partitions, low, high
            within = BoundSql(f"SELECT seq FROM entry WHERE {between}", parameters)
            found.selections.append(Selection(within, Reach.RANGES, is_distinct=True, is_of_time=True))


def _add_text(found: SearchConditions, folded: str, controls: list[int], partitions: list[int]) -> None:
    pattern = like(folded)
    if len(folded) >= TRIGRAM:
        arms = [
            BoundSql(
                f"SELECT seq FROM entry WHERE control > 0 AND partition = ANY(%s::int[]) AND {column} LIKE %s",
                (partitions, pattern),
            )
            for column in ("fold", "whole")
        ]
        arms.append(BoundSql("SELECT seq FROM free_text WHERE fold LIKE %s", (pattern,)))
        found.selections.append(Selection(joined(" UNION ALL ", arms), Reach.TEXTS, is_of_all=True))
        return
    entry = "e.seq = d.seq AND e.control = ANY(%s::int[]) AND (e.fold LIKE %s OR e.whole LIKE %s)"
    text = "SELECT f.fold LIKE %s FROM free_text f WHERE f.seq = d.seq"
    either = f"(({text}) OR EXISTS (SELECT FROM entry e WHERE {entry}))"
    found.tests.append(BoundSql(either, (pattern, controls, pattern, pattern)))


# The documents that a user may see, by the owners that are entered as facts.


def _add_owners(found: SearchConditions, searched: Sequence[SearchedPartition], *, is_by_saved: bool) -> None:
    if not any(partition.owner_sets for partition in searched):
        return
    groups = owner_groups(searched, is_by_saved=is_by_saved)
    if len(groups) == 1:
        (((owner_sets, facts), _),) = groups.items()
        key = _key_of(owner_sets, facts)
        if key is not None:
            found.keys.append(key)
            return
    arms = [_of_owners(owner_sets, facts, numbers) for (owner_sets, facts), numbers in groups.items()]
    found.selections.append(Selection(joined(" UNION ALL ", arms), Reach.RANGES))


def _key_of(owner_sets: OwnerSets, facts: OwnerFacts) -> EntryKey | None:
    if len(owner_sets) != 1:
        return None
    holders = next(iter(owner_sets)).holders
    keys = _keys(next(iter(holders)), facts) if len(holders) == 1 else ()
    return keys[0] if len(keys) == 1 and not next(iter(holders)).organizations else None


def _of_owners(owner_sets: OwnerSets, facts: OwnerFacts, partitions: list[int]) -> BoundSql:
    if not owner_sets:
        return BoundSql("SELECT seq FROM document WHERE partition = ANY(%s::int[])", (partitions,))
    ordered = sorted(owner_sets, key=lambda owner_set: len(owner_set.holders))
    every = [[_of_holder(holder, facts, partitions) for holder in each.holders] for each in ordered]
    return _all_of([joined(" UNION ALL ", holders) for holders in every])


def _of_holder(holder: OwnerPattern, facts: OwnerFacts, partitions: list[int]) -> BoundSql:
    selections = [key.on(partitions) for key in _keys(holder, facts)]
    selections += [_in_organization(facts[2], names, partitions) for names in holder.organizations]
    return _all_of(selections) if selections else _of_owners(frozenset(), facts, partitions)


def _keys(holder: OwnerPattern, facts: OwnerFacts) -> tuple[EntryKey, ...]:
    named = ((facts[0], holder.creator), (facts[1], holder.group))
    return tuple(EntryKey.of(int(fact), name) for fact, name in named if name is not None)


def _in_organization(fact: Fact, names: Iterable[str], partitions: list[int]) -> BoundSql:
    keys = [EntryKey.of(int(fact), name) for name in sorted(names)]
    return BoundSql(
        "SELECT seq FROM entry WHERE control = %s AND partition = ANY(%s::int[])"
        " AND (fold, value) IN (SELECT * FROM unnest(%s::text[], %s::text[]))",
        (int(fact), partitions, [key.fold for key in keys], [key.value for key in keys]),
    )


def _all_of(selections: Sequence[BoundSql]) -> BoundSql:
    first, *others = selections
    if not others:
        return first
    pieces = [BoundSql(f"seq IN ({each.text})", each.parameters) for each in others]
    where = joined(" AND ", pieces)
    return BoundSql(f"SELECT seq FROM ({first.text}) AS one WHERE {where.text}", first.parameters + where.parameters)
