"""Texts that have a meaning: check them, read them as instants, time spans, counts, flags or keys, and write them.

Instants are UTC with three fraction digits (spec crud 4.3).
"""

from __future__ import annotations

import difflib
import heapq
import math
import re
import time
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice, takewhile
from operator import eq
from typing import NamedTuple, NewType, TypeVar

import msgspec

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_COMPARED, LONGEST_SHOWN, LONGEST_TEXT, MOST_COMPARED, MOST_KNOWN

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_COUNT = re.compile(r"0*[1-9][0-9]{0,17}", re.ASCII)
_AMOUNT = re.compile(r"[0-9]{1,6}")
_ENCODING = re.compile(
    r"""\ufeff?<\?xml[ \t\r\n]++version[ \t\r\n]*+=[ \t\r\n]*+(?:"[0-9.]*+"|'[0-9.]*+')"""
    r"""([ \t\r\n]++encoding[ \t\r\n]*+=[ \t\r\n]*+(?:"[A-Za-z][A-Za-z0-9._-]*+"|'[A-Za-z][A-Za-z0-9._-]*+'))"""
)
"""An XML declaration up to its encoding (XML 1.0, 2.8)."""
_SECONDS_OF = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_LEAST_SIMILARITY = 0.5  # The least similarity, from 0 to 1, with which one name is suggested for another

_Word = TypeVar("_Word", bound=Enum)
_encode = msgspec.json.Encoder(enc_hook=lambda value: str(value) if isinstance(value, str) else repr(value)).encode
_HIDDEN = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A))}
"""Characters that JSON leaves as they are, and that a terminal may obey: they are written as escapes."""


def json_line(values: object) -> bytes:
    """Return JSON on one line, without characters that a terminal may obey: fit for a log."""
    line = _encode(values)
    return line if line.isascii() and b"\x7f" not in line else line.decode().translate(_HIDDEN).encode()


def short(text: str | None, what: str) -> str | None:
    """Return the text without the blanks that may surround a header; ``None`` where it is absent or blank."""
    clean = (text or "").strip(" \t")
    if not clean:
        return None
    if len(clean) > LONGEST_TEXT:
        raise BadRequestError(f"the {what} is longer than {LONGEST_TEXT} characters")
    if not clean.isprintable():
        raise BadRequestError(f"the {what} holds control characters")
    return clean


WHOLE = "-UTF-8"
"""Ends the name of a header with a text that Latin-1 lacks, percent-encoded: another such service reads it."""


def without_encoding(xml: str) -> str:
    """Return decoded XML without the encoding in its declaration, which no longer applies."""
    declared = _ENCODING.match(xml)
    return xml if declared is None else xml[: declared.start(1)] + xml[declared.end(1) :]


def in_latin_1(text: str) -> str:
    """Return a text as the HTTP client of a runtime has it: with ``?`` for what Latin-1 lacks (spec runtime 3)."""
    return text if text.isascii() else text.encode("latin-1", "replace").decode("latin-1")


def require_plain(name: str) -> None:
    """Refuse a name in a path that has control characters, C1 included: a terminal may obey them."""
    # The tree accepts C1, as earlier versions did: files under such a name are kept, but no request reaches them.
    if _CONTROL.search(name):
        raise BadRequestError(f"a name in the path holds a character that is not allowed: {name!r}")


def flag(text: str | None, what: str, *, has_any_case: bool = False) -> bool | None:
    """Read ``true`` or ``false``, in any case only for form metadata (spec search 4.1); ``None`` if it is absent."""
    if text is None:
        return None
    word = text.lower() if has_any_case else text
    if word not in ("true", "false"):
        raise BadRequestError(f"{what} must be 'true' or 'false', not {text!r}")
    return word == "true"


def count(text: str, what: str, default: int) -> int:
    """Read a positive integer; return the default where the text is blank."""
    trimmed = text.strip()
    if trimmed and not _COUNT.fullmatch(trimmed):
        raise BadRequestError(f"{what} must be a positive integer of at most 18 digits, not {text!r}")
    return int(trimmed) if trimmed else default


def duration(text: str) -> int:
    """Read days, hours, minutes and seconds, each at most once and in this order; return seconds."""
    rest, total = text, 0
    for unit, seconds in _SECONDS_OF.items():
        amount, found, after = rest.partition(unit)
        if found and _AMOUNT.fullmatch(amount):
            total, rest = total + int(amount) * seconds, after
    if rest or not total:
        raise BadRequestError(f"{text!r} is not a time span such as 90s, 10m, 1h30m or 7d")
    return total


def is_descending(direction: str) -> bool:
    trimmed = direction.strip().lower()
    if trimmed not in ("asc", "desc"):
        raise BadRequestError(f"a sort needs a direction, asc or desc, not {direction!r}")
    return trimmed == "desc"


def word(words: type[_Word], text: str, what: str) -> _Word:
    try:
        return words(text)
    except ValueError:
        known = ", ".join(str(each.value) for each in words)
        raise BadRequestError(f"{text!r} is not a valid {what}: it must be one of {known}") from None


def known_parameters(
    pairs: Iterable[tuple[str, str]], known: Sequence[str], what: str, *, repeatable: Container[str] = ()
) -> dict[str, str]:
    """Return the parameters of a request by name; of a ``repeatable`` one, the last."""
    # Unknown names are refused: with a misspelt one, more would be exported, or an import would not be a trial.
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise BadRequestError(f"an {what} has no parameter {name[:LONGEST_SHOWN]!r}, only {', '.join(known)}")
        if name in found and name not in repeatable:
            raise BadRequestError(f"{name} is sent twice")
        found[name] = value
    return found


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.0) -> str | None:
    """Return the known name that is most similar, at least by ``cutoff`` (0 to 1); ``None`` without one."""
    name = name[:LONGEST_COMPARED]
    names = [each for each in islice(known, MOST_KNOWN) if len(each) <= LONGEST_COMPARED]
    if len(names) > MOST_COMPARED:
        names = heapq.nsmallest(MOST_COMPARED, names, key=lambda each: _outside(name, each))
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=cutoff)), None)


def similar(name: str, known: Iterable[str]) -> str | None:
    return nearest(name, known, cutoff=_LEAST_SIMILARITY)


def _outside(name: str, other: str) -> int:
    begins = _common(name, other)
    ends = _common(name[begins:][::-1], other[begins:][::-1])
    return len(name) + len(other) - 2 * (begins + ends)


def _common(first: str, second: str) -> int:
    return sum(takewhile(bool, map(eq, first, second)))


# Instants, and how long things are kept.

Instant = NewType("Instant", str)
"""An ISO 8601 text such as ``2025-03-04T05:06:07.089Z``; instants compare and sort as texts."""

LAST = Instant("9999-12-31T23:59:59.999Z")  # The last instant of the calendar

_LONGEST_WAIT = 20  # Milliseconds that a deletion waits for the clock
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


def from_epoch(seconds: float) -> Instant:
    return from_datetime(datetime.fromtimestamp(seconds, UTC))


def first_from(moment: datetime) -> Instant:
    """Return the first millisecond that begins at or after an aware ``datetime``."""
    return from_datetime(moment + timedelta(microseconds=-moment.microsecond % 1000))


def next_after(previous: Instant | None) -> Instant:
    """Return now, or one millisecond past ``previous`` when the clock has not moved beyond it."""
    # Two revisions with one instant could not be told apart by ``last-modified-time`` (spec crud 4.8).
    seconds, milliseconds = divmod(time.time_ns() // 1_000_000, 1000)
    now = Instant(f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{milliseconds:03d}Z")
    return now if previous is None or now > previous else one_later(previous)


def reached_after(previous: Instant) -> Instant:
    """Return an instant after ``previous`` that is not ahead of the clock, unless the clock was set back."""
    for _ in range(_LONGEST_WAIT):
        if previous < next_after(None):
            break
        time.sleep(0.001)
    return next_after(previous)


def one_later(instant: Instant) -> Instant:
    return from_datetime(to_datetime(instant) + _MILLISECOND)


def parse_instant(text: str) -> Instant:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    if moment.microsecond % 1000:
        raise ValueError("finer than a millisecond")
    return from_datetime(moment)


def parse_time(text: str, what: str) -> datetime:
    """Read a time of a query: ``dateTime`` or ``date`` of XML Schema, in UTC to the microsecond (spec search 0.3)."""
    # Without an offset it is in the server's own zone, and a date is its midnight. ``what`` names it in the error.
    with suppress(ValueError, OverflowError):
        return parse_moment(text).astimezone(UTC)
    raise BadRequestError(f"{what} must be a time such as 2025-03-04T05:06:07.089Z, not {text!r}")


def parse_moment(text: str) -> datetime:
    """Read a ``dateTime`` or ``date`` of XML Schema, with its offset if it has one."""
    # Raises ``ValueError`` and ``OverflowError``: a day that is in no calendar, a year that Python does not count.
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    day, clock, fraction, zone = found.groups(default="")
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
    with suppress(BadRequestError):
        return before(now, span(text))
    try:
        moment = parse_time(text, "older-than")
    except BadRequestError:
        raise BadRequestError(
            f"older-than must be a time span such as 12h, 30d or 2y, or a date such as 2024-01-31, not {text!r}"
        ) from None
    if moment > now:
        raise BadRequestError(f"{text} is in the future: what is stored until then would be removed")
    return from_datetime(moment)


def before(now: datetime, seconds: int) -> Instant:
    """Return the instant so many seconds before a time, or the first of the calendar."""
    try:
        return from_datetime(now - timedelta(seconds=seconds))
    except OverflowError:
        return from_datetime(_EARLIEST)


# Values of dates, times and numbers as keys that compare as texts.


class OrderedType(Enum):
    """A type of XML Schema whose values have an order, or of XForms, with its local name."""

    DATE = "date"
    DATE_TIME = "dateTime"
    TIME = "time"
    INTEGER = "integer"
    DECIMAL = "decimal"
    DOUBLE = "double"


_DERIVED = {
    "dateTimeStamp": OrderedType.DATE_TIME,
    "float": OrderedType.DOUBLE,
    **dict.fromkeys(("long", "int", "short", "byte", "nonNegativeInteger", "positiveInteger"), OrderedType.INTEGER),
    **dict.fromkeys(("unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte"), OrderedType.INTEGER),
    **dict.fromkeys(("negativeInteger", "nonPositiveInteger"), OrderedType.INTEGER),
}
_BY_NAME = {each.value: each for each in OrderedType} | _DERIVED
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?|INF)", re.ASCII)
_NUMBERS = {
    OrderedType.INTEGER: _INTEGER.fullmatch,
    OrderedType.DECIMAL: _DECIMAL.fullmatch,
    OrderedType.DOUBLE: _DOUBLE.fullmatch,
}
_LONGEST = 100  # Characters of a number, so that its key is short, too
_ZERO_EXPONENT = 5_000  # Is added to an exponent, so that it is a positive number of four digits
_COMPLEMENTS = str.maketrans("0123456789", "9876543210")
_ANY_DAY = "2000-01-01T"
LAST_KEY = "\x7f"  # After every key
_NEXT = "\x01"  # Makes the text after a key, before every other key


class KeyRange(NamedTuple):
    """The keys from ``low`` on, before ``high``."""

    low: str
    high: str


def type_named(name: str) -> OrderedType | None:
    """Return the type that a bind names, with any prefix; ``None`` where its values have no order."""
    return _BY_NAME.get(name.strip().rpartition(":")[2])


def key_of_value(text: str, of: OrderedType) -> str | None:
    """Return the key of a value, which has neither capitals nor control characters; ``None`` for an invalid value."""
    # A ``dateTime`` without a zone is in UTC; the zone of a ``date`` or ``time`` does not count.
    text = text.strip()
    if of in _NUMBERS:
        return _number_key(text) if len(text) <= _LONGEST and _NUMBERS[of](text) else None
    if ("T" in text) is not (of is OrderedType.DATE_TIME):
        return None
    with suppress(ValueError, OverflowError):
        moment = parse_moment(_ANY_DAY + text if of is OrderedType.TIME else text)
        if of is OrderedType.DATE:
            return str(moment.date())
        if of is OrderedType.TIME:
            return moment.time().isoformat("microseconds")
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return moment.replace(tzinfo=None).isoformat(" ", "microseconds")
    return None


def _number_key(text: str) -> str:
    """Return a sign, then exponent and digits; of a negative number their complements, and an end after every digit."""
    number = Decimal(text)
    is_negative, digits, _ = number.as_tuple()
    if not number:
        return "1"
    if number.is_infinite():
        return "0" if is_negative else "3"
    size = f"{number.adjusted() + _ZERO_EXPONENT:04d}{''.join(map(str, digits)).rstrip('0')}"
    return f"0{size.translate(_COMPLEMENTS)}~" if is_negative else f"2{size}"


def equal_to(bound: str, of: OrderedType, what: str) -> KeyRange:
    """Return the values that equal a bound; a day is all its times. ``what`` names the control in the error."""
    day = key_of_value(bound, OrderedType.DATE) if of is OrderedType.DATE_TIME else None
    if day is not None:
        return KeyRange(day, day + LAST_KEY)
    key = key_of_value(bound, of)
    if key is None:
        raise BadRequestError(f"{bound[:LONGEST_SHOWN]!r} is not a value of the type {of.value}, which {what!r} has")
    return KeyRange(key, key + _NEXT)
