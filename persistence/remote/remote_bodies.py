"""Bodies of attachments that another service keeps, without their records (spec crud 11, forms 5.5)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from http import HTTPStatus
from typing import Self

from persistence.errors import NotSupportedError, PersistenceError, disk_errors
from persistence.limits import MOST_OLDER_BODIES
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar, described
from persistence.remote.remote_calls import DONE, Client, HeaderField, RemoteAnswer, RemoteCall, body_of
from persistence.remote.remote_reader import FOUND, MISSING, RemoteRevisions, go_to, opened_remotely, range_from
from persistence.storage.commit import Upload
from persistence.storage.storage import position_at
from persistence.storage.stored_revision import UNKNOWN_SIZE, StoredRevision


class RemoteBodies:
    """The attachments of another service, which has the current body of each, and perhaps older ones.

    They are received below ``root``, a directory of this service. ``current`` returns the stored sidecar of an
    attachment.
    """

    def __init__(self, client: Client, root: str, current: Callable[[DocumentAddress], Sidecar | None]) -> None:
        self._client = client
        self._root = root
        self._current = current

    def upload(self, address: DocumentAddress) -> Upload:  # noqa: ARG002 - an object has its key from it
        return Upload(self._root)

    def changing(self) -> AbstractContextManager[Self]:
        return nullcontext(self)

    def find(self, address: DocumentAddress, record: Sidecar, *, content: bool) -> StoredRevision | None:
        """A body whose length differs from its record may be of another revision: it has another entity tag."""
        sidecar, stored = described(record), self._current(address)
        if stored is not None and stored.modified != sidecar.modified:
            return self._older(address, sidecar, content=content)
        answer = self._ask("HEAD", address, sidecar.version)
        answer.close()
        if answer.status in MISSING:
            return None
        answer.require(f"HEAD {address}", HTTPStatus.OK)
        size = sidecar.size if answer.length is None else answer.length
        etag = sidecar.id if size == sidecar.size else hashlib.sha256(f"{sidecar.id}:{size}".encode()).hexdigest()[:40]
        if not content:
            return StoredRevision(sidecar, etag, UNKNOWN_SIZE if answer.length is None else size)

        def ask(at: int) -> RemoteAnswer:
            answer = self._ask("GET", address, sidecar.version, range_from(at, size))
            answer.require(f"GET {address}", *FOUND)
            go_to(at, answer)
            return answer

        return StoredRevision(sidecar, etag, size, opened_remotely(size, ask))

    def _older(self, address: DocumentAddress, sidecar: Sidecar, *, content: bool) -> StoredRevision:
        """Return the body of an older revision, if the other service has a history of the attachment.

        Its clock differs, and it may have bodies without a record here: the body with the digest is looked for among
        those that were stored at about the time.
        """
        for instant in self._about(address, sidecar.modified) if sidecar.digest else ():
            found = self._of_instant(address, sidecar, instant, content=content)
            if found is not None:
                return found
        who = self._client.who
        raise NotSupportedError(f"provider {who!r} does not show the body of {address} of {sidecar.modified}")

    def _about(self, address: DocumentAddress, instant: Instant) -> Iterator[Instant]:
        """Yield the instants of the revisions there that are next to one, the most likely first.

        A body is stored there after its record has got its instant, so it is the oldest of those that are later.
        """
        revisions = RemoteRevisions(self._client, address)
        first = position_at(revisions, instant) - 1 if revisions.total else 0
        nearest = sorted(range(first - MOST_OLDER_BODIES, first + MOST_OLDER_BODIES), key=lambda at: abs(at - first))
        there = [position for position in nearest if 0 <= position < revisions.total]
        return (revisions.instant(position) for position in there[:MOST_OLDER_BODIES])

    def _of_instant(
        self, address: DocumentAddress, sidecar: Sidecar, instant: Instant, *, content: bool
    ) -> StoredRevision | None:
        path, fields = self._client.names.path(address), [self._version(sidecar.version)]
        query = (("last-modified-time", instant),)
        answer = self._client.send(RemoteCall("GET" if content else "HEAD", path, fields, query))
        try:
            if answer.status in MISSING or answer.length not in (None, sidecar.size):
                return None
            answer.require(f"{address} of {instant}", HTTPStatus.OK)
            if not content:
                return StoredRevision(sidecar, sidecar.id, sidecar.size)
            with disk_errors("receiving", address), Upload(self._root) as upload:
                for piece in answer:
                    upload.write(piece)
                    if upload.size > sidecar.size:
                        return None
                is_same = (upload.size, upload.digest) == (sidecar.size, sidecar.digest)
                return StoredRevision(sidecar, sidecar.id, upload.size, upload.opened()) if is_same else None
        finally:
            answer.close()

    @contextmanager
    def placing(
        self,
        address: DocumentAddress,
        sidecar: Sidecar,
        upload: Upload,
        over: Sidecar | None,  # noqa: ARG002
    ) -> Iterator[Sidecar]:
        kind = (sidecar.content_type or "application/octet-stream").encode("latin-1", "replace")
        with body_of(upload) as (body, length):
            fields = [self._version(sidecar.version), ("Content-Type", kind), length]
            self._done(RemoteCall("PUT", self._client.names.path(address), fields, body=body))
        yield sidecar

    @contextmanager
    def removing(self, address: DocumentAddress, over: Sidecar) -> Iterator[None]:
        yield
        with suppress(PersistenceError):  # what counts is the record, which is gone
            self._done(RemoteCall("DELETE", self._client.names.path(address), [self._version(over.version)]))

    @contextmanager
    def dropping(self, address: DocumentAddress, records: Sequence[Sidecar], *, are_older: bool) -> Iterator[None]:
        yield
        for record in () if are_older else records:
            with self.removing(address, record):
                pass

    @contextmanager
    def discarding_draft(
        self,
        form: Form,
        document: str,
        version: int | None,
        records: Sequence[tuple[str, Sidecar]],  # noqa: ARG002 - one request removes all
    ) -> Iterator[None]:
        yield
        draft = self._client.names.of_form("crud", form, Collection.DRAFT.value, document)
        self._done(RemoteCall("DELETE", draft, [] if version is None else [self._version(version)]))

    def _done(self, call: RemoteCall) -> None:
        answer = self._client.send(call)
        answer.require(call.label, *DONE, *(MISSING if call.method == "DELETE" else ()))
        answer.close()

    def _ask(
        self, method: str, address: DocumentAddress, version: int, wanted: list[HeaderField] | None = None
    ) -> RemoteAnswer:
        fields = [self._version(version), *(wanted or ())]
        return self._client.send(RemoteCall(method, self._client.names.path(address), fields))

    def _version(self, version: int) -> HeaderField:
        return self._client.names.version(version)
