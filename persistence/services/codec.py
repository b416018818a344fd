"""The codec between the bytes that a client sees and those that are stored: the same bytes, or encrypted ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from persistence.model.addresses import DocumentAddress
from persistence.model.sidecar import Sidecar
from persistence.services.requests import Get
from persistence.services.results import Read
from persistence.storage.stored_revision import StoredRevision

MayRead = Callable[[DocumentAddress], bool]
"""Returns whether the caller may read a resource."""


@dataclass(frozen=True, slots=True)
class ContentToStore:
    """A content that is about to be received: its resource, the version it will have, and the revision it replaces.

    ``holder`` is as in ``Put``.
    """

    address: DocumentAddress
    version: int
    over: StoredRevision | None
    holder: str | None
    may_read: MayRead


class EncodedContent(Protocol):
    """A content on its way in, as it is to be stored."""

    @property
    def chunks(self) -> Iterable[bytes]:
        """The bytes to store, to be read once."""

    def described(self, sidecar: Sidecar, over: StoredRevision | None) -> Sidecar:
        """Return the sidecar with what it must say of the bytes; to be called under the lock, when all are read.

        Raises:
            BusyError: the definition of the sidecar's version is not the one by which the bytes were made.
        """


class Codec(Protocol):
    """Decides what is stored of form data and attachments, and what is shown of it."""

    def encode(self, content: ContentToStore, chunks: Iterable[bytes]) -> EncodedContent:
        """Return what is to be stored of a body.

        Raises:
            ConfigurationError: it must be encrypted, and there is no key.
        """

    def needs_content(self, address: DocumentAddress, get: Get) -> bool:
        """Return whether a HEAD needs the content too."""

    def decode(self, read: Read, address: DocumentAddress, get: Get) -> Read:
        """Return what the client gets of a revision; its open content is taken over.

        Raises:
            DamagedError: it does not decrypt.
            ConfigurationError: the key to it is not here.
        """


@dataclass(frozen=True, slots=True)
class UnchangedContent:
    """An ``EncodedContent`` that is stored as it was received."""

    chunks: Iterable[bytes]

    def described(self, sidecar: Sidecar, over: StoredRevision | None) -> Sidecar:
        """Return the sidecar as it is."""
        del over
        return sidecar


class PlainCodec:
    """Stores and shows bytes as they are: the duty of a provider behind a proxy (spec crud 9, 11)."""

    def encode(self, content: ContentToStore, chunks: Iterable[bytes]) -> EncodedContent:
        """Return the body as it is."""
        del content
        return UnchangedContent(chunks)

    def needs_content(self, address: DocumentAddress, get: Get) -> bool:
        """Return False."""
        del address, get
        return False

    def decode(self, read: Read, address: DocumentAddress, get: Get) -> Read:
        """Return the revision as it is."""
        del address, get
        return read


PLAIN: Codec = PlainCodec()
