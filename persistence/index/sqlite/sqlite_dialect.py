"""The SQL of searches in an index file, and its texts: an index of trigrams (FTS5) and an SQL function over cards.

The trigrams of a text say only that it may be there, so the card or the text is tested, too.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import msgspec

from persistence.index.protocol import NOTHING, SEPARATOR, Budget, Fact, decode, key_of, order_of
from persistence.index.search_compiler import Condition, Key, Order, Partition, SearchDialect, Sql, joined
from persistence.index.sqlite.tables import COLUMNS, FIELDS, column_of, first_seq
from persistence.limits import FEW_FOUND, MOST_GATHERED, QUERIES_KEPT
from persistence.model.queries import ControlFilter, TextMatch
from persistence.model.texts import Instant, KeyRange

TRIGRAM = 3
_MOST_TRIGRAMS = 5
"""Trigrams of a text that are looked for, the rarest ones: each further one is a long list to be read for little."""

_LONGEST = 100  # Characters of a text of which trigrams are looked for

_SAMPLED = 64
_LONGEST_SAMPLE = 4_000
"""Characters that are kept of a document, of each of its texts as many: every connection keeps a sample."""

_WORTH_IN_FIELD, _WORTH_ANYWHERE = 0.03, 0.25
"""The shares of all documents above which looking at everything is quicker than at those that have the trigrams."""

_FEW_PARTITIONS = 4
"""Partitions on each of which a document is looked for: their index is small, the documents themselves are large."""

_FEW_ORGANIZATIONS = 8  # Organizations for each of which an entry is looked for; of more, the card is read

_MANY = 200_000  # Up to which the documents of conditions are counted of which none is narrow

_PASSING, _SORTING, _WALK = 1, 10, 500
"""The costs of a document that a walk passes by, of one that is sorted, and of the walk along another partition."""

_FIELDS = ", ".join(f"f.c{number}" for number in range(COLUMNS))
_AT = (
    f"SELECT r.c0, {_FIELDS} FROM free_text_content r JOIN fields_content f ON f.id = r.id WHERE r.id >= ?"
    " ORDER BY r.id LIMIT 1"
)
_NEXT = (
    "SELECT n.fold, n.value, n.seq FROM entry n WHERE n.control = ?1 AND n.partition = l.partition"
    f" AND (n.fold, n.value, n.seq) > (l.fold, l.value, {(1 << 63) - 1}) ORDER BY n.fold, n.value, n.seq LIMIT 1"
)
_LEAPS = (
    "WITH RECURSIVE leaps (partition, fold, value) AS (SELECT value, -1, -1 FROM json_each(?2) UNION ALL"
    " SELECT e.partition, e.fold, e.value FROM leaps l CROSS JOIN entry e ON e.control = ?1"
    f" AND e.partition = l.partition AND (e.fold, e.value, e.seq) = ({_NEXT}))"
    " SELECT fold, value FROM leaps WHERE fold <> -1 LIMIT ?3"
)
_IN_FREE_TEXT = "SELECT rowid AS text FROM free_text WHERE free_text MATCH ?"
_IN_FIELDS = "SELECT rowid AS text FROM fields WHERE fields MATCH ?"
_CARD = "(SELECT card FROM document x WHERE x.seq = d.seq)"
_ONE_OF = "(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))"
_ON_CARD = f"EXISTS (SELECT 1 FROM json_each({_CARD}, ?) o WHERE o.value IN (SELECT value FROM json_each(?)))"
_ON_CARD_WITHIN = f"EXISTS (SELECT 1 FROM json_each({_CARD}, ?) o WHERE o.value >= ? AND o.value < ?)"
"""The paths lead to the fields of ``Card``, and of its ``reader``."""

Rarity = Callable[[str, int | None], int]
"""Estimates how often a trigram occurs in a column of fields, or in any text: only which is rarer matters."""


@dataclass(frozen=True, slots=True)
class CardTest:
    """One value of a control has the folded ``text`` in it, or all of its words if they ``are_words``."""

    number: int
    text: str
    are_words: bool


@dataclass(frozen=True, slots=True)
class OnCard(Condition):
    """A condition that is tested on the card of a document, at the same time as others."""

    is_range: bool = False
    is_quick: bool = False
    card_test: CardTest | None = None


class SqliteDialect(SearchDialect):
    """The SQL of a search of an index file. Methods raise ``sqlite3.Error``."""

    found = "seq, partition"
    listed = "seq"
    entered = "entry d"
    same_form = ""
    nothing = str(NOTHING)
    key = staticmethod(key_of)
    hit = "document, draft, fingerprint, card"

    def __init__(
        self, connection: sqlite3.Connection, rarity: Rarity, searched: Sequence[Partition], budget: Budget | None
    ) -> None:
        super().__init__(searched)
        self._connection = connection
        self._rarity = rarity
        self._budget = budget

    def rows(self, sql: Sql) -> sqlite3.Cursor:
        return self._connection.execute(sql.text, sql.values)

    def is_d(self, on: str) -> str:
        # A list of hundreds of partitions would be repeated for each of them.
        is_d = "partition = d.partition AND seq = d.seq"
        return is_d if on == self.on else f"{is_d} AND {on}"

    def has_fold(self, folds: Sequence[str]) -> Sql:
        return Sql("fold = ?" if len(folds) == 1 else f"fold IN ({', '.join('?' * len(folds))})", tuple(folds))

    def leaps(self, number: int, most: int) -> list[Key] | None:
        partitions = json.dumps([each.number for each in self.searched])
        found = self._connection.execute(_LEAPS, (number, partitions, most + 1)).fetchall()
        return found if len(found) <= most else None

    def saved(self, low: Instant, high: Instant) -> Condition:
        bounds = first_seq(low), first_seq(high)
        selects = self.selected("document", Sql("seq >= ? AND seq < ?", bounds), is_distinct=True)
        return replace(selects, test=Sql("(d.seq >= ? AND d.seq < ?)", bounds))

    def created(self, low: Instant, high: Instant) -> Condition:
        selects = super().created(low, high)
        test = "EXISTS (SELECT 1 FROM document x WHERE x.seq = d.seq AND x.created >= ? AND x.created < ?)"
        return replace(selects, test=Sql(test, (low, high)), is_quick=False)

    def within(self, number: int, span: KeyRange) -> Condition:
        on_card = Sql(_ON_CARD_WITHIN, (f'$[8]."{number}"', *span))
        return replace(super().within(number, span), test=on_card, is_quick=False)

    def lowest_from(self, number: int, low: str) -> Sql:
        card = "(SELECT card FROM document x WHERE x.seq = entry.seq)"
        lowest = f"(SELECT min(o.value) FROM json_each({card}, ?) o WHERE o.value >= ?)"
        return Sql(f"(fold = {lowest})", (f'$[8]."{number}"', low))

    def in_organization(self, fact: Fact, names: Sequence[str], on: str) -> Condition:
        keys = json.dumps([key_of(name) for name in names])
        found = self.entries(fact, Sql(f"(fold, value) IN {_ONE_OF}", (keys,)), on)
        if len(names) <= _FEW_ORGANIZATIONS:
            return found
        place = "$[5]" if fact == Fact.ORGANIZATION else "$[9][2]"
        return replace(found, test=Sql(f"d.{on} AND {_ON_CARD}", (place, json.dumps(names))))

    def containing(self, number: int, asked: ControlFilter, folds: Sequence[str] | None) -> Condition:
        folded, are_words = asked.text.casefold(), asked.match is not TextMatch.SUBSTRING
        card_test = CardTest(number, folded, are_words)
        test = passing([card_test], _CARD)
        if folds is not None:
            selects = self.entries(number, self.has_fold(folds)).selects
            return OnCard(selects, test, is_range=True, card_test=card_test)
        texts = list(dict.fromkeys(folded.split())) if are_words else [folded]
        trigrams = query_for(texts, column_of(number), self._rarity)
        match = Sql(_IN_FIELDS, (f"{FIELDS[column_of(number)]} : ({trigrams})",))
        reach = self._reach(match, _WORTH_IN_FIELD) if trigrams else None
        if reach is not None:
            selects = self._of_texts(match)
            return OnCard(selects, test, is_distinct=True, is_exact=False, reach=reach, card_test=card_test)
        cut = passing([card_test], "(SELECT card FROM document x WHERE x.seq = entry.seq)")
        has_all = " AND ".join(["instr(' ' || fold || ' ', ?)"] * len(texts)) if are_words else "instr(fold, ?)"
        case = f"fold > 0 AND CASE WHEN substr(fold, -1) = '{SEPARATOR}' THEN {cut.text} ELSE {has_all or '1'} END"
        scanned = tuple(f" {text} " if are_words else text for text in texts)
        return OnCard(self.entries(number, Sql(case, (*cut.values, *scanned))).selects, test, card_test=card_test)

    def anywhere(self, folded: str, controls: Sequence[int]) -> Condition:
        columns = sorted({column_of(number) for number in controls})
        in_fields = " OR ".join(f"instr(f.c{column}, ?)" for column in columns) or "0"
        has_text = Sql(
            f"(instr(r.c0, ?) OR EXISTS (SELECT 1 FROM fields_content f WHERE f.id = r.id AND ({in_fields})))",
            (folded,) * (len(columns) + 1),
        )
        own = "SELECT 1 FROM document x JOIN free_text_content r ON r.id = x.text WHERE x.seq = d.seq"
        test = Sql(f"EXISTS ({own} AND {has_text.text})", has_text.values)
        trigrams = query_for([folded], None, self._rarity)
        either = Sql(f"{_IN_FREE_TEXT} UNION ALL {_IN_FIELDS}", (trigrams, trigrams))
        reach = self._reach(either, _WORTH_ANYWHERE) if trigrams else None
        counts = None
        if len(folded) == TRIGRAM:  # where the index says that such a text is there, it is
            texts = Sql(f"{_IN_FREE_TEXT} UNION {_IN_FIELDS}", either.values)
            ((documents,),) = self._connection.execute("SELECT sum(documents) FROM partition")
            if self.documents == int(documents):  # each text is one of a document that counts
                counts = texts
        else:
            among = Sql("true") if reach is None else Sql(f"r.id IN ({either.text})", either.values)
            where = joined(" AND ", [among, has_text])
            texts = Sql(f"SELECT r.id AS text FROM free_text_content r WHERE {where.text}", where.values)
        return Condition(
            self._of_texts(texts), test, is_distinct=True, is_range=False, is_quick=False, reach=reach, counts=counts
        )

    def _of_texts(self, texts: Sql) -> Sql:
        is_few = len(self.searched) <= _FEW_PARTITIONS
        indexed = "INDEXED BY document_by_partition" if is_few else "NOT INDEXED"
        return Sql(
            f"SELECT x.seq, x.partition FROM ({texts.text}) n CROSS JOIN texts t USING (text)"
            f" CROSS JOIN document x {indexed} ON x.{self.on} AND x.seq = t.seq",
            texts.values,
        )

    def _reach(self, texts: Sql, share: float) -> int | None:
        """Return how many texts there are at most; ``None`` above a share of all documents."""
        most = max(FEW_FOUND, int(self.documents * share))
        ((reached,),) = self._connection.execute(f"SELECT count(*) FROM ({texts.text} LIMIT {most})", texts.values)
        return int(reached) if reached < most else None

    def narrowest(self, conditions: Sequence[Condition]) -> Condition:
        ranges = [each for each in conditions if each.is_range or each.reach is not None]
        reached = self.reached(ranges, _MANY) if len(ranges) > 1 else ()
        return ranges[reached.index(min(reached))] if reached else (ranges or conditions)[0]

    def tested(self, conditions: Iterable[Condition]) -> Sql:
        """Return the tests of conditions; a card is tested once for all conditions on it: there may be hundreds."""
        conditions = tuple(conditions)
        on_card = [each.card_test for each in conditions if isinstance(each, OnCard) and each.card_test is not None]
        others = [each for each in conditions if not isinstance(each, OnCard)]
        tests = [each.test for each in others if each.is_quick]
        tests += [passing(on_card, _CARD)] if on_card else []
        tests += [each.test for each in others if not each.is_quick]
        return joined(" AND ", tests)

    def page(self, hits: Sql, order: Order, counted: int) -> tuple[int, list[int] | None]:
        is_near = order.control is None and order.end <= MOST_GATHERED
        if counted > MOST_GATHERED:
            page = f"ORDER BY {self.ordered(order)} LIMIT {order.end - order.offset} OFFSET {order.offset}"
            rows = self.rows(Sql(f"SELECT seq FROM ({hits.text}) {page}", hits.values)) if is_near else ()
            return counted, [row[0] for row in rows] if is_near else None
        cursor = self.rows(hits)
        found = [row[0] for row in cursor.fetchmany(MOST_GATHERED + 1)]
        if len(found) <= MOST_GATHERED:
            if order.control is None:
                return len(found), sorted(found, reverse=order.is_descending)[order.offset : order.end]
            return len(found), self._sorted(found, order, order.control)
        total, kept = 0, list[int]()
        while found:
            total += len(found)
            kept = sorted(kept + found, reverse=order.is_descending)[: order.end] if is_near else kept
            found = [row[0] for row in cursor.fetchmany(MOST_GATHERED)]
        return total, kept[order.offset :] if is_near else None

    def _sorted(self, found: list[int], order: Order, control: int) -> list[int] | None:
        if order.offset >= len(found):
            return []
        passed = order.end / len(found) * self.documents
        if not order.is_ranged and passed * _PASSING + len(self.searched) * _WALK < len(found) * _SORTING:
            return None
        asked = "SELECT x.seq, x.card FROM json_each(?) j CROSS JOIN document x ON x.seq = j.value"
        keys, edge = {}, max if order.is_descending else min
        for row, card in self._connection.execute(asked, (json.dumps(found),)):
            if self._budget is not None:
                self._budget.check()
            values = decode(card).of(control)
            keys[row] = edge(order_of(key_of(value)) for value in values) if values else order_of((NOTHING, NOTHING))
        found.sort(reverse=True)
        found.sort(key=keys.__getitem__, reverse=order.is_descending)
        return found[order.offset : order.end]


def query_for(parts: Iterable[str], column: int | None, rarity: Rarity) -> str:
    """Return the query for the rarest trigrams of some texts, the rarest first."""
    # It is empty where all texts are too short to have one.
    found = dict.fromkeys(
        part[at : at + TRIGRAM] for part in parts for at in range(min(len(part), _LONGEST) - TRIGRAM + 1)
    )
    if len(found) > 1:
        found = dict.fromkeys(sorted(found, key=lambda each: rarity(each, column))[:_MOST_TRIGRAMS])
    return " AND ".join(quoted(each) for each in found)


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


class Sample:
    """The texts of documents from evenly spread places, read when they are first needed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._texts: list[tuple[str, ...]] | None = None

    def rarity(self, trigram: str, column: int | None) -> int:
        if self._texts is None:
            read = list[tuple[str, ...]]()
            first, last = self._connection.execute("SELECT min(text), max(text) FROM texts").fetchone()
            for at in range(_SAMPLED if first is not None else 0):
                found = self._connection.execute(_AT, (first + (last - first) * at // _SAMPLED,)).fetchone()
                if found is not None:
                    each = _LONGEST_SAMPLE // max(1, sum(map(bool, found)))
                    read.append(tuple((text or "")[:each] for text in found))
            self._texts = read
        if column is not None:
            return sum(trigram in texts[column + 1] for texts in self._texts)
        return sum(any(trigram in text for text in texts) for texts in self._texts)


def install(connection: sqlite3.Connection, check: Callable[[], None]) -> None:
    """Give a connection the function that statements use; ``check`` raises when the time is used up."""

    def has_parts(card: str, asked: str) -> bool:
        check()
        anywhere, of_controls = _parsed(asked)
        folded = card.casefold()
        if not all(text in folded for text in anywhere):
            return False
        found = decode(card)
        for number, texts, words in of_controls:
            values = [value.casefold() for value in found.of(number)]
            if not all(any(text in value for value in values) for text in texts):
                return False
            if words:
                spaced = [f" {value} " for value in values]
                if not all(any(all(word in value for word in wanted) for value in spaced) for wanted in words):
                    return False
        return True

    connection.create_function("has_parts", 2, has_parts, deterministic=True)


def passing(tests: Iterable[CardTest], card: str) -> Sql:
    asked = json.dumps([(each.number, each.text, each.are_words) for each in tests], ensure_ascii=False)
    return Sql(f"has_parts({card}, ?)", (asked,))


@lru_cache(QUERIES_KEPT)
def _parsed(asked: str) -> tuple[list[str], list[tuple[int, list[str], list[list[str]]]]]:
    # A card that passes has all of the first texts anywhere in it, folded as its JSON is. Of each control, there are
    # the number, and the texts and words, each between spaces, that its values must have.
    found: dict[int, tuple[list[str], list[list[str]]]] = {}
    anywhere: dict[str, None] = {}
    for number, text, are_words in json.loads(asked):
        texts, words = found.setdefault(number, ([], []))
        wanted = text.split() if are_words else [text]
        if are_words:
            words.append([f" {word} " for word in wanted])
        else:
            texts.append(text)
        anywhere |= dict.fromkeys(msgspec.json.encode(each).decode()[1:-1].casefold() for each in wanted)
    return list(anywhere), [(number, texts, words) for number, (texts, words) in found.items()]
