"""Values of dates, times and numbers as keys that compare as texts."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC
from decimal import Decimal
from enum import Enum
from typing import NamedTuple

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_SHOWN
from persistence.model.texts import parse_moment


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
    # What has no zone is in UTC, and the zone of a date, or of a time without one, does not count.
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
