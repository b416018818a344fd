"""Short texts of headers, parameters and requests: check them, read them, and suggest the nearest known one."""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Container, Iterable, Sequence
from enum import Enum
from itertools import islice, takewhile
from operator import eq
from typing import TypeVar

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
    """Read one of the words of the interface, in exactly its letters."""
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
