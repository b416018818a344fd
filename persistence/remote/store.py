"""Another service as a storage: every question and every change is a request to it (spec crud 11)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from persistence import client_request
from persistence.errors import disk_errors
from persistence.model.addresses import Address, Collection, DefinitionAddress, Form
from persistence.model.instants import Instant, epoch_nanoseconds
from persistence.model.sidecar import SCHEMA, Sidecar
from persistence.remote.caller import Caller
from persistence.remote.listing import Listing, Version
from persistence.remote.reading import Reader
from persistence.remote.searching import DocumentIds
from persistence.remote.writing import RemoteWriter
from persistence.storage.holding import Holding
from persistence.storage.layout import Layout
from persistence.storage.storage import Storage, Writing
from persistence.storage.stored_revision import NOTHING_THERE, Fingerprint, StoredRevision
from persistence.storage.uploads import Upload

_NAMES = Layout("")
"""What can be no name here can be none elsewhere."""


class RemoteStore(Storage):
    """A ``Storage`` that another service is. Methods raise ``RemoteError`` too, and what its refusals mean.

    ``holding`` has the locks and the spool of this service: a body is received wholly before the other side sees any
    of it, and two writers here do not decide by what is not so any more.
    """

    def __init__(self, caller: Caller, holding: Holding) -> None:
        self._who = caller.who
        self._caller = caller
        self._holding = holding
        self._reader = Reader(caller, holding)
        self._listing = Listing(caller)
        self._ids = DocumentIds(caller)

    def sidecar(self, address: Address) -> Sidecar | None:
        """As ``Readable`` says."""
        if isinstance(address, DefinitionAddress):
            listed = self._listed(address)
            if listed is not None:
                return _listed_sidecar(listed)
        elif not address.is_main:
            _NAMES.place(address)
            return self._reader.beginning(address)
        found = self.read(address, content=False)
        return None if found is None else found.sidecar

    def read(self, address: Address, *, content: bool) -> StoredRevision | None:
        """As ``Readable`` says."""
        _NAMES.place(address)
        return self._reader.read(address, content=content)

    def read_revision(self, address: Address, instant: Instant, *, content: bool) -> StoredRevision | None:
        """As ``Readable`` says."""
        _NAMES.place(address)
        return self._reader.read(address, (("last-modified-time", instant),), content=content)

    def content(self, address: Address) -> BinaryIO | None:
        """As ``Readable`` says."""
        found = self.read(address, content=True)
        return None if found is None else found.file

    def fingerprint(self, address: Address) -> Fingerprint:
        """As ``Readable`` says; that of a definition is by the list of what is published, and one request asks once."""
        listed = self._listed(address) if isinstance(address, DefinitionAddress) else None
        if listed is not None:
            return listed.fingerprint
        return client_request.current().once((RemoteStore, self._who, address), lambda: self._fingerprint(address))

    def fingerprints(self, form: Form) -> Iterator[tuple[int, Fingerprint]]:
        """As ``Readable`` says."""
        _NAMES.versions(form)
        return ((number, version.fingerprint) for number, version in self._listing.versions(form).items())

    def forms(self, app: str | None = None) -> Iterator[Form]:
        """Those that are published: of others, nobody can be asked."""
        if app is not None:
            _NAMES.application(app)
        return self._listing.forms(app)

    def versions(self, form: Form) -> Iterator[int]:
        """Those that are published."""
        _NAMES.versions(form)
        return iter(self._listing.versions(form))

    def documents(self, form: Form, collection: Collection = Collection.DATA) -> Iterator[str]:
        """Those that the client who asks may find."""
        _NAMES.documents(form, collection)
        return self._ids.of(form, collection)

    def upload(self, address: Address) -> Upload:
        """As ``Storage`` says."""
        _NAMES.place(address)
        return self._holding.upload()

    @contextmanager
    def writing(self, address: Address) -> Iterator[Writing]:
        """As ``Storage`` says; the lock is one of this service."""
        _NAMES.place(address)
        with disk_errors("writing", address), self._holding.writing((self._who, *address.scope)):
            yield RemoteWriter(self._caller, self._listing, address, self._reader)

    @contextmanager
    def creating(self, form: Form) -> Iterator[None]:
        """Keep others from creating, here; there, the field that the writer sends with it does."""
        scope = (self._who, form.app, form.name)
        with (
            disk_errors("creating a document of", form),
            self._holding.creating(scope),
            RemoteWriter.of_singleton(),
        ):
            yield

    def _listed(self, address: DefinitionAddress) -> Version | None:
        return self._listing.versions(address.form).get(address.version) if address.is_main else None

    def _fingerprint(self, address: Address) -> Fingerprint:
        found = self.read(address, content=False)
        if found is None:
            return NOTHING_THERE
        sidecar = found.sidecar
        return (int(sidecar.id[:15], 16), epoch_nanoseconds(sidecar.modified), sidecar.deleted), None


def _listed_sidecar(listed: Version) -> Sidecar:
    """What is known of a definition that is listed; the rest is with the definition."""
    return Sidecar(
        schema=SCHEMA,
        id=f"{listed.sum:040x}",
        version=listed.number,
        modified=listed.modified,
        created=listed.modified,
        size=0,
    )
