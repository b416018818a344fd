"""The parameter ``form-definition-format-version``: a stored definition in another data format (spec forms 1)."""

from __future__ import annotations

from persistence.errors import BadRequestError, disk_errors
from persistence.forms.migration.pipeline import migrate
from persistence.limits import LARGEST_TREE
from persistence.model.addresses import DocumentAddress
from persistence.model.form_versions import DATA_FORMATS
from persistence.services.results import Read


def target_of(word: str | None) -> str | None:
    """The data format that a request asks for; ``None`` where it asks for the definition as it is stored.

    Raises:
        BadRequestError: there is no such format.
    """
    if not word:
        return None
    if word not in DATA_FORMATS:
        raise BadRequestError(f"form-definition-format-version must be one of {', '.join(DATA_FORMATS)}, not {word!r}")
    return word


def migrated(read: Read, target: str) -> bytes:
    """The definition of an open content, which is taken over, in another data format.

    Raises:
        BadRequestError: it is too large, or what it would become is.
        DamagedError: what is stored is not well-formed.
        DiskError: it cannot be read.
    """
    with read.found.opened as file, disk_errors(f"reading {read.address}"):
        data = file.read(LARGEST_TREE + 1)
    return migrate(data, target, is_unpublished=isinstance(read.address, DocumentAddress))
