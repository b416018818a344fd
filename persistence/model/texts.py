"""Short texts that travel in headers and are kept in sidecars."""

from __future__ import annotations

import re

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_TEXT


def short(text: str | None, what: str) -> str | None:
    """The text without surrounding blanks; ``None`` where it is absent or blank.

    Only the blanks that may surround a header are meant: a name with another character is another name.

    Raises:
        BadRequestError: it is longer than 255 characters or holds control characters.
    """
    clean = (text or "").strip(" \t")
    if not clean:
        return None
    if len(clean) > LONGEST_TEXT:
        raise BadRequestError(f"the {what} is longer than {LONGEST_TEXT} characters")
    if not clean.isprintable():
        raise BadRequestError(f"the {what} holds control characters")
    return clean


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def require_plain(name: str) -> None:
    """Make sure that a name in a path has no control characters, those of C1 included: a terminal may obey them.

    The tree takes those of C1, because earlier versions did: what is stored under such a name is kept, and not reached.

    Raises:
        BadRequestError: it has one.
    """
    if _CONTROL.search(name):
        raise BadRequestError(f"a name in the path holds a character that is not allowed: {name!r}")
