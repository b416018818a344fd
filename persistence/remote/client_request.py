"""The request of a client while it is served: what of it another service is told, and what was asked for it already."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """Header fields as WSGI has them: names in any case, values dressed as Latin-1 (PEP 3333).

    ``query`` is as it was sent, without its question mark; ``known`` is what others have said to calls for it.
    """

    method: str = "GET"
    query: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    known: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, ask: Callable[[], T]) -> T:
        """What ``ask`` says, which is asked once for the whole request."""
        if key not in self.known:
            self.known[key] = ask()
        found: T = self.known[key]
        return found

    def field_of(self, name: str) -> str | None:
        """The value of a field; ``None`` where it was not sent."""
        return next((value for key, value in self.fields if key.lower() == name.lower()), None)


_current: ContextVar[ClientRequest | None] = ContextVar("client_request", default=None)


def begin(request: ClientRequest) -> None:
    """Serve a request in this thread from now on, in the place of the one before."""
    _current.set(request)


def current() -> ClientRequest:
    """The request that is being served; outside of any, an empty one that remembers nothing."""
    return _current.get() or ClientRequest()
