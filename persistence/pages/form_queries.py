"""The table of documents as a link asks for it: its parameters, and the query that they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_SEARCHED, MOST_SEARCHED, ROWS_SHOWN
from persistence.model.instants import Instant, from_datetime
from persistence.model.search import Comparison, ControlFilter, Drafts, Field, FieldFilter, Query, Sort, TextMatch

_CONTROL = "c."
"""The beginning of a parameter that is about the control whose path follows."""

_EXACT = {"owner": Field.CREATED_BY, "by": Field.LAST_MODIFIED_BY, "stage": Field.WORKFLOW_STAGE}
_FIELDS = {
    "saved": Field.LAST_MODIFIED,
    "created": Field.CREATED,
    "owner": Field.CREATED_BY,
    "by": Field.LAST_MODIFIED_BY,
    "stage": Field.WORKFLOW_STAGE,
}
"""The facts by which documents are sorted, by their names in links."""

_MOST_PAGES = 1_000_000_000
_LONGEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The parameters that are known, each with a value, and what they mean."""

    parameters: Mapping[str, str]
    query: Query
    drafts: Drafts
    page: int
    sort: str

    @property
    def is_descending(self) -> bool:
        return self.query.sort.is_descending

    @property
    def has_filters(self) -> bool:
        """Tell whether anything but the search box narrows the table down."""
        return bool(self.parameters.keys() - {"q", "sort", "order", "page", "lang"})

    @property
    def is_plain(self) -> bool:
        """Tell whether it lists all documents, the last saved first, without a search."""
        return not self.parameters.keys() - {"page", "lang"}

    def linked(self, **changed: object) -> dict[str, str]:
        """Return the parameters of a link to the same table with others; a page is left out, unless it is given."""
        given = {name: value for name, value in self.parameters.items() if name != "page"}
        return given | {name: str(value) for name, value in changed.items() if value}


def table_query(given: Mapping[str, str], shown: Sequence[str], paths: Sequence[str]) -> TableQuery:
    """Read the parameters of a table, whose columns have the paths ``shown``, of all indexed ``paths``."""
    names = ("q", "from", "to", "drafts", "sort", "order", "page", "lang", *_EXACT, *(f"{_CONTROL}{x}" for x in paths))
    known = {name: value for name in names if (value := given.get(name, "").strip())}
    if any(len(value) > LONGEST_SEARCHED for value in known.values()) or sum(map(len, known.values())) > MOST_SEARCHED:
        raise BadRequestError(f"a text that is searched has {LONGEST_SEARCHED} characters at most")
    page = page_number(known.get("page", "1"))
    sort = known.get("sort", "saved")
    if sort not in _FIELDS and sort not in paths:
        raise BadRequestError(f"documents are sorted by {', '.join(_FIELDS)} or an indexed control, not {sort[:60]!r}")
    is_descending = known.get("order", "desc" if sort in {"saved", "created"} else "asc") == "desc"
    controls = tuple(
        ControlFilter(path, TextMatch.SUBSTRING, known[f"{_CONTROL}{path}"])
        for path in paths
        if f"{_CONTROL}{path}" in known
    )
    by = _FIELDS.get(sort, sort)
    query = Query(
        text=known.get("q", ""),
        controls=controls,
        fields=_fields(known),
        sort=Sort(by, is_descending),
        offset=(page - 1) * ROWS_SHOWN,
        size=ROWS_SHOWN,
        paths=tuple(dict.fromkeys((*shown, *((by,) if isinstance(by, str) else ())))),
    )
    return TableQuery(known, query, _drafts(known.get("drafts", Drafts.EXCLUDE.value)), page, sort)


def _fields(known: Mapping[str, str]) -> tuple[FieldFilter, ...]:
    found = [FieldFilter(field, Comparison.EXACT, known[name]) for name, field in _EXACT.items() if name in known]
    if "from" in known:
        found.append(FieldFilter(Field.LAST_MODIFIED, Comparison.GTE, _midnight(known["from"], 0)))
    if "to" in known:
        found.append(FieldFilter(Field.LAST_MODIFIED, Comparison.LT, _midnight(known["to"], 1)))
    return tuple(found)


def _midnight(day: str, days_later: int) -> Instant:
    try:
        wanted = date.fromisoformat(day) + timedelta(days=days_later)
        return from_datetime(datetime(wanted.year, wanted.month, wanted.day, tzinfo=UTC))
    except (ValueError, OverflowError) as error:
        raise BadRequestError(f"a day is such as 2026-03-04, not {day[:60]!r}") from error


def page_number(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER
    number = int(text) if is_number else 0
    if not 1 <= number <= _MOST_PAGES:
        raise BadRequestError(f"the page must be a number from 1, not {text[:60]!r}")
    return number


def _drafts(text: str) -> Drafts:
    try:
        return Drafts(text)
    except ValueError:
        raise BadRequestError(f"drafts must be exclude, include or only, not {text[:60]!r}") from None
