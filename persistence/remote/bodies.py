"""Bodies of attachments that another service keeps, without what is known of them (spec crud 11, forms 5.5)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus

from persistence.errors import NotSupportedError, PersistenceError
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.sidecar import Sidecar
from persistence.remote.caller import Caller
from persistence.remote.client import Answer, Call
from persistence.remote.content import RemoteContent, as_file
from persistence.remote.names import Field, path
from persistence.remote.ranges import asked_from, go_to
from persistence.storage.holding import Holding
from persistence.storage.split_attachments import described
from persistence.storage.storage import Incoming
from persistence.storage.stored_revision import UNKNOWN_SIZE, StoredRevision
from persistence.storage.uploads import Upload

_CHUNK = 1 << 18
_DONE = (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT)
_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


class RemoteBodies:
    """The ``Bodies`` of another service, which has one of each attachment: that of its current revision.

    ``current`` leads to the sidecar that is stored of an attachment.
    """

    def __init__(self, caller: Caller, holding: Holding, current: Callable[[DocumentAddress], Sidecar | None]) -> None:
        self._caller = caller
        self._holding = holding
        self._current = current

    def upload(self) -> Upload:
        """As ``Bodies`` says."""
        return self._holding.upload()

    def find(self, address: DocumentAddress, record: Sidecar, *, content: bool) -> StoredRevision | None:
        """As ``Bodies`` says; one that is not as long as its record says is not sure to be of that revision.

        Raises:
            NotSupportedError: the revision is an older one.
        """
        sidecar, stored = described(record), self._current(address)
        if stored is not None and stored.modified != sidecar.modified:
            raise NotSupportedError(f"provider {self._caller.who!r} keeps no older revisions of attachments")
        answer = self._ask("HEAD", address, sidecar.version)
        answer.close()
        if answer.status in _GONE:
            return None
        if answer.status != HTTPStatus.OK:
            raise answer.refused(f"HEAD {address}")
        size = sidecar.size if answer.length is None else answer.length
        etag = sidecar.id if size == sidecar.size else hashlib.sha256(f"{sidecar.id}:{size}".encode()).hexdigest()[:40]
        if not content:
            return StoredRevision(sidecar, etag, UNKNOWN_SIZE if answer.length is None else size)
        ask = partial(self._from, address, sidecar.version, size)
        return StoredRevision(sidecar, etag, size, as_file(RemoteContent(size, ask)))

    @contextmanager
    def placing(
        self,
        address: DocumentAddress,
        sidecar: Sidecar,
        upload: Incoming,
        over: Sidecar | None,  # noqa: ARG002
    ) -> Iterator[None]:
        """As ``Bodies`` says: the body before is gone then, also where the record cannot be stored."""
        if not isinstance(upload, Upload):
            raise TypeError("only what was received here can be sent")
        kind = (sidecar.content_type or "application/octet-stream").encode("latin-1", "replace")
        fields = [("Content-Type", kind), ("Content-Length", b"%d" % upload.size)]
        with upload.opened() as file:
            body = iter(partial(file.read, _CHUNK), b"")
            self._done(Call("PUT", self._path(address), [self._version(sidecar.version), *fields], body=body))
        yield

    @contextmanager
    def removing(self, address: DocumentAddress, over: Sidecar) -> Iterator[None]:
        """As ``Bodies`` says."""
        yield
        with suppress(PersistenceError):  # what counts is the record, which is gone
            self._done(Call("DELETE", self._path(address), [self._version(over.version)]))

    def discard_draft(self, form: Form, document: str, version: int | None) -> None:
        """As ``Bodies`` says; a failure is reported (spec forms 5.5)."""
        names = self._caller.names
        fields = [] if version is None else [self._version(version)]
        draft = path("crud", names.app(form.app), form.name, Collection.DRAFT.value, document)
        self._done(Call("DELETE", draft, fields))

    def _done(self, call: Call) -> None:
        answer = self._caller.send(call)
        is_gone = call.method == "DELETE" and answer.status in _GONE
        if answer.status not in _DONE and not is_gone:
            raise answer.refused(call.what)
        answer.close()

    def _from(self, address: DocumentAddress, version: int, size: int, at: int) -> Answer:
        answer = self._ask("GET", address, version, asked_from(at, size))
        if answer.status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            raise answer.refused(f"GET {address}")
        go_to(at, answer)
        return answer

    def _ask(self, method: str, address: DocumentAddress, version: int, wanted: list[Field] | None = None) -> Answer:
        return self._caller.send(Call(method, self._path(address), [self._version(version), *(wanted or ())]))

    def _path(self, address: DocumentAddress) -> str:
        return self._caller.names.path(address)

    def _version(self, version: int) -> Field:
        return self._caller.names.field("Form-Definition-Version", str(version))
