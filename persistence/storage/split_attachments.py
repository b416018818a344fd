"""A storage whose attachments of data have their bodies elsewhere (spec crud 11, forms 5.5).

The main storage keeps of each attachment a record without body, which is committed when its body is durable. A
record with a body is served as it is: so attachments may have been stored before they were to be elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TypeGuard

from persistence.errors import BusyError, ConfigurationError, DamagedError, disk_errors
from persistence.model.addresses import DATA_XML, Address, Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar, described, recorded
from persistence.storage.managed import BodiesOf, ManagedBodies, ManagedStorage
from persistence.storage.storage import (
    Bodies,
    BodyChanges,
    RevisionList,
    RevisionStorage,
    Storage,
    Writing,
    require_same,
)
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.uploads import Upload

_ATTEMPTS = 20


class SplitStorage(RevisionStorage):
    """A main storage that knows everything, and a second place, which has the bodies of attachments of data."""

    def __init__(self, main: Storage, bodies: Bodies) -> None:
        self._main = main
        self._bodies = bodies

    def sidecar(self, address: Address) -> Sidecar | None:
        return self._main.sidecar(address)

    def read(self, address: Address, *, content: bool) -> StoredRevision | None:
        return self._whole(address, partial(self._main.read, address, content=content), content=content)

    def read_revision(self, address: Address, instant: Instant, *, content: bool) -> StoredRevision | None:
        read = partial(self._main.read_revision, address, instant, content=content)
        return self._whole(address, read, content=content)

    def removable(self, address: Address, instant: Instant | None) -> StoredRevision | None:
        return self._main.removable(address, instant)

    def history(self, address: Address) -> RevisionList | None:
        return self._main.history(address)

    def names(self, main: Address) -> list[str]:
        return self._main.names(main)

    def upload(self, address: Address) -> Upload:
        if not _is_attachment(address):
            return self._main.upload(address)
        with disk_errors("receiving a body"):
            return self._bodies.upload(address)

    def deciding(self, address: Address) -> AbstractContextManager[None]:
        return self._main.deciding(address)

    @contextmanager
    def writing(self, address: Address) -> Iterator[Writing]:
        with self._bodies.changing() as changes, self._main.writing(address) as writer:
            yield _SplitWriter(self._main, writer, self._bodies, changes)

    def _whole(
        self, address: Address, read: Callable[[], StoredRevision | None], *, content: bool
    ) -> StoredRevision | None:
        if not _is_attachment(address):
            return read()
        for _ in range(_ATTEMPTS):
            record = read()
            if record is None or record.sidecar.deleted or record.size:
                return record
            found = self._with_body(address, record, read, content=content)
            if found is not None:
                return found
        raise BusyError(f"{address} is being written too often to be read")

    def _with_body(
        self,
        address: DocumentAddress,
        record: StoredRevision,
        read: Callable[[], StoredRevision | None],
        *,
        content: bool,
    ) -> StoredRevision | None:
        find = partial(self._bodies.find, address, record.sidecar, content=content)
        if record.sidecar.body is None:  # not ours: all that it says of its body is that it has none
            try:
                with disk_errors("reading", address):
                    found = find()
            except BaseException:
                record.close()
                raise
            return record if found is None else _of_record(record, found)
        record.close()
        found = _body_of(address, find, partial(_is_still_stored, read, record))
        if found is None or not found.is_edited:
            return found
        current = self._main.sidecar(address)
        if current is None or current.id != record.sidecar.id:
            found.close()  # that of another revision
            raise _missing(address)
        return found  # replaced by hand


class _SplitWriter(Writing):
    def __init__(self, main: Storage, writer: Writing, bodies: Bodies, changes: BodyChanges) -> None:
        self._main = main
        self._writer = writer
        self._bodies = bodies
        self._changes = changes

    def current(self, address: Address) -> StoredRevision | None:
        record = self._writer.current(address)
        if not _is_attachment(address) or record is None or record.sidecar.deleted or record.size:
            return record
        return self._bodies.find(address, record.sidecar, content=False) or record

    def commit(self, address: Address, sidecar: Sidecar, upload: Upload, *, over: StoredRevision | None) -> Sidecar:
        if not _is_attachment(address):
            return self._writer.commit(address, sidecar, upload, over=over)
        self._require(address, over)
        kept = None if over is None or over.sidecar.deleted else over.sidecar
        with self._changes.placing(address, sidecar, upload, kept) as placed, self._main.upload(address) as nothing:
            return described(self._writer.commit(address, recorded(placed), nothing, over=over))

    def delete(self, address: Address, tombstone: Sidecar, *, over: StoredRevision | None) -> Sidecar:
        with self._removing(address, over):
            return self._writer.delete(address, tombstone, over=over)

    def purge(self, address: Address, tombstone: Sidecar, *, over: StoredRevision) -> None:
        with self._removing(address, over):
            self._writer.purge(address, tombstone, over=over)

    def _removing(self, address: Address, over: StoredRevision | None) -> AbstractContextManager[None]:
        if not _is_attachment(address) or over is None:
            return nullcontext()
        self._require(address, over)
        return self._changes.removing(address, over.sidecar)

    def _require(self, address: DocumentAddress, over: StoredRevision | None) -> None:
        require_same(address, self._writer.current(address), over)

    def discard_draft(self, form: Form, document: str) -> None:
        version, records = self._version(form, document), list(self._records_of_draft(form, document))
        with self._changes.discarding_draft(form, document, version, records):
            self._writer.discard_draft(form, document)

    def remove_older(self, address: Address, instants: Sequence[Instant]) -> int:
        if not _is_attachment(address):
            return self._writer.remove_older(address, instants)
        found = [self._main.read_revision(address, instant, content=False) for instant in instants]
        records = [each.sidecar for each in found if each is not None and each.sidecar.body is not None]
        with self._changes.dropping(address, records, are_older=True):
            return self._writer.remove_older(address, instants)

    def remove_current(self, address: Address, *, over: StoredRevision) -> None:
        with self._dropping(address):
            self._writer.remove_current(address, over=over)

    def _dropping(self, address: Address) -> AbstractContextManager[None]:
        record = self._main.sidecar(address) if _is_attachment(address) else None
        if not _is_attachment(address) or record is None or record.body is None:
            return nullcontext()
        return self._changes.dropping(address, [record], are_older=False)

    def discard_document(self, form: Form, document: str) -> None:
        main = DocumentAddress(form, Collection.DATA, document, DATA_XML)
        with ExitStack() as dropped:
            for name in self._main.names(main):
                address = main.moved(Collection.DATA, name)
                current, older = self._records(address)
                if older:
                    dropped.enter_context(self._changes.dropping(address, older, are_older=True))
                if current:
                    dropped.enter_context(self._changes.dropping(address, current, are_older=False))
            self._writer.discard_document(form, document)

    def _records(self, address: DocumentAddress) -> tuple[list[Sidecar], list[Sidecar]]:
        """Return the records of an attachment that have bodies elsewhere: of the current revision, and of older ones.

        Damaged ones are left out.
        """
        with suppress(DamagedError):
            listed = self._main.history(address)
            found = [] if listed is None else [each.sidecar for each in listed.page(0, listed.total)]
            kept = [[each for each in part if each and each.body] for part in (found[:1], found[1:])]
            return kept[0], kept[1]
        return [], []

    def _records_of_draft(self, form: Form, document: str) -> Iterator[tuple[str, Sidecar]]:
        draft = DocumentAddress(form, Collection.DRAFT, document, DATA_XML)
        for name in self._main.names(draft):
            with suppress(DamagedError):
                record = self._main.sidecar(draft.moved(Collection.DRAFT, name))
                if record is not None and record.body is not None:
                    yield name, record

    def _version(self, form: Form, document: str) -> int | None:
        draft = DocumentAddress(form, Collection.DRAFT, document, DATA_XML)
        known = self._main.sidecar(draft) or self._main.sidecar(draft.moved(Collection.DATA))
        return None if known is None else known.version


class RevisionRewriter:
    """Reads and rewrites revisions of one storage.

    An ``instant`` says which older one is meant, ``None`` the current one. Methods raise what those of a storage do, or
    ``ConfigurationError``: a body is in a place that is not known.
    """

    def __init__(self, store: ManagedStorage, bodies_of: BodiesOf) -> None:
        self._store = store
        self._bodies_of = bodies_of

    def record(self, address: DocumentAddress, instant: Instant | None) -> Sidecar | None:
        """Return what the storage knows of a revision, wherever its body is; ``None`` where there is none."""
        found = self._read(address, instant, content=False)
        return None if found is None else found.sidecar

    def read(self, address: DocumentAddress, instant: Instant | None) -> StoredRevision | None:
        """Return a revision with its record as sidecar, its content open; ``None`` where it is not there any more."""
        found = self._read(address, instant, content=True)
        if found is None or address.is_main or found.sidecar.deleted or found.size:
            return found
        record = found.sidecar
        if record.body is None:
            bodies = self._bodies_of(address.form)
            with disk_errors("reading", address):
                if bodies is None or bodies.find(address, record, content=False) is None:
                    return found
            found.close()
            raise DamagedError(f"the body of {address} was not stored by this service")
        found.close()
        find = partial(self._bodies(address).find, address, record, content=True)
        body = _body_of(address, find, lambda: self._is_stored(address, instant, record))
        return None if body is None else replace(body, sidecar=record)

    def upload(self, address: DocumentAddress, over: Sidecar) -> Upload:
        """Begin to receive the content that a revision is to have instead."""
        if over.body is None:
            return self._store.upload(address)
        bodies = self._bodies(address)
        with disk_errors("receiving a body"):
            return bodies.upload(address)

    def rewrite(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> bool:
        if over.body is None:
            with self._store.writing(address) as writer:
                return writer.rewrite(address, instant, over, rewritten, upload)
        with self._bodies(address).changing() as changes, self._store.writing(address) as writer:
            if not self._is_stored(address, instant, over):
                return False
            record = recorded(rewritten)
            with (
                changes.replacing(address, instant, described(over), rewritten, upload),
                self._store.upload(address) as nothing,
            ):
                if not writer.rewrite(address, instant, over, record, nothing):
                    raise BusyError(f"{address} was written meanwhile")
            return True

    def finish(self, main: DocumentAddress) -> None:
        """Finish or discard whatever crashes have left of a document, its attachments and its older revisions."""
        bodies = self._bodies_of(main.form)
        with disk_errors("listing", main):
            is_unfinished = bodies is not None and bodies.has_unfinished(main)
        if is_unfinished or self._store.has_unfinished(main):
            with self._store.writing(main) as writer:
                writer.finish(main)
                if bodies is not None:
                    bodies.finish(main, self.record)

    def _is_stored(self, address: DocumentAddress, instant: Instant | None, record: Sidecar) -> bool:
        now = self.record(address, instant)
        return now is not None and now.id == record.id

    def _bodies(self, address: DocumentAddress) -> ManagedBodies:
        bodies = self._bodies_of(address.form)
        if bodies is None:
            raise ConfigurationError(f"the body of {address} is with another provider, which has no place here")
        return bodies

    def _read(self, address: DocumentAddress, instant: Instant | None, *, content: bool) -> StoredRevision | None:
        if instant is None:
            return self._store.read(address, content=content)
        return self._store.read_older(address, instant, content=content)


def _is_attachment(address: Address) -> TypeGuard[DocumentAddress]:
    return isinstance(address, DocumentAddress) and not address.is_main


def _of_record(record: StoredRevision, found: StoredRevision) -> StoredRevision:
    record.close()
    return replace(found, etag=record.etag)


def _is_still_stored(read: Callable[[], StoredRevision | None], record: StoredRevision) -> bool:
    again = read()
    if again is None:
        return False
    again.close()
    return again.sidecar.id == record.sidecar.id


def _body_of(
    address: DocumentAddress, find: Callable[[], StoredRevision | None], is_still_stored: Callable[[], bool]
) -> StoredRevision | None:
    found, damage = None, _missing(address)
    try:
        with disk_errors("reading", address):
            found = find()
    except DamagedError as error:
        damage = error
    if found is not None and not found.is_edited:
        return found
    if is_still_stored():
        if found is None:
            raise damage
        return found
    if found is not None:
        found.close()
    return None


def _missing(address: DocumentAddress) -> DamagedError:
    return DamagedError(f"the body of {address} is missing where its attachments are kept")
