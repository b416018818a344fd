"""An index in plain Python, by the rules of spec search 1.1 to 1.5 and 3: what the real one is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Stored:
    """A document or a draft, and its text nodes."""

    hit: Hit
    texts: tuple[str, ...] = ()


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
            and all(_has_value(condition, each.hit) for condition in query.controls)
            and all(_has_field(condition, each.hit) for condition in query.fields)
        ]
        return Hits(len(found), tuple(_sorted(found, query.sort)[query.offset : query.offset + query.size]))

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:  # noqa: ARG002 - as above
        """The values of all documents of the scope, each once."""
        hits = [each.hit for each in self.stored if _is_in(scope, each.hit, self.stored)]
        values = {value for hit in hits for value in _distinct(hit, by)}
        yield from sorted(values, key=_collated)


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
