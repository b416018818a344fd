"""Decisions about writes to form data: by what is stored, for what was received."""

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
    """The decision about a PUT, the definition that decided, and the user's operations on the document.

    With ``is_only`` it must become the only document of its user.
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
class EarlyDecision:
    """The decision about a PUT before its body is read.

    ``number`` is the version that the PUT names, and ``over`` the revision that was stored then.
    """

    number: int | None
    over: StoredRevision | None
    decision: Decision


@dataclass(frozen=True, slots=True)
class PutRequest:
    """A PUT whose body was received as an upload."""

    route: Route
    address: DocumentAddress
    put: Put
    early: EarlyDecision
    encoded: EncodedContent
    upload: Upload
    received: Received


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A PUT that was decided about under the lock: its sidecar will be stored ``over`` a revision."""

    request: PutRequest
    decision: Decision
    over: StoredRevision | None
    sidecar: Sidecar
