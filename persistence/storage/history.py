"""Older revisions: a revision gets a second name before a commit replaces it, so that nothing is lost.

Functions raise ``OSError``, and are called under the lock of the resource.
"""

from __future__ import annotations

import os

import msgspec

from persistence.errors import DamagedError
from persistence.model.sidecar import Sidecar, fresh_id, stamp
from persistence.storage import directories, files, nofollow, sidecars, stored_revision
from persistence.storage.integrity import digest_text
from persistence.storage.layout import FilePaths
from persistence.storage.stored_revision import StoredRevision


def keep_replaced(paths: FilePaths, over: StoredRevision) -> int:
    """Keep the revision that is about to be replaced: as it was stored, or as it was edited by hand.

    Returns the directory of older revisions, open, to be made durable and closed.
    """
    if over.is_edited:
        return _keep_edit(paths, over)
    return keep(paths, over.sidecar)


def _keep_edit(paths: FilePaths, over: StoredRevision) -> int:
    """Keep an edit by hand as a revision of its own, with a sidecar that describes it.

    It has the instant of the revision that was edited, unless that is kept under it already: a write that was refused
    may have done so. Returns what ``keep_replaced`` does.
    """
    modified = over.sidecar.modified
    if files.exists(paths.revision(modified).sidecar):
        modified = over.latest
    revision = paths.revision(modified)
    directories.ensure(paths.history)
    size, digest = files.copied(paths.content, revision.content)
    edit = msgspec.structs.replace(
        over.sidecar,
        id=fresh_id(),
        tag=over.etag,
        modified=modified,
        size=size,
        digest=digest_text(digest),
        valid=None,
        client_hash=None,
        metadata=None,
        adopted=True,
        encrypted=over.sidecar.encrypted or None,  # of the edit nothing is known
    )
    files.stamp_durably(revision.content, stamp(edit))
    with files.written(revision.next_sidecar, sidecars.encode(edit, paths.address)) as prepared:
        files.sync(prepared)
    files.rename(revision.next_sidecar, revision.sidecar)
    return nofollow.open_directory(paths.history)


def keep(paths: FilePaths, sidecar: Sidecar) -> int:
    """Keep the revision that is about to be replaced; content and sidecar get a second name each.

    Returns the directory of these names, open, to be made durable and closed. It is opened first, because a path to be
    linked to may lead through a symbolic link, and an open directory does not.
    """
    revision = paths.revision(sidecar.modified)
    try:
        history = nofollow.open_directory(paths.history)
    except FileNotFoundError:
        directories.make(paths.history)
        history = nofollow.open_directory(paths.history)
    try:
        files.keep_as(paths.sidecar, revision.sidecar)
        if not sidecar.deleted:
            files.keep_as(paths.content, revision.content)
    except BaseException:
        os.close(history)
        raise
    return history


def remove_second_name(paths: FilePaths, committed: Sidecar) -> None:
    """Remove the second name in the history that an interrupted write has left of the current revision.

    It is recognized by the id, which a rewriting of the current revision changes. The content goes first: without it
    the other is still recognized.
    """
    second = paths.revision(committed.modified)
    try:
        kept = stored_revision.read_sidecar(second)
    except DamagedError:
        return
    if kept is not None and kept.id == committed.id:
        files.remove(second.content)
        files.remove(second.sidecar)
        directories.sync(paths.history)
