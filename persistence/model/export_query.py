"""The choice of an export: forms and versions, content, history and dates, as requests and commands name them.

The parameters are those of spec crud 8.4; ``drafts`` and ``decrypt`` are the service's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_SHOWN, MOST_EXPORT_PATTERNS
from persistence.model.addresses import Form
from persistence.model.instants import Instant, first_from, parse_time
from persistence.model.texts import word
from persistence.model.versions import Searched, parse_searched

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
        """The one form that it names; ``None`` for a wildcard."""
        return None if self.app is None or self.name is None else Form(self.app, self.name)

    def matches(self, form: Form) -> bool:
        return self.app in (None, form.app) and self.name in (None, form.name)

    def __str__(self) -> str:
        version = self.version.value if isinstance(self.version, Searched) else self.version
        return f"{self.app or ''}/{self.name or ''}/{version}"


@dataclass(frozen=True, slots=True)
class ExportQuery:
    """The revisions to export: everything current, by default.

    ``since`` is the first instant of form data that is exported, ``until`` the first after them, and ``document``, if
    given, the only document.
    """

    patterns: tuple[FormPattern, ...] = (FormPattern(),)
    contents: frozenset[ExportedContent] = frozenset(ExportedContent)
    history: RevisionHistory = RevisionHistory.EXCLUDE
    since: Instant | None = None
    until: Instant | None = None
    with_drafts: bool = False
    decrypts: bool = False
    document: str | None = None

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
    pairs = [("match", str(pattern)) for pattern in query.patterns]
    pairs += [("content", ",".join(sorted(each.value for each in query.contents)))]
    pairs += [("data-revision-history", query.history.value)]
    pairs += [(name, at) for name, at in ((SINCE, query.since), (UNTIL, query.until)) if at is not None]
    pairs += [("drafts", "include" if query.with_drafts else "exclude")]
    return [*pairs, ("decrypt", "true" if query.decrypts else "false")]


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
