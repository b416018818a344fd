"""The conditions of a search in SQL.

A condition *leads* to the documents that meet it, and *tells* of one document whether it does. One of the conditions of
a search leads, and the others tell: which one, ``finding`` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from persistence.index import trigrams
from persistence.index.parts import Part, told
from persistence.index.records import FACTS, SEPARATOR, column_of, first_row
from persistence.index.sampling import Rarity
from persistence.index.schema import FIELDS
from persistence.index.seeing import keyed, seen
from persistence.index.shelves import Controls, Shelf
from persistence.index.sql import Arms, Sql, parameters_of
from persistence.model.instants import Instant
from persistence.model.search import Comparison, ControlFilter, Drafts, Field, FieldFilter, Query, Scope, TextMatch

_WORTH_IN_FIELD, _WORTH_ANYWHERE = 0.03, 0.25

_BEFORE_ALL = Instant("0001-01-01T00:00:00.000Z")
_AFTER_ALL = Instant("9999-12-31T23:59:59.999Z")


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What selects the texts of some documents among which are all that meet a condition.

    Above the share ``worth`` of all documents, looking at everything is quicker than looking at each of these.
    """

    narrows: Sql
    worth: float


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition.

    ``leads`` selects ``row`` and ``shelf`` of the documents that meet it, none twice, and ``is_scan`` says that it
    looks at everything for that; ``tells`` is an expression that is true of ``c``, a row and its shelf, where the
    document meets it, and ``is_quick`` where that needs no look at the document. With ``is_ordered``, ``leads`` goes by
    row in a shelf, and can be counted quickly. ``part`` is what it asks of the document's card, if that is all.
    """

    leads: Sql | Arms
    tells: Sql
    narrowing: Narrowing | None = None
    is_scan: bool = False
    is_quick: bool = False
    is_ordered: bool = False
    part: Part | None = None


def conditions(
    scope: Scope, query: Query, controls: Controls, rarity: Rarity, searched: Sequence[Shelf]
) -> list[Condition] | None:
    """The conditions of a search of some shelves; ``None`` where no document can meet them.

    It may ask for a control that is not indexed.
    """
    found: list[Condition] = []
    seeing = seen(searched, is_by_saved=scope.seen.is_by_saved)
    if seeing is not None:
        found.append(
            Condition(seeing.leads, seeing.tells, is_scan=seeing.is_scan, is_quick=True, is_ordered=seeing.is_ordered)
        )
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


def _keyed(number: int, text: str) -> Condition:
    """A control or a fact has exactly this value."""
    leads, tells = keyed(number, text)
    return Condition(leads, tells, is_quick=True, is_ordered=True)


def _draft_of(document: str) -> Condition:
    return Condition(
        Sql("SELECT row, shelf FROM documents WHERE document = ? AND draft AND shelf IN {shelves}", (document,)),
        Sql("EXISTS (SELECT 1 FROM documents d WHERE d.document = ? AND d.draft AND d.row = c.row)", (document,)),
        is_quick=True,
    )


def _never_saved() -> Condition:
    saved = "EXISTS (SELECT 1 FROM documents s WHERE s.document = {of}.document AND NOT s.draft)"
    return Condition(
        Sql(f"SELECT row, shelf FROM documents d WHERE shelf IN {{shelves}} AND NOT {saved.format(of='d')}"),
        Sql(f"EXISTS (SELECT 1 FROM documents d WHERE d.row = c.row AND NOT {saved.format(of='d')})"),
        is_scan=True,
    )


def _fields(filters: Iterable[FieldFilter]) -> list[Condition]:
    """The conditions on facts; those on one time are one, so that they lead to what lies between them."""
    found = []
    limits: dict[Field, list[FieldFilter]] = {}
    for each in dict.fromkeys(filters):
        if each.comparison is Comparison.EXACT:
            found.append(_keyed(FACTS[each.field], each.value))
        else:
            limits.setdefault(each.field, []).append(each)
    for field, bounds in limits.items():
        low = max((each.value for each in bounds if each.comparison is Comparison.GTE), default=_BEFORE_ALL)
        high = min((each.value for each in bounds if each.comparison is Comparison.LT), default=_AFTER_ALL)
        found.append(_saved(low, high) if field is Field.LAST_MODIFIED else _between(FACTS[field], low, high))
    return found


def _between(number: int, low: str, high: str) -> Condition:
    """A time among the facts is not before the first and before the second."""
    return Condition(
        Sql(
            "SELECT row, shelf FROM entries WHERE number = ? AND shelf IN {shelves} AND fold >= ? AND fold < ?",
            (number, low, high),
        ),
        Sql("EXISTS (SELECT 1 FROM documents d WHERE d.row = c.row AND d.created >= ? AND d.created < ?)", (low, high)),
    )


def _saved(low: str, high: str) -> Condition:
    """The last save is not before the first time and before the second."""
    bounds = first_row(Instant(low)), first_row(Instant(high))
    return Condition(
        Sql("SELECT row, shelf FROM documents WHERE shelf IN {shelves} AND row >= ? AND row < ?", bounds),
        Sql("(c.row >= ? AND c.row < ?)", bounds),
        is_quick=True,
        is_ordered=True,
    )


def _matching(number: int, control: ControlFilter, distinct: str, rarity: Rarity) -> Condition:
    folded = control.text.casefold()
    if control.match is TextMatch.EXACT:
        return _keyed(number, control.text)
    if control.match is TextMatch.SUBSTRING:
        scanned = Sql("instr(fold, ?)", (folded,))
        return _part(Part(number, folded, are_words=False), [folded], scanned, distinct, rarity)
    words = list(dict.fromkeys(folded.split()))
    scanned = Sql(" AND ".join(["instr(' ' || fold || ' ', ?)"] * len(words)), tuple(f" {word} " for word in words))
    return _part(Part(number, folded, are_words=True), words, scanned, distinct, rarity)


def _part(part: Part, texts: list[str], scanned: Sql, distinct: str, rarity: Rarity) -> Condition:
    """One value has all the ``texts`` in it; ``scanned`` is true of a fold that has and is not cut."""
    number = part.number
    cut, tells = told([part], "e"), told([part], "c")
    scans = Sql(
        f"SELECT {distinct} row, shelf FROM entries e WHERE number = ? AND shelf IN {{shelves}} AND fold > 0 AND CASE"
        f" WHEN substr(fold, -1) = '{SEPARATOR}' THEN {cut.text} ELSE {scanned.text} END",
        (number, *cut.parameters, *scanned.parameters),
    )
    asked = trigrams.asked_for(texts, column_of(number), rarity)
    if not asked:
        return Condition(scans, tells, is_scan=True, part=part)
    match = f"{FIELDS[column_of(number)]} : ({asked})"
    narrows = Sql("SELECT rowid AS text FROM fields WHERE fields MATCH ?", (match,))
    return Condition(scans, tells, Narrowing(narrows, _WORTH_IN_FIELD), part=part)


def _anywhere(folded: str, controls: Controls, rarity: Rarity) -> Condition:
    """A text node of the document has the text in it."""
    used = sorted({column_of(number) for number in controls.numbers.values()})
    in_fields = " OR ".join(f"instr(f.c{column}, ?)" for column in used) or "0"
    texts = (folded,) * (len(used) + 1)
    tells = Sql(
        "EXISTS (SELECT 1 FROM documents d JOIN rests_content r ON r.id = d.text JOIN fields_content f ON f.id = d.text"
        f" WHERE d.row = c.row AND (instr(r.c0, ?) OR {in_fields}))",
        texts,
    )
    scans = Sql(
        "SELECT d.row, d.shelf FROM rests_content r CROSS JOIN fields_content f ON f.id = r.id"
        " CROSS JOIN texts t ON t.text = r.id CROSS JOIN documents d {indexed}"
        f" ON d.shelf IN {{shelves}} AND d.row = t.row WHERE instr(r.c0, ?) OR {in_fields}",
        texts,
    )
    asked = trigrams.asked_for([folded], None, rarity)
    if not asked:
        return Condition(scans, tells, is_scan=True)
    either = Sql(
        "SELECT rowid AS text FROM rests WHERE rests MATCH ? UNION SELECT rowid FROM fields WHERE fields MATCH ?",
        (asked, asked),
    )
    if len(folded) == trigrams.TRIGRAM:  # where the index says that it is there, it is
        return Condition(among(either), tells)
    return Condition(scans, tells, Narrowing(either, _WORTH_ANYWHERE))


def among(texts: Sql) -> Sql:
    """The documents of some texts that are on the shelves that are searched."""
    return Sql(
        f"SELECT d.row, d.shelf FROM ({texts.text}) n CROSS JOIN texts t USING (text)"
        " CROSS JOIN documents d {indexed} ON d.shelf IN {shelves} AND d.row = t.row",
        texts.parameters,
    )


def tested(found: Iterable[Condition]) -> Sql:
    """An expression that is true of ``c`` where it meets all of the conditions; those that are quick to tell first.

    What is asked of the card is asked at once: there may be hundreds of such conditions.
    """
    found = tuple(found)
    parts = [each.part for each in found if each.part is not None]
    tells = [each.tells for each in found if each.is_quick]
    tells += [told(parts, "c")] if parts else []
    tells += [each.tells for each in found if not each.is_quick and each.part is None]
    return Sql(" AND ".join(each.text for each in tells) or "1", parameters_of(tells))
