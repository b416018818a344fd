"""Import: definitions first, then documents; a refused one does not stop the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from io import BufferedReader
from typing import BinaryIO, cast

import msgspec

from persistence import errors
from persistence.catalog import Definition, EncryptedControls
from persistence.closable import taking
from persistence.dialect import DIALECTS
from persistence.forms.form_data import HolderReader
from persistence.index.protocol import Budget
from persistence.limits import CHUNK
from persistence.model import versions
from persistence.model.addresses import (
    DESIGNER_VERSION,
    Address,
    AttachmentRef,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.permissions import ANONYMOUS
from persistence.model.queries import Query, Scope
from persistence.model.sidecar import HashedPieces, Sidecar, described, digest_of, owned
from persistence.model.texts import Instant, from_datetime, next_after, to_datetime
from persistence.model.versions import V4_0_0
from persistence.providers.router import Route, Router
from persistence.services.codec import (
    EncodedContent,
    EncryptionCodec,
    ReceivedContent,
    marks_without_effect,
    receiving,
    type_by_name,
)
from persistence.services.definitions import wants_flat_views
from persistence.services.documents import protecting, version_of_new
from persistence.services.import_plans import (
    ImportedRevision,
    ImportPlan,
    ImportSource,
    ImportUnit,
    OnConflict,
    ReceivedRevision,
    check_facts,
    deleted_sidecar,
    refused,
    stored_sidecar,
)
from persistence.services.import_sources import sent_source
from persistence.services.rules import living
from persistence.services.transfers import (
    ImportReport,
    TransferOutcome,
    TransferResult,
    batches,
    store_next,
    update_views,
)
from persistence.storage.commit import Upload
from persistence.storage.storage import RevisionStorage, Writing
from persistence.storage.stored_revision import StoredRevision

# Storing imported revisions: each is received and checked as by a PUT, and committed with its own facts.


@dataclass(slots=True)
class ImportWriter:
    """Stores one document, or one version of a definition, by its plan; no revision may be after ``latest``."""

    importer: Importer
    route: Route
    plan: ImportPlan
    latest: Instant
    _holders: dict[tuple[Collection, str], str] | None = None

    def check(self) -> None:
        for _ in self._batches():
            continue

    def write(self) -> None:
        for batch in self._batches():
            first = batch[0].revision.address
            with ExitStack() as held:
                writer = held.enter_context(self.plan.storage.writing(first))
                if isinstance(first, DocumentAddress):
                    held.enter_context(protecting(self.route, first.main, ANONYMOUS))
                for received in batch:
                    self._commit(writer, received)
            reports = self.route.data.reports
            has_main = any(each.revision.address.is_main for each in batch)
            if reports is not None and isinstance(first, DefinitionAddress) and has_main:
                update_views(reports, self.plan.storage, first.main)

    def _batches(self) -> Iterator[list[ReceivedRevision]]:
        placed = self.plan.placed
        for revision in placed:
            check_facts(revision.facts, self.latest)
            self.plan.notes += revision.facts.notes
        # Attachments that are encrypted here must be stored before data can refer to them as encrypted.
        first = next((each for each in placed if each.exact is None and not each.address.is_main), None)
        by_data = (
            first is not None
            and isinstance(first.address, DocumentAddress)
            and self._controls(first.address, self._version_of(first)) is not None
        )
        for batch in batches(placed, lambda _, following: by_data and following.address.is_main) if placed else ():
            with ExitStack() as opened:
                yield [self._receive(revision, opened) for revision in batch]

    def _controls(self, address: Address, version: int) -> EncryptedControls | None:
        if address.form == self.importer.codec.at_rest.dialect.designer:
            return None
        controls = self.route.catalog.of(address.form, version).encrypted
        return controls if controls is not None and controls.paths else None

    def _receive(self, revision: ImportedRevision, opened: ExitStack) -> ReceivedRevision:
        address, version = revision.address, self._version_of(revision)
        if isinstance(address, DocumentAddress) and self.route.properties.needs_publication:
            is_designer = address.form == self.importer.codec.at_rest.dialect.designer
            if not is_designer and not self.route.catalog.of(address.form, version).is_stored:
                raise errors.NotFoundError(
                    f"version {version} of {address.form} was never published, as a property requires"
                )
        if revision.content is None:
            return ReceivedRevision(revision, version)
        chunks = _as_described(revision, self.importer.largest_xml if address.is_main else self.importer.largest)
        encoded = None
        is_encrypted = revision.exact is not None and bool(revision.exact.encrypted)
        if isinstance(address, DocumentAddress) and not is_encrypted and not revision.facts.is_as_stored:
            encoded = self._encoded(address, revision, self.route.catalog.of(address.form, version), chunks)
            chunks = iter(encoded.chunks)
        sidecar = revision.facts.sidecar
        kind = revision.facts.content_type if sidecar is None else sidecar.content_type
        receipt = receiving(self.plan.storage, address, kind or type_by_name(address), chunks)
        upload, content = opened.enter_context(receipt)
        self.plan.notes += (mark.cause for mark in marks_without_effect(upload, content))
        if isinstance(address, DocumentAddress) and is_encrypted and sidecar is not None:
            self._require_key(address, sidecar, upload)
        return ReceivedRevision(revision, version, upload, content, encoded)

    def _version_of(self, revision: ImportedRevision) -> int:
        address = revision.address
        if isinstance(address, DefinitionAddress):
            return versions.must_be_possible(address.version, address)
        dialect = self.importer.codec.at_rest.dialect
        if address.form == dialect.designer:
            return DESIGNER_VERSION
        if revision.version is not None:
            return versions.must_be_possible(revision.version, address)
        storage = self.plan.storage
        stored = storage.sidecar(address.main)
        return version_of_new(storage, self.route.catalog, dialect, address) if stored is None else stored.version

    def _encoded(
        self, address: DocumentAddress, revision: ImportedRevision, definition: Definition, chunks: Iterator[bytes]
    ) -> EncodedContent:
        over = self.plan.storage.read(address, content=False)
        controls = self._controls(address, definition.version)
        holder = revision.facts.holder
        if controls is not None and not address.is_main and holder is None:
            holder = self._holder_of(address)
        pieces, codec = chunks, self.importer.codec
        if controls is not None and address.is_main:
            pieces = codec.at_rest.decrypted(address, chunks)  # of the real system, which may have encrypted it
        return codec.encode(ReceivedContent(address, definition, over, holder, lambda _: True, pieces))

    def _holder_of(self, address: DocumentAddress) -> str | None:
        def is_own(held: AttachmentRef) -> bool:
            return (held.form, held.document) == (address.form, address.document)

        if self._holders is None:
            self._holders = {}
            for each in self.plan.placed:
                if not (isinstance(each.address, DocumentAddress) and each.address.is_main) or each.content is None:
                    continue
                for holder in HolderReader(is_own).read(each.content()).holders:
                    if holder.held.collection is not None:
                        self._holders[holder.held.collection, holder.held.name] = "/".join(holder.path)
        return self._holders.get((address.collection, address.name))

    def _require_key(self, address: DocumentAddress, sidecar: Sidecar, upload: Upload) -> None:
        at_rest = self.importer.codec.at_rest
        with cast("BinaryIO", upload.opened()) as file:
            if address.is_main:
                for _ in at_rest.decrypted(address, iter(lambda: file.read(CHUNK), b"")):
                    continue
            else:
                at_rest.plain_file(StoredRevision(sidecar, sidecar.etag, upload.size, file), address)

    def _commit(self, writer: Writing, received: ReceivedRevision) -> None:
        address = received.revision.address
        changed = errors.ReplacedError(f"{address} was written by another request meanwhile: import again")
        described = partial(self._sidecar, received)
        store_next(writer, address, received.upload, self.plan.over, described=described, changed=changed)
        if isinstance(address, DocumentAddress) and address.is_main and not address.is_draft:
            writer.discard_draft(address.form, address.document)
        if not self.plan.is_exact:
            self.plan.notes.append("another service gives its own times, owners and entity tags to revisions")

    def _require_no_conflict(self, revision: ImportedRevision) -> None:
        address = revision.address
        if not isinstance(address, DocumentAddress) or not (address.is_main or address.is_draft):
            return
        counterpart = self.plan.storage.sidecar(address.counterpart)
        modified = revision.modified
        if counterpart is None or (address.is_draft and (modified is None or counterpart.modified < modified)):
            return
        if address.is_draft or not (counterpart.deleted or self.plan.replaces_drafts):
            raise errors.ReplacedError(f"{address.main} was saved or drafted meanwhile: import again")

    def _sidecar(self, received: ReceivedRevision, over: StoredRevision | None) -> Sidecar:
        revision, content, there = received.revision, received.content, living(over)
        if isinstance(revision.address, DocumentAddress) and there is not None:
            versions.must_equal(received.version, there.sidecar.version, revision.address)
        self._require_no_conflict(revision)
        sidecar = deleted_sidecar(received, over) if content is None else stored_sidecar(received, content, over)
        if received.encoded is not None:
            definition = self.route.catalog.of(self.route.form, received.version)
            sidecar = received.encoded.described(sidecar, over, definition)
        if revision.address in self.plan.renewed:
            modified = next_after(None if over is None else over.latest)
            own = sidecar.id if content is None else content.id
            sidecar = msgspec.structs.replace(sidecar, id=own, tag=None, modified=modified, created=modified)
            if there is not None:
                created, owner = there.sidecar.created, there.sidecar.facts.owner
                sidecar = owned(msgspec.structs.replace(sidecar, created=created), owner)
        if isinstance(revision.address, DefinitionAddress) and revision.address.is_main and not sidecar.deleted:
            has_views = False
            try:
                has_views = wants_flat_views(self.route, is_asked=sidecar.flat_view)
            except errors.NotSupportedError:
                self.plan.notes.append(f"flat views need the definition where the data is, and data in format {V4_0_0}")
            sidecar = msgspec.structs.replace(sidecar, flat_view=has_views)
        return sidecar


def _as_described(revision: ImportedRevision, largest: int) -> Iterator[bytes]:
    """Yield a content, which must have the digest in its metadata, and at most so many bytes."""
    expected = None if revision.exact is None else described(revision.exact).digest
    pieces = () if revision.content is None else revision.content()
    hashed, size = HashedPieces(pieces), 0
    for piece in pieces if expected is None else hashed:
        size += len(piece)
        if size > largest:
            raise errors.BodyTooLargeError(f"{revision.name} is larger than the limit of {largest} bytes")
        yield piece
    if expected not in (None, hashed.digest):
        raise errors.BadRequestError(f"{revision.name} does not have the digest in its metadata")


# Permissions of forms and singleton forms do not count: an administrator imports.


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of an import: with ``is_dry`` nothing is stored."""

    is_dry: bool = False
    on_conflict: OnConflict = OnConflict.REFUSE


@dataclass(frozen=True, slots=True)
class Importer:
    """Imports into the providers of a router, of which ``calls_others`` admits other services."""

    # ``largest`` are the bytes of an attachment, ``largest_xml`` of data and definitions. With ``begins_indexes`` the
    # index of a form is begun at its first document, so that the others go into it as they are stored.
    router: Router
    codec: EncryptionCodec
    largest: int
    largest_xml: int
    calls_others: bool = True
    begins_indexes: bool = True

    def run(self, source: ImportSource, options: ImportOptions) -> Iterator[TransferOutcome]:
        ahead = timedelta(days=1)  # The clock of another machine may be ahead by this
        latest, begun = from_datetime(to_datetime(next_after(None)) + ahead), set[Form]()
        for found in source.units():
            if not isinstance(found, ImportUnit):
                yield found
                continue
            outcome = self._import(found, options, latest)
            yield outcome
            form = None if options.is_dry or not self.begins_indexes else outcome.form
            if form is not None and form not in begun:
                begun.add(form)
                data = self.router.of(form).data
                if not data.storage.is_remote:
                    with suppress(errors.PersistenceError):  # which the next search reports
                        data.index.search(form, Scope(), Query(size=0), Budget())

    def _import(self, unit: ImportUnit, options: ImportOptions, latest: Instant) -> TransferOutcome:
        unit = self._in_dialect(unit)
        try:
            route = self.router.of(unit.revisions[0].address.form)
            storage, is_exact = self._storage(route, unit)
            plan = ImportPlan(storage, self._has_same_content, options.on_conflict, is_exact)
            plan.add(unit)
            writer = ImportWriter(self, route, plan, latest)
            if options.is_dry:
                writer.check()
            else:
                writer.write()
        except errors.DiskFullError:
            raise
        except errors.PersistenceError as error:
            if isinstance(error, errors.ConflictError) and options.on_conflict is OnConflict.SKIP:
                return TransferOutcome(unit.name, TransferResult.SKIPPED, unit.is_definition, cause=str(error))
            return refused(unit.name, error, is_definition=unit.is_definition)
        return TransferOutcome(
            unit.name,
            TransferResult.IMPORTED if plan.placed else TransferResult.UNCHANGED,
            unit.is_definition,
            revisions=plan.revisions,
            notes=tuple(dict.fromkeys(plan.notes)),
            lacks_owner=bool(plan.placed) and unit.lacks_owner,
            form=None if unit.is_definition else route.form,
        )

    def _storage(self, route: Route, unit: ImportUnit) -> tuple[RevisionStorage, bool]:
        names = route.properties.route
        configured = names.definition if unit.is_definition else names.data
        apart = None if unit.is_definition else names.attachments
        for each in (configured, *(() if apart is None else (apart,))):
            if each.is_service and not self.calls_others:
                raise errors.NotSupportedError(
                    f"{each.name!r} is another service, {each.uri}: import it there, or over HTTP"
                )
        provider = route.definition if unit.is_definition else route.data
        return provider.storage if unit.is_definition else route.storage, not provider.storage.is_remote

    def _in_dialect(self, unit: ImportUnit) -> ImportUnit:
        """Return a unit with the name that the designer's storage has in this dialect."""
        form = unit.revisions[0].address.form
        own = self.codec.at_rest.dialect
        if unit.is_definition or form == own.designer or not any(form == each.designer for each in DIALECTS.values()):
            return unit
        form = own.designer
        return replace(
            unit, revisions=tuple(replace(each, address=replace(each.address, form=form)) for each in unit.revisions)
        )

    def _has_same_content(self, revision: ImportedRevision, found: StoredRevision) -> bool:
        """Compare an open revision, which is closed, with one in the source, decrypted as by an answer."""
        # Encryption changes the markup around a value.
        address, at_rest = revision.address, self.codec.at_rest
        if revision.content is None:
            return False
        with found.opened as file, errors.disk_errors("reading", address):
            stored: Iterable[bytes] = iter(lambda: file.read(CHUNK), b"")
            incoming: Iterable[bytes] = revision.content()
            if isinstance(address, DocumentAddress) and found.sidecar.encrypted:
                plain = None if address.is_main else at_rest.plain_file(found, address)
                stored = at_rest.decrypted(address, stored) if plain is None else iter(partial(plain.read, CHUNK), b"")
                if address.is_main:
                    definition = self.router.of(address.form).catalog.of(address.form, found.sidecar.version)
                    decrypted = at_rest.decrypted(address, incoming)
                    received = ReceivedContent(address, definition, found, None, lambda _: True, decrypted)
                    incoming = at_rest.decrypted(address, self.codec.encode(received).chunks)
            return digest_of(stored) == digest_of(incoming)


# The import of a request body, which is received first into an unnamed file: a ZIP file is read from its end.
#
# One import runs at a time in each process.


@dataclass(frozen=True, slots=True)
class SpooledImports:
    """Imports the bodies of requests; ``spool`` begins to receive one."""

    importer: Importer
    spool: Callable[[], Upload]
    _running: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run(self, content_type: str | None, chunks: Iterable[bytes], options: ImportOptions) -> bytes:
        report = ImportReport()
        with taking(self._running, errors.BusyError("another import is running", 30)), self.spool() as upload:
            for chunk in chunks:
                with errors.disk_errors("receiving an import"):
                    upload.write(chunk)
            with BufferedReader(upload.opened()) as file:
                source = sent_source(file, content_type, largest=self.importer.largest)
                for outcome in self.importer.run(source, options):
                    report.add(outcome)
        return report.as_xml(is_dry=options.is_dry)
