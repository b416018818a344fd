"""Ranges of contents that another service has: only what a client wants is asked for (spec crud 4.7)."""

from __future__ import annotations

import re
from http import HTTPStatus

from persistence import client_request
from persistence.errors import RemoteError
from persistence.remote.client import Answer
from persistence.remote.names import Field

_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})?", re.ASCII)


def is_wanted() -> bool:
    """Whether the client asks for a range."""
    return client_request.current().field_of("Range") is not None


def asked_from(at: int, size: int) -> list[Field]:
    """The field that asks for a content of ``size`` bytes from an offset on, as far as the client wants it."""
    asked = _RANGE.fullmatch((client_request.current().field_of("Range") or "").strip())
    last = size - 1
    if asked is not None and asked[2] is not None and int(asked[1]) == at:
        last = min(int(asked[2]), last)
    return [("Range", f"bytes={at}-{last}".encode())] if (at, last) != (0, size - 1) else []


def go_to(at: int, answer: Answer) -> None:
    """Make sure that an answer goes on from an offset; ranges are optional (spec crud 11).

    Raises:
        RemoteError: it does not; it is closed.
    """
    try:
        if at and answer.status == HTTPStatus.OK:
            answer.skip(at)
        elif at and not (answer.field("Content-Range") or "").startswith(f"bytes {at}-"):
            raise RemoteError("a provider does not send the range that it was asked for")  # noqa: TRY301
    except RemoteError:
        answer.close()
        raise
