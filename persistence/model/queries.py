"""Queries, parsed: searches (spec search 1) and exports (spec crud 8.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_SHOWN, MOST_EXPORT_PATTERNS
from persistence.model.addresses import Form
from persistence.model.permissions import FINDING, OwnerSets, User
from persistence.model.sidecar import DocumentFacts, PageRequest
from persistence.model.texts import LAST_KEY, Instant, KeyRange, OrderedType, equal_to, first_from, parse_time, word
from persistence.model.versions import Searched, parse_searched


class TextMatch(Enum):
    """The comparison of a control query, with its name in requests; ranges are of controls with a type."""

    SUBSTRING = "substring"
    TOKEN = "token"  # noqa: S105 - a word of the interface
    EXACT = "exact"
    GTE = "gte"
    GT = "gt"
    LTE = "lte"
    LT = "lt"
    BETWEEN = "between"

    def __init__(self, name: str) -> None:
        self.is_range = name not in {"substring", "token", "exact"}


class Field(Enum):
    """A property of a document beside its content, with its name in requests."""

    CREATED = "created"
    LAST_MODIFIED = "last-modified"
    CREATED_BY = "created-by"
    LAST_MODIFIED_BY = "last-modified-by"
    WORKFLOW_STAGE = "workflow-stage"
    LEASED_BY = "leased-by"  # a condition alone: no document has it stored, and none is sorted by it


class Comparison(Enum):
    """The comparison of a field, with its name in requests: times have the last two, texts the first."""

    EXACT = "exact"
    GTE = "gte"
    LT = "lt"


class Drafts(Enum):
    """The part that drafts have in a search, with its name in requests."""

    INCLUDE = "include"
    EXCLUDE = "exclude"
    ONLY = "only"


VALUE_TOKEN = re.compile(r"[0-9a-z]{1,16}:[0-9a-f]{32}", re.ASCII)
"""The stand-in for an encrypted value in an index: the id of a key, and a digest."""


@dataclass(frozen=True, slots=True)
class ControlFilter:
    """A condition on the values of an indexed control: one of them matches ``text``, which is not empty.

    Of the conditions on controls and fields with the same name in ``alternative`` one must hold, in place of all.
    """

    path: str
    match: TextMatch
    text: str  # of a range a bound, or two
    alternative: str = ""
    tokens: tuple[str, ...] = ()  # what may stand for ``text`` in the index where the control is encrypted


def range_of(ranges: Iterable[ControlFilter], of: OrderedType) -> KeyRange:
    """Return the values of a type that are in all of some ranges."""
    low, high = "", LAST_KEY
    for each in ranges:
        bounds = each.text.split()
        if len(bounds) != (2 if each.match is TextMatch.BETWEEN else 1):
            needed = "two values with a blank between them" if each.match is TextMatch.BETWEEN else "one value"
            raise BadRequestError(f"{each.match.value} needs {needed}, not {each.text[:LONGEST_SHOWN]!r}")
        first, last = (equal_to(bound, of, each.path) for bound in (bounds[0], bounds[-1]))
        lows = {TextMatch.GTE: first.low, TextMatch.GT: first.high, TextMatch.BETWEEN: first.low}
        highs = {TextMatch.LT: last.low, TextMatch.LTE: last.high, TextMatch.BETWEEN: last.high}
        low, high = max(low, lows.get(each.match, low)), min(high, highs.get(each.match, high))
    return KeyRange(low, high)


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """A condition on a field; ``value`` is an ``Instant`` where the field is a time."""

    field: Field
    comparison: Comparison
    value: str
    alternative: str = ""  # as of a ``ControlFilter``
    documents: tuple[str, ...] = ()  # of ``LEASED_BY``, those that the user of ``value`` has leased


@dataclass(frozen=True, slots=True)
class Sort:
    """An order of documents by a field or by a control's path; those saved last come first among equals."""

    by: Field | str = Field.LAST_MODIFIED
    is_descending: bool = True


@dataclass(frozen=True, slots=True)
class DraftFilter:
    """A condition on drafts; ``for_document`` and ``never_saved`` narrow down ``ONLY`` (search 1.5)."""

    kind: Drafts = Drafts.INCLUDE
    for_document: str | None = None
    never_saved: bool = False


@dataclass(frozen=True, slots=True)
class VisibleOwners:
    """Owners whose documents are seen, by version; with ``is_by_saved`` the owner of a document also owns its draft."""

    of_version: Callable[[int], OwnerSets]
    is_by_saved: bool = False


EVERYTHING = VisibleOwners(lambda _: frozenset())  # All documents of all versions


@dataclass(frozen=True, slots=True)
class Scope:
    """The documents that are searched: of some versions of a form, or of all, as far as they are ``seen``."""

    versions: tuple[int, ...] | None = None
    drafts: DraftFilter = DraftFilter()
    seen: VisibleOwners = EVERYTHING
    any_of: tuple[str, ...] = FINDING  # for an index that decides itself: one is allowed on each found document
    definition: tuple[int, tuple[tuple[int, int, int] | None, ...]] | None = None
    """A version and the fingerprint of its definition as the request found it: no index looks again."""
    is_empty: bool = False  # no document of any version is visible, which is known without a search


@dataclass(frozen=True, slots=True)
class Query:
    """The conditions, which must all hold but for alternatives, the order, and the requested part of the list."""

    text: str = ""  # searched in the whole text of a document
    controls: tuple[ControlFilter, ...] = ()
    fields: tuple[FieldFilter, ...] = ()
    sort: Sort = Sort()
    offset: int = 0
    size: int = 10
    paths: tuple[str, ...] | None = None  # controls whose values are returned; ``None`` is all
    needs_total: bool = True  # without it, an index may stop to count once it has the page


@dataclass(frozen=True, slots=True)
class SentQuery:
    """The body of a request, which is XML, or JSON of the same meaning."""

    pieces: Iterable[bytes]
    is_json: bool = False


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A request to search."""

    query: Query = Query()
    paths: tuple[str, ...] = ()  # controls whose values are requested, in this order
    drafts: DraftFilter = DraftFilter()
    any_of: tuple[str, ...] = FINDING  # a user with one of these operations finds a document
    all_indexed: bool = False  # all controls of the index are requested; ``query`` is still to be cut down to them


@dataclass(frozen=True, slots=True)
class Hit:
    """A found document; its version is 0 where it is not known."""

    document: str
    is_draft: bool
    facts: DocumentFacts
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # in document order, without empty ones
    saved_owner: User | None = None  # a draft has the saved document's, too
    form: Form | None = None  # in the answer to a search of several forms


@dataclass(frozen=True, slots=True)
class Hits:
    """The number of matches, and the requested page; with ``has_more`` a page follows, and ``total`` is a maximum."""

    total: int = 0
    page: tuple[Hit, ...] = ()
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A document that another service has found, with the times as they are in its answer; ``None`` is not known."""

    document: str
    is_draft: bool
    created: Instant
    modified: Instant
    creator: str | None
    group: str | None
    modifier: str | None
    stage: str | None
    operations: frozenset[str]  # what the caller may do; ``*`` for everything
    values: dict[str, str]  # by path; several values are joined by ``, ``
    form: Form | None = None  # in the answer to a search of several forms


@dataclass(frozen=True, slots=True)
class FoundDocuments:
    """The answer of another service to a search; ``total`` is as it is there, empty where it is not."""

    total: str
    documents: list[SearchResult]


DEFAULT_LANGUAGE = "en"


class FormField(Enum):
    """A property that forms are filtered and sorted by, with its name in requests."""

    APPLICATION_NAME = "application-name"
    FORM_NAME = "form-name"
    FORM_VERSION = "form-version"
    CREATED = "created"
    LAST_MODIFIED = "last-modified"
    LAST_MODIFIED_BY = "last-modified-by"
    TITLE = "title"
    AVAILABLE = "available"
    OPERATIONS = "operations"


class FormMatch(Enum):
    """The comparison of a filter, with its name in requests."""

    EXACT = "exact"
    SUBSTRING = "substring"
    TOKEN = "token"  # noqa: S105 - a word of the interface
    GTE = "gte"
    GT = "gt"
    LTE = "lte"
    LT = "lt"


Wanted = str | int | bool | datetime | tuple[str, ...]
"""Texts are case-folded; times are aware; a tuple holds the words of ``operations``."""


@dataclass(frozen=True, slots=True)
class FormFilter:
    """A condition on a form; ``wanted`` has the type of the field. An empty ``language`` stands for the first title."""

    metadata: FormField
    match: FormMatch
    wanted: Wanted
    language: str = DEFAULT_LANGUAGE


@dataclass(frozen=True, slots=True)
class FormSort:
    """An order of forms; ``language`` as in ``FormFilter``."""

    metadata: FormField = FormField.LAST_MODIFIED
    is_descending: bool = True
    language: str = DEFAULT_LANGUAGE


@dataclass(frozen=True, slots=True)
class FormQuery:
    """A request for form metadata."""

    app: str | None = None  # exactly this name, as ``form``
    form: str | None = None
    latest_only: bool | None = False  # before all other conditions (spec search 4.4); ``None``: a GET does not say
    all_forms: bool = False  # hidden ones, too
    ignore_admin: bool = False  # administrators do not see versions that are hidden from others
    filters: tuple[FormFilter, ...] = ()
    sort: FormSort = FormSort()
    page: PageRequest | None = None


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A published version in the list of another service; ``sum`` is a checksum of its whole entry."""

    form: Form
    number: int
    modified: Instant
    sum: int


SINCE, UNTIL = "data-last-modified-time-gte", "data-last-modified-time-lt"
_NAMES_IN_PATTERN = 3


class ExportedContent(Enum):
    """The kinds of content."""

    DEFINITIONS = "form-definition"
    DATA = "form-data"


class RevisionHistory(Enum):
    """The export of older revisions of form data, beside the current ones or alone."""

    EXCLUDE = "exclude"
    INCLUDE = "include"
    ONLY = "only"


@dataclass(frozen=True, slots=True)
class FormPattern:
    """A pattern of forms; ``None`` stands for any application or form."""

    app: str | None = None
    name: str | None = None
    version: int | Searched = Searched.ALL

    @property
    def form(self) -> Form | None:
        return None if self.app is None or self.name is None else Form(self.app, self.name)

    def matches(self, form: Form) -> bool:
        return self.app in (None, form.app) and self.name in (None, form.name)

    def __str__(self) -> str:
        version = self.version.value if isinstance(self.version, Searched) else self.version
        return f"{self.app or ''}/{self.name or ''}/{version}"


@dataclass(frozen=True, slots=True)
class ExportQuery:
    """The revisions to export: everything current, by default."""

    patterns: tuple[FormPattern, ...] = (FormPattern(),)
    contents: frozenset[ExportedContent] = frozenset(ExportedContent)
    history: RevisionHistory = RevisionHistory.EXCLUDE
    since: Instant | None = None  # of form data, as ``until``, which is exclusive
    until: Instant | None = None
    with_drafts: bool = False
    decrypts: bool = False
    document: str | None = None
    search: Query | None = None  # documents and drafts that it finds, with all permissions

    def is_in_range(self, instant: Instant) -> bool:
        return (self.since is None or instant >= self.since) and (self.until is None or instant < self.until)

    def versions(self, form: Form, latest: Callable[[], int]) -> VersionFilter | None:
        """Return the versions of a form that are exported; ``None`` where it is not. ``latest`` is called if needed."""
        asked = {pattern.version for pattern in self.patterns if pattern.matches(form)}
        if not asked:
            return None
        numbers = {each for each in asked if isinstance(each, int)}
        if Searched.LATEST in asked and Searched.ALL not in asked:
            numbers.add(latest())
        return VersionFilter(None if Searched.ALL in asked else frozenset(numbers))


@dataclass(frozen=True, slots=True)
class VersionFilter:
    """Versions of a form: ``None`` is all of them."""

    numbers: frozenset[int] | None

    def __contains__(self, version: int) -> bool:
        return self.numbers is None or version in self.numbers


def export_parameters(query: ExportQuery) -> list[tuple[str, str]]:
    return [
        *(("match", str(pattern)) for pattern in query.patterns),
        ("content", ",".join(sorted(each.value for each in query.contents))),
        ("data-revision-history", query.history.value),
        *((name, at) for name, at in ((SINCE, query.since), (UNTIL, query.until)) if at is not None),
        ("drafts", "include" if query.with_drafts else "exclude"),
        ("decrypt", "true" if query.decrypts else "false"),
    ]


def parse_pattern(text: str) -> FormPattern:
    """Read ``APP/FORM/VERSION``; parts that are empty, or missing at the end, stand for everything."""
    parts = text.split("/")
    if len(parts) > _NAMES_IN_PATTERN:
        raise BadRequestError(f"a match is APP/FORM/VERSION with a number, latest or all, not {text[:LONGEST_SHOWN]!r}")
    app, name, version = (*parts, "", "")[:_NAMES_IN_PATTERN]
    if version.strip() == Searched.LATEST.value:
        asked: int | Searched = Searched.LATEST
    else:
        asked = parse_searched(version or Searched.ALL.value)
    return FormPattern(app or None, name or None, asked)


def parse_patterns(texts: Sequence[str]) -> tuple[FormPattern, ...]:
    """Read patterns; none at all match everything."""
    if len(texts) > MOST_EXPORT_PATTERNS:
        raise BadRequestError(f"more than {MOST_EXPORT_PATTERNS} matches are not accepted at once")
    return tuple(map(parse_pattern, texts)) or (FormPattern(),)


def patterns_of(
    app: str | None, name: str | None, version: str | None, matches: Sequence[str]
) -> tuple[FormPattern, ...]:
    """Read the forms that a request names: by its path and the parameter ``form-version``, or by ``matches``."""
    if matches and (app or version):
        raise BadRequestError("match and the path, or form-version, are two ways to name forms: send one of them")
    return parse_patterns(matches or [f"{app or ''}/{name or ''}/{version or ''}"])


def parse_contents(text: str | None) -> frozenset[ExportedContent]:
    """Read the list of kinds of content; nothing means all."""
    words = [each.strip() for each in (text or "").split(",") if each.strip()]
    return frozenset(word(ExportedContent, each, "content") for each in words) or frozenset(ExportedContent)


def parse_history(text: str | None) -> RevisionHistory:
    return word(RevisionHistory, text, "data-revision-history") if text else RevisionHistory.EXCLUDE


def parse_range(since: str | None, until: str | None) -> tuple[Instant | None, Instant | None]:
    """Read the times between which form data was stored: as those of searches, without a zone in the server's own."""
    first, end = _bound(since, SINCE), _bound(until, UNTIL)
    if first is not None and end is not None and first >= end:
        raise BadRequestError(f"{first} is not before {end}")
    return first, end


def _bound(text: str | None, name: str) -> Instant | None:
    if not text or not text.strip():
        return None
    try:
        return first_from(parse_time(text.strip(), name))
    except OverflowError as error:
        raise BadRequestError(f"{name} is after the year 9999") from error
