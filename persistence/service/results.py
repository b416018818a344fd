"""What the service answers, before it becomes status and headers."""

from __future__ import annotations

from dataclasses import dataclass

from persistence.model.addresses import Address
from persistence.model.operations import Operations
from persistence.model.sidecar import Sidecar
from persistence.store.reading import Found


@dataclass(frozen=True, slots=True)
class Read:
    """A revision to send; ``operations`` is ``None`` for definitions, which have none (spec crud 4.2)."""

    address: Address
    found: Found
    operations: Operations | None


@dataclass(frozen=True, slots=True)
class Written:
    """A revision that is stored: ``created`` tells 201 from 204."""

    address: Address
    sidecar: Sidecar
    created: bool
    operations: Operations | None


@dataclass(frozen=True, slots=True)
class Removed:
    """A resource that is gone; without a ``tombstone`` it left no trace (drafts)."""

    address: Address
    version: int
    tombstone: Sidecar | None
    operations: Operations | None
