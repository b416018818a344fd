"""The conditions of a search in SQL.

A condition can *select* the documents that meet it, or *test* one document. In a search one condition selects, and the
others test the documents that it leads to. The planner decides which one selects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from persistence.index.cards import FACTS, SEPARATOR
from persistence.index.queries import time_ranges
from persistence.index.sqlite.partitions import (
    CardTest,
    Narrowing,
    NumberedControls,
    Partition,
    Sql,
    SqlCondition,
    joined,
    keyed,
    visible,
)
from persistence.index.sqlite.records import column_of, first_row
from persistence.index.sqlite.state import FIELDS
from persistence.index.sqlite.texts import TRIGRAM, Rarity, passing, query_for
from persistence.model.instants import Instant
from persistence.model.search import Comparison, ControlFilter, Drafts, Field, FieldFilter, Query, Scope, TextMatch

_WORTH_IN_FIELD, _WORTH_ANYWHERE = 0.03, 0.25


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
        found.append(_matching(number, control, "DISTINCT" if number in controls.several else "", rarity))
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
        "EXISTS (SELECT 1 FROM documents d JOIN rests_content r ON r.id = d.text JOIN fields_content f ON f.id = d.text"
        f" WHERE d.row = c.row AND (instr(r.c0, ?) OR {in_fields}))",
        texts,
    )
    scans = Sql(
        "SELECT d.row, d.partition FROM rests_content r CROSS JOIN fields_content f ON f.id = r.id"
        " CROSS JOIN texts t ON t.text = r.id CROSS JOIN documents d {indexed}"
        f" ON d.partition IN {{partitions}} AND d.row = t.row WHERE instr(r.c0, ?) OR {in_fields}",
        texts,
    )
    scanned = Sql(
        "SELECT r.id AS text FROM rests_content r WHERE instr(r.c0, ?)"
        f" OR EXISTS (SELECT 1 FROM fields_content f WHERE f.id = r.id AND ({in_fields}))",
        texts,
    )
    asked = query_for([folded], None, rarity)
    if not asked:
        return SqlCondition(scans, test, is_scan=True, texts=scanned)
    either = Sql(
        "SELECT rowid AS text FROM rests WHERE rests MATCH ? UNION SELECT rowid FROM fields WHERE fields MATCH ?",
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
