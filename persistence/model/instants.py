"""Instants, UTC with three fraction digits (spec crud 4.3), and how long things are kept."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NewType

from persistence.errors import BadRequestError
from persistence.model.texts import duration

Instant = NewType("Instant", str)
"""An ISO 8601 text such as ``2025-03-04T05:06:07.089Z``; instants compare and sort as texts."""

LAST = Instant("9999-12-31T23:59:59.999Z")  # The last instant of the calendar

_MILLISECOND = timedelta(milliseconds=1)
_SECOND = 1_000_000_000  # Nanoseconds
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:T([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?)?"
    r"(Z|[+-](?:0[0-9]:[0-5][0-9]|1(?:[0-3]:[0-5][0-9]|4:00)))?",
    re.ASCII,
)
_END_OF_DAY = "24:00:00"


to_datetime: Callable[[Instant], datetime] = datetime.fromisoformat
"""Returns the same moment as an aware ``datetime`` in UTC."""


def from_datetime(moment: datetime) -> Instant:
    """Return the millisecond that holds an aware ``datetime``."""
    return Instant(moment.astimezone(UTC).isoformat(timespec="milliseconds")[:23] + "Z")


def first_from(moment: datetime) -> Instant:
    """Return the first millisecond that begins at or after an aware ``datetime``."""
    return from_datetime(moment + timedelta(microseconds=-moment.microsecond % 1000))


def next_after(previous: Instant | None) -> Instant:
    """Return now, or one millisecond past ``previous`` when the clock has not moved beyond it."""
    # Two revisions with one instant could not be told apart by ``last-modified-time`` (spec crud 4.8).
    seconds, milliseconds = divmod(time.time_ns() // 1_000_000, 1000)
    now = Instant(f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{milliseconds:03d}Z")
    return now if previous is None or now > previous else one_later(previous)


def one_later(instant: Instant) -> Instant:
    return from_datetime(to_datetime(instant) + _MILLISECOND)


def parse(text: str) -> Instant:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    if moment.microsecond % 1000:
        raise ValueError("finer than a millisecond")
    return from_datetime(moment)


def parse_time(text: str, what: str) -> datetime:
    """Read a time of a query: ``dateTime`` or ``date`` of XML Schema, in UTC to the microsecond (spec search 0.3)."""
    # Without an offset it is in the server's own zone, and a date is its midnight. ``what`` names it in the error.
    found = _TIME.fullmatch(text)
    if found is not None:
        with suppress(ValueError, OverflowError):  # a day that is in no calendar, a year that Python does not count
            return _moment(*found.groups(default="")).astimezone(UTC)
    raise BadRequestError(f"{what} must be a time such as 2025-03-04T05:06:07.089Z, not {text!r}")


def _moment(day: str, clock: str, fraction: str, zone: str) -> datetime:
    is_end = clock == _END_OF_DAY and not fraction.strip("0")
    whole = datetime.fromisoformat(f"{day}T{'00:00:00' if is_end or not clock else clock}{zone}")
    return whole + timedelta(days=is_end, microseconds=int(fraction[:6].ljust(6, "0")))


def shortest(instant: Instant) -> str:
    """Return an instant without fraction digits where they are all zero (spec search 0.3)."""
    return f"{instant[:19]}Z" if instant.endswith(".000Z") else instant


def epoch_nanoseconds(instant: Instant) -> int:
    """Return nanoseconds since 1970, UTC, exact to the millisecond; ``ValueError`` for a day that does not exist."""
    return math.floor(to_datetime(instant).timestamp()) * _SECOND + int(instant[20:23]) * 1_000_000


def epoch_seconds(instant: Instant) -> int:
    """Return whole seconds since 1970, UTC; ``ValueError`` for a day that does not exist."""
    return epoch_nanoseconds(instant) // _SECOND


def is_in_calendar(instant: Instant) -> bool:
    """Return False for a text that looks like an instant and is not one, such as the 30th of February."""
    try:
        epoch_nanoseconds(instant)
    except ValueError:
        return False
    return True


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
