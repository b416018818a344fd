"""Text of people and files, fit for a terminal."""

from __future__ import annotations

import os
import re
import sys
import unicodedata

import click

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves the cursor, ends a line, turns the direction of what follows, or is half a character."""

_WIDE = ("W", "F")


def safe(text: str) -> str:
    """The text with a mark in place of each character that could do more than be seen."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def shown_path(path: str) -> str:
    """A path on one line; a name that is not UTF-8 is shown as far as it is."""
    return safe(os.fsencode(path).decode("utf-8", "replace"))


def width(text: str) -> int:
    """How many columns a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in _WIDE else 1 for each in text
    )


def cut(text: str, columns: int) -> str:
    """The text, or as much of it as fits into at least one column, with a mark at its end."""
    if width(text) <= columns:
        return text
    while text and width(text) >= columns:
        text = text[:-1]
    return f"{text}…"


def counted(number: int, what: str) -> str:
    """A number of things: ``1 draft``, ``2 drafts``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def say(line: str) -> None:
    """Print a line; what the terminal's encoding does not have becomes a question mark."""
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(line.encode(encoding, "replace").decode(encoding))
