"""The writer of one scope: what the services ask for while its lock is held, as steps of the commit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import msgspec

from persistence.errors import DamagedError, ReplacedError
from persistence.model.addresses import Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.instants import Instant, next_after
from persistence.model.sidecar import Sidecar, fresh_id
from persistence.storage import commit, files, stored_revision
from persistence.storage.commit import Committed, Upload
from persistence.storage.files import DurableDirectories
from persistence.storage.layout import QUARANTINE, TRASH, FilePaths, Layout, file_name, is_shortened
from persistence.storage.storage import ChangeEvents, KeepsHistory
from persistence.storage.stored_revision import Integrity, StoredRevision


class Writer:
    """Makes changes of a tree while the lock of one scope is held. Methods raise ``OSError`` and ``DamagedError``."""

    def __init__(
        self,
        layout: Layout,
        integrity: Integrity,
        directories: DurableDirectories,
        change: ChangeEvents,
        keeps_history: KeepsHistory,
    ) -> None:
        self._layout = layout
        self._integrity = integrity
        self._directories = directories
        self._change = change
        self._keeps_history = keeps_history
        self._committed: dict[Address, Committed] = {}

    def current(self, address: Address) -> StoredRevision | None:
        paths = self._layout.paths(address)
        committed = commit.recover(paths, partial(self._rescue, address))
        self._committed[address] = committed
        return stored_revision.facts(paths, self._integrity, committed.sidecar) if committed.sidecar else None

    def commit(self, address: Address, sidecar: Sidecar, upload: Upload, *, over: StoredRevision | None) -> Sidecar:
        paths, sidecar = self._replace(address, sidecar, upload, over)
        # Not synced, because anyone can finish it.
        with suppress(OSError):
            files.rename(paths.next_content(sidecar.id), paths.content)
        return sidecar

    def delete(self, address: Address, tombstone: Sidecar, *, over: StoredRevision | None) -> Sidecar:
        paths, tombstone = self._replace(address, tombstone, None, over)
        with suppress(OSError):
            files.remove(paths.content)
        return tombstone

    def finish(self, main: DocumentAddress) -> None:
        self._tell(main)
        own = self._layout.paths(main)
        for paths in list(stored_revision.incomplete_writes(own)):
            commit.recover(paths)
        for directory in (own.history, own.directory):
            files.remove_if_empty(directory)

    def rewrite(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> bool:
        paths = self._layout.paths(address)
        if instant is not None:
            paths = paths.revision(instant)
        committed = commit.recover(paths)
        if committed.sidecar is None or committed.sidecar.id != over.id:
            return False
        if stored_revision.facts(paths, self._integrity, committed.sidecar).is_edited:
            return False
        if instant is None:
            self._tell(address)
            commit.remove_second_name(paths, committed.sidecar)
        with self._undoing(paths, rewritten):
            commit.replace_sidecar(paths, rewritten, upload, over=committed)
        files.rename(paths.next_content(rewritten.id), paths.content)
        return True

    def purge(self, address: Address, tombstone: Sidecar, *, over: StoredRevision) -> None:
        """Remove one file, an attachment of a draft, without a trace; the tombstone in between survives a crash."""
        self.delete(address, tombstone, over=over)
        paths = self._layout.paths(address)
        files.remove(paths.content)  # where ``delete`` could not: without its sidecar it would look so, too
        files.sync_directory(paths.directory)
        files.remove(paths.sidecar)
        files.sync_directory(paths.directory)

    def discard_draft(self, form: Form, document: str) -> None:
        self._discard_folder(form, Collection.DRAFT, document)

    def remove_older(self, address: Address, instants: Sequence[Instant]) -> int:
        paths = self._layout.paths(address)
        # A deletion that was killed leaves a content, which is known by its second name: one of those that go.
        current = commit.recover(paths, partial(self._rescue, address)).sidecar
        kept = None if current is None else current.modified  # its second name may be the only whole one
        removed = commit.remove([paths.revision(instant) for instant in instants if instant != kept])
        commit.unlink_serving(self._layout, [each.id for each in removed])
        files.remove_if_empty(paths.history)
        return len(removed)

    def remove_current(self, address: Address, *, over: StoredRevision) -> None:
        paths = self._layout.paths(address)
        committed = self._committed.pop(address, None) or Committed.at(paths)
        committed.require(over.sidecar)
        self._tell(address)
        commit.remove_second_name(paths, over.sidecar)
        commit.remove([paths])
        commit.unlink_serving(self._layout, [over.sidecar.id, over.etag])
        for directory in (paths.history, paths.directory):
            files.remove_if_empty(directory)

    def discard_document(self, form: Form, document: str) -> None:
        self._discard_folder(form, Collection.DATA, document)

    def _discard_folder(self, form: Form, collection: Collection, document: str) -> None:
        folder = self._layout.document(form, collection, document)
        if not files.exists(folder):
            return
        trash = self._layout.own(TRASH)
        self._change.begins(form, document)
        folders = files.open_directory(self._layout.documents(form, collection))  # which is no link
        try:
            files.ensure(trash)
            files.rename(folder, f"{trash}/{fresh_id()}")
            files.sync_open(folders)
        finally:
            os.close(folders)
        files.empty(trash)  # with folders that an error of the disk or a crash has left there

    def _keeps(self, address: Address) -> bool:
        return address.keeps_history and (isinstance(address, DefinitionAddress) or self._keeps_history(address.form))

    def _tell(self, address: Address) -> None:
        if isinstance(address, DocumentAddress) and address.is_main:
            self._change.begins(address.form, address.document)

    def _rescue(self, address: Address, paths: FilePaths) -> None:
        """Set an edit aside that a killed commit would replace, where what is replaced is kept."""
        if self._keeps(address):
            self._set_aside(paths)

    def _set_aside(self, paths: FilePaths) -> None:
        """Move a file away that a person left here and that was never adopted: it must not be overwritten."""
        if files.exists(paths.content):
            inside = os.path.relpath(paths.content, self._layout.root)
            files.move_away(paths.content, self._layout.own(f"{QUARANTINE}/{file_name(next_after(None))}/{inside}"))

    def _replace(
        self, address: Address, sidecar: Sidecar, upload: Upload | None, over: StoredRevision | None
    ) -> tuple[FilePaths, Sidecar]:
        sidecar = commit.after_twin(self._layout, address, sidecar)
        committed = self._committed.pop(address, None) or Committed.at(self._layout.paths(address))
        committed.require(over.sidecar if over is not None else None)
        paths = committed.paths
        if is_shortened(paths.name) and not is_shortened(address.name):
            sidecar = msgspec.structs.replace(sidecar, name=address.name)
        self._tell(address)
        if over is None:
            self._directories.make(paths.directory)
        kept = None
        with self._undoing(paths, sidecar):
            try:
                if over is None or (over.sidecar.deleted and upload is not None):
                    self._set_aside(paths)
                # A deletion needs it for a while: what a crash leaves of the content is recognized by its second name.
                if over is not None and (self._keeps(address) if upload is not None else address.keeps_history):
                    kept = commit.keep_edit(paths, over) if over.is_edited else commit.keep(paths, over.sidecar)
                settle = partial(self._settle, paths, kept, known=over is not None)
                commit.replace_sidecar(paths, sidecar, upload, over=committed, settle=settle)
            finally:
                if kept is not None:
                    os.close(kept)
        return paths, sidecar

    def _settle(self, paths: FilePaths, kept: int | None, directory: int, *, known: bool) -> None:
        """Make every name durable that the commit will rely on: in the ``directory``, and in the history, both open.

        A file system that promises only POSIX may otherwise persist the commit's rename before them. Where the resource
        is ``known``, its first commit has made the directory itself durable.
        """
        if kept is not None:
            files.sync_open(kept)
        files.sync_open(directory)
        if not known:
            self._directories.settle(paths.directory)

    @contextmanager
    def _undoing(self, paths: FilePaths, sidecar: Sidecar) -> Iterator[None]:
        try:
            yield
        except OSError:
            self._discard(paths)
            raise
        except ReplacedError:  # what else is there is another writer's
            files.remove_quietly(paths.next_content(sidecar.id))
            raise

    def _discard(self, paths: FilePaths) -> None:
        with suppress(OSError, DamagedError):
            commit.recover(paths)
        files.remove_if_empty(paths.directory)
