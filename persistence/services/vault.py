"""What lies between the bytes that a client sees and those on disk: encryption, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from persistence.definitions.catalog import Definition
from persistence.model.addresses import DocumentAddress
from persistence.model.sidecar import Sidecar
from persistence.services.requests import Get
from persistence.services.results import Read
from persistence.storage.stored_revision import StoredRevision

MayRead = Callable[[DocumentAddress], bool]
"""Whether whoever calls may read a resource."""


@dataclass(frozen=True, slots=True)
class Intake:
    """What is about to be received: the resource, the definition of its version, and what it replaces.

    ``holder`` is as in ``Put``.
    """

    address: DocumentAddress
    definition: Definition
    over: StoredRevision | None
    holder: str | None
    may_read: MayRead


class Incoming(Protocol):
    """A body on its way in; ``chunks`` are what is to be stored, read once."""

    @property
    def chunks(self) -> Iterable[bytes]:
        """The bytes to store."""

    def noted(self, sidecar: Sidecar, over: StoredRevision | None, definition: Definition) -> Sidecar:
        """The sidecar with what it must say of them, asked under the lock, when all chunks have been read.

        Raises:
            BusyError: what holds for the sidecar's version is not what the chunks were made by.
        """


class Vault(Protocol):
    """Decides what is stored of form data and attachments, and what is shown of it."""

    def receive(self, intake: Intake, chunks: Iterable[bytes]) -> Incoming:
        """What is to be stored of a body.

        Raises:
            ConfigurationError: it must be encrypted, and there is no key.
        """

    def looks_inside(self, address: DocumentAddress, get: Get) -> bool:
        """Whether a HEAD needs the content too."""

    def show(self, read: Read, address: DocumentAddress, get: Get) -> Read:
        """What is found as the client gets it; its open content is taken over.

        Raises:
            DamagedError: it does not decrypt.
            ConfigurationError: the key to it is not here.
        """


@dataclass(frozen=True, slots=True)
class _AsReceived:
    chunks: Iterable[bytes]

    def noted(self, sidecar: Sidecar, over: StoredRevision | None, definition: Definition) -> Sidecar:
        """Nothing is to be said."""
        del over, definition
        return sidecar


class _AsStored:
    """Bytes in, bytes out: the duty of a provider behind a proxy (spec crud 9, 11)."""

    def receive(self, intake: Intake, chunks: Iterable[bytes]) -> Incoming:
        """As they are."""
        del intake
        return _AsReceived(chunks)

    def looks_inside(self, address: DocumentAddress, get: Get) -> bool:
        """It does not."""
        del address, get
        return False

    def show(self, read: Read, address: DocumentAddress, get: Get) -> Read:
        """As it is."""
        del address, get
        return read


AS_STORED: Vault = _AsStored()


def as_received(chunks: Iterable[bytes]) -> Incoming:
    """A body of which nothing is to be changed."""
    return _AsReceived(chunks)
