"""Errors of the service as exceptions: one class for each condition, those of ``persistence.errors``."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx

from persistence.errors import (
    STATUS,
    BadRequestError,
    BusyError,
    DiskFullError,
    LockedError,
    PersistenceError,
    PreconditionError,
    RangeError,
    RemoteError,
    RemoteFailureError,
    RemoteTimeoutError,
    one_line,
)
from persistence.forms.lease_xml import read_lock

_LONGEST_LINE = 4096
"""Bytes of a refusal that are read: a line has at most 300 characters, a holder two names."""

_CONDITIONS: dict[int, type[PersistenceError]] = {
    **{status: kind for kind, status in reversed(STATUS)},
    500: RemoteFailureError,
    507: DiskFullError,
}
_LAST_SAVE = re.compile(r'current ETag "([^"]*)", saved at ([0-9T:.Z-]+)')
_NUMBER = re.compile("[0-9]{1,18}")
_LEFT = re.compile("Second-([0-9]{1,9})")


def whole_number(text: str) -> int | None:
    """Return the number in a header; ``None`` for a text that no service sends."""
    return int(text) if _NUMBER.fullmatch(text) else None


def refusal(response: httpx.Response, action: str, seconds: float) -> PersistenceError:
    """Return the exception for a refusal, which is read for at most so many ``seconds``, and closed.

    Its text is the line of the service, its note the id of the request in the service's log. ``action`` is the request.
    """
    body = _beginning(response, seconds)
    kind = response.headers.get("Content-Type", "")
    line = one_line(body.decode(errors="replace").partition("\n")[0]) if kind.startswith("text/plain") else ""
    error = _error(response, line or f"{action} was answered with {response.status_code}", body)
    request_id = response.headers.get("X-Request-Id")
    if request_id is not None:
        error.add_note(f"{action}: status {response.status_code}, request {one_line(request_id)}")
    return error


def _error(response: httpx.Response, text: str, body: bytes) -> PersistenceError:
    status = response.status_code
    kind = _CONDITIONS.get(status, RemoteError)
    if kind is PreconditionError:
        found = _LAST_SAVE.match(text)
        return PreconditionError(text, etag=found[1], saved=found[2]) if found else PreconditionError(text)
    if kind is LockedError:
        left = _LEFT.fullmatch(response.headers.get("Timeout", ""))
        seconds = int(left[1]) if left else None
        if response.headers.get("Content-Type", "").startswith("application/xml"):
            with suppress(PersistenceError):
                holder = read_lock([body])
                text = f"{holder.user} has leased the document" + (f" for {seconds} more seconds" if left else "")
                return LockedError(text, user=holder.user, group=holder.group, seconds=seconds)
        return LockedError(text, seconds=seconds)
    if kind is BusyError:
        wait = whole_number(response.headers.get("Retry-After", ""))
        return BusyError(text, 1 if wait is None else wait)
    if kind is RangeError:
        return RangeError(whole_number(response.headers.get("Content-Range", "").rpartition("/")[2]) or 0)
    if response.is_redirect:
        return RemoteError(f"{text}: redirects are not followed")
    return kind(text)


def _beginning(response: httpx.Response, seconds: float) -> bytes:
    body, end = b"", time.monotonic() + seconds
    try:
        for piece in response.iter_raw():
            body += piece
            if len(body) >= _LONGEST_LINE or time.monotonic() > end:
                break
    except httpx.HTTPError:  # the status says enough
        pass
    finally:
        response.close()
    return body[:_LONGEST_LINE]


@contextmanager
def transport_errors(action: str) -> Iterator[None]:
    """Translate the errors of httpx in a block. Their texts may hold addresses with a password: they are left out."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise RemoteTimeoutError(f"the service does not answer in time: {action}") from error
    except httpx.ConnectError as error:
        raise RemoteError(f"the service cannot be reached: {action}") from error
    except httpx.LocalProtocolError as error:
        raise BadRequestError(
            f"{action} cannot be sent: a header has a character that is not allowed, or the content was changed"
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise RemoteError(f"the connection to the service broke: {action} ({type(error).__name__})") from error
