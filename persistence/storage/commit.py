"""The commit: every change to a document or a definition, made under its lock.

The order of the steps is the protocol; docs/design.md draws it. The rename of the sidecar is the one moment at which
a change happens. What comes before it can be thrown away, what comes after it can be finished by anyone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import msgspec

from persistence.errors import DamagedError, ReplacedError
from persistence.model.addresses import Address, Collection, DocumentAddress, Form
from persistence.model.instants import Instant, next_after, one_later
from persistence.model.sidecar import Sidecar, fresh_id, stamp
from persistence.storage import directories, files, history, nofollow, sidecars, stored_revision
from persistence.storage.directories import DurableDirectories
from persistence.storage.integrity import Integrity
from persistence.storage.layout import QUARANTINE, TRASH, FilePaths, Layout, file_name
from persistence.storage.storage import ChangeEvents
from persistence.storage.stored_revision import FileFingerprint, StoredRevision
from persistence.storage.uploads import Upload


class Writer:
    """Makes changes while the lock of one scope is held. Methods raise ``OSError`` and ``DamagedError``."""

    def __init__(
        self, layout: Layout, integrity: Integrity, directories: DurableDirectories, change: ChangeEvents
    ) -> None:
        self._layout = layout
        self._integrity = integrity
        self._directories = directories
        self._change = change
        self._committed: dict[Address, Committed] = {}

    def current(self, address: Address) -> StoredRevision | None:
        """Return the stored revision, after finishing or discarding a last write that a crash interrupted."""
        paths = self._layout.paths(address)
        committed = recover(paths, self._set_aside if address.keeps_history else None)
        self._committed[address] = committed
        return stored_revision.facts(paths, self._integrity, committed.sidecar) if committed.sidecar else None

    def commit(self, address: Address, sidecar: Sidecar, upload: Upload, *, over: StoredRevision | None) -> Sidecar:
        """Store an uploaded content as the next revision, over what ``current`` found; returns its sidecar."""
        sidecar = after_twin(self._layout, address, sidecar)
        paths = self._replace(address, sidecar, upload, over)
        # Not synced, because anyone can finish it.
        with suppress(OSError):
            files.rename(paths.next_content(sidecar.id), paths.content)
        return sidecar

    def delete(self, address: Address, tombstone: Sidecar, *, over: StoredRevision | None) -> Sidecar:
        """Replace the stored revision by a tombstone; the content moves into the history, if there is one.

        A proxy may have one put where nothing was ever stored (spec crud 11).
        """
        tombstone = after_twin(self._layout, address, tombstone)
        paths = self._replace(address, tombstone, None, over)
        with suppress(OSError):
            files.remove(paths.content)
        return tombstone

    def finish(self, main: DocumentAddress) -> None:
        """Finish or discard interrupted writes of a document, its attachments and its older revisions."""
        self._notify(main)
        for paths in list(stored_revision.incomplete_writes(self._layout.paths(main))):
            recover(paths)

    def rewrite(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> bool:
        """Store another content as the same revision: the current one, or with an ``instant`` an older one.

        ``over`` is the revision before, which is not kept; ``rewritten`` has the upload's id and the revision's entity
        tag. ``False`` where the revision is not there any more, or not as it was: saved over, or edited by hand.
        """
        paths = self._layout.paths(address)
        if instant is not None:
            paths = paths.revision(instant)
        committed = recover(paths)
        if committed.sidecar is None or committed.sidecar.id != over.id:
            return False
        if stored_revision.facts(paths, self._integrity, committed.sidecar).is_edited:
            return False
        if instant is None:
            self._notify(address)
            history.remove_second_name(paths, committed.sidecar)
        with self._undoing(paths, rewritten):
            replace_sidecar(paths, rewritten, upload, over=committed)
        files.rename(paths.next_content(rewritten.id), paths.content)
        return True

    def purge(self, address: Address, tombstone: Sidecar, *, over: StoredRevision) -> None:
        """Remove one file without a trace: an attachment of a draft.

        The tombstone in between keeps a crash from leaving a content that looks as if a person had put it there.
        """
        self.delete(address, tombstone, over=over)
        paths = self._layout.paths(address)
        files.remove(paths.content)  # where ``delete`` could not: without its sidecar it would look so, too
        directories.sync(paths.directory)
        files.remove(paths.sidecar)
        directories.sync(paths.directory)

    def discard_draft(self, form: Form, document: str) -> None:
        """Remove the draft of a document with its attachments, without a trace and in one step."""
        draft = self._layout.document(form, Collection.DRAFT, document)
        if not files.exists(draft):
            return
        trash = self._layout.own(TRASH)
        self._change.begins(form, document)
        drafts = nofollow.open_directory(self._layout.documents(form, Collection.DRAFT))  # which is no link
        try:
            directories.ensure(trash)
            files.rename(draft, f"{trash}/{fresh_id()}")
            files.sync(drafts)
        finally:
            os.close(drafts)
        directories.empty(trash)  # with drafts that an error of the disk or a crash has left there

    def _notify(self, address: Address) -> None:
        if isinstance(address, DocumentAddress) and address.is_main:
            self._change.begins(address.form, address.document)

    def _set_aside(self, paths: FilePaths) -> None:
        """Move a file away that a person left here and that was never adopted: it must not be overwritten."""
        if files.exists(paths.content):
            inside = os.path.relpath(paths.content, self._layout.root)
            files.move_away(paths.content, self._layout.own(f"{QUARANTINE}/{file_name(next_after(None))}/{inside}"))

    def _replace(
        self, address: Address, sidecar: Sidecar, upload: Upload | None, over: StoredRevision | None
    ) -> FilePaths:
        """Replace the stored revision: by one with a content, or by a tombstone; returns its paths."""
        committed = self._committed.pop(address, None) or Committed.at(self._layout.paths(address))
        committed.require(over.sidecar if over is not None else None)
        paths = committed.paths
        self._notify(address)
        if over is None:
            self._directories.make(paths.directory)
        kept = None
        with self._undoing(paths, sidecar):
            try:
                if over is None or (over.sidecar.deleted and upload is not None):
                    self._set_aside(paths)
                if address.keeps_history and over is not None:
                    kept = history.keep_replaced(paths, over)
                settle = partial(self._settle, paths, kept, known=over is not None)
                replace_sidecar(paths, sidecar, upload, over=committed, settle=settle)
            finally:
                if kept is not None:
                    os.close(kept)
        return paths

    def _settle(self, paths: FilePaths, kept: int | None, *, known: bool) -> None:
        """Make every name durable that the commit will rely on; ``kept`` is the open history, if used.

        A file system that promises only POSIX may otherwise persist the commit's rename before them. Where the
        resource is ``known``, its first commit has made the directory itself durable.
        """
        if kept is not None:
            files.sync(kept)
        directories.sync(paths.directory)
        if not known:
            self._directories.settle(paths.directory)

    @contextmanager
    def _undoing(self, paths: FilePaths, sidecar: Sidecar) -> Iterator[None]:
        """Clean up where a block could not store a revision."""
        try:
            yield
        except OSError:
            self._discard(paths)
            raise
        except ReplacedError:  # what else is there is another writer's
            files.remove_quietly(paths.next_content(sidecar.id))
            raise

    def _discard(self, paths: FilePaths) -> None:
        """Clean up after a failure as after a crash; what even this leaves is the next writer's to discard."""
        with suppress(OSError, DamagedError):
            recover(paths)
        directories.remove_if_empty(paths.directory)


def after_twin(layout: Layout, address: Address, sidecar: Sidecar) -> Sidecar:
    """Return a sidecar later than the revision of the document in the other collection, even if the clock was set back.

    A draft older than the save or the tombstone beside it is one that a crash has left, so a newer one must not look
    so after the clock was set back. Call it under the document's lock. Raises ``OSError``.
    """
    if not isinstance(address, DocumentAddress) or not (address.is_draft or address.is_main):
        return sidecar
    other = address.main.moved(Collection.DATA if address.is_draft else Collection.DRAFT)
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
        _finish_removal(paths)
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


def _finish_removal(paths: FilePaths) -> None:
    """Remove a deleted content that a crash left; one with a single name was put there since, and stays."""
    if files.has_other_names(paths.content):
        files.remove(paths.content)


def next_id(paths: FilePaths) -> str | None:
    """Return the content id that a prepared sidecar names; ``None`` where a power cut has emptied it."""
    sidecar = stored_revision.read_next_sidecar(paths)
    return sidecar.id if sidecar is not None else None


def adopt(paths: FilePaths, sidecar: Sidecar) -> None:
    """Make a sidecar belong to the content in place, which gets its stamp.

    A later write to the content changes its time again, so a late change of an editor is found later.
    """
    files.separate(paths.content, paths.next_content(sidecar.id))  # another document may have the same file
    files.stamp_durably(paths.content, stamp(sidecar))
    replace_sidecar(paths, sidecar)


def reinstate(paths: FilePaths, sidecar: Sidecar, content: str) -> None:
    """Make an older revision the current one; ``content`` is a path of its content, which keeps that name."""
    arrived = paths.next_content(sidecar.id)
    files.remove(arrived)
    files.keep_as(content, arrived)
    replace_sidecar(paths, sidecar)
    files.rename(arrived, paths.content)
    files.remove(arrived)  # two names of one file are left by a rename of one over the other


def replace_sidecar(
    paths: FilePaths,
    sidecar: Sidecar,
    upload: Upload | None = None,
    *,
    over: Committed | None = None,
    settle: Callable[[], None] | None = None,
) -> None:
    """Commit: replace the sidecar, by one of an uploaded content, one that is repaired, or a tombstone.

    ``settle`` makes every name durable that the commit relies on; that is at least the directory. The content waits
    under the name that it arrived with.

    Raises:
        ReplacedError: the stored revision is not the one that the writer decided ``over`` any more; it stays.
    """
    with files.written(paths.next_sidecar, sidecars.encode(sidecar, paths.address)) as prepared:
        # The prepared sidecar comes first: after a crash it is what leads the next writer to the next content.
        if upload is not None:
            files.begin_writeback(prepared)
            upload.place_at(paths.next_content(sidecar.id), stamp(sidecar))
        files.sync(prepared)
        if upload is not None:
            upload.sync()
        if settle is None:
            directories.sync(paths.directory)
        else:
            settle()
        if over is not None:
            over.require_before(prepared)
        files.rename(paths.next_sidecar, paths.sidecar)  # committed
    # Durable before the old content goes: else a power cut could leave the old sidecar with the new content.
    directories.sync(paths.directory)


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
        """Make sure that this is the revision over which another is to be stored, and that it is there still.

        Raises:
            ReplacedError: it is another one.
        """
        ids = [each.id if each is not None else None for each in (self.sidecar, over)]
        if ids[0] != ids[1] or not self._is_there():
            raise self._replaced()

    def require_before(self, prepared: int) -> None:
        """Check the lease once more, right before the commit, and that the committed content is in its place.

        ``prepared`` is the next sidecar, open. Between this and the rename are microseconds: there is no rename that
        compares.

        Raises:
            ReplacedError: it is not.
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
