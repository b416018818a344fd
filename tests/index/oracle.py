"""An index in plain Python, by the rules of spec search 1.1 to 1.5 and 3: what the real one is compared with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

from persistence.index.protocol import Budget
from persistence.model.addresses import Form
from persistence.model.queries import (
    Comparison,
    ControlFilter,
    DraftFilter,
    Drafts,
    Field,
    FieldFilter,
    Hit,
    Hits,
    Query,
    Scope,
    Sort,
    TextMatch,
)
from persistence.model.texts import OrderedType


@dataclass(frozen=True)
class Stored:
    hit: Hit
    texts: tuple[str, ...] = ()
    types: Mapping[str, OrderedType] = field(default_factory=dict)


@dataclass
class Oracle:
    """What is stored of one form, whichever is asked for."""

    stored: Sequence[Stored]

    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:  # noqa: ARG002 - of one form, without a bound
        """Every document is looked at, the remaining ones are sorted, and the page is cut out."""
        found = [
            each.hit
            for each in self.stored
            if _is_in(scope, each.hit, self.stored)
            and query.text.casefold() in _folded(each.texts)
            and all(any(_meets(query, each) for query in queries) for queries in _required(query))
        ]
        return Hits(len(found), tuple(_sorted(found, query.sort)[query.offset : query.offset + query.size]))

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:  # noqa: ARG002 - as above
        hits = [each.hit for each in self.stored if _is_in(scope, each.hit, self.stored)]
        values = {value for hit in hits for value in _distinct(hit, by)}
        yield from sorted(values, key=_collated)


def _required(query: Query) -> Iterator[list[Query]]:
    """Queries, of each list of which one must find a document: that without alternatives, and those of each name."""
    named = [Query(controls=(each,)) for each in query.controls], [Query(fields=(each,)) for each in query.fields]
    for name in {each.alternative for each in (*query.controls, *query.fields)}:
        if name:
            yield [each for each in chain(*named) if name == (*each.controls, *each.fields)[0].alternative]
    always = [tuple(each for each in filters if not each.alternative) for filters in (query.controls, query.fields)]
    yield [Query(controls=always[0], fields=always[1])]  # type: ignore[arg-type]


def _meets(query: Query, stored: Stored) -> bool:
    return (
        all(_has_value(condition, stored.hit) for condition in query.controls if not condition.match.is_range)
        and all(_is_in_ranges(path, query.controls, stored) for path in _ranged(query.controls))
        and all(_has_field(condition, stored.hit) for condition in query.fields)
    )


def _folded(texts: Iterable[str]) -> str:
    """All text nodes, with something between them that no query can have."""
    return "\0".join(text.casefold() for text in texts)


def _is_in(scope: Scope, hit: Hit, stored: Sequence[Stored]) -> bool:
    is_searched = scope.versions is None or hit.facts.version in scope.versions
    owner = hit.saved_owner if scope.seen.is_by_saved and hit.saved_owner is not None else hit.facts.owner
    is_seen = all(owner_set.includes(owner) for owner_set in scope.seen.of_version(hit.facts.version))
    return is_searched and is_seen and _is_wanted(scope.drafts, hit, stored)


def _is_wanted(drafts: DraftFilter, hit: Hit, stored: Sequence[Stored]) -> bool:
    if drafts.kind is Drafts.INCLUDE:
        return True
    if drafts.kind is Drafts.EXCLUDE:
        return not hit.is_draft
    if drafts.for_document is not None:
        return hit.is_draft and hit.document == drafts.for_document
    if drafts.never_saved:
        saved = {each.hit.document for each in stored if not each.hit.is_draft}
        return hit.is_draft and hit.document not in saved
    return hit.is_draft


def _has_value(condition: ControlFilter, hit: Hit) -> bool:
    return any(_matches(condition.match, condition.text, value) for value in hit.values.get(condition.path, ()))


def _ranged(conditions: Iterable[ControlFilter]) -> set[str]:
    return {condition.path for condition in conditions if condition.match.is_range}


def _is_in_ranges(path: str, conditions: Iterable[ControlFilter], stored: Stored) -> bool:
    """One value is in all ranges of a control."""
    of = stored.types.get(path)
    values = stored.hit.values.get(path, ())
    ranges = [condition for condition in conditions if condition.path == path and condition.match.is_range]
    return of is not None and any(all(_is_in_range(each, value, of) for each in ranges) for value in values)


def _is_in_range(condition: ControlFilter, text: str, of: OrderedType) -> bool:
    value, bounds = _parsed(text, of), [_bound(bound, of) for bound in condition.text.split()]
    if value is None or None in bounds or len(bounds) != (2 if condition.match is TextMatch.BETWEEN else 1):
        return False
    (first, after_first), (_, after_last) = bounds[0], bounds[-1]
    return {
        TextMatch.GTE: value >= first,
        TextMatch.GT: value >= after_first,
        TextMatch.LT: value < first,
        TextMatch.LTE: value < after_last,
        TextMatch.BETWEEN: first <= value < after_last,
    }[condition.match]


_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_PATTERNS = {
    OrderedType.DATE: _DAY,
    OrderedType.DATE_TIME: rf"{_DAY}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(Z|[+-][0-9]{{2}}:00)?",
    OrderedType.DECIMAL: r"[+-]?[0-9]+(\.[0-9]+)?",
}
"""Of the types, and of their values, that tests of the oracle have."""


def _parsed(text: str, of: OrderedType) -> Any:
    """A value that compares; times are in ticks of a microsecond."""
    if re.fullmatch(_PATTERNS[of], text.strip(), re.ASCII) is None:
        return None
    if of is OrderedType.DECIMAL:
        return Decimal(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1, 1, 1, tzinfo=UTC)


def _bound(text: str, of: OrderedType) -> tuple[Any, Any] | None:
    """The bound, and what comes after everything that is equal to it."""
    day = _parsed(text, OrderedType.DATE) if of is OrderedType.DATE_TIME else None
    if day is not None:
        return day, day + timedelta(days=1)
    found = _parsed(text, of)
    if found is None:
        return None
    return found, found + (Decimal("1e-20") if of is OrderedType.DECIMAL else timedelta.resolution)


def _matches(match: TextMatch, text: str, value: str) -> bool:
    if match is TextMatch.EXACT:
        return value == text
    if match is TextMatch.SUBSTRING:
        return text.casefold() in value.casefold()
    words = value.casefold().split(" ")
    return all(token.casefold() in words for token in text.split())


def _has_field(condition: FieldFilter, hit: Hit) -> bool:
    value = _field(hit, condition.field)
    if value is None:
        return False
    if condition.comparison is Comparison.EXACT:
        return value == condition.value
    return value >= condition.value if condition.comparison is Comparison.GTE else value < condition.value


def _field(hit: Hit, field: Field) -> str | None:
    return {
        Field.CREATED: hit.facts.created,
        Field.LAST_MODIFIED: hit.facts.modified,
        Field.CREATED_BY: hit.facts.creator,
        Field.LAST_MODIFIED_BY: hit.facts.modifier,
        Field.WORKFLOW_STAGE: hit.facts.stage,
    }[field]


def _sorted(hits: Iterable[Hit], sort: Sort) -> list[Hit]:
    """One sort after the other, the last being the first that counts; at last by name, data before drafts."""
    by_name = sorted(hits, key=lambda hit: (hit.document, hit.is_draft))
    latest_first = sorted(by_name, key=lambda hit: hit.facts.modified, reverse=True)
    return sorted(latest_first, key=lambda hit: _place(hit, sort), reverse=sort.is_descending)


def _place(hit: Hit, sort: Sort) -> tuple[bool, tuple[str, str]]:
    """What is absent is lowest; of several values the one that comes first in this order."""
    if isinstance(sort.by, Field):
        values = [value for value in (_field(hit, sort.by),) if value is not None]
    else:
        values = list(hit.values.get(sort.by, ()))
    if not values:
        return False, ("", "")
    best = max if sort.is_descending else min
    return True, best(map(_collated, values))


def _collated(value: str) -> tuple[str, str]:
    return value.casefold(), value


def _distinct(hit: Hit, by: Field | str) -> tuple[str, ...]:
    return (_field(hit, by) or "",) if isinstance(by, Field) else hit.values.get(by, ())
