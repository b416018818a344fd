"""Searches and distinct values of an index: one compiler for the tables of both engines.

A *condition* is a query for the documents that meet it, and a test of one document ``d``. The one that the fewest
documents meet selects, and the others are tested. The engines have tables of the same names; a ``SearchDialect``
says where the SQL of an engine differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from persistence import limits
from persistence.errors import BadRequestError
from persistence.index.protocol import (
    AS_FOLDED,
    BOTH,
    FACTS,
    OF_DRAFTS,
    OWNER_FACTS,
    Budget,
    Edge,
    Fact,
    Fold,
    OwnerFacts,
    Value,
    VersionState,
    decode,
    is_cut,
    token_number,
    typed_number,
)
from persistence.index.sources import DefinitionState, IndexedPage
from persistence.model.permissions import NOBODY, OwnerPattern, OwnerSets, User
from persistence.model.queries import (
    Comparison,
    ControlFilter,
    Drafts,
    Field,
    FieldFilter,
    Hit,
    Hits,
    Query,
    Scope,
    TextMatch,
    range_of,
)
from persistence.model.texts import Instant, KeyRange, OrderedType

MOST_ROWS = limits.LARGEST_FOUND // limits.HIT_COSTS + 1
"""Documents of a page that are looked for: so many are too large an answer already."""

_MOST_VALUES = limits.LARGEST_FOUND // limits.VALUE_COSTS + 1
"""Distinct values that are looked for: so many are too large an answer already."""

_LAST = 1 << 62
_BEFORE_ALL, _AFTER_ALL = "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"

_SAMPLED, _OTHER_KEYS = 1_000, 0.1
"""Keys of a range that are looked at, and the share of keys beside others of a document: above it, a sort is quicker
than a look at each of these documents."""

_AT_ONCE = 32  # Documents of a page whose cards are in memory at once

_MOST_ARMS = 400  # Queries that one UNION ALL has; SQLite allows 500

Key = tuple[Fold, Value]


class Sql(NamedTuple):
    """A piece of SQL with its values, one for each ``?``."""

    text: str
    values: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a search."""

    selects: Sql  # with the columns ``found`` of the documents that meet it
    test: Sql  # an expression that is true of ``d`` where it meets the condition
    is_distinct: bool = False  # selects each once
    is_exact: bool = True  # else it selects others, too, and all are tested
    is_range: bool = True  # selects ranges of an index, which are quickly counted up to a limit
    is_quick: bool = True  # the test reads no text
    reach: int | None = None  # documents that meet it, or more, where that is known already
    counts: Sql | None = None  # a row for each document; counted more quickly than ``selects``


@dataclass(frozen=True, slots=True)
class Partition:
    """The saved documents of a version, or its drafts."""

    number: int
    documents: int
    controls: Mapping[str, int]  # the indexed ones of the version, by path
    is_draft: bool = False
    owner_sets: OwnerSets = frozenset()  # those whose documents are seen
    types: Mapping[int, OrderedType] = field(default_factory=dict)  # of controls that have one


_DRAFTS = {Drafts.INCLUDE: (False, True), Drafts.EXCLUDE: (False,), Drafts.ONLY: (True,)}


def searched_partitions(
    rows: Iterable[Sequence[Any]], scope: Scope
) -> tuple[list[Partition], dict[int, VersionState], int]:
    """Return the partitions that a search looks at, the states of their versions, and how many documents are outdated.

    A row has number, version, whether it is of drafts, generation and number of documents, and the ``VersionState``.
    """
    searched, indexed, outdated = list[Partition](), dict[int, VersionState](), 0
    for number, version, is_draft, generation, documents, *row in rows:
        is_within = scope.versions is None or version in scope.versions
        if not is_within or is_draft not in _DRAFTS[scope.drafts.kind]:
            continue
        owner_sets = scope.seen.of_version(version)
        if NOBODY in owner_sets:
            continue
        state = indexed[version] = VersionState.of_row(row)
        if documents and (generation == state.generation or state.state is not DefinitionState.DELETED):  # else hidden
            outdated += 0 if generation == state.generation else documents
            controls = state.controls
            searched.append(Partition(number, documents, controls.numbers, bool(is_draft), owner_sets, controls.types))
    return searched, indexed, outdated


class Order(NamedTuple):
    """The order and page that a query asks for. ``control`` is ``None`` for the order by last save."""

    control: int | None
    is_descending: bool
    offset: int
    end: int
    is_ranged: bool = False  # a condition is a range of what it sorts by: hits are next to each other

    @property
    def direction(self) -> str:
        return "DESC" if self.is_descending else "ASC"

    @property
    def edge(self) -> int:
        return int(Edge.HIGHEST if self.is_descending else Edge.LOWEST)


def joined(separator: str, parts: Iterable[Sql]) -> Sql:
    parts = tuple(parts)
    return Sql(separator.join(part.text for part in parts), tuple(value for part in parts for value in part.values))


def all_of(conditions: Sequence[Condition], tests: Sql | None = None) -> Condition:
    """Return the condition that all of some are met, of which the first selects; ``tests`` are those of the others."""
    first, *others = conditions
    if not others:
        return first
    tested = tests or joined(" AND ", [each.test for each in others])
    selects = Sql(f"SELECT * FROM ({first.selects.text}) d WHERE {tested.text}", first.selects.values + tested.values)
    test = joined(" AND ", [first.test, tested])
    return replace(first, selects=selects, test=test, counts=None)


def any_of(conditions: Sequence[Condition]) -> Condition:
    if len(conditions) == 1:
        return conditions[0]
    either = joined(" OR ", [each.test for each in conditions])
    return Condition(
        joined(" UNION ALL ", [each.selects for each in conditions]),
        Sql(f"({either.text})", either.values),
        is_exact=all(each.is_exact for each in conditions),
        is_range=all(each.is_range for each in conditions),
        is_quick=all(each.is_quick for each in conditions),
    )


class SearchDialect(ABC):
    """The SQL of an engine for a search of some partitions, in one transaction."""

    found: ClassVar[str]  # The columns of a document that meets a condition
    listed: ClassVar[str]  # The columns of a document on a list, in the order in which a list by last save is sorted
    entered: ClassVar[str]  # The table of entries ``d`` with the columns ``listed``
    same_form: ClassVar[str]  # The beginning of a condition: the documents ``s`` and ``x`` are of one form
    nothing: ClassVar[str]  # The fold, and the value, of a control without a value
    hit: ClassVar[str]  # The columns of a hit: its name, whether it is a draft, its fingerprint and its card

    def __init__(self, searched: Sequence[Partition]) -> None:
        self.searched = searched
        self.documents = sum(each.documents for each in searched)
        self.on = on(each.number for each in searched)

    @abstractmethod
    def rows(self, sql: Sql) -> Iterable[tuple[Any, ...]]:
        """Run a statement; its rows are read before the next one is run, or with it."""

    @abstractmethod
    def is_d(self, on: str) -> str:
        """Return the condition that a row is of the document ``d``, which is on some of the partitions."""

    @abstractmethod
    def key(self, text: str) -> Key:
        """Return the key of a value as the engine has it."""

    @abstractmethod
    def has_fold(self, folds: Sequence[str]) -> Sql:
        """Return the condition that an entry has one of some folds: ranges of the key of entries."""

    @abstractmethod
    def leaps(self, number: int, most: int) -> list[Key] | None:
        """Return the keys of a control or a fact on all partitions, if these are few; perhaps one repeatedly."""

    @abstractmethod
    def saved(self, low: Instant, high: Instant) -> Condition:
        """Return the condition that a document was saved at a time."""

    def created(self, low: Instant, high: Instant) -> Condition:
        """Return the condition that a document was created at a time."""
        return self.within(Fact.CREATED, KeyRange(low, high))

    def within(self, number: int, span: KeyRange) -> Condition:
        """Return the condition that a fact, or a control that has a type, has a key in a span."""
        condition = self.entries(number, Sql("fold >= ? AND fold < ?", span))
        if number == Fact.CREATED:
            return replace(condition, is_distinct=True)
        # Where most documents have one key, the lowest inside selects each once: of a million documents half are
        # counted in 29 ms, and 690 ms by a sort.
        text, values = condition.selects
        sample = text.replace(self.found, "edge", 1)
        ((others,),) = self.rows(
            Sql(f"SELECT count(*) FROM ({sample} LIMIT {_SAMPLED}) s WHERE edge <> {BOTH}", values)
        )
        if others > _SAMPLED * _OTHER_KEYS:
            return condition
        lowest = self.lowest_from(number, span.low)
        selects = Sql(f"{text} AND (edge & {int(Edge.LOWEST)} > 0 OR {lowest.text})", values + lowest.values)
        return replace(condition, selects=selects, is_distinct=True)

    @abstractmethod
    def lowest_from(self, number: int, low: str) -> Sql:
        """Return the condition that an ``entry`` has the lowest key of its document from one on."""

    @abstractmethod
    def in_organization(self, fact: Fact, names: Sequence[str], on: str) -> Condition:
        """Return the condition that a fact has one of some organizations."""

    @abstractmethod
    def containing(self, number: int, asked: ControlFilter, folds: Sequence[str] | None) -> Condition:
        """Return the condition that a value of a control has a text, or all its words."""
        # ``folds`` are those of the control that have them; ``None`` where the control has too many to look at each.

    @abstractmethod
    def anywhere(self, folded: str, controls: Sequence[int]) -> Condition:
        """Return the condition that a document has a text in the values of controls, or elsewhere."""

    @abstractmethod
    def narrowest(self, conditions: Sequence[Condition]) -> Condition | None:
        """Return the condition that selects, of several of which none is narrow as far as that is quickly counted."""
        # Without one, the database chooses the order itself.

    @abstractmethod
    def page(self, hits: Sql, order: Order, counted: int) -> tuple[int, list[int] | None]:
        """Return the number of hits and the page of them; none where a walk along the list finds it more quickly."""
        # Hits of one range are ``counted`` already, and read again quickly; 0 stands for others.

    def once(self, condition: Condition) -> Sql:
        """Return what a condition selects, each document once."""
        # SQLite sorts for a GROUP BY, and adds to a tree for a DISTINCT: of 550,000 keys in 205 and 946 ms.
        if condition.is_distinct:
            return condition.selects
        text, values = condition.selects
        return Sql(f"SELECT * FROM ({text}) d GROUP BY {self.found}", values)

    def tested(self, conditions: Iterable[Condition]) -> Sql:
        """Return the tests of conditions, the quick ones first."""
        return joined(" AND ", [each.test for each in sorted(conditions, key=lambda each: not each.is_quick)])

    def reached(self, conditions: Sequence[Condition], most: int) -> list[int]:
        """Return how many documents meet each of some conditions, counted up to a limit."""
        sources = [each.selects for each in conditions if each.reach is None]
        counts = [Sql(f"(SELECT count(*) FROM ({of.text} LIMIT {most + 1}) c)", of.values) for of in sources]
        every = joined(", ", counts)
        rows = self.rows(Sql(f"SELECT {every.text}", every.values)) if counts else ()
        counted = iter([number for row in rows for number in row])
        return [next(counted) if each.reach is None else each.reach for each in conditions]

    def by_save(self, direction: str) -> str:
        return ", ".join(f"{column} {direction}" for column in reversed(self.listed.split(", ")))

    def ordered(self, order: Order) -> str:
        if order.control is None:
            return self.by_save(order.direction)
        return f"fold {order.direction}, value {order.direction}, {self.by_save('DESC')}"

    def selected(self, table: str, where: Sql, on: str = "", *, is_distinct: bool = False) -> Condition:
        """Return the condition that a document has a row in a table where something holds."""
        on = on or self.on
        return Condition(
            Sql(f"SELECT {self.found} FROM {table} WHERE {on} AND {where.text}", where.values),
            Sql(f"(SELECT true FROM {table} WHERE {self.is_d(on)} AND {where.text} LIMIT 1)", where.values),
            is_distinct=is_distinct,
        )

    def entries(self, number: int, where: Sql, on: str = "", *, is_distinct: bool = False) -> Condition:
        under = Sql(f"control = ? AND {where.text}", (int(number), *where.values))
        return self.selected("entry", under, on, is_distinct=is_distinct)

    def one_of(self, number: int, tokens: Sequence[str]) -> Condition:
        """Return the condition that a control has one of some values that are their own folds."""
        has_fold = self.has_fold(tokens)
        return self.entries(number, Sql(f"{has_fold.text} AND value = ?", (*has_fold.values, self.key(tokens[0])[1])))

    def keyed(self, number: int, text: str, on: str = "") -> Condition:
        fold, value = self.key(text)
        has_fold = self.has_fold([str(fold)])
        return self.entries(
            number, Sql(f"{has_fold.text} AND value = ?", (*has_fold.values, value)), on, is_distinct=True
        )


def on(partitions: Iterable[int]) -> str:
    return f"partition IN ({', '.join(map(str, partitions))})"


class Search:
    """A search of some partitions, by the statements of one transaction that sees one state of everything."""

    def __init__(self, dialect: SearchDialect, scope: Scope, budget: Budget | None) -> None:
        self._dialect = dialect
        self._scope = scope
        self._searched = dialect.searched
        self._budget = budget
        self._controls = {path: number for each in self._searched for path, number in each.controls.items()}

    def find(self, query: Query) -> IndexedPage:
        conditions = self.conditions(query) if self._searched else None
        if conditions is None:
            return IndexedPage()
        by = query.sort.by
        control = FACTS.get(by) if isinstance(by, Field) else self._controls.get(by)
        # A control that no document has a value of leaves the second order: the last save comes first.
        is_descending = query.sort.is_descending or (control is None and by is not Field.LAST_MODIFIED)
        sorted_by = None if control is None else int(control)
        is_ranged = any(
            each.match.is_range and each.path == by and not each.alternative for each in query.controls
        ) or any(
            each.comparison is not Comparison.EXACT and each.field is by and not each.alternative
            for each in query.fields
        )
        offset = min(query.offset, _LAST)
        order = Order(sorted_by, is_descending, offset, offset + min(query.size, MOST_ROWS), is_ranged)
        begun = None
        is_long = self._dialect.documents > limits.FIRST_TRIED
        if is_long and not query.needs_total and not all(each.is_quick for each in conditions):
            begun = self._first(conditions, order, order.end + 1)
        total, rows = self._page(conditions, order) if begun is None else (len(begun), begun[order.offset : order.end])
        wanted = None if query.paths is None else frozenset(query.paths)
        paths = {number: path for path, number in self._controls.items() if wanted is None or path in wanted}
        page, fingerprints = list[Hit](), list[str]()
        for at in range(0, len(rows), _AT_ONCE):
            some, dialect = rows[at : at + _AT_ONCE], self._dialect
            among = f"seq IN ({', '.join(map(str, some))})"
            text = f"SELECT seq, {dialect.hit} FROM document WHERE {among}"
            found = {row[0]: row[1:] for row in dialect.rows(Sql(text))}
            for document, draft, fingerprint, encoded in (found[seq] for seq in some):
                card = decode(encoded)
                values = {paths[number]: values for number, values in card.values.items() if number in paths}
                owner = card.reader
                saved = None if owner is None else User(owner.creator, owner.group, organization=owner.organization)
                hit = Hit(document, bool(draft), card.facts, values, saved)
                if self._budget is not None:
                    self._budget.check()
                    self._budget.hold(hit, query.paths or ())
                page.append(hit)
                fingerprints.append(fingerprint)
        return IndexedPage(Hits(total, tuple(page), has_more=begun is not None), fingerprints)

    def distinct(self, by: Field | str) -> Iterator[str]:
        """Yield the different values of a control or a field, sorted; an empty one for a missing field."""
        number = FACTS[by] if isinstance(by, Field) else self._controls.get(by)
        conditions = self.conditions(Query()) if self._searched else None
        if number is None or conditions is None:
            return
        for fold, value in self._keys(int(number), conditions):
            if self._budget is not None:
                self._budget.check()
            is_nothing = not fold and not value
            if is_nothing and not isinstance(by, Field):
                continue
            text = "" if is_nothing else self._value(int(number), fold, value)
            if self._budget is not None:
                self._budget.hold_texts((text,))
            yield text

    # Conditions.

    def conditions(self, query: Query) -> list[Condition] | None:
        """Return the conditions of a search; ``None`` where no document can meet them: a control is not indexed."""
        if sum(len(each.tokens) for each in query.controls) > limits.MOST_VALUE_TOKENS:
            raise BadRequestError(
                f"a search has at most {limits.MOST_VALUE_TOKENS} tokens of encrypted values: search fewer, or retire"
                " old keys"
            )
        filters: tuple[ControlFilter | FieldFilter, ...] = (*query.controls, *query.fields)
        named: dict[str, list[ControlFilter | FieldFilter]] = {}
        for each in dict.fromkeys(filters):
            named.setdefault(each.alternative, []).append(each)
        found = self._filters(named.pop("", []))
        for alternatives in named.values():
            either = [all_of(of) for each in alternatives if (of := self._filters([each])) is not None]
            if found is None or not either:
                return None
            found.append(any_of(either))
        if found is None:
            return None
        if query.text:
            found.append(self._dialect.anywhere(query.text.casefold(), sorted(self._controls.values())))
        drafts = self._drafts() if self._scope.drafts.kind is Drafts.ONLY else ()
        return [*self._seen(), *drafts, *found]

    def _filters(self, filters: Iterable[ControlFilter | FieldFilter]) -> list[Condition] | None:
        found, ranges, fields = list[Condition](), dict[int, list[ControlFilter]](), list[FieldFilter]()
        for each in filters:
            if isinstance(each, FieldFilter):
                fields.append(each)
            elif (number := self._controls.get(each.path)) is None:
                return None
            elif each.match.is_range:
                ranges.setdefault(number, []).append(each)
            else:
                found.append(self._matching(number, each))
        for number, asked in ranges.items():
            spans = self._spans(number, asked)
            if not spans:
                return None
            found.append(any_of([self._dialect.within(*each) for each in spans]))
        if any(each.field is Field.LEASED_BY and not each.documents for each in fields):
            return None
        return [*found, *self._of_fields(fields)] if fields else found

    def _of_fields(self, fields: Sequence[FieldFilter]) -> Iterator[Condition]:
        dialect, times = self._dialect, dict[Field, list[FieldFilter]]()
        for each in fields:
            if each.field is Field.LEASED_BY:
                listed = Sql(f"document IN ({', '.join('?' * len(each.documents))})", each.documents)
                yield dialect.selected("document", listed, is_distinct=True)
            elif each.comparison is Comparison.EXACT:
                yield dialect.keyed(FACTS[each.field], each.value)
            else:
                times.setdefault(each.field, []).append(each)
        for of, bounds in times.items():
            low = max((each.value for each in bounds if each.comparison is Comparison.GTE), default=_BEFORE_ALL)
            high = min((each.value for each in bounds if each.comparison is Comparison.LT), default=_AFTER_ALL)
            within = dialect.saved if of is Field.LAST_MODIFIED else dialect.created
            yield within(Instant(low), Instant(high))

    def _drafts(self) -> list[Condition]:
        drafts, dialect = self._scope.drafts, self._dialect
        if drafts.for_document is not None:
            of = Sql("document = ? AND draft", (drafts.for_document,))
            return [dialect.selected("document", of, is_distinct=True)]
        if not drafts.never_saved:
            return []
        saved = f"SELECT 1 FROM document s WHERE {dialect.same_form} s.document = x.document AND NOT s.draft"
        never = dialect.selected("document x", Sql(f"NOT EXISTS ({saved})"))
        return [replace(never, is_range=False, is_quick=False)]

    def _spans(self, number: int, asked: Sequence[ControlFilter]) -> list[tuple[int, KeyRange]]:
        """Return the spans that some ranges of a control mean, by the types that it has in the searched versions."""
        spans = []
        for of in dict.fromkeys(each.types[number] for each in self._searched if number in each.types):
            with suppress(BadRequestError):  # a bound is invalid in this version
                spans.append((typed_number(number, of), range_of(asked, of)))
        return spans

    def _matching(self, number: int, control: ControlFilter) -> Condition:
        """Return the condition of a filter; the values of a control that has few are looked at before."""
        if control.match is TextMatch.EXACT:
            found = self._dialect.keyed(number, control.text)
            return (
                any_of([found, self._dialect.one_of(token_number(number), control.tokens)]) if control.tokens else found
            )
        keys = self._dialect.leaps(number, limits.FOLDS_TRIED)
        if keys is None or any(is_cut(fold) for fold, _ in keys):
            return self._dialect.containing(number, control, None)
        few, folded = {str(fold) for fold, _ in keys if fold}, control.text.casefold()
        if control.match is TextMatch.SUBSTRING:
            folds = sorted(fold for fold in few if folded in fold)
        else:
            folds = sorted(fold for fold in few if all(f" {word} " in f" {fold} " for word in folded.split()))
        return self._dialect.containing(number, control, folds)

    # The documents that a user may see, by the owners that are entered as facts.

    def _seen(self) -> list[Condition]:
        if not any(each.owner_sets for each in self._searched):
            return []
        groups: dict[tuple[OwnerSets, OwnerFacts], list[int]] = {}
        for each in self._searched:
            facts = OF_DRAFTS if self._scope.seen.is_by_saved and each.is_draft else OWNER_FACTS
            groups.setdefault((each.owner_sets, facts), []).append(each.number)
        holders = (holder for owner_sets, _ in groups for owner_set in owner_sets for holder in owner_set.holders)
        if sum(max(1, len(holder.organizations)) for holder in holders) > limits.SEARCHED_OWNERS:
            raise BadRequestError(
                f"permissions of the versions that are searched have more than {limits.SEARCHED_OWNERS} conditions on"
                " owners for this user: search one version at a time"
            )
        return [any_of([self._of_owners(*key, on(numbers)) for key, numbers in groups.items()])]

    def _of_owners(self, owner_sets: OwnerSets, facts: OwnerFacts, on: str) -> Condition:
        if not owner_sets:
            return self._everything(on)
        ordered = sorted(owner_sets, key=lambda owner_set: len(owner_set.holders))
        return all_of([any_of([self._of_holder(each, facts, on) for each in of.holders]) for of in ordered])

    def _of_holder(self, holder: OwnerPattern, facts: OwnerFacts, on: str) -> Condition:
        named = ((facts[0], holder.creator), (facts[1], holder.group))
        found = [self._dialect.keyed(fact, name, on) for fact, name in named if name is not None]
        found += [self._dialect.in_organization(facts[2], sorted(names), on) for names in holder.organizations]
        return all_of(found) if found else self._everything(on)

    def _everything(self, on: str) -> Condition:
        return self._dialect.selected("document", Sql("true"), on, is_distinct=True)

    # Pages.

    def _page(self, conditions: list[Condition], order: Order) -> tuple[int, list[int]]:
        if not conditions:
            return self._dialect.documents, self._walk(order, self._dialect.documents)
        hits = self._hits_of(conditions)
        counted = 0  # Where there is only one condition, unless documents must be looked at for that
        if len(conditions) == 1:
            counts = conditions[0].counts or (hits if conditions[0].is_range else None)
            if counts is not None:
                ((counted,),) = self._dialect.rows(Sql(f"SELECT count(*) FROM ({counts.text}) c", counts.values))
        # Of many documents, the first ones of the list probably have a near page.
        if counted > limits.MOST_GATHERED and order.end * self._dialect.documents <= counted * limits.MOST_TRIED:
            first = self._first(conditions, order, min(order.end, counted))
            if first is not None:
                return counted, first[order.offset : order.end]
        total, page = self._dialect.page(hits, order, counted)
        if page is None:
            page = self._walk(order, total, self._dialect.tested(conditions))
        return total, page

    def _first(self, conditions: Sequence[Condition], order: Order, wanted: int) -> list[int] | None:
        """Return so many documents that meet all conditions, or more, if the first ones of the list have them."""
        tested, found, dialect = self._dialect.tested(conditions), list[int](), self._dialect
        for at in range(0, min(dialect.documents, limits.MOST_TRIED), limits.FIRST_TRIED):
            rows = self._walk(order._replace(offset=at, end=at + limits.FIRST_TRIED), dialect.documents)
            if not rows:
                break
            among = f"d.seq IN ({', '.join(map(str, rows))})"
            text = f"SELECT seq FROM document d WHERE {among} AND {tested.text}"
            passing = {row[0] for row in dialect.rows(Sql(text, tested.values))}
            found += [row for row in rows if row in passing]
            if len(found) >= wanted:
                return found
            if len(found) * limits.MOST_TRIED < (at + limits.FIRST_TRIED) * wanted:
                break
        return None

    def _hits_of(self, conditions: Sequence[Condition]) -> Sql:
        dialect = self._dialect
        if len(conditions) == 1 and conditions[0].is_exact:
            return dialect.once(conditions[0])
        first: Condition | None = conditions[0]
        if len(conditions) > 1:
            ranges = [each for each in conditions if each.is_range or each.reach is not None]
            for most in (limits.FEW_FOUND, limits.MOST_GATHERED) if ranges else ():
                reached = dialect.reached(ranges, most)
                if min(reached) <= most:
                    first = ranges[reached.index(min(reached))]
                    break
            else:
                first = dialect.narrowest(conditions)
        if first is None:
            first = next((each for each in conditions if each.is_range), conditions[0])
            sets = [each.selects for each in conditions if each is not first]
            tests = [Sql(f"d.seq IN ({each.text})", each.values) for each in sets]
            return dialect.once(all_of([first, first], joined(" AND ", tests)))
        others = [each for each in conditions if each is not first or not each.is_exact]
        return dialect.once(all_of([first, *others], dialect.tested(others)))

    def _walk(self, order: Order, total: int, where: Sql | None = None) -> list[int]:
        """Return the page of ``total`` documents, along the list in each partition, past those that fail a test."""
        if order.offset >= total:
            return []
        dialect, end, control = self._dialect, min(order.end, total), order.control
        tested = Sql("") if where is None else Sql(f" AND {where.text}", where.values)
        arms = []
        for each in self._searched:
            if control is None:
                columns, source = dialect.listed, "document d WHERE"
            elif control < 0 or control in each.controls.values():
                columns = f"{dialect.listed}, fold, value"
                source = f"{dialect.entered} WHERE control = {control} AND edge & {order.edge} > 0 AND"
            else:
                columns = f"{dialect.listed}, {dialect.nothing} AS fold, {dialect.nothing} AS value"
                source = "document d WHERE"
            text = f"SELECT {columns} FROM {source} partition = {each.number}{tested.text}"
            arms.append(Sql(text, tested.values))
        while len(arms) > _MOST_ARMS:
            groups = [joined(" UNION ALL ", arms[at : at + _MOST_ARMS]) for at in range(0, len(arms), _MOST_ARMS)]
            arms = [
                Sql(f"SELECT * FROM ({group.text} ORDER BY {dialect.ordered(order)} LIMIT {end}) g", group.values)
                for group in groups
            ]
        every = joined(" UNION ALL ", arms)
        page = f"ORDER BY {dialect.ordered(order)} LIMIT {end - order.offset} OFFSET {order.offset}"
        return [row[0] for row in dialect.rows(Sql(f"{every.text} {page}", every.values))]

    # Documents and values.

    def _keys(self, number: int, conditions: Sequence[Condition]) -> Iterable[Key]:
        dialect = self._dialect
        if not conditions:
            few = dialect.leaps(number, limits.LEAPS)
            if few is not None:
                return sorted(set(few), key=lambda key: (isinstance(key[0], str), *key))
        hits = self._hits_of(conditions) if conditions else Sql("")
        among = f" AND seq IN (SELECT seq FROM ({hits.text}) h)" if conditions else ""
        text = f"SELECT DISTINCT fold, value FROM entry WHERE control = ? AND {dialect.on}{among}"
        return dialect.rows(Sql(f"{text} ORDER BY fold, value LIMIT {_MOST_VALUES}", (number, *hits.values)))

    def _value(self, number: int, fold: Fold, value: Value) -> str:
        if not is_cut(fold):
            return str(fold if value == AS_FOLDED else value)
        dialect = self._dialect
        text = f"SELECT seq FROM entry WHERE control = ? AND {dialect.on}"
        of = Sql(f"{text} AND fold = ? AND value = ? LIMIT 1", (number, fold, value))
        ((card,),) = dialect.rows(Sql(f"SELECT card FROM document WHERE seq = ({of.text})", of.values))
        return next(each for each in decode(card).of(number) if dialect.key(each) == (fold, value))
