"""The conditions of a search in SQL: partitions, texts, and the documents that a user may see.

A partition has the saved documents of one version, or its drafts. Pieces of SQL are put together and bound to the
partitions of a search.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from persistence.index.cards import (
    FACTS,
    SEPARATOR,
    Fact,
    OwnerFacts,
    decode,
    key_of,
    owner_groups,
    searched_owners,
    time_ranges,
)
from persistence.index.sqlite.tables import COLUMNS, FIELDS, as_in_card, column_of, first_row
from persistence.limits import QUERIES_KEPT
from persistence.model.instants import Instant
from persistence.model.permissions import OwnerPattern, OwnerSet, OwnerSets
from persistence.model.queries import Comparison, ControlFilter, Drafts, Field, FieldFilter, Query, Scope, TextMatch

Parameter = str | int

_FEW_PARTITIONS = 4
"""Partitions on each of which a document is looked for: their index is small, the documents themselves are large."""


@dataclass(frozen=True, slots=True)
class NumberedControls:
    """The numbers of the indexed controls by path; a document may have more than one value of ``multi_valued``."""

    numbers: Mapping[str, int]
    multi_valued: frozenset[int]

    @staticmethod
    def of(connection: sqlite3.Connection) -> NumberedControls:
        found = connection.execute("SELECT path, number, multi_valued FROM controls").fetchall()
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
        numbers = tuple(partitions)
        indexed = "INDEXED BY documents_by_partition" if len(numbers) <= _FEW_PARTITIONS else "NOT INDEXED"
        listed = f"({', '.join(map(str, numbers))})"
        return Sql(self.text.replace("{partitions}", listed).replace("{indexed}", indexed), self.parameters)


@dataclass(frozen=True, slots=True)
class UnionOfPartitions:
    """Pieces of SQL, each for partitions of its own."""

    arms: tuple[tuple[frozenset[int], Sql | UnionOfPartitions], ...]

    def on(self, partitions: Iterable[int]) -> Sql:
        numbers = frozenset(partitions)
        parts = [sql.on(sorted(own & numbers)) for own, sql in self.arms if not own.isdisjoint(numbers)]
        return joined(" UNION ALL ", parts)


def joined(separator: str, parts: Sequence[Sql]) -> Sql:
    return Sql(separator.join(part.text for part in parts), parameters_of(parts))


def parameters_of(parts: Iterable[Sql]) -> tuple[Parameter, ...]:
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

    selects: Sql | UnionOfPartitions
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

_FEW_ORGANIZATIONS = 8  # Organizations for each of which an entry is looked for; of more, the card is read


def visible(searched: Sequence[Partition], *, is_by_saved: bool) -> SqlCondition | None:
    """Return the condition that documents on some partitions are seen; ``None`` where all are.

    With ``is_by_saved``, the owner of a saved document also owns its draft. The index has entered
    it under facts of drafts, so that a search looks at one document only.
    """
    if not any(partition.owner_sets for partition in searched):
        return None
    groups = owner_groups(((each.number, each.is_draft, each.owner_sets) for each in searched), is_by_saved=is_by_saved)
    each = [(numbers, _of_owners(owner_sets, facts)) for (owner_sets, facts), numbers in groups.items()]
    if len(each) == 1:
        return each[0][1]
    return SqlCondition(
        UnionOfPartitions(tuple((frozenset(numbers), one.selects) for numbers, one in each)),
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


TRIGRAM = 3
_MOST = 5
"""Trigrams of a text that are looked for, the rarest ones: each further one is a long list to be read for little."""

_LONGEST = 100  # Characters of a text of which trigrams are looked for

_SAMPLED = 64
_LONGEST_SAMPLE = 4_000
"""Characters that are kept of a document, of each of its texts as many: every connection keeps a sample."""

_FIELDS = ", ".join(f"f.c{number}" for number in range(COLUMNS))
_AT = (
    f"SELECT r.c0, {_FIELDS} FROM free_text_content r JOIN fields_content f ON f.id = r.id WHERE r.id >= ?"
    " ORDER BY r.id LIMIT 1"
)

Rarity = Callable[[str, int | None], int]
"""Estimates how often a trigram occurs in a column of fields, or in any text: only which is rarer matters."""


# How texts are searched for: by runs of three characters in the index of texts, and by an SQL function in cards.
#
# The index of texts knows texts by their trigrams (SQLite FTS5, 4.3.4). A card describes a document: values of its
# controls have given texts or words in them.


def query_for(parts: Iterable[str], column: int | None, rarity: Rarity) -> str:
    """Return the query for the rarest trigrams of some texts, the rarest first.

    It is empty where all texts are too short to have one.
    """
    found = dict.fromkeys(
        part[at : at + TRIGRAM] for part in parts for at in range(min(len(part), _LONGEST) - TRIGRAM + 1)
    )
    if len(found) > 1:
        found = dict.fromkeys(sorted(found, key=lambda each: rarity(each, column))[:_MOST])
    return " AND ".join(quoted(each) for each in found)


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


class Sample:
    """The texts of documents from evenly spread places, read when they are first needed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._texts: list[tuple[str, ...]] | None = None

    def rarity(self, trigram: str, column: int | None) -> int:
        """Return the number of sampled documents that have a trigram, in a column of fields or in any text."""
        if self._texts is None:
            self._texts = list(self._read())
        if column is not None:
            return sum(trigram in texts[column + 1] for texts in self._texts)
        return sum(any(trigram in text for text in texts) for texts in self._texts)

    def _read(self) -> Iterator[tuple[str, ...]]:
        first, last = self._connection.execute("SELECT min(text), max(text) FROM texts").fetchone()
        for at in range(_SAMPLED if first is not None else 0):
            found = self._connection.execute(_AT, (first + (last - first) * at // _SAMPLED,)).fetchone()
            if found is not None:
                each = _LONGEST_SAMPLE // max(1, sum(map(bool, found)))
                yield tuple((text or "")[:each] for text in found)


def install(connection: sqlite3.Connection, check: Callable[[], None]) -> None:
    """Give a connection the function that statements use; ``check`` raises when the time is used up."""

    def has_parts(card: str, asked: str) -> bool:
        check()
        return _passes(card, asked)

    connection.create_function("has_parts", 2, has_parts, deterministic=True)


def passing(tests: Iterable[CardTest], of: str) -> Sql:
    return card_passing(tests, f"(SELECT card FROM documents d WHERE d.row = {of}.row)")


def card_passing(tests: Iterable[CardTest], card: str) -> Sql:
    asked = json.dumps([(each.number, each.text, each.are_words) for each in tests], ensure_ascii=False)
    return Sql(f"has_parts({card}, ?)", (asked,))


class _Tests(NamedTuple):
    """The tests of a statement.

    A card that passes has all texts ``anywhere`` in it, folded as its JSON is. ``of_controls`` are the number of each
    control and the texts and words, each between spaces, that its values must have.
    """

    anywhere: list[str]
    of_controls: list[tuple[int, list[str], list[list[str]]]]


def _passes(card: str, asked: str) -> bool:
    tests = _parsed(asked)
    folded = card.casefold()
    if not all(text in folded for text in tests.anywhere):
        return False
    found = decode(card)
    for number, texts, words in tests.of_controls:
        values = [value.casefold() for value in found.of(number)]
        if not all(any(text in value for value in values) for text in texts):
            return False
        if words:
            spaced = [f" {value} " for value in values]
            if not all(any(all(word in value for word in wanted) for value in spaced) for wanted in words):
                return False
    return True


@lru_cache(QUERIES_KEPT)
def _parsed(asked: str) -> _Tests:
    found: dict[int, tuple[list[str], list[list[str]]]] = {}
    anywhere: dict[str, None] = {}
    for number, text, are_words in json.loads(asked):
        texts, words = found.setdefault(number, ([], []))
        wanted = text.split() if are_words else [text]
        if are_words:
            words.append([f" {word} " for word in wanted])
        else:
            texts.append(text)
        anywhere |= dict.fromkeys(as_in_card(each).casefold() for each in wanted)
    return _Tests(list(anywhere), [(number, texts, words) for number, (texts, words) in found.items()])


_WORTH_IN_FIELD, _WORTH_ANYWHERE = 0.03, 0.25


# The conditions of a search in SQL.
#
# A condition can *select* the documents that meet it, or *test* one document. In a search one condition selects, and
# the others test the documents that it leads to. The planner decides which one selects.


def conditions(
    scope: Scope, query: Query, controls: NumberedControls, rarity: Rarity, searched: Sequence[Partition]
) -> list[SqlCondition] | None:
    """Return the conditions of a search of some partitions.

    Return ``None`` where no document can meet them, because a control is not indexed.
    """
    found: list[SqlCondition] = []
    seen = visible(searched, is_by_saved=scope.seen.is_by_saved)
    if seen is not None:
        found.append(seen)
    if scope.drafts.kind is Drafts.ONLY:
        if scope.drafts.for_document is not None:
            found.append(_draft_of(scope.drafts.for_document))
        elif scope.drafts.never_saved:
            found.append(_never_saved())
    for control in dict.fromkeys(query.controls):
        number = controls.numbers.get(control.path)
        if number is None:
            return None
        found.append(_matching(number, control, "DISTINCT" if number in controls.multi_valued else "", rarity))
    found += _fields(query.fields)
    if query.text:
        found.append(_anywhere(query.text.casefold(), controls, rarity))
    return found


def _draft_of(document: str) -> SqlCondition:
    return SqlCondition(
        Sql(
            "SELECT row, partition FROM documents WHERE document = ? AND draft AND partition IN {partitions}",
            (document,),
        ),
        Sql("EXISTS (SELECT 1 FROM documents d WHERE d.document = ? AND d.draft AND d.row = c.row)", (document,)),
        is_quick=True,
    )


def _never_saved() -> SqlCondition:
    saved = "EXISTS (SELECT 1 FROM documents s WHERE s.document = {of}.document AND NOT s.draft)"
    return SqlCondition(
        Sql(f"SELECT row, partition FROM documents d WHERE partition IN {{partitions}} AND NOT {saved.format(of='d')}"),
        Sql(f"EXISTS (SELECT 1 FROM documents d WHERE d.row = c.row AND NOT {saved.format(of='d')})"),
        is_scan=True,
    )


def _fields(filters: Iterable[FieldFilter]) -> list[SqlCondition]:
    """Return the conditions on facts; those on one time are one, so that it selects what lies between its limits."""
    filters = tuple(dict.fromkeys(filters))
    found = [
        SqlCondition(*keyed(FACTS[each.field], each.value), is_quick=True, is_ordered=True)
        for each in filters
        if each.comparison is Comparison.EXACT
    ]
    for field, low, high in time_ranges(filters):
        found.append(_saved(low, high) if field is Field.LAST_MODIFIED else _between(FACTS[field], low, high))
    return found


def _between(number: int, low: str, high: str) -> SqlCondition:
    return SqlCondition(
        Sql(
            "SELECT row, partition FROM entries"
            " WHERE number = ? AND partition IN {partitions} AND fold >= ? AND fold < ?",
            (number, low, high),
        ),
        Sql("EXISTS (SELECT 1 FROM documents d WHERE d.row = c.row AND d.created >= ? AND d.created < ?)", (low, high)),
    )


def _saved(low: str, high: str) -> SqlCondition:
    bounds = first_row(Instant(low)), first_row(Instant(high))
    return SqlCondition(
        Sql("SELECT row, partition FROM documents WHERE partition IN {partitions} AND row >= ? AND row < ?", bounds),
        Sql("(c.row >= ? AND c.row < ?)", bounds),
        is_quick=True,
        is_ordered=True,
    )


def _matching(number: int, control: ControlFilter, distinct: str, rarity: Rarity) -> SqlCondition:
    folded = control.text.casefold()
    if control.match is TextMatch.EXACT:
        return SqlCondition(*keyed(number, control.text), is_quick=True, is_ordered=True)
    if control.match is TextMatch.SUBSTRING:
        scanned = Sql("instr(fold, ?)", (folded,))
        return _on_card(CardTest(number, folded, are_words=False), [folded], scanned, distinct, rarity)
    words = list(dict.fromkeys(folded.split()))
    scanned = Sql(" AND ".join(["instr(' ' || fold || ' ', ?)"] * len(words)), tuple(f" {word} " for word in words))
    return _on_card(CardTest(number, folded, are_words=True), words, scanned, distinct, rarity)


def _on_card(card_test: CardTest, texts: list[str], scanned: Sql, distinct: str, rarity: Rarity) -> SqlCondition:
    number = card_test.number
    cut, test = passing([card_test], "e"), passing([card_test], "c")
    scans = Sql(
        f"SELECT {distinct} row, partition FROM entries e WHERE number = ? AND partition IN {{partitions}} AND fold > 0"
        f" AND CASE WHEN substr(fold, -1) = '{SEPARATOR}' THEN {cut.text} ELSE {scanned.text} END",
        (number, *cut.parameters, *scanned.parameters),
    )
    asked = query_for(texts, column_of(number), rarity)
    if not asked:
        return SqlCondition(scans, test, is_scan=True, card_test=card_test)
    match = f"{FIELDS[column_of(number)]} : ({asked})"
    narrows = Sql("SELECT rowid AS text FROM fields WHERE fields MATCH ?", (match,))
    return SqlCondition(scans, test, Narrowing(narrows, _WORTH_IN_FIELD), card_test=card_test)


def _anywhere(folded: str, controls: NumberedControls, rarity: Rarity) -> SqlCondition:
    used = sorted({column_of(number) for number in controls.numbers.values()})
    in_fields = " OR ".join(f"instr(f.c{column}, ?)" for column in used) or "0"
    texts = (folded,) * (len(used) + 1)
    test = Sql(
        "EXISTS (SELECT 1 FROM documents d JOIN free_text_content r ON r.id = d.text"
        " JOIN fields_content f ON f.id = d.text"
        f" WHERE d.row = c.row AND (instr(r.c0, ?) OR {in_fields}))",
        texts,
    )
    scans = Sql(
        "SELECT d.row, d.partition FROM free_text_content r CROSS JOIN fields_content f ON f.id = r.id"
        " CROSS JOIN texts t ON t.text = r.id CROSS JOIN documents d {indexed}"
        f" ON d.partition IN {{partitions}} AND d.row = t.row WHERE instr(r.c0, ?) OR {in_fields}",
        texts,
    )
    scanned = Sql(
        "SELECT r.id AS text FROM free_text_content r WHERE instr(r.c0, ?)"
        f" OR EXISTS (SELECT 1 FROM fields_content f WHERE f.id = r.id AND ({in_fields}))",
        texts,
    )
    asked = query_for([folded], None, rarity)
    if not asked:
        return SqlCondition(scans, test, is_scan=True, texts=scanned)
    either = Sql(
        "SELECT rowid AS text FROM free_text WHERE free_text MATCH ?"
        " UNION SELECT rowid FROM fields WHERE fields MATCH ?",
        (asked, asked),
    )
    if len(folded) == TRIGRAM:  # where the index says that it is there, it is
        return SqlCondition(among(either), test, texts=either)
    return SqlCondition(scans, test, Narrowing(either, _WORTH_ANYWHERE), texts=scanned)


def among(texts: Sql) -> Sql:
    """Return the SQL for the documents of some texts on the partitions that are searched."""
    return Sql(
        f"SELECT d.row, d.partition FROM ({texts.text}) n CROSS JOIN texts t USING (text)"
        " CROSS JOIN documents d {indexed} ON d.partition IN {partitions} AND d.row = t.row",
        texts.parameters,
    )


def tested(found: Iterable[SqlCondition]) -> Sql:
    """Return an expression that is true of ``c`` where it meets all of the conditions; the quick ones come first.

    The card is tested once for all conditions on it: there may be hundreds.
    """
    found = tuple(found)
    on_card = [each.card_test for each in found if each.card_test is not None]
    tests = [each.test for each in found if each.is_quick]
    tests += [passing(on_card, "c")] if on_card else []
    tests += [each.test for each in found if not each.is_quick and each.card_test is None]
    return joined(" AND ", tests) if tests else Sql("1")
