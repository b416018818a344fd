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
from persistence.storage.change_events import ChangeEvents
from persistence.storage.directories import DurableDirectories
from persistence.storage.integrity import Integrity
from persistence.storage.layout import QUARANTINE, TRASH, Layout, Place, file_name
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
        """Return the stored revision, after finishing or discarding what a crash left of the last write."""
        place = self._layout.place(address)
        committed = recover(place, self._set_aside if address.keeps_history else None)
        self._committed[address] = committed
        return stored_revision.facts(place, self._integrity, committed.sidecar) if committed.sidecar else None

    def commit(self, address: Address, sidecar: Sidecar, upload: Upload, *, over: StoredRevision | None) -> Sidecar:
        """Store an uploaded content as the next revision, over what ``current`` found; returns its sidecar."""
        sidecar = after_twin(self._layout, address, sidecar)
        place = self._replace(address, sidecar, upload, over)
        # Not synced, because anyone can finish it.
        with suppress(OSError):
            files.rename(place.pending(sidecar.id), place.content)
        return sidecar

    def delete(self, address: Address, tombstone: Sidecar, *, over: StoredRevision | None) -> Sidecar:
        """Replace the stored revision by a tombstone; the content moves into the history, if there is one.

        A proxy may have one put where nothing was ever stored (spec crud 11).
        """
        tombstone = after_twin(self._layout, address, tombstone)
        place = self._replace(address, tombstone, None, over)
        with suppress(OSError):
            files.remove(place.content)
        return tombstone

    def finish(self, main: DocumentAddress) -> None:
        """Finish or discard whatever crashes have left of a document, its attachments and its older revisions."""
        self._tell(main)
        for place in list(stored_revision.incomplete_writes(self._layout.place(main))):
            recover(place)

    def rewrite(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> bool:
        """Store another content as the same revision: the current one, or with an ``instant`` an older one.

        ``over`` is what it was, and is not kept; ``rewritten`` has the upload's id and the revision's entity tag.
        ``False`` where the revision is not there any more, or not as it was: saved over, or edited by hand.
        """
        place = self._layout.place(address)
        if instant is not None:
            place = place.revision(instant)
        committed = recover(place)
        if committed.sidecar is None or committed.sidecar.id != over.id:
            return False
        if stored_revision.facts(place, self._integrity, committed.sidecar).is_edited:
            return False
        if instant is None:
            self._tell(address)
            history.remove_second_name(place, committed.sidecar)
        with self._undoing(place, rewritten):
            replace_sidecar(place, rewritten, upload, over=committed)
        files.rename(place.pending(rewritten.id), place.content)
        return True

    def purge(self, address: Address, tombstone: Sidecar, *, over: StoredRevision) -> None:
        """Remove one file without a trace: an attachment of a draft.

        The tombstone in between keeps a crash from leaving a content that looks as if a person had put it there.
        """
        self.delete(address, tombstone, over=over)
        place = self._layout.place(address)
        files.remove(place.content)  # where ``delete`` could not: without its sidecar it would look so, too
        directories.sync(place.directory)
        files.remove(place.sidecar)
        directories.sync(place.directory)

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
        directories.empty(trash)  # with what a disk that refused, or a crash, has left of earlier ones

    def _tell(self, address: Address) -> None:
        if isinstance(address, DocumentAddress) and address.is_main:
            self._change.begins(address.form, address.document)

    def _set_aside(self, place: Place) -> None:
        """Put a file out of the way that a person left here and that was never taken in: nobody may overwrite it."""
        if files.exists(place.content):
            inside = os.path.relpath(place.content, self._layout.root)
            files.move_away(place.content, self._layout.own(f"{QUARANTINE}/{file_name(next_after(None))}/{inside}"))

    def _replace(self, address: Address, sidecar: Sidecar, upload: Upload | None, over: StoredRevision | None) -> Place:
        """Replace the stored revision: by one with a content, or by a tombstone; returns its place."""
        committed = self._committed.pop(address, None) or Committed.at(self._layout.place(address))
        committed.require(over.sidecar if over is not None else None)
        place = committed.place
        self._tell(address)
        if over is None:
            self._directories.make(place.directory)
        kept = None
        with self._undoing(place, sidecar):
            try:
                if over is None or (over.sidecar.deleted and upload is not None):
                    self._set_aside(place)
                if address.keeps_history and over is not None:
                    kept = history.keep_replaced(place, over)
                settle = partial(self._settle, place, kept, known=over is not None)
                replace_sidecar(place, sidecar, upload, over=committed, settle=settle)
            finally:
                if kept is not None:
                    os.close(kept)
        return place

    def _settle(self, place: Place, kept: int | None, *, known: bool) -> None:
        """Make every name durable that the commit will rely on; ``kept`` is the open history, if used.

        A file system that promises only POSIX may otherwise persist the commit's rename before them. Where the
        resource is ``known``, its first commit has made the directory itself durable.
        """
        if kept is not None:
            files.sync(kept)
        directories.sync(place.directory)
        if not known:
            self._directories.settle(place.directory)

    @contextmanager
    def _undoing(self, place: Place, sidecar: Sidecar) -> Iterator[None]:
        """Clean up where a block could not store a revision."""
        try:
            yield
        except OSError:
            self._discard(place)
            raise
        except ReplacedError:  # what else is there is another writer's
            files.remove_quietly(place.pending(sidecar.id))
            raise

    def _discard(self, place: Place) -> None:
        """Clean up after a failure as after a crash; what even this leaves is the next writer's to discard."""
        with suppress(OSError, DamagedError):
            recover(place)
        directories.remove_if_empty(place.directory)


def after_twin(layout: Layout, address: Address, sidecar: Sidecar) -> Sidecar:
    """Return a sidecar later than what is stored of the document in the other collection, whatever the clock says.

    A draft older than the save or the tombstone beside it is one that a crash has left, so a newer one must not look
    so after the clock was set back. Call it under the document's lock. Raises ``OSError``.
    """
    if not isinstance(address, DocumentAddress) or not (address.is_draft or address.is_main):
        return sidecar
    other = address.main.moved(Collection.DATA if address.is_draft else Collection.DRAFT)
    try:
        twin = stored_revision.read_sidecar(layout.place(other))
    except DamagedError:
        return sidecar
    if twin is None or twin.modified < sidecar.modified:
        return sidecar
    modified = one_later(twin.modified)
    created = modified if sidecar.created == sidecar.modified else sidecar.created
    return msgspec.structs.replace(sidecar, modified=modified, created=created)


def recover(place: Place, set_aside: Callable[[Place], None] | None = None) -> Committed:
    """Finish or discard what a crash left of the last write, under the lock; returns what is committed.

    ``set_aside`` puts an edit out of the way that was made while a killed commit waited to be finished. What the commit
    replaces has a second name in the history, if nobody has edited it.
    """
    committed = Committed.at(place)
    sidecar = committed.sidecar
    if sidecar is not None and sidecar.deleted:
        _finish_removal(place)
    elif sidecar is not None and files.exists(pending := place.pending(sidecar.id)):
        # With a tag it was re-encrypted: what that replaces must not be kept.
        if set_aside is not None and sidecar.tag is None and not files.has_other_names(place.content):
            set_aside(place)
        files.rename(pending, place.content)
    prepared = place.prepared
    if files.exists(prepared):
        stray = prepared_id(place)
        if stray is not None and (sidecar is None or stray != sidecar.id):
            files.remove(place.pending(stray))
        files.remove(prepared)
    return committed


def _finish_removal(place: Place) -> None:
    """Remove a deleted content that a crash left; one with a single name was put there since, and stays."""
    if files.has_other_names(place.content):
        files.remove(place.content)


def prepared_id(place: Place) -> str | None:
    """Return the content id that a prepared sidecar names; ``None`` where a power cut took what it said."""
    sidecar = stored_revision.read_prepared(place)
    return sidecar.id if sidecar is not None else None


def adopt(place: Place, sidecar: Sidecar) -> None:
    """Make a sidecar that of the content in place, which gets its stamp.

    Whoever writes the content afterwards changes its time again, so a late change of an editor is found later.
    """
    files.separate(place.content, place.pending(sidecar.id))  # another document may have the same file
    files.stamp_durably(place.content, stamp(sidecar))
    replace_sidecar(place, sidecar)


def reinstate(place: Place, sidecar: Sidecar, content: str) -> None:
    """Make an older revision the current one; ``content`` is a path of its content, which keeps that name."""
    pending = place.pending(sidecar.id)
    files.remove(pending)
    files.keep_as(content, pending)
    replace_sidecar(place, sidecar)
    files.rename(pending, place.content)
    files.remove(pending)  # two names of one file are left by a rename of one over the other


def replace_sidecar(
    place: Place,
    sidecar: Sidecar,
    upload: Upload | None = None,
    *,
    over: Committed | None = None,
    settle: Callable[[], None] | None = None,
) -> None:
    """Commit: replace the sidecar, by one of an uploaded content, one that is repaired, or a tombstone.

    ``settle`` makes every name durable that the commit relies on; that is at least the directory. The content waits
    under its pending name.

    Raises:
        ReplacedError: what is stored is not what was to be written ``over`` any more; the stored revision stays.
    """
    with files.written(place.prepared, sidecars.encode(sidecar, place.address)) as prepared:
        # The prepared sidecar comes first: after a crash it is what leads the next writer to the pending content.
        if upload is not None:
            files.begin_writeback(prepared)
            upload.place_at(place.pending(sidecar.id), stamp(sidecar))
        files.sync(prepared)
        if upload is not None:
            upload.sync()
        if settle is None:
            directories.sync(place.directory)
        else:
            settle()
        if over is not None:
            over.require_before(prepared)
        files.rename(place.prepared, place.sidecar)  # committed
    # Durable before the old content goes: else a power cut could leave the old sidecar with the new content.
    directories.sync(place.directory)


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed sidecar at a place, ``None`` where nothing was ever stored, with the fingerprint of its file.

    Locks make conflicts rare, and the fingerprint makes them safe: a lock may be lost (its file was removed, the file
    system of another machine does not see it).
    """

    place: Place
    sidecar: Sidecar | None
    fingerprint: FileFingerprint | None

    @classmethod
    def at(cls, place: Place) -> Committed:
        """Read it, under the lock; raises ``DamagedError`` and ``OSError``."""
        return cls(place, *stored_revision.read_committed(place))

    def require(self, over: Sidecar | None) -> None:
        """Make sure that this is the revision over which another is to be stored, and that it is there still.

        Raises:
            ReplacedError: it is another one.
        """
        ids = [each.id if each is not None else None for each in (self.sidecar, over)]
        if ids[0] != ids[1] or not self._is_there():
            raise self._replaced()

    def require_before(self, prepared: int) -> None:
        """Make sure of it once more, right before the commit, and that what is committed is in its place.

        ``prepared`` is the next sidecar, open. Between this and the rename are microseconds: there is no rename that
        compares.

        Raises:
            ReplacedError: it is not.
        """
        is_ours = stored_revision.is_still_at(prepared, self.place.prepared)
        if is_ours and self._is_there():
            return
        if is_ours:
            files.remove_quietly(self.place.prepared)
        raise self._replaced()

    def _is_there(self) -> bool:
        return stored_revision.file_fingerprint(self.place.sidecar) == self.fingerprint

    def _replaced(self) -> ReplacedError:
        return ReplacedError(f"{self.place.address} was written by another request meanwhile")
