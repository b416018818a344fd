"""The answers of the services, before they become status and headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from persistence.model.addresses import Address
from persistence.model.permissions import Operations
from persistence.model.sidecar import Sidecar, plain_tag
from persistence.storage.stored_revision import UNKNOWN_SIZE, StoredRevision

Decryption = Callable[[Iterable[bytes]], Iterator[bytes]]
"""Turns stored form data into what a client gets."""


@dataclass(frozen=True, slots=True)
class Read:
    """A revision to send; ``operations`` is ``None`` for definitions, which have none (spec crud 4.2).

    ``decryption`` decrypts values on the way; ``None`` where there are none. ``is_decrypted`` says that
    what is found is the plain content of an encrypted file.
    """

    address: Address
    found: StoredRevision
    operations: Operations | None
    decryption: Decryption | None = None
    is_decrypted: bool = False

    @property
    def etag(self) -> str:
        """The entity tag of what is sent: of a decrypted attachment, not that of its stored bytes (RFC 9110 8.8.3)."""
        return plain_tag(self.found.etag) if self.is_decrypted else self.found.etag

    @property
    def size(self) -> int | None:
        """The bytes of the content; ``None`` where another service does not say how many they are."""
        return None if self.found.size == UNKNOWN_SIZE else self.found.size

    @property
    def is_told_by_date(self) -> bool:
        """Return whether the date tells what is sent from anything else.

        A content replaced by hand is newer than its date, and an encrypted attachment has one date for what is stored
        and what is decrypted.
        """
        is_of_two = self.is_decrypted or (self.found.sidecar.encrypted and not self.address.is_main)
        return not (is_of_two or self.found.is_edited)


@dataclass(frozen=True, slots=True)
class Written:
    """A revision that is stored: ``created`` tells 201 from 204."""

    address: Address
    sidecar: Sidecar
    created: bool
    operations: Operations | None


@dataclass(frozen=True, slots=True)
class Cleared:
    """How many documents a DELETE of all data of a form has deleted, and how many the user may not delete.

    ``refusal`` is the reason of the first of those.
    """

    deleted: int
    refused: int
    refusal: str = ""

    @property
    def is_refused(self) -> bool:
        """Return whether there were documents, and the user may delete none of them."""
        return self.refused > 0 and self.deleted == 0


@dataclass(frozen=True, slots=True)
class Removed:
    """A resource that is gone; without a ``tombstone`` it left no trace (drafts)."""

    address: Address
    version: int
    tombstone: Sidecar | None
    operations: Operations | None
