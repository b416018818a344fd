"""How long things are kept: time spans, and the instants before which something is old enough to be removed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from persistence.errors import BadRequestError
from persistence.model.instants import Instant, from_datetime, parse_time
from persistence.model.texts import duration

FOREVER = "forever"
NONE = "none"

_LONG = re.compile(r"([1-9][0-9]{0,3})([wy])")
_DAYS = {"w": 7, "y": 365}
_DAY = 86_400
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)


def span(text: str) -> int:
    """Read weeks or years of 365 days, as 2y, or a shorter time span, as 30d or 1h30m; return its seconds."""
    found = _LONG.fullmatch(text)
    if found is not None:
        return int(found[1]) * _DAYS[found[2]] * _DAY
    try:
        return duration(text)
    except BadRequestError:
        raise BadRequestError(f"{text!r} is not a time span such as 12h, 30d, 6w or 2y") from None


def retention(text: str, *, may_be_none: bool) -> int | None:
    """Read how long something is kept; return seconds, 0 for ``none``, and ``None`` for ``forever``."""
    word = text.strip()
    if word == FOREVER:
        return None
    if word == NONE and may_be_none:
        return 0
    try:
        return span(word)
    except BadRequestError:
        words = f"{FOREVER} or {NONE}" if may_be_none else FOREVER
        raise BadRequestError(f"{text!r} is neither {words} nor a time span such as 30d, 6w or 2y") from None


def is_retention(text: str, *, may_be_none: bool) -> bool:
    try:
        retention(text, may_be_none=may_be_none)
    except BadRequestError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class RetentionPeriods:
    """How long the parts of a form's data are kept, in seconds; ``None`` is forever, and 0 not at all."""

    history: int | None = None
    tombstones: int | None = None
    drafts: int | None = None
    orphans: int | None = None


def cutoff(text: str, now: datetime) -> Instant:
    """Read how old something must be: a time span before ``now``, or a time or date before which it was stored."""
    try:
        seconds = span(text)
    except BadRequestError:
        try:
            moment = parse_time(text, "older-than")
        except BadRequestError:
            raise BadRequestError(
                f"older-than must be a time span such as 12h, 30d or 2y, or a date such as 2024-01-31, not {text!r}"
            ) from None
        if moment > now:
            raise BadRequestError(f"{text} is in the future: what is stored until then would be removed") from None
        return from_datetime(moment)
    return before(now, seconds)


def before(now: datetime, seconds: int) -> Instant:
    """Return the instant so many seconds before a time, or the first of the calendar."""
    try:
        return from_datetime(now - timedelta(seconds=seconds))
    except OverflowError:
        return from_datetime(_EARLIEST)
