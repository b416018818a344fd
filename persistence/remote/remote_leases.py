"""The leases that another service has of its documents: LOCK and UNLOCK are passed on to it (spec crud 2 and 7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from persistence.errors import LockedError, PersistenceError
from persistence.forms.lease_xml import read_lock, write_lock
from persistence.limits import LARGEST_LOCK
from persistence.model.addresses import DocumentAddress
from persistence.model.leases import LeaseHolder, parse_remaining
from persistence.model.users import User
from persistence.remote.answers import DONE
from persistence.remote.client import Client, RemoteCall
from persistence.remote.headers import HeaderField
from persistence.storage.layout import Layout
from persistence.storage.storage import Leases

NAMES = Layout("")
"""Names that cannot be kept here cannot be kept elsewhere."""


class RemoteLeases(Leases):
    """The leases of another service, which alone decides by them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def lock(
        self,
        address: DocumentAddress,
        holder: LeaseHolder,
        seconds: int,
        *,
        is_stored: bool = True,  # noqa: ARG002 - the other service looks
        is_by_form: bool = False,  # noqa: ARG002 - as above
    ) -> None:
        self._send("LOCK", address, holder, ("Timeout", b"Second-%d" % seconds))

    def unlock(self, address: DocumentAddress, holder: LeaseHolder, *, is_by_form: bool = False) -> None:  # noqa: ARG002 - as above
        self._send("UNLOCK", address, holder)

    def require(self, address: DocumentAddress, user: User) -> None:
        """Do nothing: the other service refuses, if its properties say so."""

    @contextmanager
    def protecting(self, address: DocumentAddress, user: User) -> Iterator[None]:  # noqa: ARG002 - see above
        yield

    def _send(self, method: str, address: DocumentAddress, holder: LeaseHolder, *fields: HeaderField) -> None:
        NAMES.paths(address)
        body = write_lock(holder)
        described = (("Content-Type", b"application/xml"), ("Content-Length", b"%d" % len(body)), *fields)
        call = RemoteCall(method, self._client.names.path(address), described, body=[body])
        answer = self._client.send(call)
        if answer.status == HTTPStatus.LOCKED:
            seconds = parse_remaining(answer.field("Timeout"))
            text = f"provider {self._client.who!r} says that somebody else has leased the document {address.document}"
            try:
                held = read_lock([answer.whole(LARGEST_LOCK)])
            except PersistenceError:
                raise LockedError(text, seconds=seconds) from None
            raise LockedError(f"{text}: {held.user}", user=held.user, group=held.group, seconds=seconds)
        answer.require(call.label, *DONE)
        answer.close()
