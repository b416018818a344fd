"""Purging the data of one storage by a plan, and erasing documents with a certificate."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from html import unescape
from typing import BinaryIO
from urllib.parse import unquote

import msgspec

from persistence import errors, xml
from persistence.forms.form_data import MARKER_WORD, EncryptedValueWatch
from persistence.limits import CHUNK, PURGE_PAUSE, PURGED_AT_ONCE
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.sidecar import Sidecar
from persistence.model.texts import LAST, Instant, RetentionPeriods, before, one_later
from persistence.providers.router import Route
from persistence.storage.attachments import RevisionRewriter, SplitStorage
from persistence.storage.storage import BodiesOf, DocumentFile, DocumentFiles, RevisionStorage, Storage, Writing

_OVERLAP = 1 << 13
"""Bytes that are looked at twice, where one piece ends: a name has 200 bytes, and each may be written as ten."""
_DECLARED = re.compile(rb"[ \t\r\n]*+=[ \t\r\n]*+[\"']([A-Za-z0-9._-]++)")


# Find the attachments of a document that its data names, in its bytes, without a parser, and rather too often.
#
# A name anywhere in the data counts, plain, with character references or percent-encoded.


def unnamed(store: Storage, main: DocumentAddress, names: set[str], stays: Callable[[Instant], bool]) -> set[str]:
    """Return those attachments that no revision of the data or draft names; older ones count if one ``stays``."""
    # Data with an encrypted value counts as naming all: the key may be elsewhere, or a runtime's.
    left = set(names)
    for content in _contents(store, main, stays):
        with content:
            with errors.disk_errors("reading form data"):
                left = without_named(iter(partial(content.read, CHUNK), b""), left)
            if left and _has_encrypted_values(content):
                return set()
        if not left:
            break
    return left


def _has_encrypted_values(content: BinaryIO) -> bool:
    """Return whether a content has encrypted values, or cannot be parsed."""
    with errors.disk_errors("reading form data"):
        content.seek(0)
        if not xml.may_mention(iter(partial(content.read, CHUNK), b""), MARKER_WORD):
            return False
        content.seek(0)
        try:
            return EncryptedValueWatch().read(iter(partial(content.read, CHUNK), b"")).is_one
        except (errors.BadRequestError, errors.MalformedXmlError):
            return True


def _contents(store: Storage, main: DocumentAddress, stays: Callable[[Instant], bool]) -> Iterator[BinaryIO]:
    for collection in Collection:
        found = store.read(main.moved(collection), content=True)
        if found is not None and found.file is not None:
            yield found.file
    for instant in store.revisions(main):
        older = store.read_older(main, instant, content=True) if stays(instant) else None
        if older is not None and older.file is not None:
            yield older.file


def without_named(pieces: Iterable[bytes], names: set[str]) -> set[str]:
    """Return those of some names that a content, which comes in large pieces, does not have."""
    left, tail, encoding = set(names), b"", ""
    for read in pieces:
        encoding = encoding or _encoding(read)
        piece = tail + read
        for each in (encoding, "latin-1"):
            text = piece.decode(each, "replace")
            plain = unquote(unescape(text)) if "%" in text or "&" in text else text
            left -= {name for name in left if name in text or name in plain}
        tail = piece[-_OVERLAP:]
        if not left:
            break
    return left


def _encoding(begin: bytes) -> str:
    declaration = begin.partition(b"?>")[0] if b"<?xml" in begin[:8] else b""
    found = _DECLARED.match(declaration.partition(b"encoding")[2])
    declared = found[1].decode().lower() if found is not None else None
    return xml.codec_of(begin, declared if declared in xml.ENCODINGS else None)


@dataclass(frozen=True, slots=True)
class PurgeRules:
    """The instants before which something is removed; ``None`` keeps all of its kind."""

    # ``revisions`` is for older revisions, but for those from before ``since``. ``tombstones`` is for deleted documents
    # and attachments, by the deletion. ``drafts`` and ``orphans`` (attachments that no data names) go by the last save.
    revisions: Instant | None = None
    tombstones: Instant | None = None
    drafts: Instant | None = None
    orphans: Instant | None = None
    since: Instant | None = None

    def lets_go(self, revision: Instant) -> bool:
        is_old = self.revisions is not None and revision < self.revisions
        return is_old and (self.since is None or revision >= self.since)


@dataclass(slots=True)
class PurgeTotals:
    """The number of things that a purge removes, and the bytes that it frees."""

    # ``revisions`` do not include those of removed documents and attachments.
    revisions: int = 0
    documents: int = 0
    drafts: int = 0
    attachments: int = 0
    bytes: int = 0

    def add(self, other: PurgeTotals) -> None:
        for name, number in asdict(other).items():
            setattr(self, name, getattr(self, name) + number)

    @property
    def is_empty(self) -> bool:
        return not (self.revisions or self.documents or self.drafts or self.attachments)


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """An attachment that is removed with all its revisions; it ``is_orphan`` if no data names it."""

    address: DocumentAddress
    current: Sidecar
    older: Sequence[Instant]
    is_orphan: bool = False


@dataclass(slots=True)
class PurgePlan:
    """The parts of one document that rules let go."""

    # A deleted document, of which ``tombstone`` is current, is removed if ``newest`` is still the newest revision of
    # its files, a draft if ``draft`` is still its newest one, and orphans among the ``files`` if the data and the draft
    # still have the ``seen_ids``.
    store: Storage
    rules: PurgeRules
    main: DocumentAddress
    older: list[tuple[DocumentAddress, Sequence[Instant]]] = field(default_factory=list)
    tombstone: Sidecar | None = None
    newest: Sidecar | None = None
    draft: Sidecar | None = None
    files: list[RemovedFile] = field(default_factory=list)
    seen_ids: tuple[str | None, ...] = ()
    totals: PurgeTotals = field(default_factory=PurgeTotals)

    def make(self) -> None:
        """Find what rules let go. Raises ``DamagedError`` where nobody knows what belongs to the document."""
        rules, main = self.rules, self.main
        draft = main.moved(Collection.DRAFT)
        newest = newest_of(self.store, draft) if rules.drafts is not None else None
        if newest is not None and _is_before(newest, rules.drafts):
            self.draft, self.totals.drafts = newest, 1
            self.totals.bytes += self.store.freed_by_folder(draft)
        current = self.store.sidecar(main)
        if current is not None and current.deleted and _is_before(current, rules.tombstones):
            # Attachments are saved before the data: a newer one is of a document that is being saved again.
            self.newest = newest_of(self.store, main)
            if self.newest is not None and _is_before(self.newest, rules.tombstones):
                self._plan_document(current)
                return
        orphans = {} if rules.orphans is None else self._orphans(current, rules.orphans)
        for name in self.store.names(main):
            address = main.moved(Collection.DATA, name)
            if name in orphans:
                self._remove(address, orphans[name], self.store.revisions(address), is_orphan=True)
            else:
                self._plan_file(address)

    def _plan_document(self, tombstone: Sidecar) -> None:
        self.tombstone, self.totals.documents = tombstone, 1
        self.totals.bytes += self.store.freed_by_folder(self.main)
        for name in self.store.names(self.main):
            address = self.main.moved(Collection.DATA, name)
            if address.is_main:
                continue
            sidecar, older = self.store.sidecar(address), self.store.revisions(address)
            bodies = self._bodies(address, sidecar, older)
            if sidecar is not None and bodies is not None:
                self.files.append(RemovedFile(address, sidecar, older))
                self.totals.attachments += 1
                self.totals.bytes += bodies

    def _plan_file(self, address: DocumentAddress) -> None:
        sidecar = self.store.sidecar(address)
        if sidecar is None:
            return
        older = self.store.revisions(address)
        if not address.is_main and sidecar.deleted and _is_before(sidecar, self.rules.tombstones):
            self._remove(address, sidecar, older)
            return
        gone = [each for each in older if self.rules.lets_go(each) and each != sidecar.modified]
        if gone:
            self.older.append((address, gone))
            self.totals.revisions += len(gone)
            self.totals.bytes += sum(self.store.freed(address, each) for each in gone)
            if not address.is_main:
                self.totals.bytes += self._bodies(address, None, gone) or 0

    def _remove(
        self, address: DocumentAddress, current: Sidecar, older: Sequence[Instant], *, is_orphan: bool = False
    ) -> None:
        totals = self.totals
        self.files.append(RemovedFile(address, current, older, is_orphan))
        totals.attachments += 1
        totals.bytes += sum(self.store.freed(address, each) for each in (None, *older))
        totals.bytes += self._bodies(address, current, older) or 0

    def _bodies(self, address: DocumentAddress, current: Sidecar | None, older: Sequence[Instant]) -> int | None:
        found = [self.store.read_older(address, each, content=False) for each in older]
        records = [current, *(each.sidecar for each in found if each is not None)]
        sizes = [each.body.size for each in records if each is not None and each.body is not None]
        return sum(sizes) if sizes else None

    def _orphans(self, current: Sidecar | None, cutoff: Instant) -> dict[str, Sidecar]:
        main = self.main
        self.seen_ids = current_ids(self.store, main)
        found = dict[str, Sidecar]()
        for name in self.store.names(main):
            address = main.moved(Collection.DATA, name)
            sidecar = None if address.is_main else self.store.sidecar(address)
            if sidecar is not None and not sidecar.deleted and sidecar.modified < cutoff:
                found[name] = sidecar
        if not found:
            return found
        if current is not None and current.deleted:
            return {} if current.modified >= cutoff else found
        names = unnamed(self.store, main, set(found), lambda instant: not self.rules.lets_go(instant))
        return {name: found[name] for name in names}


def retention_rules(periods: RetentionPeriods, now: datetime) -> PurgeRules:
    """Return the rules for data that was kept for its whole period."""

    def before_(seconds: int | None) -> Instant | None:
        return None if seconds is None else before(now, seconds) if seconds else LAST

    return PurgeRules(
        before_(periods.history), before_(periods.tombstones), before_(periods.drafts), before_(periods.orphans)
    )


def _is_before(sidecar: Sidecar, cutoff: Instant | None) -> bool:
    return cutoff is not None and sidecar.modified < cutoff


def current_ids(store: Storage, main: DocumentAddress) -> tuple[str | None, ...]:
    found = (store.sidecar(main.moved(collection)) for collection in Collection)
    return tuple(None if sidecar is None else sidecar.id for sidecar in found)


def newest_of(store: Storage, main: DocumentAddress) -> Sidecar | None:
    found = (store.sidecar(main.moved(main.collection, name)) for name in store.names(main))
    return max((each for each in found if each is not None), key=lambda each: each.modified, default=None)


# A plan is made without a lock, and carried out in steps, each under the lock of its document and only if the document
# is as it was found. The current revision of a living document always stays.


class StoragePurge:
    """Purges documents of one storage."""

    def __init__(self, store: Storage, bodies_of: BodiesOf) -> None:
        self.store = store
        self._bodies_of = bodies_of
        self._rewriter = RevisionRewriter(store, bodies_of)

    def discard(self, main: DocumentAddress, tombstone: Sidecar) -> bool:
        """Remove a deleted document, if the tombstone is current and no attachment was saved since."""
        # One of the same millisecond may have been saved after the deletion: then the document stays.
        files = (self.store.sidecar(main.moved(main.collection, name)) for name in self.store.names(main))
        later = [each for each in files if each is not None and each.modified >= tombstone.modified]
        if not all(each.deleted for each in later):
            return False
        newest = max((each.modified for each in later), default=tombstone.modified)
        plan = self.plan(main, PurgeRules(tombstones=one_later(newest)))
        if plan.tombstone is None or plan.tombstone.id != tombstone.id:
            return False
        self._carry_out(plan)
        return plan.totals.documents > 0

    def has(self, form: Form, document: str) -> bool:
        mains = (DocumentAddress(form, collection, document) for collection in Collection)
        return any(self.store.names(main) for main in mains)

    def plan(self, main: DocumentAddress, rules: PurgeRules) -> PurgePlan:
        plan = PurgePlan(self.store, rules, main)
        plan.make()
        return plan

    def purge(self, form: Form, document: str, rules: PurgeRules) -> PurgeTotals:
        """Remove the parts of a document that rules let go, and finish interrupted writes."""
        main = DocumentAddress(form, Collection.DATA, document)
        for each in (main, main.counterpart):
            self._rewriter.finish(each)
        plan = self.plan(main, rules)
        if not plan.totals.is_empty:
            self._carry_out(plan)
        return plan.totals

    def storage_of(self, form: Form) -> RevisionStorage:
        """Return the storage of a form's data, with the bodies of its attachments from wherever they are."""
        bodies = self._bodies_of(form)
        return self.store if bodies is None else SplitStorage(self.store, bodies)

    def _carry_out(self, plan: PurgePlan) -> None:
        storage = self.storage_of(plan.main.form)
        for address, instants in plan.older:
            remove_older(storage, address, instants)
        for each in plan.files:
            if not remove_file(storage, each, partial(self._is_as_found, plan, each)):
                plan.totals.attachments -= 1
        if plan.tombstone is not None:
            with storage.writing(plan.main) as writer:
                if self._is_still_deleted(plan, plan.tombstone):
                    writer.discard_document(plan.main.form, plan.main.document)
                else:
                    plan.totals.documents = 0
        if plan.draft is not None:
            draft = plan.main.moved(Collection.DRAFT)
            with storage.writing(draft) as writer:
                found = newest_of(self.store, draft)
                if found is not None and found.id == plan.draft.id:
                    writer.discard_draft(plan.main.form, plan.main.document)
                else:
                    plan.totals.drafts = 0

    def _is_as_found(self, plan: PurgePlan, file: RemovedFile) -> bool:
        if plan.tombstone is not None:  # the document may have been saved again, with this attachment
            return self._is_still_deleted(plan, plan.tombstone)
        return not file.is_orphan or current_ids(self.store, plan.main) == plan.seen_ids

    def _is_still_deleted(self, plan: PurgePlan, tombstone: Sidecar) -> bool:
        current, newest = self.store.sidecar(plan.main), newest_of(self.store, plan.main)
        is_newer = newest is not None and plan.newest is not None and newest.modified > plan.newest.modified
        return current is not None and current.id == tombstone.id and not is_newer


def _batches(instants: Sequence[Instant]) -> Iterator[Sequence[Instant]]:
    for begin in range(0, len(instants), PURGED_AT_ONCE):
        if begin:
            time.sleep(PURGE_PAUSE)
        yield instants[begin : begin + PURGED_AT_ONCE]


def remove_older(storage: RevisionStorage, address: DocumentAddress, instants: Sequence[Instant]) -> int:
    """Remove older revisions, not too many while the lock is held at a time; return how many there were."""
    count = 0
    for some in _batches(instants):
        with storage.writing(address) as writer:
            count += writer.remove_older(address, some)
    return count


def remove_file(storage: RevisionStorage, file: RemovedFile, is_as_found: Callable[[], bool] = lambda: True) -> bool:
    """Remove an attachment, its older revisions first, if it ``is_as_found`` under the lock."""
    address = file.address
    for some in _batches(file.older):
        with storage.writing(address) as writer:
            if not is_as_found():
                return False
            writer.remove_older(address, some)
    with storage.writing(address) as writer:
        current = writer.current(address)
        if current is None or current.sidecar.id != file.current.id or not is_as_found():
            return False
        writer.remove_current(address, over=current)
        return True


def forget_history(route: Route, writer: Writing, address: DocumentAddress) -> None:
    """Remove the revisions that a deletion has kept, where a form keeps no history; the lock is held."""
    if route.properties.keeps_history or route.data.storage.is_remote:
        return
    history = route.storage.history(address)
    positions = range(1, min(history.total, PURGED_AT_ONCE))
    writer.remove_older(address, list(map(history.instant, positions)))


def purge_documents(
    purging: StoragePurge, form: Form, documents: Iterable[str], rules: PurgeRules, *, is_trial: bool
) -> Iterator[PurgeTotals | errors.PersistenceError]:
    """Purge documents of a form, or with ``is_trial`` only plan that; yield the result or error of each."""
    for document in documents:
        try:
            main = DocumentAddress(form, Collection.DATA, document)
            yield purging.plan(main, rules).totals if is_trial else purging.purge(form, document, rules)
        except errors.PersistenceError as error:
            yield error


# Erasing documents, as law may demand: all their files in a storage, with a certificate of what was removed.
#
# Each step leaves the storage in order. An erasure that was killed goes on when it is called again, with the documents
# that the certificate names.


class ErasedDocument(msgspec.Struct, frozen=True):
    """An erased document: its tree, its owner as far as one is known, and its files."""

    tree: str
    app: str
    form: str
    document: str
    owner: str | None
    files: tuple[DocumentFile, ...]


class ErasedCopies(msgspec.Struct, frozen=True):
    """The files of documents in a backup, and whether they were removed there."""

    backup: str
    removed: bool
    files: tuple[DocumentFile, ...]


class Certificate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record of an erasure, without any content. Until it has ``ended`` the erasure is not complete."""

    # ``by`` is the user of the system who ran it; ``remaining`` are lines about copies elsewhere.
    format: int
    began: Instant
    by: str
    documents: tuple[ErasedDocument, ...]
    ended: Instant | None = None
    reason: str | None = None
    owner: str | None = None
    backups: tuple[ErasedCopies, ...] = ()
    remaining: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Erasing:
    """Erases documents of one storage, which is called ``name``."""

    name: str
    store: Storage
    purge: StoragePurge
    bodies_of: BodiesOf

    def owned(self, user: str) -> tuple[list[tuple[Form, str]], int, int]:
        """Return the documents and drafts of an owner; one that was never saved belongs to all owners of its files."""
        # Also the numbers of revisions of others that name the user, and of damaged ones, whose owner is not known.
        found, mentions, damaged = list[tuple[Form, str]](), 0, 0
        for form in sorted(self.store.forms()):
            for document in self.purge.store.documents_and_drafts(form):
                mains = [DocumentAddress(form, each, document) for each in Collection]
                files = (main.moved(main.collection, name) for main in mains for name in self.store.names(main))
                deciding = list(self._current(mains)) or list(self._current(files))
                if any(each is not None and each.creator == user for each in deciding):
                    found.append((form, document))
                else:
                    damaged += None in deciding
                    mentions += sum(user in (each.modifier, each.creator) for each in self._revisions(mains[0]))
        return found, mentions, damaged

    def describe(self, form: Form, document: str) -> ErasedDocument:
        with errors.disk_errors("looking for the files of", f"{form}/data/{document}"):
            found = [file for files in self._files(form, document) for file in files.listed()]
        if not found:
            raise errors.NotFoundError(f"{form}/data/{document} does not exist")
        mains = [DocumentAddress(form, each, document) for each in Collection]
        owner = next((each.creator for each in self._current(mains) if each is not None and each.creator), None)
        return ErasedDocument(self.name, form.app, form.name, document, owner, tuple(found))

    def erase(self, form: Form, document: str) -> None:
        """Erase a document with its history, attachments, draft and lease, and all its files."""
        # The caller rebuilds the index of the form: deleted rows stay in the file of a database for a while.
        main = DocumentAddress(form, Collection.DATA, document)
        places = list(self._files(form, document))
        with errors.disk_errors("looking for links to", main):
            links = [list(each.links()) for each in places]
        storage = self.purge.storage_of(form)
        for name in () if storage is self.store else self.store.names(main):
            address = main.moved(Collection.DATA, name)
            with suppress(errors.DamagedError):
                current = None if address.is_main else self.store.sidecar(address)
                if current is not None:
                    remove_file(storage, RemovedFile(address, current, self.store.revisions(address)))
        with storage.writing(main) as writer:
            writer.discard_document(form, document)
            writer.discard_draft(form, document)
            # Under the lock: otherwise somebody may have saved the document again.
            with errors.disk_errors("erasing", main):
                for each, own in zip(places, links, strict=True):
                    each.remove(own)
        with suppress(errors.NotFoundError):
            self.store.leases.broken(document)

    def _files(self, form: Form, document: str) -> Iterator[DocumentFiles]:
        yield self.store.document_files(form, document)
        bodies = self.bodies_of(form)
        if bodies is not None:
            yield bodies.document_files(form, document)

    def _current(self, addresses: Iterable[DocumentAddress]) -> Iterator[Sidecar | None]:
        for address in addresses:
            try:
                sidecar = self.store.sidecar(address)
            except errors.DamagedError:
                yield None
            else:
                if sidecar is not None:
                    yield sidecar

    def _revisions(self, main: DocumentAddress) -> Iterator[Sidecar]:
        try:
            history = self.store.history(main)
        except errors.DamagedError:
            return
        yield from (each.sidecar for each in history.each() if each.sidecar is not None)
