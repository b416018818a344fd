"""The request of a client while it is served: its headers for calls of other services, and the answers of those calls.

Apart from both ``http``, which begins it, and ``remote``, which passes it on: neither imports the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request: header fields as WSGI has them, names in any case, values as Latin-1 characters (PEP 3333)."""

    # ``query`` is as it was sent, without its question mark; ``known`` has what other services answered for it.
    method: str = "GET"
    query: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    known: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, ask: Callable[[], T]) -> T:
        """Return the result of ``ask``, which is called once for the whole request."""
        if key not in self.known:
            self.known[key] = ask()
        found: T = self.known[key]
        return found

    def field_of(self, name: str) -> str | None:
        """Return the value of a field; ``None`` where it was not sent."""
        return next((value for key, value in self.fields if key.lower() == name.lower()), None)


_current: ContextVar[ClientRequest | None] = ContextVar("client_request", default=None)


def begin(request: ClientRequest | None) -> None:
    """Serve a request in this thread from now on, instead of the one before; ``None`` for no request."""
    _current.set(request)


def current() -> ClientRequest:
    """Return the request that is being served; outside of any, an empty one that keeps nothing."""
    return _current.get() or ClientRequest()
