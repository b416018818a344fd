"""Decisions about writes to form data: by what is stored, for what has arrived."""

from __future__ import annotations

from dataclasses import dataclass

from persistence.definitions.catalog import Definition
from persistence.model.addresses import DocumentAddress
from persistence.model.permissions import Operations
from persistence.model.sidecar import Sidecar
from persistence.providers.provider import Route
from persistence.services.codec import EncodedContent
from persistence.services.rules import Put, Received
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.uploads import Upload


@dataclass(frozen=True, slots=True)
class Stored:
    """The stored state at the address of a write.

    ``current`` may be a tombstone, ``own`` is the living revision, ``main`` of an attachment its living ``data.xml``.
    """

    current: StoredRevision | None
    own: StoredRevision | None
    main: StoredRevision | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a PUT: the sidecar to store, and the definition that decided.

    ``operations`` are what the user may do with the document; ``creates`` says whether the document or attachment is
    new, and ``is_only`` whether it must be the only document of its user.
    """

    put: Put
    definition: Definition
    operations: Operations | None
    creates: bool
    is_only: bool


@dataclass(frozen=True, slots=True)
class Deletion:
    """The decision about a DELETE: the tombstone for what keeps a history, and the user's operations."""

    version: int
    tombstone: Sidecar
    operations: Operations | None


@dataclass(frozen=True, slots=True)
class Arrival:
    """A PUT whose body was received as an upload: ``number`` is the version that it names."""

    route: Route
    address: DocumentAddress
    put: Put
    number: int | None
    encoded: EncodedContent
    upload: Upload
    received: Received


@dataclass(frozen=True, slots=True)
class Ready:
    """An arrival that was decided about under the lock, and is to be stored ``over`` a revision with a sidecar."""

    arrival: Arrival
    decision: Decision
    over: StoredRevision | None
    sidecar: Sidecar
