"""Uploads, the commit, and removal: the steps of every change to a document or a definition, made under its lock.

The order of the steps is the protocol; docs/design.md draws it. The rename of the sidecar is the one moment at which
a change happens. What comes before it can be thrown away, what comes after it can be finished by anyone.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from types import TracebackType
from typing import Self

import msgspec

from persistence.errors import DamagedError, ReplacedError, as_disk_error
from persistence.limits import WRITTEN_AT_ONCE
from persistence.model.addresses import Address, DocumentAddress
from persistence.model.sidecar import ClientHash, Sidecar, digest_text, fresh_id, later_than, stamp
from persistence.storage import files, stored_revision
from persistence.storage.layout import SERVE, SPOOL, FilePaths, Layout
from persistence.storage.locks import try_lock
from persistence.storage.stored_revision import FileFingerprint, StoredRevision

_SMALL = 1 << 20
ABANDONED_AFTER = 60.0  # Seconds after which a temporary file that nobody holds belongs to nobody


# Uploads: content on its way in, counted and hashed while it is written, without any lock.
#
# An upload is a file without a name (O_TMPFILE), so that a client that hangs up, a killed worker or a power cut leaves
# nothing behind. Where the file system has no such files it waits in the spool directory under its id.


class Upload:
    """One body being received below a root. Use it in a ``with`` block: what was not placed by its end is gone."""

    # ``size`` is in bytes; ``digest`` is ``sha256:`` and hex digits. Methods raise ``OSError``.
    def __init__(self, root: str) -> None:
        self.id = fresh_id()
        self.size = 0
        self._hash = hashlib.sha256()
        self._begun = 0
        self._path: str | None = None
        try:
            descriptor = files.open_unnamed(root)
            if descriptor is None:
                self._path = f"{root}/{SPOOL}/{self.id}"
                files.ensure(f"{root}/{SPOOL}")
                descriptor = files.open_new(self._path)
                try_lock(descriptor)  # alive, it says to ``sweep``
        except OSError as error:
            raise as_disk_error(error, "receiving a body") from error
        self._descriptor = descriptor

    def write(self, chunk: bytes) -> None:
        files.write_all(self._descriptor, chunk)
        self._hash.update(chunk)
        self.size += len(chunk)
        if self.size - self._begun >= WRITTEN_AT_ONCE:
            files.begin_writeback(self._descriptor, self._begun, self.size - self._begun)
            self._begun = self.size

    @property
    def digest(self) -> str:
        return digest_text(self._hash.hexdigest())

    def opened(self) -> FileIO:
        """Return the content so far, open to be read from its beginning; it may be kept longer than the upload."""
        file = FileIO(os.dup(self._descriptor))
        file.seek(0)
        return file

    def flush(self) -> None:
        """Make a large content durable now, while no lock is held; a small one waits for ``sync``."""
        if self.size > _SMALL:
            files.sync(self._descriptor)

    def place_at(self, path: str, stamp: int) -> None:
        """Give the content its name, and the revision's stamp as its modification time, in nanoseconds."""
        files.stamp(self._descriptor, stamp)
        if self._path is None:
            files.link_descriptor(self._descriptor, path)
        else:
            files.rename(self._path, path)
            self._path = None
        files.begin_writeback(self._descriptor)

    def sync(self) -> None:
        """Make the content durable under the name it has now."""
        files.sync(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is not None:
            files.remove_quietly(self._path)
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file that was received to be sent to another server."""

    # ``client_hash`` is the one that a client gave with it. With ``may_stay`` a file of its name that is there stays.
    name: str
    content_type: str
    upload: Upload
    client_hash: ClientHash | None = None
    may_stay: bool = False


def sweep(root: str) -> None:
    """Remove what killed workers have left in the spool directory."""
    for path in abandoned(f"{root}/{SPOOL}"):
        files.remove_quietly(path)


def abandoned(spool: str, age: float = ABANDONED_AFTER) -> Iterator[str]:
    """Yield the files in the spool that nobody holds, and that are not just being made: older than so many seconds."""
    for entry in os.scandir(spool):
        if not entry.is_file(follow_symlinks=False):
            continue
        try:
            descriptor = os.open(entry.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        try:
            if try_lock(descriptor) and time.time() - os.fstat(descriptor).st_mtime > age:
                yield entry.path
        finally:
            os.close(descriptor)


def after_twin(layout: Layout, address: Address, sidecar: Sidecar) -> Sidecar:
    """Return a sidecar later than the revision of the document in the other collection, even if the clock was set back.

    A draft older than the save or the tombstone beside it is one that a crash has left, so a newer one must not look
    so after the clock was set back. Call it under the document's lock. Raises ``OSError``.
    """
    if not isinstance(address, DocumentAddress) or not (address.is_draft or address.is_main):
        return sidecar
    try:
        twin = stored_revision.read_sidecar(layout.paths(address.counterpart))
    except DamagedError:
        return sidecar
    return sidecar if twin is None else later_than(sidecar, twin.modified)


def recover(paths: FilePaths, set_aside: Callable[[FilePaths], None] | None = None) -> Committed:
    """Finish or discard a last write that a crash interrupted, under the lock; return the committed revision."""
    # ``set_aside`` moves an edit away that was made while a killed commit waited to be finished. The revision that the
    # commit replaces has a second name in the history, unless it was edited.
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
        stray = stored_revision.next_id(paths)
        if stray is not None and (sidecar is None or stray != sidecar.id):
            files.remove(paths.next_content(stray))
        files.remove(prepared)
    return committed


def adopt(paths: FilePaths, sidecar: Sidecar) -> None:
    """Make a sidecar belong to the content in place, which gets its stamp."""
    # A later write to the content changes its time again, so a late change of an editor is found later.
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
    settle: Callable[[int], None] | None = None,
) -> None:
    """Commit: replace the sidecar, by one of an uploaded content, one that is repaired, or a tombstone."""
    # ``settle`` makes every name durable that the commit relies on, at least those in the directory, which it gets
    # open. The content waits under the name that it arrived with.
    directory = files.open_directory(paths.directory)
    try:
        with files.written(paths.next_sidecar, stored_revision.encode(sidecar, paths.address)) as prepared:
            # The prepared sidecar comes first: after a crash it is what leads the next writer to the next content.
            if upload is not None:
                files.begin_writeback(prepared)
                upload.place_at(paths.next_content(sidecar.id), stamp(sidecar))
            files.sync(prepared)
            if upload is not None:
                upload.sync()
            (settle or files.sync_open)(directory)
            if over is not None:
                over.require_before(prepared)
            files.rename(paths.next_sidecar, paths.sidecar)  # committed
        # Durable before the old content goes: else a power cut could leave the old sidecar with the new content.
        files.sync_open(directory)
    finally:
        os.close(directory)


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed sidecar of a resource, ``None`` where nothing was ever stored, and the fingerprint of its file."""

    # Locks make conflicts rare, and the fingerprint makes them safe: a lock may be lost (its file was removed, the file
    # system of another machine does not see it).
    paths: FilePaths
    sidecar: Sidecar | None
    fingerprint: FileFingerprint | None

    @classmethod
    def at(cls, paths: FilePaths) -> Committed:
        """Read it, under the lock; raises ``DamagedError`` and ``OSError``."""
        opened = stored_revision.open_sidecar(paths)
        if opened is None:
            return cls(paths, None, None)
        with files.closing(opened[1]) as descriptor:
            return cls(paths, opened[0], stored_revision.fingerprint_of(descriptor)[0])

    @property
    def written(self) -> float:
        """The time of the sidecar's file, in seconds since 1970; 0 where there is none."""
        return 0.0 if self.fingerprint is None else self.fingerprint[1] / 1e9

    def require(self, over: Sidecar | None) -> None:
        """Make sure that this is the revision over which another is to be stored, and that it is there still."""
        ids = [each.id if each is not None else None for each in (self.sidecar, over)]
        if ids[0] != ids[1] or stored_revision.fingerprint_of(self.paths.sidecar)[0] != self.fingerprint:
            raise self._replaced()

    def require_before(self, prepared: int) -> None:
        """Make sure of it once more, right before the commit, and that the next sidecar is in its place."""
        # ``prepared`` is that sidecar, open. Between this and the rename are microseconds: there is no rename that
        # compares.
        is_ours = stored_revision.is_still_at(prepared, self.paths.next_sidecar)
        if is_ours and stored_revision.fingerprint_of(self.paths.sidecar)[0] == self.fingerprint:
            return
        if is_ours:
            files.remove_quietly(self.paths.next_sidecar)
        raise self._replaced()

    def _replaced(self) -> ReplacedError:
        return ReplacedError(f"{self.paths.address} was written by another request meanwhile")


def keep_edit(paths: FilePaths, over: StoredRevision) -> int:
    """Keep an edit by hand that is about to be replaced as a revision of its own, with a sidecar that describes it."""
    # It has the instant of the revision that was edited, unless that is kept under it already: a write that was refused
    # may have done so. Returns what ``keep`` does.
    modified = over.sidecar.modified
    if files.exists(paths.revision(modified).sidecar):
        modified = over.latest
    revision = paths.revision(modified)
    files.ensure(paths.history)
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
        restored=None,
        encrypted=over.sidecar.encrypted or None,  # of the edit nothing is known
    )
    files.stamp_durably(revision.content, stamp(edit))
    with files.written(revision.next_sidecar, stored_revision.encode(edit, paths.address)) as prepared:
        files.sync(prepared)
    files.rename(revision.next_sidecar, revision.sidecar)
    return files.open_directory(paths.history)


def keep(paths: FilePaths, sidecar: Sidecar) -> int:
    """Keep the revision that is about to be replaced; content and sidecar get a second name each."""
    # Returns the directory of these names, open, to be made durable and closed. It is opened first, because a path to
    # be linked to may lead through a symbolic link, and an open directory does not.
    revision = paths.revision(sidecar.modified)
    try:
        history = files.open_directory(paths.history)
    except FileNotFoundError:
        files.make(paths.history)
        history = files.open_directory(paths.history)
    try:
        files.keep_as(paths.sidecar, revision.sidecar)
        if not sidecar.deleted:
            files.keep_as(paths.content, revision.content)
    except BaseException:
        os.close(history)
        raise
    return history


def remove_second_name(paths: FilePaths, committed: Sidecar) -> None:
    """Remove the second name in the history that an interrupted write has left of the current revision."""
    # It is recognized by the id, which a rewriting of the current revision changes. The content goes first: without it
    # the other is still recognized.
    second = paths.revision(committed.modified)
    try:
        kept = stored_revision.read_sidecar(second)
    except DamagedError:
        return
    if kept is not None and kept.id == committed.id:
        files.remove(second.content)
        files.remove(second.sidecar)
        files.sync_directory(paths.history)


# Removing revisions without a trace, in steps of which a crash leaves what recovery finishes or discards.
#
# A revision is removed by the rename of its sidecar to the name of a next one: for readers it is gone then. What is
# left looks like a write that was interrupted before its commit, which the next writer, purge or repair discards:
#
# 1. rename the content to the name under which the sidecar finds it, too: before the commit, recovery undoes that
# 2. rename the sidecar to that of a next revision: it leads to the content, and no revision is there any more
# 3. remove the content, then the sidecar
#
# Each step is durable before the next. Many revisions of one directory go through them together.


def remove(revisions: Sequence[FilePaths]) -> list[Sidecar]:
    """Remove revisions that lie in one directory, under the lock of their document; return their sidecars."""
    # Those that are gone already are left out.
    found = [(paths, sidecar) for paths in revisions if (sidecar := recover(paths).sidecar) is not None]
    if not found:
        return []
    directory = found[0][0].directory
    hide(directory, [(paths, sidecar.id) for paths, sidecar in found if not sidecar.deleted])
    for paths, _ in found:
        files.rename(paths.sidecar, paths.next_sidecar)
    files.sync_directory(directory)
    for paths, sidecar in found:
        files.remove(paths.next_content(sidecar.id))
    files.sync_directory(directory)
    for paths, _ in found:
        files.remove(paths.next_sidecar)
    files.sync_directory(directory)
    return [sidecar for _, sidecar in found]


def hide(directory: str, contents: Sequence[tuple[FilePaths, str]]) -> None:
    """Give contents the names that they have until they are committed, with their ids: only sidecars lead there."""
    hidden = False
    for paths, content_id in contents:
        with suppress(FileNotFoundError):
            files.rename(paths.content, paths.next_content(content_id))
            hidden = True
    if hidden:
        files.sync_directory(directory)


def unlink_serving(layout: Layout, tags: Sequence[str]) -> None:
    """Remove the links through which another process may read contents with some tags or ids, for nginx."""
    for hour in files.names_in(layout.own(SERVE)):
        for tag in tags:
            with suppress(OSError):
                files.remove(f"{layout.own(SERVE)}/{hour}/{tag}")
