"""Short texts that travel in headers and are kept in sidecars."""

from __future__ import annotations

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
