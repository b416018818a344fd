"""The tree of one root, open to be written, and the writer of one scope, whose steps are those of the commit.

Links for nginx are made here: a name for exactly the content that was opened, so that nginx sends the one that the
headers describe. The content's own path would lead to whatever a writer has put there by the time nginx opens it. Links
lie in a directory per hour; making a new one removes those older than the hour before.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec

from persistence.closable import Closable, closed
from persistence.errors import BusyError, DamagedError, ReplacedError, as_disk_error, disk_errors
from persistence.model.addresses import Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.sidecar import Sidecar, fresh_id
from persistence.model.texts import Instant, next_after
from persistence.storage import commit, files, layout, root, stored_revision
from persistence.storage.commit import Committed, Upload
from persistence.storage.document_leases import DocumentLeases
from persistence.storage.files import DurableDirectories
from persistence.storage.layout import QUARANTINE, SERVE, TRASH, FilePaths, Layout, file_name
from persistence.storage.locks import Lease, LockFile, Locks, stripe
from persistence.storage.reader import StoreReader, older_instants
from persistence.storage.storage import (
    NOBODY,
    Arrivals,
    ChangeEvents,
    ChangeListener,
    DocumentFile,
    DocumentFiles,
    EventRecorder,
    JobRecord,
    KeepsHistory,
    Storage,
    Writing,
    keeps_all,
)
from persistence.storage.stored_revision import Integrity, StoredRevision, digest_of_file


@dataclass(eq=False)
class Writer(Writing):
    """Makes changes of a tree while the lock of one scope is held. Methods raise ``OSError`` and ``DamagedError``."""

    _layout: Layout
    _integrity: Integrity
    _directories: DurableDirectories
    _change: ChangeEvents
    _keeps_history: KeepsHistory
    _recorder: EventRecorder | None
    is_append_only: bool
    _committed: dict[Address, Committed] = field(default_factory=dict)

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
        self.require_removable(address)
        paths, tombstone = self._replace(address, tombstone, None, over)
        with suppress(OSError):
            files.remove(paths.content)
        return tombstone

    def catch_up(self, address: Address) -> None:
        if self._recorder is not None:
            self.current(address)
            committed = self._committed[address]
            self._recorder.catch_up(address, committed.sidecar, committed.written, partial(self._older, address))

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
        self.require_removable(address)
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
        self.require_removable(address)
        paths = self._layout.paths(address)
        # A deletion that was killed leaves a content, which is known by its second name: one of those that go.
        current = commit.recover(paths, partial(self._rescue, address)).sidecar
        kept = None if current is None else current.modified  # its second name may be the only whole one
        removed = commit.remove([paths.revision(instant) for instant in instants if instant != kept])
        commit.unlink_serving(self._layout, [each.id for each in removed])
        files.remove_if_empty(paths.history)
        return len(removed)

    def remove_current(self, address: Address, *, over: StoredRevision) -> None:
        self.require_removable(address)
        paths = self._layout.paths(address)
        committed = self._committed.pop(address, None) or Committed.at(paths)
        committed.require(over.sidecar)
        self._tell(address)
        with self._recording(address, committed, over.sidecar, is_erased=True):
            commit.remove_second_name(paths, over.sidecar)
            commit.remove([paths])
        commit.unlink_serving(self._layout, [over.sidecar.id, over.etag])
        for directory in (paths.history, paths.directory):
            files.remove_if_empty(directory)

    def discard_document(self, form: Form, document: str) -> None:
        main = DocumentAddress(form, Collection.DATA, document)
        self.require_removable(main)
        paths = self._layout.paths(main)
        committed = self._committed.pop(main, None)
        if committed is None:
            try:
                committed = Committed.at(paths)
            except DamagedError:
                committed = Committed(paths, None, None)
        with self._recording(main, committed, committed.sidecar, is_erased=True):
            self._discard_folder(form, Collection.DATA, document)

    def _discard_folder(self, form: Form, collection: Collection, document: str) -> None:
        folder = self._layout.document(form, collection, document)
        if not files.exists(folder):
            return
        trash = self._layout.own(TRASH)
        self._change.begins(form, document)
        with files.closing(files.open_directory(self._layout.documents(form, collection))) as folders:  # and no link
            files.ensure(trash)
            files.rename(folder, f"{trash}/{fresh_id()}")
            files.sync_open(folders)
        files.empty(trash)  # with folders that an error of the disk or a crash has left there

    @contextmanager
    def _recording(
        self, address: Address, committed: Committed, sidecar: Sidecar | None, *, is_erased: bool = False
    ) -> Iterator[None]:
        """Record the event of the commit of a sidecar in a block, or of the removal of what is there."""
        if self._recorder is not None:
            self._recorder.begin(address, committed.sidecar, committed.written, partial(self._older, address))
        yield
        if self._recorder is not None and sidecar is not None:
            self._recorder.end(address, sidecar, committed.sidecar, is_erased=is_erased)

    def _older(self, address: Address, after: Instant) -> Iterator[Sidecar]:
        paths = self._layout.paths(address)
        for instant in reversed(older_instants(paths).splitlines()):
            if instant > after:
                with suppress(DamagedError):
                    sidecar = stored_revision.read_sidecar(paths.revision(Instant(instant)))
                    if sidecar is not None:
                        yield sidecar

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
        if paths.name != address.name and layout.is_shortened(paths.name):
            sidecar = msgspec.structs.replace(sidecar, name=address.name)
        self._tell(address)
        if over is None:
            self._directories.make(paths.directory)
        kept = None
        with self._recording(address, committed, sidecar), self._undoing(paths, sidecar):
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
        """Make every name durable that the commit will rely on: in the ``directory``, and in the history, both open."""
        # A file system that promises only POSIX may otherwise persist the commit's rename before them. Where the
        # resource is ``known``, its first commit has made the directory itself durable.
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


class JobFile(JobRecord):
    """The record of ``doing`` something, by the paths of the lock and of the text, which may be one file."""

    def __init__(self, doing: str, lock: str, path: str) -> None:
        self._doing = doing
        self._lock = lock
        self._path = path

    @contextmanager
    def turn(self, refusal: str, timeout: float, is_ending: Callable[[], bool]) -> Iterator[None]:
        with ExitStack() as stack:
            with disk_errors(f"waiting for another {self._doing}"):
                files.ensure_file(self._lock)
                stack.enter_context(LockFile(self._lock).exclusive(refusal, timeout=timeout, is_ending=is_ending))
            yield

    def is_taken(self) -> bool:
        with disk_errors(f"looking for a running {self._doing}"):
            try:
                with suppress(FileNotFoundError):
                    LockFile(self._lock).shared().close()
            except BusyError:
                return True
            return False

    def read(self) -> bytes:
        with disk_errors(f"looking at the progress of the {self._doing}"):
            try:
                return files.read_file(self._path)
            except FileNotFoundError:
                return b""

    def write(self, text: bytes) -> None:
        with disk_errors(f"recording the progress of the {self._doing}"):
            write = files.overwrite if self._path == self._lock else files.write_durably  # in place: it is locked
            write(self._path, text)


# The forms that are being moved into a tree, in a small file of its root, and the drafts that moves have stored there.
#
# What the tree has of these forms came by the move alone. So a move that was interrupted may replace it when it goes
# on. A draft leaves no trace in the source when it is saved or discarded. So its entity tags are kept in a file of
# their own, a line each with the source, also when all has arrived: a later move knows by them what an earlier one has
# put there.


class _ArrivingFile(msgspec.Struct, frozen=True):
    """The content of the file: for each place the forms that come from there, as application and name."""

    sources: dict[str, list[tuple[str, str]]]


class TreeArrivals(Arrivals):
    """The ``Arrivals`` of a tree, in which one move works at a time."""

    def __init__(self, root: str) -> None:
        self._path = Layout(root).own(layout.ARRIVING)
        self._drafts = Layout(root).own(layout.ARRIVED_DRAFTS)

    def begun(self, source: str) -> set[Form]:
        return {Form(app, name) for app, name in self._read().get(source, ())}

    def begin(self, source: str, form: Form) -> None:
        known = self._read()
        self._write({**known, source: [*known.get(source, ()), (form.app, form.name)]})

    def end(self, source: str, forms: Iterable[Form]) -> None:
        known, ended = dict(self._read()), {(form.app, form.name) for form in forms}
        left = [form for form in known.pop(source, ()) if form not in ended]
        self._write({**known, source: left} if left else known)

    def bring_drafts(self, source: str, etags: Iterable[str]) -> None:
        with disk_errors("writing", os.path.basename(self._drafts)):
            files.append(self._drafts, "".join(f"\n{etag} {source}" for etag in etags).encode())

    def drafts_of(self, source: str) -> set[str]:
        with disk_errors("reading", os.path.basename(self._drafts)):
            try:
                descriptor = files.open_file(self._drafts)
            except FileNotFoundError:
                return set()
            with open(descriptor, encoding="utf-8", errors="replace") as file:
                lines = (line.rstrip("\n").partition(" ") for line in file)
                return {etag for etag, _, place in lines if place == source}

    def _read(self) -> Mapping[str, list[tuple[str, str]]]:
        with disk_errors("reading", os.path.basename(self._path)):
            try:
                return msgspec.json.decode(files.read_file(self._path), type=_ArrivingFile).sources
            except FileNotFoundError:
                return {}
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise DamagedError(f"{self._path} cannot be read: {error}") from error

    def _write(self, sources: Mapping[str, list[tuple[str, str]]]) -> None:
        with disk_errors("writing", os.path.basename(self._path)):
            if sources:
                files.write_durably(self._path, msgspec.json.encode(_ArrivingFile(dict(sources))) + b"\n")
            else:
                files.remove(self._path)


_PATIENCE, _PAUSE = 2.0, 0.02
"""Seconds in which a draft that somebody else discards is gone from the trash, and between two looks at it."""


# All files of one document below a root, wherever they are: for erasing it.
#
# The root is that of a tree, or of a directory of attachments, which has the same names. Besides its folders, the
# quarantine of repairs may have files of a document, and there may be links for nginx. What is in the trash is on its
# way out already.


@dataclass(frozen=True, slots=True)
class TreeDocumentFiles(DocumentFiles):
    """The files of a document below a root. Methods raise ``OSError``."""

    root: str
    form: Form
    document: str

    def listed(self) -> Iterator[DocumentFile]:
        for directory in self._directories():
            yield from files_below(directory, self.root)

    def links(self) -> Iterator[str]:
        known = {_identity(path) for directory in self._directories() for path in files.below(directory)}
        yield from (path for path in files.below(f"{self.root}/{SERVE}") if _identity(path) in known)

    def remove(self, links: list[str]) -> None:
        for path in links:
            files.remove(path)
        for directory in self._directories():
            if files.exists(directory):
                remove_wholly(directory)
                with suppress(FileNotFoundError):
                    files.sync_directory(os.path.dirname(directory))
        trash = f"{self.root}/{TRASH}"
        end = time.monotonic() + _PATIENCE
        files.empty(trash)
        left = set(files.names_in(trash))
        while left:
            if time.monotonic() > end:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), f"{trash}/{min(left)}")
            time.sleep(_PAUSE)
            files.empty(trash)
            left &= set(files.names_in(trash))

    def _directories(self) -> list[str]:
        """Return the directories of the saved document, of its draft, and of either in the quarantine."""
        folders = [Layout(self.root).document(self.form, each, self.document) for each in Collection]
        inside = [os.path.relpath(folder, self.root) for folder in folders]
        inside += [f"%{each}" for each in inside]  # an application may have been renamed there
        top = f"{self.root}/{QUARANTINE}"
        runs = sorted(files.names_in(top))
        return folders + [path for run in runs for each in inside if os.path.isdir(path := f"{top}/{run}/{each}")]


def files_below(directory: str, root: str) -> Iterator[DocumentFile]:
    """Yield the files below a directory, which may be missing, with their paths below a root. Raises ``OSError``."""
    for path in files.below(directory):
        try:
            digest = digest_of_file(path)
        except OSError:
            digest = ""
        yield DocumentFile(os.path.relpath(path, root), os.lstat(path).st_size, digest)


def remove_wholly(path: str) -> None:
    """Remove a directory with everything in it; raise ``OSError`` where any of it stays."""
    files.remove_tree(path)
    if files.exists(path):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


_HOUR = 3600


class Store(StoreReader, Storage, Closable):
    """The files below one root, to be read and written; a closed store can still be read."""

    # An open store holds `.locks/service` shared, so that nobody restores or upgrades the tree.
    def __init__(  # noqa: PLR0913 - each is a setting
        self,
        path: str,
        *,
        lock_timeout: float,
        listener: ChangeListener = NOBODY,
        integrity: Integrity | None = None,
        keeps_history: KeepsHistory = keeps_all,
        recorder: EventRecorder | None = None,
        append_only: bool = False,
    ) -> None:
        """Open the tree of a root, and take its lease; ``keeps_history`` says which forms keep older revisions."""
        # It closes the ``recorder``. With ``append_only``, all do.
        own = os.path.realpath(path)
        with disk_errors(f"data directory {own}"):
            root.require(own)
            root.make_own(own)
            with ExitStack() as opened:
                self._locks = Locks(own, lock_timeout, missing=self._make_own_again)
                service = opened.enter_context(self._locks.service.shared())
                self._lease = Lease(own)
                opened.callback(self._lease.close)
                commit.sweep(own)
                files.empty(f"{own}/{TRASH}")
                super().__init__(own, integrity)
                opened.pop_all()
        self._service = service
        self._service_path = self._layout.own(layout.SERVICE)
        self._sharing = threading.Lock()
        self._directories = DurableDirectories(self.root)
        self.leases = DocumentLeases(self.root, self._locks, self._require_writable)
        self.reencryption = JobFile(
            "re-encryption", self._layout.own(layout.REENCRYPTING), self._layout.own(layout.REENCRYPTED)
        )
        self.arrivals = TreeArrivals(self.root)
        self._listener = listener
        self._keeps_history = keeps_all if append_only else keeps_history
        self.recorder = recorder
        self._append_only = append_only

    def close(self) -> None:
        """Let go of the tree; whoever is writing at the moment ends that, and nobody begins to write."""
        self._lease.close()
        self._service.close()
        if self.recorder is not None:
            self.recorder.close()

    def probe(self) -> str | None:
        """Try out what the commit needs of the file system; returns what only keeps it from writing for now."""
        return root.probe(self.root)

    def upload(self, address: Address | None = None) -> Upload:  # noqa: ARG002 - other storages look at it
        """Begin to receive a content, or something that need not become one."""
        if self._service.closed:
            raise closed(f"the data directory {self.root}")
        return Upload(self.root)

    @contextmanager
    def writing(self, address: Address) -> Iterator[Writing]:
        change = ChangeEvents(self._listener)
        try:
            self._require_writable()
            if self.recorder is not None:
                self.recorder.prepare()
            with self._locks.holding(layout.LOCKS, stripe(address.scope)):
                self._locks.require_writable()
                parts = self._layout, self._integrity, self._directories, change, self._keeps_history, self.recorder
                yield Writer(*parts, self._append_only)
        except OSError as error:
            raise as_disk_error(error, "writing", address) from error
        finally:
            change.ends()

    @contextmanager
    def keeping_writers_out(self) -> Iterator[Callable[[], None]]:
        with disk_errors(f"keeping writers out of {self.root}"), self._locks.keeping_writers_out() as require:
            yield require

    def serving_link(self, found: StoredRevision) -> str:
        """Return a path below the root under which another process may read exactly this open content for an hour."""
        hour = int(time.time() // _HOUR)
        directory = f"{self.root}/{SERVE}/{hour}"
        with disk_errors("linking a content for the web server"):
            try:
                files.require(directory)
            except FileNotFoundError:
                files.ensure(f"{self.root}/{SERVE}")
                if files.make(directory):
                    for old in outdated_links(f"{self.root}/{SERVE}"):
                        files.remove_tree(old)
            name = found.etag if found.is_edited else found.sidecar.id
            with suppress(FileExistsError):  # the same revision, served before within the hour
                files.link_descriptor(found.opened.fileno(), f"{directory}/{name}")
        return f"{SERVE}/{hour}/{name}"

    @contextmanager
    def creating(self, form: Form) -> Iterator[None]:
        number = stripe((form.app, form.name))
        with disk_errors(f"creating a document of {form}"), self._locks.holding(layout.CREATIONS, number):
            yield

    def document_files(self, form: Form, document: str) -> TreeDocumentFiles:
        return TreeDocumentFiles(self.root, form, document)

    def free_bytes(self) -> int:
        with disk_errors(f"data directory {self.root}"):
            self._require_writable()
            return root.free_bytes(self.root)

    def _require_writable(self) -> None:
        if self._service.closed:
            raise closed(f"the data directory {self.root}")
        # A `git clean`, say, removes the lock file: the lock that is held must be on the one that is there.
        with self._sharing:
            try:
                is_held = os.path.samestat(os.stat(self._service_path), os.fstat(self._service.fileno()))
            except FileNotFoundError:
                is_held = False
        if not is_held:
            self._make_own_again()
        self._lease.require()

    def _make_own_again(self) -> None:
        self._require_tree()
        root.make_own(self.root)
        with self._sharing:
            shared, self._service = self._service, self._locks.service.shared()
            shared.close()


def outdated_links(directory: str) -> Iterator[str]:
    """Yield the directories of hours before the last one."""
    hour = int(time.time() // _HOUR)
    for name in os.listdir(directory):
        if not name.isdigit() or int(name) < hour - 1:
            yield f"{directory}/{name}"
