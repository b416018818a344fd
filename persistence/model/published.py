"""A published version of a form definition, as far as others need to know it."""

from __future__ import annotations

from dataclasses import dataclass

from persistence.model.addresses import Form
from persistence.model.instants import Instant
from persistence.model.metadata import FormMetadata
from persistence.model.permissions import Permissions


@dataclass(frozen=True, slots=True)
class Published:
    """A version that is published, or was until it was deleted.

    ``created`` is the first PUT of its ``form.xhtml`` and ``modified`` the last, by ``modifier`` where that is known.
    ``permissions`` are those of the element in its metadata, ``None`` where it has none. ``weight`` is how many bytes
    the texts of the metadata take in memory.
    """

    form: Form
    version: int
    created: Instant
    modified: Instant
    modifier: str | None
    metadata: FormMetadata
    permissions: Permissions | None
    deleted: bool = False
    weight: int = 0
