"""Calls of a service, repeated a bounded number of times where that is safe (RFC 9110 9.2.2), and its refusals.

Requests that only read are repeated, and changes with a precondition, which the first, lost request makes fail.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

import httpcore
import httpx

from persistence import __version__, errors
from persistence.forms.messages import read_lock
from persistence.limits import LARGEST_LOCK
from persistence.model.versions import parse_remaining
from persistence.wire import UNIX, Answer, Call, CallPolicy, Connection, Peer, whole_number

_SERVICE = Peer("the service", "the connection to the service broke")
_CONDITIONS: dict[int, type[errors.PersistenceError]] = {
    **{status: kind for kind, status in reversed(errors.STATUS)},
    500: errors.RemoteFailureError,
    507: errors.DiskFullError,
}
_LAST_SAVE = re.compile(r'current ETag "([^"]*)", saved at ([0-9T:.Z-]+)')


def refusal(answer: Answer, action: str) -> errors.PersistenceError:
    """Return the exception for a refusal, which is read and closed.

    Its text is the line of the service, its note the id of the request in the service's log. ``action`` is the request.
    """
    kind, headers = _CONDITIONS.get(answer.status, errors.RemoteError), answer.headers
    error = (
        _leased(answer) if kind is errors.LockedError and answer.content_type.startswith("application/xml") else None
    )
    if error is None:
        text = answer.line() or f"{action} was answered with {answer.status}"
        found = _LAST_SAVE.match(text)
        if kind is errors.LockedError:
            error = errors.LockedError(text, seconds=parse_remaining(headers.get("Timeout")))
        elif kind is errors.PreconditionError and found is not None:
            error = errors.PreconditionError(text, etag=found[1], saved=found[2])
        elif kind is errors.BusyError:
            wait = whole_number(headers.get("Retry-After", ""))
            error = errors.BusyError(text, 1 if wait is None else wait)
        elif kind is errors.RangeError:
            error = errors.RangeError(whole_number(headers.get("Content-Range", "").rpartition("/")[2]) or 0)
        elif httpx.codes.is_redirect(answer.status):
            error = errors.RemoteError(f"{text}: redirects are not followed")
        else:
            error = kind(text)
    request_id = headers.get("X-Request-Id")
    if request_id is not None:
        error.add_note(f"{action}: status {answer.status}, request {errors.one_line(request_id)}")
    return error


def _leased(answer: Answer) -> errors.PersistenceError | None:
    seconds = parse_remaining(answer.headers.get("Timeout"))
    with suppress(errors.PersistenceError):
        holder = read_lock([answer.whole(LARGEST_LOCK)])
        left = "" if seconds is None else f" for {seconds} more seconds"
        text = f"{holder.user} has leased the document{left}"
        return errors.LockedError(text, user=holder.user, group=holder.group, seconds=seconds)
    return None


_KEY = re.compile("[!-~]+")
_FIRST_WAIT = 0.1
_USUAL = CallPolicy()

T = TypeVar("T")


def authorization(key: str | None) -> tuple[tuple[str, str], ...]:
    """Return the header with an API key. Raises ``BadRequestError`` if it is not a valid key."""
    if key is None:
        return ()
    if not _KEY.fullmatch(key.strip()):
        raise errors.BadRequestError("a key has letters, digits and signs of ASCII only, and no spaces")
    return (("Authorization", f"Bearer {key.strip()}"),)


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """An answer that was read to its end."""

    status: int
    headers: httpx.Headers
    body: bytes

    def values(self, read: Callable[[list[bytes]], T]) -> T:
        """Return the values that it has; raise ``RemoteError`` for an answer that such a service does not give."""
        try:
            return read([self.body])
        except errors.MalformedXmlError as error:
            raise errors.RemoteError(f"the service gives no proper answer: {error}") from error


class ServiceConnection:
    """The connections to one service, with the repetitions of a policy. Threads may share them.

    ``url`` is ``http://HOST:PORT``, ``https://…``, or ``unix:`` and the path of a socket. ``fields`` are headers of
    every call. Raises ``BadRequestError`` if ``url`` is not such an address.
    """

    def __init__(self, url: str, fields: Sequence[tuple[str, str]] = (), policy: CallPolicy = _USUAL) -> None:
        if not url.startswith(UNIX) or url == UNIX:
            try:
                parsed = httpx.URL(url)
            except (httpx.InvalidURL, TypeError):
                parsed = httpx.URL()
            is_plain = not (parsed.userinfo or parsed.query or parsed.fragment)
            if parsed.scheme not in ("http", "https") or not parsed.host or not is_plain:
                shown = "a text with @, and perhaps a password," if "@" in url else repr(url)
                raise errors.BadRequestError(
                    f"{shown} is not a valid address of a service, such as http://127.0.0.1:8080 or"
                    " unix:/run/persistence/socket"
                )
        self.url = url
        self._policy = policy
        self._query: tuple[tuple[str, str], ...] = ()
        own = (("Accept", "*/*"), ("Connection", "keep-alive"), ("User-Agent", f"persistence/{__version__}"))
        self._connection = Connection(url, policy, (*own, *fields))

    def close(self) -> None:
        self._connection.close()

    def with_query(self, *pairs: tuple[str, str]) -> ServiceConnection:
        """Return these connections with parameters that every call gets, and that no error names."""
        other = copy(self)
        other._query = pairs  # noqa: SLF001 - its own class
        return other

    def read(self, call: Call) -> ServiceAnswer:
        """Return the answer to a call, read into memory; raise the error of a refusal, or ``RemoteError``."""
        largest = self._policy.largest
        too_large = errors.BadRequestError(f"the answer to {call.label} has more than {largest} bytes: stream it")

        def whole(answer: Answer) -> ServiceAnswer:
            return ServiceAnswer(answer.status, answer.headers, answer.whole(largest, too_large))

        return self._repeated(call, whole)

    def open(self, call: Call) -> Answer:
        """Return the answer to a call, whose content is still to be read; raises as ``read`` does."""
        return self._repeated(call, lambda answer: answer)

    def _repeated(self, call: Call, take: Callable[[Answer], T]) -> T:
        began, was_lost = time.monotonic(), False
        for attempt in count(1):
            try:
                return take(self._sent(call))
            except errors.PersistenceError as error:
                if was_lost and not isinstance(
                    error, errors.BusyError | errors.RemoteError | errors.RemoteTimeoutError
                ):
                    error.add_note(
                        f"{call.method} was repeated after a lost answer: the first may have been carried out"
                    )
                    raise
                wait = error.retry_after if isinstance(error, errors.BusyError) else _FIRST_WAIT * 2 ** (attempt - 1)
                is_last = attempt >= self._policy.attempts or time.monotonic() - began + wait > self._policy.patience
                if is_last or not _may_repeat(call, error):
                    raise
                was_lost = was_lost or (call.method not in ("GET", "HEAD") and _is_lost(error))
            time.sleep(wait)
        raise AssertionError  # the loop ends by return or raise

    def _sent(self, call: Call) -> Answer:
        sent = replace(call, query=(*call.query, *self._query))
        try:
            answer = self._connection.call(sent, _SERVICE)
        except errors.RemoteError as error:
            if isinstance(error.__cause__, httpcore.LocalProtocolError):
                raise errors.BadRequestError(
                    f"{call.label} cannot be sent: a header has a character that is not allowed, or the content was"
                    " changed"
                ) from error
            raise
        if answer.status not in range(200, 300) and answer.status not in call.also:
            raise refusal(answer, call.label)
        answer.require_uncoded()
        return answer


def _may_repeat(call: Call, error: errors.PersistenceError) -> bool:
    if call.content is not None and not call.content.is_repeatable:
        return False
    if isinstance(error.__cause__, httpcore.ConnectError | httpcore.ConnectTimeout):  # nothing of it was sent
        return True
    return call.is_safe and (isinstance(error, errors.BusyError) or _is_lost(error))


def _is_lost(error: errors.PersistenceError) -> bool:
    """Return whether there was no answer, so that nobody knows what was done."""
    is_unanswered = isinstance(error, errors.RemoteError | errors.RemoteTimeoutError) and error.__cause__ is not None
    return is_unanswered and not isinstance(error.__cause__, httpcore.ConnectError | httpcore.ConnectTimeout)
