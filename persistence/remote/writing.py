"""Changes as requests to another service, which say what was decided here (spec crud 11, forms 5.6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from urllib.parse import parse_qsl

from persistence import client_request
from persistence.errors import ReplacedError
from persistence.model.addresses import DATA_XML, Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.sidecar import Sidecar
from persistence.remote.answers import changed, kept_hash
from persistence.remote.caller import Caller
from persistence.remote.client import Call
from persistence.remote.listing import Listing
from persistence.remote.names import Field
from persistence.remote.reading import Reader
from persistence.storage.storage import Writing, require_same
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.uploads import Upload

_CHUNK = 1 << 18
_DONE = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT)
_FORMAT = "data-format-version"

_is_singleton: ContextVar[bool] = ContextVar("is_singleton", default=False)


class RemoteWriter(Writing):
    """What may be done while the lock of an address's scope is held, here: the other side has its own."""

    def __init__(self, caller: Caller, listing: Listing, address: Address, reader: Reader) -> None:
        self._caller = caller
        self._listing = listing
        self._address = address
        self._reader = reader
        self._seen: dict[Address, tuple[StoredRevision | None, bytes | None]] = {}

    @staticmethod
    @contextmanager
    def of_singleton() -> Iterator[None]:
        """Say in a block that the form has one document only."""
        token = _is_singleton.set(True)
        try:
            yield
        finally:
            _is_singleton.reset(token)

    def current(self, address: Address) -> StoredRevision | None:
        """As ``Writing`` says."""
        found, tag = self._reader.current(address)
        self._seen[address] = found, tag
        return found

    def commit(self, address: Address, sidecar: Sidecar, upload: Upload, *, over: StoredRevision | None) -> Sidecar:
        """As ``Writing`` says: the body that was received is sent in one request."""
        length = ("Content-Length", b"%d" % upload.size)
        fields = (*self._decided(address, sidecar.version, over), *self._described(address, sidecar), length)
        with upload.opened() as file:
            body = iter(partial(file.read, _CHUNK), b"")
            call = Call("PUT", self._caller.names.path(address), fields, _query(sidecar), body)
            return self._changed(call, address, sidecar)

    def delete(self, address: Address, tombstone: Sidecar, *, over: StoredRevision | None) -> Sidecar:
        """As ``Writing`` says."""
        fields = self._decided(address, tombstone.version, over)
        return self._changed(Call("DELETE", self._caller.names.path(address), fields), address, tombstone)

    def purge(self, address: Address, tombstone: Sidecar, *, over: StoredRevision) -> None:
        """As ``Writing`` says."""
        self.delete(address, tombstone, over=over)

    def discard_draft(self, form: Form, document: str) -> None:
        """Delete a draft, where that is what is asked for: with saved data it goes by itself (spec crud 4.11)."""
        draft = DocumentAddress(form, Collection.DRAFT, document, DATA_XML)
        found, _ = self._seen.get(draft, (None, None))
        if draft == self._address and found is not None:
            self.delete(draft, found.sidecar, over=found)

    def _changed(self, call: Call, address: Address, sidecar: Sidecar) -> Sidecar:
        try:
            answer = self._caller.send(call)
        finally:  # it may have been done, whatever is known of it
            if isinstance(address, DefinitionAddress):
                self._listing.forget(address.form)
        if answer.status == HTTPStatus.PRECONDITION_FAILED and any(name == "If-Match" for name, _ in call.fields):
            answer.close()  # the client's own condition is judged here
            raise ReplacedError(f"{address} was written by another client of provider {self._caller.who!r} meanwhile")
        if answer.status not in _DONE:
            raise answer.refused(call.what)
        answer.close()
        return changed(answer, self._caller.names, address, sidecar)

    def _decided(self, address: Address, version: int, over: StoredRevision | None) -> list[Field]:
        """Return what was decided here, and over which revision: the provider compares its tag, where it has one.

        Raises:
            ReplacedError: another revision was there already.
        """
        if address not in self._seen:
            self.current(address)
        seen, tag = self._seen[address]
        require_same(address, seen, over)
        field = self._caller.names.field
        fields = [field("Form-Definition-Version", str(version))]
        if tag is not None and address.is_main:  # that of an attachment may be compared with its document's (4.6)
            fields.append(("If-Match", tag))
        if over is None or over.sidecar.deleted:
            return fields
        there = over.sidecar
        known = (("Created", there.created), ("Username", there.creator), ("Group", there.group))
        return fields + [field(f"{name}-Existing", value) for name, value in known if value is not None]

    def _described(self, address: Address, sidecar: Sidecar) -> Iterator[Field]:
        field = self._caller.names.field
        if sidecar.content_type is not None:
            yield "Content-Type", sidecar.content_type.encode("latin-1", "replace")
        if sidecar.stage is not None:
            yield field("Workflow-Stage", sidecar.stage)
        hashed = kept_hash(sidecar)
        if hashed is not None:
            yield field("Hash-Algorithm", hashed.algorithm)
            yield field("Hash-Value", hashed.value)
        if _is_singleton.get() and isinstance(address, DocumentAddress) and address.is_main:
            yield field("Singleton", "true")


def _query(sidecar: Sidecar) -> list[tuple[str, str]]:
    """What is said of a revision in parameters (spec crud 3.1)."""
    said = [] if sidecar.valid is None else [("valid", "true" if sidecar.valid else "false")]
    if sidecar.source is not None:
        said.append(("document", sidecar.source))
    request = client_request.current()
    sent = parse_qsl(request.query) if request.method == "PUT" else []
    return said + [(name, value) for name, value in sent if name == _FORMAT]
