"""Placing revisions: each is received and checked as a PUT would, and committed with the facts that it has.

All files of a document are received before the first of them is stored, and stored under one lock, in the order of
their times. So a document whose content is bad is not begun, and one that was stopped half-way is as it was at some
time; the next run places the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import msgspec

from persistence.definitions.catalog import Definition
from persistence.definitions.contents import EncryptedControls
from persistence.errors import BadRequestError, BodyTooLargeError, NotFoundError, ReplacedError
from persistence.forms.form_data import HolderReader
from persistence.limits import CHUNK, MOST_AT_ONCE
from persistence.model import versions
from persistence.model.addresses import (
    DESIGNER_VERSION,
    LIBRARY_FORM,
    Address,
    AttachmentRef,
    Collection,
    DefinitionAddress,
    DocumentAddress,
)
from persistence.model.instants import Instant, next_after
from persistence.model.sidecar import Sidecar, described, digest_text
from persistence.model.users import ANONYMOUS
from persistence.model.versions import V4_0_0
from persistence.providers.provider import Route
from persistence.services.codec import EncodedContent, EncryptionCodec, ReceivedContent
from persistence.services.documents import version_of_new
from persistence.services.imports.composing import Arrived, deleted_sidecar, of_owner, stored_sidecar
from persistence.services.imports.planning import ImportPlan
from persistence.services.imports.revisions import ImportedRevision, check_facts
from persistence.services.leasing import protecting
from persistence.services.receiving import marks_without_effect, receiving, type_by_name
from persistence.services.rules import living
from persistence.storage.storage import RevisionStorage, Writing
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.uploads import Upload


@dataclass(slots=True)
class Placer:
    """Places the revisions of one document, or of one version of a definition, by its plan.

    ``latest`` is the last instant that a revision may have, and ``largest`` the bytes of a content: of data and
    definitions ``largest_xml``.
    """

    route: Route
    storage: RevisionStorage
    codec: EncryptionCodec
    plan: ImportPlan
    latest: Instant
    largest: int
    largest_xml: int
    notes: list[str] = field(default_factory=list)
    _holders: dict[tuple[Collection, str], str] | None = None

    def check(self) -> None:
        """Receive and check everything, and store nothing."""
        for arrived in self._batches():
            del arrived

    def place(self) -> int:
        """Store everything, and return how many revisions were placed."""
        count = 0
        for batch in self._batches():
            self._store(batch)
            count += len(batch)
        return count

    def _batches(self) -> Iterator[list[Arrived]]:
        placed = self.plan.placed
        for revision in placed:
            check_facts(revision.facts, self.latest)
            self.notes += revision.facts.notes
        for batch in _cut(placed, by_data=self._encrypts_attachments()):
            with ExitStack() as opened:
                yield [self._receive(revision, opened) for revision in batch]

    def _encrypts_attachments(self) -> bool:
        """Return whether attachments are encrypted here: then they must be stored before data can say so of them."""
        new = (each for each in self.plan.placed if not each.is_exact and not each.address.is_main)
        first = next(new, None)
        if first is None or isinstance(first.address, DefinitionAddress):
            return False
        return self._controls(first.address, self._version_of(first)) is not None

    def _controls(self, address: Address, version: int) -> EncryptedControls | None:
        if self.codec.at_rest.dialect.is_designer(address.form):
            return None
        controls = self.route.catalog.of(address.form, version).encrypted
        return controls if controls is not None and controls.paths else None

    def _receive(self, revision: ImportedRevision, opened: ExitStack) -> Arrived:
        address, version = revision.address, self._version_of(revision)
        self._require_published(address, version)
        if revision.content is None:
            return Arrived(revision, version)
        largest = self.largest_xml if address.is_main else self.largest
        chunks = _as_described(revision, _limited(revision.content(), largest, revision.name))
        encoded = definition = None
        if isinstance(address, DocumentAddress) and not self._is_stored_encrypted(revision):
            definition = self.route.catalog.of(address.form, version)
            encoded = self._encoded(address, revision, definition, chunks)
            chunks = iter(encoded.chunks)
        kind = revision.facts.content_type
        if revision.facts.sidecar is not None:
            kind = revision.facts.sidecar.content_type
        receipt = receiving(self.storage, address, kind or type_by_name(address), chunks)
        upload, received = opened.enter_context(receipt)
        self.notes += (mark.cause for mark in marks_without_effect(upload, received))
        if isinstance(address, DocumentAddress) and self._is_stored_encrypted(revision):
            self._require_key(address, revision, upload)
        return Arrived(revision, version, upload, received, encoded, definition)

    def _is_stored_encrypted(self, revision: ImportedRevision) -> bool:
        sidecar = revision.facts.sidecar
        return revision.is_exact and sidecar is not None and bool(sidecar.encrypted)

    def _version_of(self, revision: ImportedRevision) -> int:
        address = revision.address
        if isinstance(address, DefinitionAddress):
            return versions.must_be_possible(address.version, address)
        dialect = self.codec.at_rest.dialect
        if dialect.is_designer(address.form):
            return DESIGNER_VERSION
        if revision.version is not None:
            return versions.must_be_possible(revision.version, address)
        stored = self.storage.sidecar(address.main)
        return version_of_new(self.storage, self.route.catalog, dialect, address) if stored is None else stored.version

    def _require_published(self, address: Address, version: int) -> None:
        """Refuse data of a version that was never published, where a property asks for that."""
        if isinstance(address, DefinitionAddress) or not self.route.properties.needs_publication:
            return
        if (
            self.codec.at_rest.dialect.is_designer(address.form)
            or self.route.catalog.of(address.form, version).is_stored
        ):
            return
        raise NotFoundError(f"version {version} of {address.form} was never published, which a property asks for")

    def _encoded(
        self, address: DocumentAddress, revision: ImportedRevision, definition: Definition, chunks: Iterator[bytes]
    ) -> EncodedContent:
        over = self.storage.read(address, content=False)
        controls = self._controls(address, definition.version)
        holder = revision.facts.holder
        if controls is not None and not address.is_main and holder is None:
            holder = self._holder_of(address)
        pieces: Iterable[bytes] = chunks
        if controls is not None and address.is_main:
            pieces = self.codec.at_rest.decrypted(address, chunks)  # of the real system, which may have encrypted it
        return self.codec.encode(ReceivedContent(address, definition, over, holder, lambda _: True, pieces))

    def _holder_of(self, address: DocumentAddress) -> str | None:
        if self._holders is None:
            self._holders = {}
            for each in self.plan.placed:
                main = each.address
                if isinstance(main, DocumentAddress) and main.is_main and each.content is not None:
                    self._note_holders(main, each.content())
        return self._holders.get((address.collection, address.name))

    def _note_holders(self, main: DocumentAddress, pieces: Iterator[bytes]) -> None:
        def is_own(held: AttachmentRef) -> bool:
            return (held.form, held.document) == (main.form, main.document)

        with HolderReader(is_own) as reader:
            for holder in reader.read(pieces).holders:
                if self._holders is not None and holder.held.collection is not None:
                    self._holders[holder.held.collection, holder.held.name] = "/".join(holder.path)

    def _require_key(self, address: DocumentAddress, revision: ImportedRevision, upload: Upload) -> None:
        sidecar = revision.facts.sidecar
        if sidecar is None:
            return
        at_rest = self.codec.at_rest
        with cast("BinaryIO", upload.opened()) as file:
            if address.is_main:
                for _ in at_rest.decrypted(address, iter(lambda: file.read(CHUNK), b"")):
                    continue
            else:
                at_rest.plain_file(StoredRevision(sidecar, sidecar.etag, upload.size, file), address)

    def _store(self, batch: list[Arrived]) -> None:
        first = batch[0].revision.address
        with ExitStack() as held:
            writer = held.enter_context(self.storage.writing(first))
            if isinstance(first, DocumentAddress):
                held.enter_context(protecting(self.route, first.main, ANONYMOUS))
            for arrived in batch:
                self._commit(writer, arrived)
        self._make_views(batch)

    def _commit(self, writer: Writing, arrived: Arrived) -> None:
        address = arrived.revision.address
        over = writer.current(address)
        if (None if over is None else over.sidecar.id) != self.plan.over[address]:
            raise ReplacedError(f"{address} was written by another request meanwhile: import again")
        if isinstance(address, DocumentAddress) and living(over) is not None and over is not None:
            versions.must_equal(arrived.version, over.sidecar.version, address)
        self._require_place(arrived.revision)
        sidecar = self._sidecar(arrived, over)
        if arrived.upload is None:
            stored = writer.delete(address, sidecar, over=over)
        else:
            stored = writer.commit(address, sidecar, arrived.upload, over=over)
        self.plan.over[address] = stored.id
        if isinstance(address, DocumentAddress) and address.is_main and not address.is_draft:
            writer.discard_draft(address.form, address.document)
        if not self.plan.is_exact:
            self.notes.append("another service has its own times, owners and entity tags of what it stores")

    def _require_place(self, revision: ImportedRevision) -> None:
        address = revision.address
        if not isinstance(address, DocumentAddress) or not (address.is_main or address.is_draft):
            return
        twin = self.storage.sidecar(address.main.moved(Collection.DATA if address.is_draft else Collection.DRAFT))
        modified = revision.facts.modified if revision.facts.sidecar is None else revision.facts.sidecar.modified
        if twin is None or (address.is_draft and (modified is None or twin.modified < modified)):
            return
        if address.is_draft or not (twin.deleted or self.plan.replaces_drafts):
            raise ReplacedError(f"{address.main} was saved or drafted meanwhile: import again")

    def _sidecar(self, arrived: Arrived, over: StoredRevision | None) -> Sidecar:
        revision = arrived.revision
        sidecar = (
            deleted_sidecar(arrived, over)
            if arrived.received is None
            else stored_sidecar(arrived, arrived.received, over)
        )
        if arrived.encoded is not None and arrived.definition is not None:
            definition = self.route.catalog.of(self.route.form, arrived.version)
            sidecar = arrived.encoded.described(sidecar, over, definition)
        if revision.address in self.plan.renewed:
            modified = next_after(None if over is None else over.latest)
            there = living(over)
            own = sidecar.id if arrived.received is None else arrived.received.id
            sidecar = msgspec.structs.replace(sidecar, id=own, tag=None, modified=modified, created=modified)
            if there is not None:
                sidecar = of_owner(sidecar, there.sidecar)
        if isinstance(revision.address, DefinitionAddress) and revision.address.is_main and not sidecar.deleted:
            sidecar = msgspec.structs.replace(sidecar, flat_view=self._wants_views(sidecar))
        return sidecar

    def _wants_views(self, sidecar: Sidecar) -> bool:
        """Return whether a definition is to have flat views, and can have them (spec search 7.1)."""
        properties = self.route.properties
        if self.route.form.name == LIBRARY_FORM or not (sidecar.flat_view or properties.has_flat_views):
            return False
        route = properties.route
        if route.definition.uri == route.data.uri and properties.data_format == V4_0_0:
            return True
        self.notes.append("flat views are made where definition and data are, of data in the first format")
        return False

    def _make_views(self, batch: list[Arrived]) -> None:
        reports = self.route.data.reports
        newest = batch[-1].revision.address
        if reports is None or not isinstance(newest, DefinitionAddress):
            return
        current = self.storage.sidecar(newest.main)
        if current is None or not any(each.revision.address.is_main for each in batch):
            return
        if current.deleted:
            reports.drop(newest.form, newest.version)
        elif current.flat_view:
            reports.create(newest.form, newest.version)


def _cut(placed: list[ImportedRevision], *, by_data: bool) -> Iterator[list[ImportedRevision]]:
    batch: list[ImportedRevision] = []
    for revision in placed:
        if batch and (len(batch) == MOST_AT_ONCE or (by_data and revision.address.is_main)):
            yield batch
            batch = []
        batch.append(revision)
    if batch:
        yield batch


def _as_described(revision: ImportedRevision, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a content, which must be the one that its facts describe."""
    sidecar = revision.facts.sidecar
    expected = described(sidecar).digest if sidecar is not None and revision.is_exact else None
    if expected is None:
        yield from pieces
        return
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    if digest_text(digest.hexdigest()) != expected:
        raise BadRequestError(f"{revision.name} is not the content that the facts beside it describe")


def _limited(pieces: Iterator[bytes], largest: int, name: str) -> Iterator[bytes]:
    left = largest
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise BodyTooLargeError(f"{name} is larger than the limit of {largest} bytes")
        yield piece
