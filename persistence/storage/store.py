"""The tree of one root, open to be written. ``reader`` reads it, ``writer`` changes it.

Links for nginx are made here: a name for exactly the content that was opened, so that nginx sends the one that the
headers describe. The content's own path would lead to whatever a writer has put there by the time nginx opens it. Links
lie in a directory per hour; making a new one removes those older than the hour before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO

from persistence.closable import Closable, closed
from persistence.errors import as_disk_error, disk_errors
from persistence.model.addresses import Address, Form
from persistence.model.instants import Instant
from persistence.storage import directories, file_system, files, root, uploads
from persistence.storage.directories import DurableDirectories
from persistence.storage.document_leases import DocumentLeases
from persistence.storage.integrity import Integrity
from persistence.storage.job_file import JobFile
from persistence.storage.layout import REENCRYPTED, REENCRYPTING, SERVE, SERVICE, TRASH
from persistence.storage.lease import Lease
from persistence.storage.locks import Locks
from persistence.storage.managed import ManagedStorage
from persistence.storage.reader import StoreReader
from persistence.storage.storage import NOBODY, ChangeEvents, ChangeListener, KeepsHistory, keeps_all
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.traces import DocumentTraces
from persistence.storage.uploads import Upload
from persistence.storage.writer import Writer

_HOUR = 3600


class Store(StoreReader, ManagedStorage, Closable):
    """The files below one root, to be read and written.

    An open store holds ``.locks/service`` shared, so that nobody restores or upgrades the tree; ``close`` releases it.
    A closed store can still be read.

    Every method translates ``OSError``: ``DiskFullError`` or ``DiskError`` with the cause. Every method raises
    ``BadAddressError`` for names that cannot be file names.
    """

    def __init__(
        self,
        path: str,
        *,
        lock_timeout: float,
        listener: ChangeListener = NOBODY,
        integrity: Integrity | None = None,
        keeps_history: KeepsHistory = keeps_all,
    ) -> None:
        """Open the tree of a root, and take its lease; ``lock_timeout`` is in seconds.

        ``listener`` hears which documents are changed through this store; ``integrity`` is as in ``StoreReader``.
        ``keeps_history`` says which forms keep older revisions.
        """
        own = os.path.realpath(path)
        with disk_errors(f"data directory {own}"):
            root.open_tree(own)
            with ExitStack() as opened:
                self._locks = Locks(own, lock_timeout, missing=self._make_own_again)
                service = opened.enter_context(self._locks.service.shared())
                self._lease = Lease(own)
                opened.callback(self._lease.close)
                uploads.sweep(own)
                directories.empty(f"{own}/{TRASH}")
                super().__init__(own, integrity)
                opened.pop_all()
        self._service = service
        self._service_path = self._layout.own(SERVICE)
        self._sharing = threading.Lock()
        self._directories = DurableDirectories(self.root)
        self._leases = DocumentLeases(self.root, self._locks, self._require_writable)
        self._reencryption = JobFile("re-encryption", self._layout.own(REENCRYPTING), self._layout.own(REENCRYPTED))
        self._listener = listener
        self._keeps_history = keeps_history

    @property
    def leases(self) -> DocumentLeases:
        return self._leases

    @property
    def reencryption(self) -> JobFile:
        """The record of the re-encryption of forms."""
        return self._reencryption

    def close(self) -> None:
        """Let go of the tree; whoever is writing at the moment ends that, and nobody begins to write."""
        self._lease.close()
        self._service.close()

    def probe(self) -> str | None:
        """Try out what the commit needs of the file system; returns what only keeps it from writing for now."""
        return file_system.probe(self.root)

    def removable(self, address: Address, instant: Instant | None) -> StoredRevision | None:
        """Return a revision that is to be removed: the current one, or that of an instant."""
        if instant is None:
            return self.read(address, content=False)
        return self.read_revision(address, instant, content=False)

    def upload(self, address: Address) -> Upload:  # noqa: ARG002 - a storage of several trees looks at it
        """Begin to receive a content; no lock is held meanwhile."""
        return self.spooled()

    def spooled(self) -> Upload:
        """Begin to receive something that need not become a content."""
        self._require_open()
        return Upload(self.root)

    @contextmanager
    def writing(self, address: Address) -> Iterator[Writer]:
        """Hold the lock of what an address belongs to, and write there."""
        change = ChangeEvents(self._listener)
        try:
            self._require_writable()
            with self._locks.document(address.scope):
                self._locks.require_writable()
                yield Writer(self._layout, self._integrity, self._directories, change, self._keeps_history)
        except OSError as error:
            raise as_disk_error(error, "writing", address) from error
        finally:
            change.ends()

    @contextmanager
    def keeping_writers_out(self) -> Iterator[Callable[[], None]]:
        """Keep everybody from writing for a block; yields what raises ``BusyError`` if that holds no longer."""
        with disk_errors(f"keeping writers out of {self.root}"), self._locks.keeping_writers_out() as require:
            yield require

    def serving_link(self, found: StoredRevision) -> str:
        """Return a path below the root under which another process may read exactly this open content for an hour."""
        with disk_errors("linking a content for the web server"):
            return _link(self.root, found.opened, found.etag if found.is_edited else found.sidecar.id)

    @contextmanager
    def creating(self, form: Form) -> Iterator[None]:
        """Keep others from creating documents of a form that has only one, while a document's lock is held."""
        with disk_errors(f"creating a document of {form}"), self._locks.creation((form.app, form.name)):
            yield

    def traces(self, form: Form, document: str) -> DocumentTraces:
        return DocumentTraces(self.root, form, document)

    def _require_writable(self) -> None:
        self._require_open()
        self._require_shared()
        self._lease.require()

    def _require_open(self) -> None:
        if self._service.closed:
            raise closed(f"the data directory {self.root}")

    def free_bytes(self) -> int:
        """Space that the service may still use on the root's file system."""
        with disk_errors(f"data directory {self.root}"):
            self._lease.require()
            self._require_shared()
            return file_system.free_bytes(self.root)

    def _require_shared(self) -> None:
        """Make sure that the lock that says who uses the tree is the one that this store holds.

        It is removed with the service's own directories, by a ``git clean``, say. Raises ``OSError``.
        """
        with self._sharing:
            try:
                is_held = os.path.samestat(os.stat(self._service_path), os.fstat(self._service.fileno()))
            except FileNotFoundError:
                is_held = False
        if not is_held:
            self._make_own_again()

    def _make_own_again(self) -> None:
        self._require_tree()
        root.make_own(self.root)
        with self._sharing:
            shared, self._service = self._service, self._locks.service.shared()
            shared.close()


def _link(root: str, file: BinaryIO, etag: str) -> str:
    hour = int(time.time() // _HOUR)
    directory = f"{root}/{SERVE}/{hour}"
    try:
        directories.require(directory)
    except FileNotFoundError:
        directories.ensure(f"{root}/{SERVE}")
        if directories.make(directory):
            for old in outdated_links(f"{root}/{SERVE}"):
                directories.remove_tree(old)
    path = f"{SERVE}/{hour}/{etag}"
    with suppress(FileExistsError):  # the same revision, served before within the hour
        files.link_descriptor(file.fileno(), f"{root}/{path}")
    return path


def outdated_links(directory: str) -> Iterator[str]:
    """Yield the directories of hours before the last one."""
    hour = int(time.time() // _HOUR)
    for name in os.listdir(directory):
        if not name.isdigit() or int(name) < hour - 1:
            yield f"{directory}/{name}"
