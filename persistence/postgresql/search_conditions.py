"""The conditions of a search in SQL: selections, texts, and which documents meet them.

Most conditions are a *selection*, a query for the ``seq`` of documents, each perhaps several times; the others are a
*test* of a document ``d``. A selection is a test, too. The planner decides which one the database begins with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from persistence.index.cards import FACTS, Fact, OwnerFacts, key_of, owner_groups, time_ranges
from persistence.limits import FOLDS_TRIED
from persistence.model.permissions import OwnerPattern, OwnerSets
from persistence.model.queries import Comparison, ControlFilter, Field, Query, Scope, TextMatch
from persistence.postgresql.index_rows import plain


@dataclass(frozen=True, slots=True)
class BoundSql:
    """A piece of SQL and its parameters."""

    text: str
    parameters: tuple[object, ...] = ()


def joined(separator: str, pieces: Iterable[BoundSql]) -> BoundSql:
    pieces = tuple(pieces)
    return BoundSql(
        separator.join(piece.text for piece in pieces),
        tuple(parameter for piece in pieces for parameter in piece.parameters),
    )


@dataclass(frozen=True, slots=True)
class EntryKey:
    """One value of a control or a fact: the documents with it are one range of entries, each of them once."""

    control: int
    fold: str
    value: str

    @classmethod
    def of(cls, control: int, text: str) -> EntryKey:
        fold, value = key_of(text)
        return cls(control, plain(str(fold)), plain(str(value)))

    def on(self, partitions: Sequence[int]) -> BoundSql:
        """Return the query for the documents on some partitions."""
        # An index of texts would find one fold, too, but all of its documents at once.
        on = "control = %s AND partition = ANY(%s::int[]) AND fold = ANY(%s::text[]) AND value = %s"
        parameters = self.control, list(partitions), [self.fold], self.value
        return BoundSql(f"SELECT seq FROM entry WHERE {on}", parameters)


class Reach(Enum):
    """How the documents of a selection are found."""

    RANGES = "in ranges of an index, so that they are quickly counted up to a limit"
    TEXTS = "by an index of texts, which finds all of them at once"
    SCAN = "by looking at all"


@dataclass(frozen=True, slots=True)
class Selection:
    """A query for the ``seq`` of documents, which may return one repeatedly unless ``is_distinct``.

    ``is_of_all``: it finds documents of other partitions and forms, too. ``is_of_time``: they are of a span of time,
    and so near each other in the order of saves.
    """

    sql: BoundSql
    reach: Reach
    is_of_all: bool = False
    is_distinct: bool = False
    is_of_time: bool = False

    @property
    def test(self) -> BoundSql:
        """The condition that it has the document ``d``: always looked up, and never all of it read."""
        return BoundSql(f"(SELECT true FROM ({self.sql.text}) s WHERE s.seq = d.seq LIMIT 1)", self.sql.parameters)


TRIGRAM = 3  # Characters of the shortest text that an index of texts helps to find

_NEXT = """
    SELECT fold FROM entry WHERE entry.control = control.number AND entry.partition = {} AND entry.fold > {}
    ORDER BY fold LIMIT 1
"""
_OF_CONTROL = f"""
SELECT %s::int, is_long, few.number, few.folds FROM control, LATERAL (
    WITH RECURSIVE leaps AS (
        SELECT partition.number AS partition, ({_NEXT.format("partition.number", "''")}) AS fold
        FROM partition WHERE partition.form = control.form
        UNION ALL
        SELECT leaps.partition, ({_NEXT.format("leaps.partition", "leaps.fold")}) FROM leaps WHERE fold IS NOT NULL
    )
    SELECT count(*) AS number, array_agg(DISTINCT fold) FILTER (WHERE {{}}) AS folds
    FROM (SELECT fold FROM leaps WHERE fold IS NOT NULL LIMIT %s) AS tried
) AS few, LATERAL (
    SELECT EXISTS (
        SELECT FROM partition JOIN entry ON entry.control = control.number AND entry.partition = partition.number
        WHERE partition.form = control.form AND whole IS NOT NULL
    ) AS is_long
) AS long WHERE form = %s AND path = %s
"""


# Texts that a search looks for in the values of controls.
#
# A control with few different values is found by those that have the text; for others, an index of trigrams finds the
# values. The values of a control are asked in the round trip that begins the search.


@dataclass(frozen=True, slots=True)
class KnownValues:
    """Knowledge about a control: if some values are longer than their folds, and the folds with a text.

    ``folds`` is ``None`` where a control has too many to look at each.
    """

    is_long: bool = True
    folds: tuple[str, ...] | None = None


KnownTexts = Mapping[ControlFilter, KnownValues]


def select_texts(form: int, query: Query) -> BoundSql | None:
    """Return the statement that looks at the controls in which a query looks for texts."""
    asked = []
    for place, control in enumerate(_texts_of(query)):
        tests = joined(" AND ", _over("fold", _tests(control)))
        parameters = place, *tests.parameters, FOLDS_TRIED + 1, form, control.path
        asked.append(BoundSql(_OF_CONTROL.format(tests.text), parameters))
    return joined(" UNION ALL ", asked) if asked else None


def known(query: Query, rows: Iterable[tuple[int, bool, int, list[str] | None]]) -> KnownTexts:
    controls = _texts_of(query)
    return {
        controls[place]: KnownValues(is_long, tuple(folds or ()) if number <= FOLDS_TRIED else None)
        for place, is_long, number, folds in rows
    }


def _texts_of(query: Query) -> list[ControlFilter]:
    return [each for each in dict.fromkeys(query.controls) if each.match is not TextMatch.EXACT]


def like(text: str) -> str:
    """Return the LIKE pattern of a text with anything around it."""
    for special in "\\%_":
        text = text.replace(special, f"\\{special}")
    return f"%{text}%"


def matching(number: int, control: ControlFilter, partitions: list[int], values: KnownValues) -> Selection:
    """Return the selection of documents with a value that has a text, or all its words."""
    if values.folds is not None and not values.is_long:
        on = "control = %s AND partition = ANY(%s::int[]) AND fold = ANY(%s::text[])"
        return Selection(_entries(BoundSql(on, (number, partitions, list(values.folds)))), Reach.RANGES)
    on_control = BoundSql("control = %s AND control > 0 AND partition = ANY(%s::int[])", (number, partitions))
    # A text in the fold, which is the beginning, is in the value too.
    columns = ("fold", "whole") if values.is_long else ("fold",)
    arms = [joined(" AND ", [on_control, *_over(column, _tests(control))]) for column in columns]
    has_trigrams = any(len(text) >= TRIGRAM for text in _looked_for(control))
    return Selection(joined(" UNION ALL ", map(_entries, arms)), Reach.TEXTS if has_trigrams else Reach.SCAN)


def _looked_for(control: ControlFilter) -> list[str]:
    folded = control.text.casefold()
    return [folded] if control.match is TextMatch.SUBSTRING else list(dict.fromkeys(folded.split()))


def _tests(control: ControlFilter) -> list[BoundSql]:
    texts = _looked_for(control)
    if control.match is TextMatch.SUBSTRING:
        return [BoundSql("{} LIKE %s", (like(text),)) for text in texts]
    narrow = [BoundSql("{} LIKE %s", (like(text),)) for text in texts if len(text) >= TRIGRAM]
    words = [BoundSql("strpos(' ' || {} || ' ', %s) <> 0", (f" {word} ",)) for word in texts]
    return [*narrow, *(words or [BoundSql("{} <> ''")])]


def _over(column: str, tests: Iterable[BoundSql]) -> list[BoundSql]:
    return [BoundSql(test.text.format(column), test.parameters) for test in tests]


def _entries(where: BoundSql) -> BoundSql:
    return BoundSql(f"SELECT seq FROM entry WHERE {where.text}", where.parameters)


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
    groups = owner_groups(((each.number, each.is_draft, each.owner_sets) for each in searched), is_by_saved=is_by_saved)
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
