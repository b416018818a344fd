"""The commit: the steps of every change to a document or a definition, made under its lock.

The order of the steps is the protocol; docs/design.md draws it. The rename of the sidecar is the one moment at which
a change happens. What comes before it can be thrown away, what comes after it can be finished by anyone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from persistence.errors import DamagedError, ReplacedError
from persistence.model.addresses import DATA_XML, Address, Collection, DocumentAddress
from persistence.model.instants import one_later
from persistence.model.sidecar import Sidecar, digest_text, fresh_id, stamp
from persistence.storage import copies, directories, files, nofollow, sidecars, stored_revision
from persistence.storage.layout import FilePaths, Layout
from persistence.storage.stored_revision import FileFingerprint, StoredRevision
from persistence.storage.uploads import Upload


def after_twin(layout: Layout, address: Address, sidecar: Sidecar) -> Sidecar:
    """Return a sidecar later than the revision of the document in the other collection, even if the clock was set back.

    A draft older than the save or the tombstone beside it is one that a crash has left, so a newer one must not look
    so after the clock was set back. Call it under the document's lock. Raises ``OSError``.
    """
    if not isinstance(address, DocumentAddress) or not (address.is_draft or address.is_main):
        return sidecar
    other = address.moved(Collection.DATA if address.is_draft else Collection.DRAFT, DATA_XML)
    try:
        twin = stored_revision.read_sidecar(layout.paths(other))
    except DamagedError:
        return sidecar
    if twin is None or twin.modified < sidecar.modified:
        return sidecar
    modified = one_later(twin.modified)
    created = modified if sidecar.created == sidecar.modified else sidecar.created
    return msgspec.structs.replace(sidecar, modified=modified, created=created)


def recover(paths: FilePaths, set_aside: Callable[[FilePaths], None] | None = None) -> Committed:
    """Finish or discard a last write that a crash interrupted, under the lock; return the committed revision.

    ``set_aside`` moves an edit away that was made while a killed commit waited to be finished. The revision that the
    commit replaces has a second name in the history, unless it was edited.
    """
    committed = Committed.at(paths)
    sidecar = committed.sidecar
    if sidecar is not None and sidecar.deleted:
        if files.has_other_names(paths.content):  # left by a crash; one with a single name was put there since
            files.remove(paths.content)
    elif sidecar is not None and files.exists(arrived := paths.next_content(sidecar.id)):
        # With a tag it was re-encrypted: what that replaces must not be kept.
        if set_aside is not None and sidecar.tag is None and not files.has_other_names(paths.content):
            set_aside(paths)
        files.rename(arrived, paths.content)
    prepared = paths.next_sidecar
    if files.exists(prepared):
        stray = next_id(paths)
        if stray is not None and (sidecar is None or stray != sidecar.id):
            files.remove(paths.next_content(stray))
        files.remove(prepared)
    return committed


def next_id(paths: FilePaths) -> str | None:
    """Return the content id that a prepared sidecar names; ``None`` where a power cut has emptied it."""
    sidecar = stored_revision.read_next_sidecar(paths)
    return sidecar.id if sidecar is not None else None


def adopt(paths: FilePaths, sidecar: Sidecar) -> None:
    """Make a sidecar belong to the content in place, which gets its stamp.

    A later write to the content changes its time again, so a late change of an editor is found later.
    """
    copies.separate(paths.content, paths.next_content(sidecar.id))  # another document may have the same file
    files.stamp_durably(paths.content, stamp(sidecar))
    replace_sidecar(paths, sidecar)


def reinstate(paths: FilePaths, sidecar: Sidecar, content: str) -> None:
    """Make an older revision the current one; ``content`` is a path of its content, which keeps that name."""
    arrived = paths.next_content(sidecar.id)
    files.remove(arrived)
    copies.keep_as(content, arrived)
    replace_sidecar(paths, sidecar)
    files.rename(arrived, paths.content)
    files.remove(arrived)  # two names of one file are left by a rename of one over the other


def replace_sidecar(
    paths: FilePaths,
    sidecar: Sidecar,
    upload: Upload | None = None,
    *,
    over: Committed | None = None,
    settle: Callable[[int], None] | None = None,
) -> None:
    """Commit: replace the sidecar, by one of an uploaded content, one that is repaired, or a tombstone.

    ``settle`` makes every name durable that the commit relies on, at least those in the directory, which it gets open.
    The content waits under the name that it arrived with.
    """
    directory = nofollow.open_directory(paths.directory)
    try:
        with files.written(paths.next_sidecar, sidecars.encode(sidecar, paths.address)) as prepared:
            # The prepared sidecar comes first: after a crash it is what leads the next writer to the next content.
            if upload is not None:
                files.begin_writeback(prepared)
                upload.place_at(paths.next_content(sidecar.id), stamp(sidecar))
            files.sync(prepared)
            if upload is not None:
                upload.sync()
            (settle or directories.sync_open)(directory)
            if over is not None:
                over.require_before(prepared)
            files.rename(paths.next_sidecar, paths.sidecar)  # committed
        # Durable before the old content goes: else a power cut could leave the old sidecar with the new content.
        directories.sync_open(directory)
    finally:
        os.close(directory)


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed sidecar of a resource, ``None`` where nothing was ever stored, and the fingerprint of its file.

    Locks make conflicts rare, and the fingerprint makes them safe: a lock may be lost (its file was removed, the file
    system of another machine does not see it).
    """

    paths: FilePaths
    sidecar: Sidecar | None
    fingerprint: FileFingerprint | None

    @classmethod
    def at(cls, paths: FilePaths) -> Committed:
        """Read it, under the lock; raises ``DamagedError`` and ``OSError``."""
        return cls(paths, *stored_revision.read_committed(paths))

    def require(self, over: Sidecar | None) -> None:
        """Make sure that this is the revision over which another is to be stored, and that it is there still."""
        ids = [each.id if each is not None else None for each in (self.sidecar, over)]
        if ids[0] != ids[1] or not self._is_there():
            raise self._replaced()

    def require_before(self, prepared: int) -> None:
        """Make sure of it once more, right before the commit, and that the next sidecar is in its place.

        ``prepared`` is that sidecar, open. Between this and the rename are microseconds: there is no rename that
        compares.
        """
        is_ours = stored_revision.is_still_at(prepared, self.paths.next_sidecar)
        if is_ours and self._is_there():
            return
        if is_ours:
            files.remove_quietly(self.paths.next_sidecar)
        raise self._replaced()

    def _is_there(self) -> bool:
        return stored_revision.file_fingerprint(self.paths.sidecar) == self.fingerprint

    def _replaced(self) -> ReplacedError:
        return ReplacedError(f"{self.paths.address} was written by another request meanwhile")


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
    size, digest = copies.copied(paths.content, revision.content)
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
        restored=None,
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
        copies.keep_as(paths.sidecar, revision.sidecar)
        if not sidecar.deleted:
            copies.keep_as(paths.content, revision.content)
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
