"""Bodies of attachments that another service keeps, without what is known of them (spec crud 11, forms 5.5)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus

from persistence.errors import NotSupportedError, PersistenceError
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.sidecar import Sidecar, described
from persistence.remote.client import DONE, Client, RemoteAnswer, RemoteCall, body_of
from persistence.remote.provider_names import HeaderField
from persistence.remote.remote_reader import go_to, opened_remotely, range_from
from persistence.storage.stored_revision import UNKNOWN_SIZE, StoredRevision
from persistence.storage.uploads import Spool, Upload

_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


class RemoteBodies:
    """The ``Bodies`` of another service, which has one of each attachment: that of its current revision.

    ``current`` returns the sidecar that is stored of an attachment.
    """

    def __init__(self, client: Client, spool: Spool, current: Callable[[DocumentAddress], Sidecar | None]) -> None:
        self._client = client
        self._spool = spool
        self._current = current

    def upload(self) -> Upload:
        """See ``Bodies``."""
        return self._spool.upload()

    def find(self, address: DocumentAddress, record: Sidecar, *, content: bool) -> StoredRevision | None:
        """See ``Bodies``; a body whose length is not that of its record may be of another revision.

        Raises:
            NotSupportedError: the revision is an older one.
        """
        sidecar, stored = described(record), self._current(address)
        if stored is not None and stored.modified != sidecar.modified:
            raise NotSupportedError(f"provider {self._client.who!r} keeps no older revisions of attachments")
        answer = self._ask("HEAD", address, sidecar.version)
        answer.close()
        if answer.status in _GONE:
            return None
        answer.require(f"HEAD {address}", HTTPStatus.OK)
        size = sidecar.size if answer.length is None else answer.length
        etag = sidecar.id if size == sidecar.size else hashlib.sha256(f"{sidecar.id}:{size}".encode()).hexdigest()[:40]
        if not content:
            return StoredRevision(sidecar, etag, UNKNOWN_SIZE if answer.length is None else size)
        ask = partial(self._from, address, sidecar.version, size)
        return StoredRevision(sidecar, etag, size, opened_remotely(size, ask))

    @contextmanager
    def placing(
        self,
        address: DocumentAddress,
        sidecar: Sidecar,
        upload: Upload,
        over: Sidecar | None,  # noqa: ARG002
    ) -> Iterator[None]:
        """See ``Bodies``; the body before is gone then, also where the record cannot be stored."""
        kind = (sidecar.content_type or "application/octet-stream").encode("latin-1", "replace")
        with body_of(upload) as (body, length):
            fields = [self._version(sidecar.version), ("Content-Type", kind), length]
            self._done(RemoteCall("PUT", self._client.names.path(address), fields, body=body))
        yield

    @contextmanager
    def removing(self, address: DocumentAddress, over: Sidecar) -> Iterator[None]:
        """See ``Bodies``."""
        yield
        with suppress(PersistenceError):  # what counts is the record, which is gone
            self._done(RemoteCall("DELETE", self._client.names.path(address), [self._version(over.version)]))

    def discard_draft(self, form: Form, document: str, version: int | None) -> None:
        """See ``Bodies``; a failure is reported (spec forms 5.5)."""
        draft = self._client.names.of_form("crud", form, Collection.DRAFT.value, document)
        self._done(RemoteCall("DELETE", draft, [] if version is None else [self._version(version)]))

    def _done(self, call: RemoteCall) -> None:
        answer = self._client.send(call)
        answer.require(call.what, *DONE, *(_GONE if call.method == "DELETE" else ()))
        answer.close()

    def _from(self, address: DocumentAddress, version: int, size: int, at: int) -> RemoteAnswer:
        answer = self._ask("GET", address, version, range_from(at, size))
        answer.require(f"GET {address}", HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT)
        go_to(at, answer)
        return answer

    def _ask(
        self, method: str, address: DocumentAddress, version: int, wanted: list[HeaderField] | None = None
    ) -> RemoteAnswer:
        fields = [self._version(version), *(wanted or ())]
        return self._client.send(RemoteCall(method, self._client.names.path(address), fields))

    def _version(self, version: int) -> HeaderField:
        return self._client.names.version(version)
