"""Start tags taken apart where a parser only tells what they say: where they end, and where their attributes are.

What is given has been parsed already, or is what a parser is about to see, so it is not judged here. Everything takes
time that is linear in the length of a tag: nothing in the patterns can match in two ways (``++`` and ``*+`` give
nothing back), and each is tried only where the one before has ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_S = r"[ \t\r\n]"
_BEGIN = re.compile(r"<[^ \t\r\n<>/=\"'!?]++")
_ATTRIBUTE = re.compile(rf"{_S}*+([^ \t\r\n<>/=\"']++){_S}*+={_S}*+(?:\"[^\"]*+\"|'[^']*+')")
_END = re.compile(rf"{_S}*+/?+>")


class Attribute(NamedTuple):
    """An attribute, with the blanks before it: its name as it is written, and where it begins and ends in the text."""

    name: str
    begin: int
    end: int


def attributes(text: str) -> Iterator[Attribute]:
    """The attributes of the start tag with which a text begins, as far as they are whole; none of anything else."""
    match = _BEGIN.match(text)
    while match is not None:
        at = match.end()
        match = _ATTRIBUTE.match(text, at)
        if match is not None:
            yield Attribute(match[1], at, match.end())


def end_of(text: str) -> int | None:
    """The length of the start tag with which a text begins; ``None`` where it is not whole."""
    begin = _BEGIN.match(text)
    if begin is None:
        return None
    at = begin.end()
    for attribute in attributes(text):
        at = attribute.end
    end = _END.match(text, at)
    return None if end is None else end.end()
