"""The codec between the bytes that a client sees and those that are stored."""

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


class EncodedContent(Protocol):
    """A content on its way in, as it is to be stored."""

    @property
    def chunks(self) -> Iterable[bytes]:
        """The bytes, to be read once."""

    def described(self, sidecar: Sidecar, over: StoredRevision | None, definition: Definition) -> Sidecar:
        """Return the sidecar with what it must say of the bytes; to be called under the lock, when all are read.

        ``definition`` is the one that holds then.

        Raises:
            BusyError: the definition is not the one by which the bytes were made.
        """


@dataclass(frozen=True, slots=True)
class ReceivedContent:
    """A content as it is received: for a resource, by the definition of its version, over a revision.

    ``holder`` is as in ``Put``. ``may_read`` returns whether the caller may read a resource.
    """

    address: DocumentAddress
    definition: Definition
    over: StoredRevision | None
    holder: str | None
    may_read: Callable[[DocumentAddress], bool]
    chunks: Iterable[bytes]

    def described(self, sidecar: Sidecar, over: StoredRevision | None, definition: Definition) -> Sidecar:
        """Return the sidecar as it is: this is an ``EncodedContent`` in which nothing is changed."""
        del over, definition
        return sidecar


class Codec:
    """Stores and shows bytes as they are, which is the duty of a provider behind a proxy (spec crud 9, 11)."""

    def encode(self, content: ReceivedContent) -> EncodedContent:
        """Return what is to be stored of a content.

        Raises:
            ConfigurationError: it must be encrypted, and there is no key.
        """
        return content

    def needs_content(self, address: DocumentAddress, get: Get) -> bool:
        """Return whether a HEAD needs the content too."""
        del address, get
        return False

    def decode(self, read: Read, address: DocumentAddress, get: Get) -> Read:
        """Return what the client gets of a revision; its open content is taken over.

        Raises:
            DamagedError: it does not decrypt.
            ConfigurationError: the key to it is not here.
        """
        del address, get
        return read


AS_STORED = Codec()
