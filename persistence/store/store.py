"""The store: addresses in, revisions out. What the layers above may ask of the disk."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from persistence.errors import disk_errors
from persistence.model.addresses import FORM_XHTML, Address, Collection, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.store import files, locks, reading, root, serving
from persistence.store.directories import Directories
from persistence.store.layout import CREATIONS, LOCKS, SERVICE, SPOOL, TRASH, Layout, Place, is_escaped, unescape
from persistence.store.locks import Locks
from persistence.store.reading import Found, Mark
from persistence.store.uploads import Upload, sweep
from persistence.store.writing import Writer


class Store:
    """The files below one root.

    Every method translates ``OSError``: ``DiskFullError`` or ``DiskError`` with the cause. Reading raises
    ``DamagedError`` for what is not as the service wrote it, and every method ``BadAddressError`` for names that
    cannot be file names.
    """

    def __init__(self, path: str, *, lock_timeout: float) -> None:
        """Open the root, which is made if it is missing; ``lock_timeout`` is in seconds.

        Raises:
            StartupError: the tree has another format, or is not whole.
            BusyError: it is being restored or upgraded.
            DiskError: the root cannot be prepared.
        """
        self.root = os.path.abspath(path)
        with disk_errors(f"data directory {self.root}"):
            root.prepare(self.root)
            weakref.finalize(self, os.close, locks.share(f"{self.root}/{SERVICE}"))
            sweep(f"{self.root}/{SPOOL}")
            files.empty(f"{self.root}/{TRASH}")
        self._layout = Layout(self.root)
        self._locks = Locks(self._layout.own(LOCKS), lock_timeout)
        self._creations = Locks(self._layout.own(CREATIONS), lock_timeout)
        self._directories = Directories(self.root)

    def probe(self) -> str | None:
        """Try out what the commit needs of the file system; returns what only keeps it from writing for now.

        Raises:
            StartupError: names what does not work.
        """
        return root.probe(self.root)

    def sidecar(self, address: Address) -> Sidecar | None:
        """The sidecar of a resource; ``None`` where nothing was ever stored."""
        place = self._layout.place(address)
        with disk_errors(f"reading {address}"):
            return reading.read_sidecar(place)

    def read(self, address: Address, *, content: bool) -> Found | None:
        """The current revision, its content open if asked for; ``None`` where nothing was ever stored."""
        place = self._layout.place(address)
        with disk_errors(f"reading {address}"):
            return reading.read(place, content=content)

    def mark(self, address: Address) -> Mark:
        """What tells whether a resource is still as it was when it was read: marks that differ are of two states."""
        place = self._layout.place(address)
        with disk_errors(f"looking at {address}"):
            return reading.mark(place)

    def marks(self, form: Form) -> Iterator[tuple[int, Mark]]:
        """The versions of a form as ``versions`` has them, each with the mark of its ``form.xhtml``."""
        directory = self._layout.versions(form)
        with disk_errors(f"looking at the versions of {form}"):
            for number in self.versions(form):
                yield number, reading.mark(Place(f"{directory}/{number}", FORM_XHTML))

    def read_revision(self, address: Address, instant: Instant, *, content: bool) -> Found | None:
        """The revision of exactly that instant, current or older (spec crud 4.8); ``None`` where there is none."""
        place = self._layout.place(address)
        with disk_errors(f"reading {address}"):
            # The current one first: a writer keeps it in the history before it replaces it, so that looking there
            # afterwards finds whatever has just stopped being current.
            current = reading.read(place, content=content)
            if current is None or current.sidecar.modified == instant:
                return current
            if current.file is not None:
                current.file.close()
            return reading.read(place.revision(instant), content=content)

    def forms(self, app: str | None = None) -> Iterator[Form]:
        """All forms, or those of one application, that have a directory, in no order."""
        with disk_errors("listing the forms"):
            for name in [app] if app is not None else _names(self._layout.root):
                yield from (Form(name, form) for form in _names(self._layout.application(name)))

    def versions(self, form: Form) -> Iterator[int]:
        """The versions of a form that have a directory, highest first."""
        with disk_errors(f"listing the versions of {form}"):
            try:
                names = os.listdir(self._layout.versions(form))
            except FileNotFoundError:
                return
        yield from sorted((int(name) for name in names if name.isascii() and name.isdigit()), reverse=True)

    def documents(self, form: Form) -> Iterator[str]:
        """The ids of the documents in ``data``, deleted ones too, in no order and without reading them all at once."""
        with disk_errors(f"listing the documents of {form}"):
            yield from _names(self._layout.documents(form, Collection.DATA))

    def upload(self) -> Upload:
        """Begin to receive a content; no lock is held meanwhile."""
        with disk_errors("receiving a body"):
            return Upload(self.root, self._layout.own(SPOOL))

    @contextmanager
    def writing(self, address: Address) -> Iterator[Writer]:
        """Hold the lock of what an address belongs to, and write there.

        Raises:
            BusyError: the lock was not to be had before its deadline.
        """
        with disk_errors(f"writing {address}"), self._locks.holding(address.scope):
            yield Writer(self._layout, self._directories)

    def serving_link(self, found: Found) -> str:
        """A path below the root under which another process may read exactly this open content for an hour."""
        if found.file is None:
            raise ValueError("only an open content can be linked")
        with disk_errors("linking a content for the web server"):
            return serving.link(self.root, found.file, found.etag)

    @contextmanager
    def creating(self, form: Form) -> Iterator[None]:
        """Keep others from creating documents of a form that has only one.

        The lock is of a second kind, taken while a document's is held and never the other way round: so no two
        requests can wait for each other.

        Raises:
            BusyError: the lock was not to be had before its deadline.
        """
        with disk_errors(f"creating a document of {form}"), self._creations.holding((form.app, form.name)):
            yield

    def free_bytes(self) -> int:
        """Space that the service may still use on the root's file system.

        Raises:
            DiskError: the root is gone or not writable.
        """
        with disk_errors(f"data directory {self.root}"):
            return root.free_bytes(self.root)


def _names(directory: str) -> Iterator[str]:
    """The names in the virtual hierarchy of what lies in a directory; nothing where there is none."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
        for entry in entries:
            if is_escaped(entry.name):
                yield unescape(entry.name)
