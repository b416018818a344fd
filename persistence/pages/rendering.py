"""How values look on the pages: bytes, numbers, times."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from markupsafe import Markup, escape

from persistence.limits import LONGEST_CELL

_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")
_STEP = 1000
_WHOLE = 100
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_SECOND = 19
_NOTHING = "\u2013"
"""The dash in place of a missing value."""


def bytes_of(count: float | None) -> str:
    """Return a number of bytes in the unit that suits it: ``12.4 MB``."""
    if count is None:
        return _NOTHING
    value, unit = float(count), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    if unit == 0:
        return f"{int(value)} {'byte' if value == 1 else 'bytes'}"
    return f"{value:.0f} {_UNITS[unit]}" if value >= _WHOLE else f"{value:.1f} {_UNITS[unit]}"


def number(count: float | None) -> str:
    """Return a number with a thin space between thousands, a dash for ``None``."""
    return _NOTHING if count is None else f"{count:,}".replace(",", "\u202f")


def cut(text: str) -> str:
    """Return a text for a cell of a table, on one line and shortened."""
    short = text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…"
    return " ".join(short.split())


def instant(text: str | None) -> Markup:
    """Return an instant in UTC to the second, with the exact one behind it. It wraps between date and time only."""
    if not text:
        return escape(_NOTHING)
    date, _, clock = text[:_SECOND].partition("T")
    return Markup('<time datetime="{}"><span>{}</span> <span>{}</span></time>').format(text, date, clock)


def moment(seconds: float | None) -> Markup:
    """Return a time in seconds since 1970 as an instant."""
    return instant(None if seconds is None else f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:_SECOND]}Z")


def ago(seconds: float | None) -> str:
    """Return the age of a time in seconds since 1970: ``3 hours ago``."""
    return "never" if seconds is None else f"{duration(max(0.0, time.time() - seconds))} ago"


def duration(seconds: float) -> str:
    """Return a length of time in its largest unit."""
    for size, name in ((_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute"), (1, "second")):
        count = int(seconds // size)
        if count or size == 1:
            return f"{count} {name}{'' if count == 1 else 's'}"
    return ""


FILTERS = {
    "bytes": bytes_of,
    "number": number,
    "cut": cut,
    "instant": instant,
    "moment": moment,
    "ago": ago,
    "duration": duration,
}
"""The filters of templates."""
