"""The elements of search requests as values, or the reason why they are none (spec search 1.1 to 1.7, and 3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_SOUGHT, MOST_SOUGHT, MOST_TOKENS
from persistence.model.elements import Element, Elements, Vocabulary
from persistence.model.instants import Instant, first_from, parse_time
from persistence.model.permissions import FINDING, OPERATIONS
from persistence.model.search import (
    Comparison,
    ControlFilter,
    DraftFilter,
    Drafts,
    Field,
    FieldFilter,
    Query,
    SearchRequest,
    Sort,
    TextMatch,
)
from persistence.model.texts import count, is_descending, word
from persistence.model.users import User

QUERY, DRAFTS, OPERATIONS_ELEMENT, PAGE_SIZE, PAGE_NUMBER = SEARCHED = (
    "query",
    "drafts",
    "operations",
    "page-size",
    "page-number",
)
"""The children that a search looks at."""

_OF_QUERY = frozenset(
    {
        *("path", "metadata", "match", "control", "sort"),
        *("name", "type", "summary-show", "statically-required", "html-label"),  # a runtime says them (spec search 0.2)
    }
)
SEARCH = Vocabulary(
    "search",
    frozenset({"return-all-indexed-fields"}),
    {
        QUERY: _OF_QUERY,
        DRAFTS: frozenset({"for-document-id", "for-never-saved-document"}),
        OPERATIONS_ELEMENT: frozenset({"any-of"}),
        PAGE_SIZE: frozenset(),
        PAGE_NUMBER: frozenset(),
        "lang": frozenset(),  # without a meaning since long (spec search 1.1)
    },
)
DISTINCT = Vocabulary("request for distinct values", frozenset(), {QUERY: _OF_QUERY})
"""What requests may say where what is unknown is refused."""

_MOST_ROWS = 1 << 53
"""There are not so many: a place in the list further on is as good as this one."""

_TIMES = (Field.CREATED, Field.LAST_MODIFIED)
_TEXTS = (Field.CREATED_BY, Field.LAST_MODIFIED_BY, Field.WORKFLOW_STAGE)
_COMPARISONS: Mapping[Field, tuple[Comparison, ...]] = {
    **dict.fromkeys(_TIMES, (Comparison.GTE, Comparison.LT)),
    **dict.fromkeys(_TEXTS, (Comparison.EXACT,)),
}
_MATCH_OF_CONTROL = {
    **dict.fromkeys(("input", "textarea", "output"), TextMatch.SUBSTRING),
    "select": TextMatch.TOKEN,
}


def search_request(elements: Elements, user: User) -> SearchRequest:
    """What a user asks for. From anonymous users drafts are kept, whatever they ask (search 1.5).

    Raises:
        BadRequestError: an attribute or a text is not what the interface has (search 1.7).
    """
    queries = elements.all(QUERY)
    of_controls = [each for each in queries if "path" in each.attributes]
    of_fields = [(_field(each), each) for each in queries if "metadata" in each.attributes]
    size = count(_text(elements, PAGE_SIZE), PAGE_SIZE, 10)
    number = count(_text(elements, PAGE_NUMBER), PAGE_NUMBER, 1)
    return SearchRequest(
        query=Query(
            text=_not_too_long(_free_text(queries)),
            controls=tuple(_control_filters(of_controls)),
            fields=tuple(_field_filter(field, each) for field, each in of_fields if each.text.strip()),
            sort=_sort([*((_path(each), each) for each in of_controls), *of_fields]),
            offset=min((number - 1) * size, _MOST_ROWS),
            size=min(size, _MOST_ROWS),
        ),
        paths=tuple(_path(each) for each in of_controls),
        drafts=_drafts(elements.first(DRAFTS)) if user.name is not None else DraftFilter(Drafts.EXCLUDE),
        any_of=_operations(elements.first(OPERATIONS_ELEMENT)),
        all_indexed=elements.root.attributes.get("return-all-indexed-fields") == "true",
    )


def distinct_request(elements: Elements) -> tuple[Field | str, ...]:
    """The paths of controls and the fields of which the values are asked for, in the order of the answer (search 3).

    Raises:
        BadRequestError: a field is none of which there are distinct values.
    """
    queries = elements.all(QUERY)
    fields = tuple(_field(each) for each in queries if "metadata" in each.attributes)
    for field in fields:
        if field not in _TEXTS:
            raise BadRequestError(f"there are no distinct values of {field.value}, only of {_names(_TEXTS)}")
    return (*(_path(each) for each in queries if "path" in each.attributes), *fields)


def _text(elements: Elements, name: str) -> str:
    element = elements.first(name)
    return "" if element is None else element.text


def _free_text(queries: Iterable[Element]) -> str:
    """That of the first query about nothing in particular: later ones do not count, even where it is blank."""
    free = (each.text.strip() for each in queries if not {"path", "metadata"} & each.attributes.keys())
    return next(free, "")


def _path(query: Element) -> str:
    return query.attributes["path"].replace("[1]", "")


def _control_filters(queries: Iterable[Element]) -> Iterator[ControlFilter]:
    tokens = characters = 0
    for query in queries:
        text = query.text.strip()
        if text:
            match = _match(query.attributes)
            if match is not TextMatch.EXACT:
                characters += len(_not_too_long(text) if match is TextMatch.SUBSTRING else text)
                if characters > MOST_SOUGHT:
                    raise BadRequestError(f"queries of more than {MOST_SOUGHT} characters together are not accepted")
            if match is TextMatch.TOKEN:
                tokens += len(text.split())
                if tokens > MOST_TOKENS:
                    raise BadRequestError(f"more than {MOST_TOKENS} tokens in one search are not accepted")
            yield ControlFilter(_path(query), match, text)


def _not_too_long(text: str) -> str:
    if len(text) > LONGEST_SOUGHT:
        raise BadRequestError(f"a text of more than {LONGEST_SOUGHT} characters is not looked for inside others")
    return text


def _match(attributes: Mapping[str, str]) -> TextMatch:
    """How values are compared: as is said, else as befits the control, else exactly."""
    said = attributes.get("match")
    if said is not None:
        return word(TextMatch, said, "match")
    control = attributes.get("control", "")
    return TextMatch.TOKEN if control.endswith("-select") else _MATCH_OF_CONTROL.get(control, TextMatch.EXACT)


def _field(query: Element) -> Field:
    return word(Field, query.attributes["metadata"], "metadata")


def _field_filter(field: Field, query: Element) -> FieldFilter:
    said = query.attributes.get("match")
    if said is None:
        raise BadRequestError(f"{field.value} needs a match where it has text: {_names(_COMPARISONS[field])}")
    comparison = word(Comparison, said, f"match of {field.value}")
    if comparison not in _COMPARISONS[field]:
        raise BadRequestError(f"{field.value} has no match {comparison.value!r}; it has {_names(_COMPARISONS[field])}")
    text = query.text.strip()
    return FieldFilter(field, comparison, _instant(field, text) if field in _TIMES else text)


def _instant(field: Field, text: str) -> Instant:
    """A bound as exact as what is stored: of whole milliseconds those from a time on are those from the next one on."""
    try:
        return first_from(parse_time(text, field.value))
    except OverflowError as error:
        raise BadRequestError(f"{field.value} is after the last day of the calendar: {text!r}") from error


def _sort(queries: Iterable[tuple[Field | str, Element]]) -> Sort:
    sorts = [Sort(by, is_descending(query.attributes["sort"])) for by, query in queries if "sort" in query.attributes]
    if len(sorts) > 1:
        raise BadRequestError(f"one query may have a sort, not {len(sorts)}")
    return sorts[0] if sorts else Sort()


def _drafts(element: Element | None) -> DraftFilter:
    if element is None:
        return DraftFilter()
    kind = word(Drafts, element.text, "drafts")
    if kind is not Drafts.ONLY:
        return DraftFilter(kind)
    document = element.attributes.get("for-document-id")
    return DraftFilter(kind, document, document is None and "for-never-saved-document" in element.attributes)


def _operations(element: Element | None) -> tuple[str, ...]:
    if element is None:
        return FINDING
    words = element.value("any-of").split()
    for each in words:
        if each not in OPERATIONS:
            raise BadRequestError(f"there is no operation {each!r}; there are {', '.join(OPERATIONS)}")
    return tuple(name for name in OPERATIONS if name in words)


def _names(words: Iterable[Field | Comparison]) -> str:
    return ", ".join(each.value for each in words)
