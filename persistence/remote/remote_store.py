"""Another service as a storage: every read and every change is a request to it (spec crud 11, forms 5.6).

Published versions are asked of its form metadata API (spec crud 8.8, search 4).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from http import HTTPStatus
from typing import Self
from urllib.parse import parse_qsl

from persistence import client_request, errors
from persistence.forms.messages import read_lock, write_lock
from persistence.forms.search_xml import read_form_list
from persistence.limits import LARGEST_LOCK, MOST_OLDER_BODIES
from persistence.model.addresses import Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.permissions import User
from persistence.model.queries import ListedVersion
from persistence.model.sidecar import SCHEMA, Sidecar, described
from persistence.model.texts import Instant, epoch_nanoseconds
from persistence.model.versions import LeaseHolder, parse_remaining
from persistence.remote import remote_reader
from persistence.remote.remote_calls import DONE, Client, document_ids
from persistence.storage import storage
from persistence.storage.commit import Upload
from persistence.storage.layout import CREATIONS, ELSEWHERE_LOCKS, NAMES
from persistence.storage.locks import Locks, stripe
from persistence.storage.stored_revision import NOTHING_THERE, UNKNOWN_SIZE, Fingerprint, StoredRevision
from persistence.wire import XML, Answer, Call, HeaderField, HeaderFields, OutgoingContent, path_of


class RemoteBodies(storage.Bodies, storage.BodyChanges):
    """The attachments of another service, received below ``root``; ``current`` returns the stored sidecar of one."""

    replacing = document_files = held = storage.unsupported

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
        answer = self._client.send(self._call("HEAD", address, sidecar))
        answer.close()
        if answer.status in remote_reader.MISSING:
            return None
        self._client.require(answer, f"HEAD {address}", HTTPStatus.OK)
        size = sidecar.size if answer.length is None else answer.length
        is_edited = size != sidecar.size
        etag = hashlib.sha256(f"{sidecar.id}:{size}".encode()).hexdigest()[:40] if is_edited else sidecar.id
        if not content:
            return StoredRevision(sidecar, etag, UNKNOWN_SIZE if answer.length is None else size, is_edited=is_edited)

        def ask(at: int) -> Answer:
            answer = self._client.send(self._call("GET", address, sidecar, remote_reader.range_from(at, size)))
            self._client.require(answer, f"GET {address}", *remote_reader.FOUND)
            remote_reader.go_to(at, answer)
            return answer

        return StoredRevision(sidecar, etag, size, remote_reader.opened_remotely(size, ask), is_edited=is_edited)

    def _older(self, address: DocumentAddress, sidecar: Sidecar, *, content: bool) -> StoredRevision:
        """Return the body of an older revision, if the other service has a history of the attachment.

        Its clock differs, and it may have bodies without a record here: the body with the digest is looked for among
        those that were stored at about the time, the most likely first. A body is stored there after its record has got
        its instant, so it is the oldest of those that are later.
        """
        history = remote_reader.history_of(self._client, address) if sidecar.digest else storage.NO_REVISIONS
        first = history.position_at(sidecar.modified) - 1
        near = sorted(range(first - MOST_OLDER_BODIES, first + MOST_OLDER_BODIES), key=lambda at: abs(at - first))
        there = [position for position in near if 0 <= position < history.total]
        for instant in map(history.instant, there[:MOST_OLDER_BODIES]):
            found = self._of_instant(address, sidecar, instant, content=content)
            if found is not None:
                return found
        who = self._client.who
        raise errors.NotSupportedError(f"provider {who!r} does not show the body of {address} of {sidecar.modified}")

    def _of_instant(
        self, address: DocumentAddress, sidecar: Sidecar, instant: Instant, *, content: bool
    ) -> StoredRevision | None:
        call = self._call("GET" if content else "HEAD", address, sidecar)
        with self._client.send(replace(call, query=(("last-modified-time", instant),))) as answer:
            if answer.status in remote_reader.MISSING or answer.length not in (None, sidecar.size):
                return None
            self._client.require(answer, f"{address} of {instant}", HTTPStatus.OK)
            if not content:
                return StoredRevision(sidecar, sidecar.id, sidecar.size)
            with errors.disk_errors("receiving", address), Upload(self._root) as upload:
                for piece in answer:
                    upload.write(piece)
                    if upload.size > sidecar.size:
                        return None
                is_same = (upload.size, upload.digest) == (sidecar.size, sidecar.digest)
                return StoredRevision(sidecar, sidecar.id, upload.size, upload.opened()) if is_same else None

    @contextmanager
    def placing(self, address: DocumentAddress, sidecar: Sidecar, upload: Upload, *_: object) -> Iterator[Sidecar]:
        kind = (sidecar.content_type or "application/octet-stream").encode("latin-1", "replace")
        call = self._call("PUT", address, sidecar, [("Content-Type", kind)])
        with upload.opened() as file:
            self._client.change(replace(call, content=OutgoingContent(file)))
        yield sidecar

    @contextmanager
    def removing(self, address: DocumentAddress, over: Sidecar) -> Iterator[None]:
        yield
        with suppress(errors.PersistenceError):  # what counts is the record, which is gone
            self._client.change(self._call("DELETE", address, over), *remote_reader.MISSING)

    @contextmanager
    def dropping(self, address: DocumentAddress, records: Sequence[Sidecar], *, are_older: bool) -> Iterator[None]:
        yield
        for record in () if are_older else records:
            with self.removing(address, record):
                pass

    @contextmanager
    def discarding_draft(self, draft: DocumentAddress, version: int | None, *_: object) -> Iterator[None]:
        yield  # one request removes all
        path = self._client.names.of_form("crud", draft.form, draft.collection.value, draft.document)
        fields = [] if version is None else [self._client.names.version(version)]
        self._client.change(Call("DELETE", path, fields), *remote_reader.MISSING)

    def _call(self, method: str, address: DocumentAddress, record: Sidecar, fields: HeaderFields = ()) -> Call:
        names = self._client.names
        return Call(method, names.path(address), [names.version(record.version), *fields])


class RemoteLeases(storage.Leases):
    """The leases of another service, which alone decides by them."""

    listed = broken = storage.unsupported

    def __init__(self, client: Client) -> None:
        self._client = client

    def lock(self, address: DocumentAddress, holder: LeaseHolder, seconds: int, **_: bool) -> None:
        self._send("LOCK", address, holder, ("Timeout", f"Second-{seconds}"))

    def unlock(self, address: DocumentAddress, holder: LeaseHolder, **_: bool) -> None:
        self._send("UNLOCK", address, holder)

    def require(self, address: DocumentAddress, user: User) -> None:
        """Do nothing: the other service refuses, if its properties say so."""

    @contextmanager
    def protecting(self, address: DocumentAddress, user: User) -> Iterator[None]:  # noqa: ARG002 - see above
        yield

    def _send(self, method: str, address: DocumentAddress, holder: LeaseHolder, *fields: HeaderField) -> None:
        NAMES.paths(address)
        content = OutgoingContent(write_lock(holder))
        call = Call(method, self._client.names.path(address), (XML, *fields), content=content)
        answer = self._client.send(call)
        if answer.status == HTTPStatus.LOCKED:
            seconds = parse_remaining(answer.headers.get("Timeout"))
            text = f"provider {self._client.who!r} says that somebody else has leased the document {address.document}"
            try:
                held = read_lock([answer.whole(LARGEST_LOCK)])
            except errors.PersistenceError:
                raise errors.LockedError(text, seconds=seconds) from None
            raise errors.LockedError(f"{text}: {held.user}", user=held.user, group=held.group, seconds=seconds)
        self._client.require(answer, call.label, *DONE)
        answer.close()


_is_singleton: ContextVar[bool] = ContextVar("is_singleton", default=False)
"""True while a document is being created of a form that has one only."""


Definitions = dict[int, ListedVersion]


class RemoteStore(remote_reader.RemoteReader, storage.Storage):
    """Another service as a storage; ``root`` receives bodies first, and ``locks`` keep writers here apart."""

    is_remote = True
    reencryption = arrivals = property(storage.unsupported)
    marks = sidecars = documents_and_drafts = revisions = storage.unsupported
    read_older = freed = freed_by_folder = document_files = keeping_writers_out = storage.unsupported

    def __init__(self, client: Client, root: str, locks: Locks) -> None:
        super().__init__(client, root)
        self._locks = locks
        self.leases = RemoteLeases(client)

    def sidecar(self, address: Address) -> Sidecar | None:
        if isinstance(address, DefinitionAddress):
            listed = self._listed(address)
            if listed is not None:
                return Sidecar(
                    schema=SCHEMA,
                    id=f"{listed.sum:040x}",
                    version=listed.number,
                    modified=listed.modified,
                    created=listed.modified,
                    size=0,
                )
        elif not address.is_main:
            return self.beginning(address)
        found = self.read(address, content=False)
        return None if found is None else found.sidecar

    def removable(self, address: Address, instant: Instant | None) -> StoredRevision | None:
        of_instant = () if instant is None else (("last-modified-time", instant),)
        return self.facts(address, (("force-delete", "true"), *of_instant))[0]

    def history(self, address: Address) -> storage.RevisionList:
        NAMES.paths(address)
        if isinstance(address, DefinitionAddress) or address.is_draft:
            raise errors.NotSupportedError(f"no API lists the revisions of {address}")
        return remote_reader.history_of(self._client, address)

    def names(self, main: Address) -> list[str]:
        """No API lists attachments that nothing names any more."""
        found = self.read(main, content=True)
        if found is None or found.file is None:
            return [] if found is None else [main.name]
        return sorted({main.name, *remote_reader.named_in(main, found.file)})

    def fingerprint(self, address: Address) -> Fingerprint:
        listed = self._listed(address) if isinstance(address, DefinitionAddress) else None
        if listed is not None:
            return _fingerprint(listed)
        key = (RemoteStore, self._client.who, address)

        def ask() -> Fingerprint:
            found = self.read(address, content=False)
            if found is None:
                return NOTHING_THERE
            sidecar = found.sidecar
            return (int(sidecar.id[:15], 16), epoch_nanoseconds(sidecar.modified), sidecar.deleted), None

        return client_request.current().once(key, ask)

    def fingerprints(self, form: Form) -> Iterator[tuple[int, Fingerprint]]:
        NAMES.versions(form)
        return ((number, _fingerprint(listed)) for number, listed in self._published(form).items())

    def forms(self, app: str | None = None) -> Iterator[Form]:
        """Yield the published forms; no API lists others."""
        if app is not None:
            NAMES.application(app)
        request = client_request.current()
        for form, versions in request.once((*self._list_of(None), app), lambda: self._asked(app, None)).items():
            request.known.setdefault(self._list_of(form), versions)
            yield form

    def versions(self, form: Form) -> Iterator[int]:
        NAMES.versions(form)
        return iter(self._published(form))

    def documents(self, form: Form, collection: Collection = Collection.DATA) -> Iterator[str]:
        NAMES.documents(form, collection)
        return document_ids(self._client, form, collection)

    def upload(self, address: Address) -> Upload:
        NAMES.paths(address)
        return Upload(self._root)

    @contextmanager
    def writing(self, address: Address) -> Iterator[storage.Writing]:
        NAMES.paths(address)
        number = stripe((self._client.who, *address.scope))
        with errors.disk_errors("writing", address), self._locks.holding(ELSEWHERE_LOCKS, number):
            yield RemoteWriter(self._client, self, address)

    @contextmanager
    def creating(self, form: Form) -> Iterator[None]:
        """Keep others from creating, here by a lock, there by the field ``Singleton`` of the PUT."""
        number = stripe((self._client.who, form.app, form.name))
        with errors.disk_errors("creating a document of", form), self._locks.holding(CREATIONS, number):
            token = _is_singleton.set(True)
            try:
                yield
            finally:
                _is_singleton.reset(token)

    def _listed(self, address: DefinitionAddress) -> ListedVersion | None:
        return self._published(address.form).get(address.version) if address.is_main else None

    # The list of published versions is asked for once for each request of a client, so no publication is missed.

    def _published(self, form: Form) -> Definitions:
        asked = client_request.current()
        return asked.once(self._list_of(form), lambda: self._asked(form.app, form.name).get(form, {}))

    def ask_again(self, form: Form) -> None:
        """Forget the list: something of a form was published, or deleted."""
        client_request.current().known.pop(self._list_of(form), None)

    def _list_of(self, form: Form | None) -> tuple[object, ...]:
        return ListedVersion, self._client.who, form

    def _asked(self, app: str | None, name: str | None) -> dict[Form, Definitions]:
        names = self._client.names
        segments = [segment for segment in (app if app is None else names.app(app), name) if segment is not None]
        try:
            query = (("all-versions", "true"), ("all-forms", "true"))
            listed = read_form_list([self._client.ask(Call("GET", path_of("form", *segments), query=query))])
        except errors.MalformedXmlError as error:
            raise errors.RemoteError(
                f"provider {self._client.who!r} answers with a list of forms that is not valid"
            ) from error
        found: dict[Form, Definitions] = {}
        for each in listed:
            found.setdefault(Form(names.app(each.form.app), each.form.name), {})[each.number] = each
        return {form: dict(sorted(versions.items(), reverse=True)) for form, versions in found.items()}


def _fingerprint(listed: ListedVersion) -> Fingerprint:
    return (listed.sum, epoch_nanoseconds(listed.modified), listed.number), None


class RemoteWriter(storage.Writing):
    """Changes one document or form while its lock is held here; the other side has a lock of its own."""

    finish = rewrite = storage.unsupported

    def __init__(self, client: Client, store: RemoteStore, address: Address) -> None:
        self._client = client
        self._store = store
        self._address = address
        self._seen: dict[Address, tuple[StoredRevision | None, bytes | None]] = {}

    def current(self, address: Address) -> StoredRevision | None:
        self._seen[address] = self._store.facts(address)
        return self._seen[address][0]

    def commit(self, address: Address, sidecar: Sidecar, upload: Upload, *, over: StoredRevision | None) -> Sidecar:
        with upload.opened() as file:
            there = sidecar if sidecar.restored is not None else None
            fields, field = self._decided(address, sidecar.version, over, there), self._client.names.field
            if sidecar.content_type is not None:
                fields.append(("Content-Type", sidecar.content_type.encode("latin-1", "replace")))
            fields += self._client.names.texts(Workflow_Stage=sidecar.stage)
            if (hashed := remote_reader.kept_hash(sidecar)) is not None:
                fields += (field("Hash-Algorithm", hashed.algorithm), field("Hash-Value", hashed.value))
            if _is_singleton.get() and isinstance(address, DocumentAddress) and address.is_main:
                fields.append(field("Singleton", "true"))
            query = [] if sidecar.valid is None else [("valid", "true" if sidecar.valid else "false")]
            if sidecar.source is not None:
                query.append(("document", sidecar.source))
            request = client_request.current()
            if request.method == "PUT":
                query += [(name, value) for name, value in parse_qsl(request.query) if name == "data-format-version"]
            call = Call("PUT", self._client.names.path(address), fields, query, OutgoingContent(file))
            return self._changed(call, address, sidecar)

    def delete(self, address: Address, tombstone: Sidecar, *, over: StoredRevision | None) -> Sidecar:
        fields = self._decided(address, tombstone.version, over)
        call = Call("DELETE", self._client.names.path(address), fields)
        return self._changed(call, address, tombstone)

    def purge(self, address: Address, tombstone: Sidecar, *, over: StoredRevision) -> None:
        self.delete(address, tombstone, over=over)

    def discard_draft(self, form: Form, document: str) -> None:
        """Delete a draft, if the request is for it: saving the data removes it there (spec crud 4.11)."""
        draft = DocumentAddress(form, Collection.DRAFT, document)
        found, _ = self._seen.get(draft, (None, None))
        if draft == self._address and found is not None:
            self.delete(draft, found.sidecar, over=found)

    def remove_older(self, address: Address, instants: Sequence[Instant]) -> int:
        if isinstance(address, DocumentAddress) and not address.is_main:
            return 0
        return sum(self._removed(address, ("last-modified-time", instant)) for instant in instants)

    def remove_current(self, address: Address, *, over: StoredRevision) -> None:
        storage.require_same(address, self.current(address), over)
        self._removed(address)

    def discard_document(self, form: Form, document: str) -> None:
        main = DocumentAddress(form, Collection.DATA, document)
        found = self.current(main)
        if found is not None:
            self._removed(main, ("last-modified-time", found.sidecar.modified))

    def _removed(self, address: Address, *query: tuple[str, str]) -> bool:
        if address not in self._seen:
            self.current(address)
        seen, _ = self._seen[address]
        fields = [] if seen is None else [self._client.names.version(seen.sidecar.version)]
        call = Call("DELETE", self._client.names.path(address), fields, [("force-delete", "true"), *query])
        return self._client.change(call, HTTPStatus.NOT_FOUND).status != HTTPStatus.NOT_FOUND

    def _changed(self, call: Call, address: Address, sidecar: Sidecar) -> Sidecar:
        try:
            answer = self._client.send(call)
        finally:  # it may have been done in spite of the error
            if isinstance(address, DefinitionAddress):
                self._store.ask_again(address.form)
        if answer.status == HTTPStatus.PRECONDITION_FAILED and any(name == "If-Match" for name, _ in call.fields):
            answer.close()  # it is this service's condition: the client's is judged here
            raise errors.ReplacedError(
                f"{address} was written by another client of provider {self._client.who!r} meanwhile"
            )
        self._client.require(answer, call.label, *DONE)
        answer.close()
        return remote_reader.as_stored(answer, self._client, address, sidecar)

    def _decided(
        self, address: Address, version: int, over: StoredRevision | None, restored: Sidecar | None = None
    ) -> list[HeaderField]:
        """Return the fields that tell what this service has found out, as a proxy does, and over which revision.

        A deleted document that is ``restored`` is sent as one that exists, because it keeps its creation and owner.
        """
        if address not in self._seen:
            self.current(address)
        seen, tag = self._seen[address]
        storage.require_same(address, seen, over)
        names = self._client.names
        there = restored if over is None or over.sidecar.deleted else over.sidecar
        if there is None:
            return [names.version(version)]
        existing = names.texts(
            Created_Existing=there.created, Username_Existing=there.creator, Group_Existing=there.group
        )
        # A provider may compare the tag of an attachment with its document's (spec crud 4.6).
        condition = [("If-Match", tag)] if tag is not None and address.is_main else []
        return [names.version(version), *existing, *condition]
