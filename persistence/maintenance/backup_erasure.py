"""Files of erased documents in backups: found, and removed from them and from their lists of digests.

The list is replaced first, and the files go after it. So a run that is killed leaves files that no list has, which the
next run finds and removes, and a backup that can be verified and restored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from persistence.errors import StartupError, disk_errors
from persistence.maintenance import manifest
from persistence.maintenance.backup import complete, exclusively
from persistence.maintenance.manifest import SUMS
from persistence.model.addresses import Collection, Form
from persistence.storage.document_files import files_below, remove_wholly
from persistence.storage.layout import Layout
from persistence.storage.managed import DocumentFile


def backups_in(destination: str) -> list[str]:
    """Return the backup at a path, or all complete ones in it."""
    path = os.path.realpath(destination)
    with disk_errors(f"backups in {destination}"):
        if os.path.lexists(f"{path}/{SUMS}"):
            return [path]
        found = complete(path) if os.path.isdir(path) else []
    if not found:
        raise StartupError(f"{path} is not a backup, and has none in it (no {SUMS})")
    return found


def copies(backup: str, documents: Sequence[tuple[Form, str]]) -> list[DocumentFile]:
    """Return the files that a backup has of documents, in any part; their paths are in the backup."""
    with disk_errors(f"backup {backup}"):
        return [each for folder in _folders(backup, documents) for each in files_below(f"{backup}/{folder}", backup)]


def remove_copies(backup: str, documents: Sequence[tuple[Form, str]]) -> None:
    """Remove the files of documents from a backup, and from its list. Raises as ``copies``."""
    with _alone(backup), disk_errors(f"backup {backup}"):
        folders = list(_folders(backup, documents))
        manifest.leave_out(backup, folders)
        for folder in folders:
            remove_wholly(f"{backup}/{folder}")


@contextmanager
def _alone(backup: str) -> Iterator[None]:
    """Keep backups from being made beside this one: they would link to its files."""
    with exclusively(os.path.dirname(backup)):
        yield


def _folders(backup: str, documents: Sequence[tuple[Form, str]]) -> Iterator[str]:
    names = Layout("")
    for part in manifest.read(backup).parts:
        for form, document in documents:
            for collection in Collection:
                yield part.path(names.document(form, collection, document).lstrip("/"))
