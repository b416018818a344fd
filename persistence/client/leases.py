"""Leases of documents: a user holds one while editing, so that a second user is told."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from persistence.client.caller import XML, ServiceCaller
from persistence.client.connection import ServiceCall
from persistence.client.content import OutgoingContent
from persistence.errors import BadRequestError, PersistenceError
from persistence.forms.lease_xml import write_lock
from persistence.model.leases import LeaseHolder


class HeldLease:
    """The lease of a document by the user of a client: taken when it is made, and given back at the end of a ``with``.

    ``seconds`` is how long it lasts, unless it is renewed.

    Raises:
        BadRequestError: the client has no user.
        LockedError: somebody else holds it: ``user`` and ``seconds`` say who, and for how long.
        ForbiddenError: leases are switched off; or they are enforced, and the user may not save the document.
    """

    def __init__(self, caller: ServiceCaller, path: str, seconds: int) -> None:
        if caller.user.name is None:
            raise BadRequestError("a lease needs a user: give the client one")
        self.seconds = seconds
        self._caller = caller
        self._path = path
        self._body = write_lock(LeaseHolder(caller.user.name, caller.user.group))
        self.renew()

    def renew(self) -> None:
        """Make it last for ``seconds`` from now on."""
        self._send("LOCK", ("Timeout", f"Second-{self.seconds}"))

    def end(self) -> None:
        """Give it back. Nothing happens if it has expired."""
        self._send("UNLOCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        try:
            self.end()
        except PersistenceError:
            if kind is None:
                raise

    def _send(self, method: str, *fields: tuple[str, str]) -> None:
        content = OutgoingContent(self._body)
        # Safe to repeat: the same holder renews or ends the same lease.
        sent = (XML, *fields, *self._caller.fields())
        call = ServiceCall(method, self._path, sent, content=content, is_safe=True)
        self._caller.connection.read(call)
