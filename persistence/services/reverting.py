"""Bringing back older revisions: as new ones, of a form, or of a document with the attachments that it names.

A revision is brought back as by a PUT of its stored bytes. Its attachments are stored first (spec crud 4.2), so that a
deleted document stays deleted until all of it is there. Older revisions may come from elsewhere, such as a backup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import BinaryIO

from persistence.errors import (
    BadAddressError,
    BadRequestError,
    BusyError,
    ConflictError,
    DamagedError,
    DeletedError,
    NotFoundError,
    ReplacedError,
    disk_errors,
)
from persistence.limits import CHUNK, MOST_RESTORED, RESTORED_AT_ONCE
from persistence.model import versions
from persistence.model.addresses import Address, DefinitionAddress, DocumentAddress
from persistence.model.instants import LAST, Instant
from persistence.model.preconditions import NO_PRECONDITION
from persistence.model.sidecar import Sidecar
from persistence.model.versions import VersionRequest
from persistence.providers.provider import Route
from persistence.services.data_revisions import as_of, selected
from persistence.services.decisions import PutRequest
from persistence.services.definitions import Definitions, Part
from persistence.services.documents import Documents, commit
from persistence.services.leasing import protecting
from persistence.services.rules import Get, Origin, Put, Revert, Written, living
from persistence.services.transforms import holders_in
from persistence.storage.integrity import digest_of_open
from persistence.storage.storage import Revisions
from persistence.storage.stored_revision import StoredRevision


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """A file to be brought back: its revision of before, the ``current`` one, if any, and what was ``asked`` for it."""

    address: DocumentAddress
    older: Sidecar
    current: StoredRevision | None
    asked: Revert

    @property
    def is_deleted(self) -> bool:
        """Return whether there is no living revision."""
        return self.current is None or self.current.sidecar.deleted

    @property
    def replaced(self) -> Sidecar | None:
        """The sidecar of the current revision."""
        return None if self.current is None else self.current.sidecar

    @property
    def put(self) -> Put:
        older, asked, current = self.older, self.asked, self.replaced
        if current is not None and not current.deleted:
            origin = Origin(current.created, current.facts.owner)
        else:
            is_same_life = current is None or current.created <= older.created
            origin = Origin(older.created if is_same_life else None, older.facts.owner)
        return Put(
            version=VersionRequest(number=older.version),
            precondition=asked.precondition,
            user=asked.user,
            content_type=older.content_type,
            valid=older.valid,
            stage=older.stage,
            source=older.source,
            client_hash=None if older.sealed_hash is not None else older.client_hash,
            origin=origin,
            token=asked.token,
            restores=older,
        )


Seen = dict[DocumentAddress, str | None]
"""The ids of the current revisions by which a plan was made; ``None`` for what was never stored."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A file with the attachments that come back with it; others that it names are ``unchanged``, or ``missing``.

    With ``is_damaged`` the current content of the file is not the one of its sidecar.
    """

    file: RestoredFile
    attachments: list[RestoredFile] = field(default_factory=list)
    unchanged: list[tuple[DocumentAddress, StoredRevision]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    is_damaged: bool = False

    @property
    def notice(self) -> str | None:
        """A line about attachments that do not come back."""
        if not self.missing:
            return None
        return f"attachments that it names were missing already at that time: {', '.join(self.missing)}"

    @property
    def is_done(self) -> bool:
        """Return whether everything is current already as it would come back."""
        current, older = self.file.current, self.file.older
        if self.attachments or current is None or current.sidecar.deleted or current.is_edited or self.is_damaged:
            return False
        now = current.sidecar
        facts = (now.digest, now.content_type, now.stage, now.valid)
        return facts == (older.digest, older.content_type, older.stage, older.valid)

    def seen(self) -> Seen:
        """Return the revisions that must still be current when the plan is carried out."""
        files = [(each.address, each.current) for each in (*self.attachments, self.file)]
        return {address: None if found is None else found.sidecar.id for address, found in (*files, *self.unchanged)}


@dataclass(frozen=True, slots=True)
class Reverting:
    """Brings back revisions of documents and attachments. ``documents`` reads and writes bytes as they are stored.

    ``elsewhere`` has the older revisions, if the history does not: their contents are compared with their digests.
    """

    documents: Documents
    elsewhere: Documents | None = None

    def plan(self, address: DocumentAddress, asked: Revert) -> RestorePlan:
        route = self.documents.router.of(address.form)
        current = route.storage.read(address, content=False)
        source = self.elsewhere or self.documents
        found = source.read(address, asked.get).found
        with found.opened as content:
            versions.must_equal(asked.version.number, found.sidecar.version, address)
            file = RestoredFile(address, found.sidecar, current, asked)
            self.documents.decided_early(route, address, file.put)
            is_deep = self.elsewhere is not None
            is_damaged = is_deep and not _is_whole(route, address, current)
            if not address.is_main:
                return RestorePlan(file, is_damaged=is_damaged)
            names = dict.fromkeys(holder.held.name for holder in holders_in(address, content, found.size))
        if len(names) > MOST_RESTORED:
            raise BadRequestError(f"{address} names {len(names)} attachments: at most {MOST_RESTORED} are brought back")
        plan = RestorePlan(file, is_damaged=is_damaged)
        return _with_attachments(plan, route, source.router.of(address.form), names, is_deep=is_deep)

    def restore(self, plan: RestorePlan) -> Written:
        """Store an older revision, with its attachments of that time, as a new one; a repetition completes it."""
        address, files, seen = plan.file.address, (*plan.attachments, plan.file), plan.seen()
        *first, last = (files[at : at + RESTORED_AT_ONCE] for at in range(0, len(files), RESTORED_AT_ONCE))
        for batch in first:
            own = {each: seen[each] for each in (address, *(file.address for file in batch))}
            done = self._stored(batch, own)
            seen |= {file.address: each.sidecar.id for file, each in zip(batch, done, strict=True)}
        return replace(self._stored(last, seen)[-1], created=plan.file.is_deleted)

    def _stored(self, files: Sequence[RestoredFile], seen: Seen) -> list[Written]:
        address, documents = files[0].address, self.documents
        route = documents.router.of(address.form)
        with ExitStack() as opened:
            requests = [opened.enter_context(self._receiving(route, file)) for file in files]
            with route.storage.writing(address) as writer:
                for each, content_id in seen.items():
                    stored = writer.current(each)
                    if content_id != (None if stored is None else stored.sidecar.id):
                        raise ReplacedError(f"{each} was written by another request meanwhile")
                prepared = [documents.prepared(writer, request) for request in requests]
                with protecting(route, address, files[0].asked.user):
                    return [commit(writer, each) for each in prepared]

    @contextmanager
    def _receiving(self, route: Route, file: RestoredFile) -> Iterator[PutRequest]:
        address = file.address
        source = (self.elsewhere or self.documents).router.of(address.form).storage
        older = source.read_revision(address, file.older.modified, content=True)
        if older is None:
            raise _changed(file)
        with closing(older):
            if older.sidecar.id != file.older.id or older.file is None:
                raise _changed(file)
            with self.documents.receiving(route, address, file.put, _pieces(older.file, address)) as request:
                if self.elsewhere is not None and older.sidecar.digest not in (None, request.received.digest):
                    raise DamagedError(f"{address} of {older.sidecar.modified} is not what its sidecar says")
                yield request


def _changed(file: RestoredFile) -> BusyError:
    return BusyError(f"the revision of {file.address} of {file.older.modified} has changed meanwhile")


def _pieces(content: BinaryIO, address: Address) -> Iterator[bytes]:
    with disk_errors("reading", address):
        yield from iter(partial(content.read, CHUNK), b"")


def _is_whole(route: Route, address: DocumentAddress, current: StoredRevision | None) -> bool:
    if current is None or current.sidecar.deleted or current.is_edited or current.sidecar.digest is None:
        return True
    try:
        found = route.storage.read(address, content=True)
        if found is None or found.file is None:
            return True
        with found.file as file, disk_errors("reading", address):
            return digest_of_open(file) == found.sidecar.digest
    except DamagedError:
        return False


def _with_attachments(
    plan: RestorePlan, route: Route, source: Route, names: Iterable[str], *, is_deep: bool
) -> RestorePlan:
    """Add the attachments that were current with their document; with ``is_deep`` also for damaged ones."""
    file, asked = plan.file, replace(plan.file.asked, precondition=NO_PRECONDITION)
    for name in names:
        address = file.address.moved(file.address.collection, name)
        try:
            current = route.storage.read(address, content=False)
            older = _as_of(source, address, file.older.modified)
        except BadAddressError:  # no attachment has such a name
            current = older = None
        is_whole = not is_deep or _is_whole(route, address, current)
        if older is not None and not (_is_same(current, older) and is_whole):
            plan.attachments.append(RestoredFile(address, older.sidecar, current, asked))
        elif current is not None and not current.sidecar.deleted:
            plan.unchanged.append((address, current))
        else:
            plan.missing.append(name)
    return plan


def _as_of(route: Route, address: DocumentAddress, moment: Instant) -> StoredRevision | None:
    """Return the revision of an attachment that was current at a moment, else the first one after it.

    A client may store an attachment after the data that names it, and a clock may have been set back in between.
    ``None`` where it was deleted by then, or never stored.
    """
    try:
        return selected(route, address, Get(as_of=moment), content=False)
    except DeletedError:
        return None
    except NotFoundError:
        revisions = route.storage.history(address)
        if revisions is None:
            return None
        first = living(route.storage.read_revision(address, revisions.instant(revisions.total - 1), content=False))
        if first is not None and first.sidecar.created <= moment:
            raise ConflictError(f"{address} had other content at that time, and that revision was purged") from None
        return first


def _is_same(current: StoredRevision | None, older: StoredRevision) -> bool:
    if current is None or current.sidecar.deleted:
        return False
    if current.etag == older.etag:
        return True
    now, then = current.sidecar, older.sidecar
    is_known = now.digest is not None and not current.is_edited
    return is_known and (now.digest, now.content_type) == (then.digest, then.content_type)


def republish(
    definitions: Definitions, source: Revisions, address: DefinitionAddress, asked: Revert, *, is_trial: bool
) -> Sidecar | None:
    """Publish a file of a form as it is in a source, unless ``is_trial``; return its sidecar.

    Return ``None`` where it did not exist at that time, or is current already.
    """
    moment = asked.as_of or LAST
    try:
        older = living(as_of(source, address, moment, content=True))
    except NotFoundError:
        return None
    if older is None:
        return None
    storage = definitions.router.of(address.form).definition.storage
    with closing(older):
        if older.file is None or _is_same(storage.read(address, content=False), older):
            return None
        sidecar = older.sidecar
        put = Put(
            version=VersionRequest(number=address.version),
            user=asked.user,
            content_type=sidecar.content_type,
            restores=sidecar,
        )
        with definitions.receiving(address, sidecar.content_type, _pieces(older.file, address)) as (upload, received):
            if sidecar.digest not in (None, received.digest):
                raise DamagedError(f"{address} of {sidecar.modified} is not what its sidecar says")
            if not is_trial:
                definitions.publish(address.form, put.version, [Part(address.name, put, upload, received)])
    return sidecar


def before_current(documents: Documents, address: DocumentAddress) -> Instant:
    """Return the instant of the last living revision before the current one, which may be a tombstone."""
    revisions = documents.router.of(address.form).storage.history(address)
    if revisions is None:
        raise NotFoundError(f"{address} does not exist")
    for position in range(1, revisions.total):
        found = revisions.revision(position)
        if found is not None and found.sidecar is not None and not found.sidecar.deleted:
            return found.instant
    raise NotFoundError(f"{address} has no older revision")
