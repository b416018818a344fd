"""Storing imported revisions: each is received and checked as by a PUT, and committed with its own facts.

All files of a document are received first, and then stored under one lock, in the order of their times. So an
interrupted import leaves a document as it was at some time, and the next run stores the rest.
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
from persistence.services.imports.composing import ReceivedRevision, deleted_sidecar, stored_sidecar
from persistence.services.imports.planning import ImportPlan
from persistence.services.imports.revisions import ImportedRevision, check_facts
from persistence.services.leasing import protecting
from persistence.services.receiving import marks_without_effect, receiving, type_by_name
from persistence.services.rules import living
from persistence.storage.storage import RevisionStorage, Writing
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.uploads import Upload


@dataclass(slots=True)
class ImportWriter:
    """Stores the revisions of one document, or of one version of a definition, by its plan.

    ``latest`` is the last instant that a revision may have, ``largest`` the bytes of an attachment, and ``largest_xml``
    of data and definitions.
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
        for _ in self._batches():
            continue

    def write(self) -> int:
        """Store everything, and return the number of new revisions."""
        count = 0
        for batch in self._batches():
            first = batch[0].revision.address
            with ExitStack() as held:
                writer = held.enter_context(self.storage.writing(first))
                if isinstance(first, DocumentAddress):
                    held.enter_context(protecting(self.route, first.main, ANONYMOUS))
                for received in batch:
                    self._commit(writer, received)
            self._make_views(batch)
            count += len(batch)
        return count

    def _batches(self) -> Iterator[list[ReceivedRevision]]:
        placed = self.plan.placed
        for revision in placed:
            check_facts(revision.facts, self.latest)
            self.notes += revision.facts.notes
        # Attachments that are encrypted here must be stored before data can refer to them as encrypted.
        first = next((each for each in placed if not each.is_exact and not each.address.is_main), None)
        by_data = (
            first is not None
            and isinstance(first.address, DocumentAddress)
            and self._controls(first.address, self._version_of(first)) is not None
        )
        for batch in _batched(placed, by_data=by_data):
            with ExitStack() as opened:
                yield [self._receive(revision, opened) for revision in batch]

    def _controls(self, address: Address, version: int) -> EncryptedControls | None:
        if self.codec.at_rest.dialect.is_designer(address.form):
            return None
        controls = self.route.catalog.of(address.form, version).encrypted
        return controls if controls is not None and controls.paths else None

    def _receive(self, revision: ImportedRevision, opened: ExitStack) -> ReceivedRevision:
        address, version = revision.address, self._version_of(revision)
        self._require_published(address, version)
        if revision.content is None:
            return ReceivedRevision(revision, version)
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
        upload, content = opened.enter_context(receipt)
        self.notes += (mark.cause for mark in marks_without_effect(upload, content))
        if isinstance(address, DocumentAddress) and self._is_stored_encrypted(revision):
            self._require_key(address, revision, upload)
        return ReceivedRevision(revision, version, upload, content, encoded, definition)

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
        if isinstance(address, DefinitionAddress) or not self.route.properties.needs_publication:
            return
        is_designer = self.codec.at_rest.dialect.is_designer(address.form)
        if not is_designer and not self.route.catalog.of(address.form, version).is_stored:
            raise NotFoundError(f"version {version} of {address.form} was never published, as a property requires")

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
        def is_own(held: AttachmentRef) -> bool:
            return (held.form, held.document) == (address.form, address.document)

        if self._holders is None:
            self._holders = {}
            for each in self.plan.placed:
                if not (isinstance(each.address, DocumentAddress) and each.address.is_main) or each.content is None:
                    continue
                with HolderReader(is_own) as reader:
                    for holder in reader.read(each.content()).holders:
                        if holder.held.collection is not None:
                            self._holders[holder.held.collection, holder.held.name] = "/".join(holder.path)
        return self._holders.get((address.collection, address.name))

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

    def _commit(self, writer: Writing, received: ReceivedRevision) -> None:
        address = received.revision.address
        over = writer.current(address)
        if (None if over is None else over.sidecar.id) != self.plan.over[address]:
            raise ReplacedError(f"{address} was written by another request meanwhile: import again")
        if isinstance(address, DocumentAddress) and living(over) is not None and over is not None:
            versions.must_equal(received.version, over.sidecar.version, address)
        self._require_no_conflict(received.revision)
        sidecar = self._sidecar(received, over)
        if received.upload is None:
            stored = writer.delete(address, sidecar, over=over)
        else:
            stored = writer.commit(address, sidecar, received.upload, over=over)
        self.plan.over[address] = stored.id
        if isinstance(address, DocumentAddress) and address.is_main and not address.is_draft:
            writer.discard_draft(address.form, address.document)
        if not self.plan.is_exact:
            self.notes.append("another service gives its own times, owners and entity tags to revisions")

    def _require_no_conflict(self, revision: ImportedRevision) -> None:
        address = revision.address
        if not isinstance(address, DocumentAddress) or not (address.is_main or address.is_draft):
            return
        other = Collection.DATA if address.is_draft else Collection.DRAFT
        counterpart = self.storage.sidecar(address.main.moved(other))
        modified = revision.modified
        if counterpart is None or (address.is_draft and (modified is None or counterpart.modified < modified)):
            return
        if address.is_draft or not (counterpart.deleted or self.plan.replaces_drafts):
            raise ReplacedError(f"{address.main} was saved or drafted meanwhile: import again")

    def _sidecar(self, received: ReceivedRevision, over: StoredRevision | None) -> Sidecar:
        revision, content = received.revision, received.content
        sidecar = deleted_sidecar(received, over) if content is None else stored_sidecar(received, content, over)
        if received.encoded is not None and received.definition is not None:
            definition = self.route.catalog.of(self.route.form, received.version)
            sidecar = received.encoded.described(sidecar, over, definition)
        if revision.address in self.plan.renewed:
            modified = next_after(None if over is None else over.latest)
            there = living(over)
            own = sidecar.id if content is None else content.id
            sidecar = msgspec.structs.replace(sidecar, id=own, tag=None, modified=modified, created=modified)
            if there is not None:
                known = there.sidecar
                sidecar = msgspec.structs.replace(
                    sidecar,
                    created=known.created,
                    creator=known.creator,
                    group=known.group,
                    organization=known.organization,
                )
        if isinstance(revision.address, DefinitionAddress) and revision.address.is_main and not sidecar.deleted:
            sidecar = msgspec.structs.replace(sidecar, flat_view=self._wants_views(sidecar))
        return sidecar

    def _wants_views(self, sidecar: Sidecar) -> bool:
        """Return whether a definition will have flat views (spec search 7.1); note it if it cannot have them."""
        properties = self.route.properties
        if self.route.form.name == LIBRARY_FORM or not (sidecar.flat_view or properties.has_flat_views):
            return False
        route = properties.route
        if route.definition.uri == route.data.uri and properties.data_format == V4_0_0:
            return True
        self.notes.append(f"flat views need the definition where the data is, and data in format {V4_0_0}")
        return False

    def _make_views(self, batch: list[ReceivedRevision]) -> None:
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


def _batched(placed: list[ImportedRevision], *, by_data: bool) -> Iterator[list[ImportedRevision]]:
    batch: list[ImportedRevision] = []
    for revision in placed:
        if batch and (len(batch) == MOST_AT_ONCE or (by_data and revision.address.is_main)):
            yield batch
            batch = []
        batch.append(revision)
    if batch:
        yield batch


def _as_described(revision: ImportedRevision, pieces: Iterator[bytes]) -> Iterator[bytes]:
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
        raise BadRequestError(f"{revision.name} does not have the digest in its metadata")


def _limited(pieces: Iterator[bytes], largest: int, name: str) -> Iterator[bytes]:
    left = largest
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise BodyTooLargeError(f"{name} is larger than the limit of {largest} bytes")
        yield piece
