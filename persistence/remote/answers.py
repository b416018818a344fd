"""Responses of another service: their statuses as errors, and bodies with a deadline (spec crud 13)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from itertools import islice

import httpx

from persistence.errors import (
    STATUS,
    BusyError,
    PersistenceError,
    RemoteError,
    RemoteFailureError,
    RemoteTimeoutError,
    one_line,
)
from persistence.limits import ANSWER_SECONDS, CHUNK

DONE = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT)
"""The statuses of changes that were done."""

_LARGEST_LINE = 1024
_MOST_LEFT, _LEFT_WITHIN = 2, 1.0
"""Pieces, the last one and the end, and seconds for action is left of a response that is closed."""

_PASSED_ON = {status: kind for kind, status in STATUS if status in {400, 403, 404, 409, 410, 412, 413, 423, 501, 507}}
"""Refusals that concern the client, as the errors of this service (spec crud 13)."""

_BUSY = (429, 503)
_LONGEST_WAIT = 60


class _TimedStream(httpx.SyncByteStream):
    """The bytes of a response as they arrive, and none after a deadline where there is one.

    ``timeouts`` are those of the request: httpcore looks at them when the first byte of the body is read.
    """

    def __init__(self, stream: httpx.SyncByteStream, timeouts: dict[str, float | None]) -> None:
        self._stream = stream
        self._timeouts = timeouts
        self._end: float | None = None

    def end_within(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        silence = self._timeouts.get("read")
        self._timeouts["read"] = seconds if silence is None else min(silence, seconds)

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            if self._end is not None and time.monotonic() > self._end:
                raise httpx.ReadTimeout("the deadline of the response is over")
            yield piece

    def close(self) -> None:
        self._stream.close()


class RemoteAnswer:
    """A response whose body is still to be read; it is closed when that is done, or by ``close``.

    What is read into memory must arrive within ``seconds``. ``timeouts`` are those of the request, in seconds.
    """

    def __init__(
        self,
        response: httpx.Response,
        label: str,
        seconds: float = ANSWER_SECONDS,
        timeouts: dict[str, float | None] | None = None,
    ) -> None:
        self._response = response
        self._label = label
        self._seconds = seconds
        own = {} if timeouts is None else timeouts
        self._stream = _TimedStream(response.stream, own)  # type: ignore[arg-type]  # httpx.Client makes no asynchronous one
        response.stream = self._stream
        self._pieces = response.iter_raw(CHUNK)
        self._first = b""
        self.status = response.status_code

    def field(self, name: str) -> str | None:
        """Return a header field, repeated ones joined."""
        found: str | None = self._response.headers.get(name)
        return found

    def fields(self, name: str) -> list[str]:
        return list(self._response.headers.get_list(name))

    @property
    def length(self) -> int | None:
        """The length of the body; for a HEAD, that of the body of a GET."""
        text = self.field("Content-Length") or ""
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None  # noqa: PLR2004 - digits of 2**63

    def __iter__(self) -> Iterator[bytes]:
        with http_errors(self._label, "the end of an answer"):
            if self._first:
                yield self._first
            # Not ``yield from``: a caller that stops iterating must not close the generator of the response.
            while (piece := next(self._pieces, None)) is not None:
                yield piece

    def skip(self, size: int) -> None:
        """Read and drop ``size`` bytes."""
        for piece in self:
            size -= len(piece)
            if size <= 0:
                self._first = piece[len(piece) + size :]
                return
        raise RemoteError(f"an answer of {self._label} ends early")

    def beginning(self) -> bytes:
        """Return the first piece of the body, at most CHUNK bytes."""
        self._stream.end_within(self._seconds)
        return next(iter(self), b"")

    def whole(self, limit: int) -> bytes:
        """Return the whole body."""
        data = bytearray()
        self._stream.end_within(self._seconds)
        try:
            for piece in self:
                data += piece
                if len(data) > limit:
                    raise RemoteError(f"{self._label} answers with more than {limit} bytes")
        finally:
            self.close()
        return bytes(data)

    def require(self, action: str, *statuses: int) -> None:
        """Raise the error for a refusal, unless the status is one of these."""
        if self.status not in statuses:
            raise self.refused(action)

    def refused(self, action: str) -> PersistenceError:
        """Return the error for a refusal, with its line of text, and close it.

        It is ``RemoteError`` where the refusal does not concern the client.
        """
        line = self.line()
        message = f"{self._label} says: {line}" if line else f"{self._label} answers {action} with {self.status}"
        if self.status in _BUSY:
            wait = self.field("Retry-After") or ""
            seconds = int(wait) if wait.isascii() and wait.isdigit() else 1
            return BusyError(message, min(max(seconds, 1), _LONGEST_WAIT))
        kind = _PASSED_ON.get(self.status)
        if kind is not None:
            return kind(message)
        failed = RemoteFailureError if self.status == HTTPStatus.INTERNAL_SERVER_ERROR else RemoteError
        return failed(f"{message} ({self.status})" if line else message)

    def line(self) -> str:
        """Return the line of text of a refusal, and close it."""
        line = b""
        try:
            if (self.field("Content-Type") or "").startswith("text/plain"):
                line = self.beginning()[:_LARGEST_LINE]
        except RemoteError:
            pass
        finally:
            self.close()
        return one_line(line.decode(errors="replace").partition("\n")[0])

    def close(self) -> None:
        """Release the connection, to be used again if little is left; a body may have no end."""
        if (self.length or 0) <= _LARGEST_LINE:
            self._stream.end_within(_LEFT_WITHIN)
            with suppress(httpx.HTTPError, httpx.StreamError):
                deque(islice(self._pieces, _MOST_LEFT), maxlen=0)
        self._response.close()


@contextmanager
def http_errors(label: str, action: str) -> Iterator[None]:
    """Translate the errors of httpx. Their texts may hold addresses, and those a password: they are left out."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise RemoteTimeoutError(f"{label} does not answer in time: {action}") from error
    except httpx.ConnectError as error:
        raise RemoteError(f"{label} cannot be reached: {action}") from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise RemoteError(f"{label} gives no proper answer: {action} ({type(error).__name__})") from error
