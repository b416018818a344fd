"""Instants: UTC with exactly three fraction digits, as the wire shows them (spec crud 4.3)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NewType

Instant = NewType("Instant", str)
"""An ISO 8601 text such as ``2025-03-04T05:06:07.089Z``; instants compare and sort as texts."""

_MILLISECOND = timedelta(milliseconds=1)


def to_datetime(instant: Instant) -> datetime:
    """The same moment as an aware ``datetime`` in UTC."""
    return datetime.fromisoformat(instant)


def from_datetime(moment: datetime) -> Instant:
    """The millisecond that holds an aware ``datetime``."""
    return Instant(moment.astimezone(UTC).isoformat(timespec="milliseconds")[:23] + "Z")


def next_after(previous: Instant | None) -> Instant:
    """Now, or one millisecond past ``previous`` when the clock has not moved beyond it.

    Two saves within a millisecond, or a clock set back, would otherwise give two revisions one instant, and
    ``last-modified-time`` (spec crud 4.8) could no longer tell them apart.
    """
    seconds, milliseconds = divmod(time.time_ns() // 1_000_000, 1000)
    now = Instant(f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{milliseconds:03d}Z")
    if previous is None or now > previous:
        return now
    return from_datetime(to_datetime(previous) + _MILLISECOND)


def parse(text: str) -> Instant:
    """Read an ISO 8601 instant with a time zone.

    Raises:
        ValueError: the text is no instant, has no time zone, or is finer than a millisecond.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    if moment.microsecond % 1000:
        raise ValueError("finer than a millisecond")
    return from_datetime(moment)


@lru_cache(maxsize=1024)
def epoch_seconds(instant: Instant) -> int:
    """Whole seconds since 1970, UTC."""
    return int(to_datetime(instant).timestamp())


def epoch_nanoseconds(instant: Instant) -> int:
    """Nanoseconds since 1970, UTC, exact to the millisecond."""
    return epoch_seconds(instant) * 1_000_000_000 + int(instant[20:23]) * 1_000_000
