"""Form data, drafts and their attachments: the designer's unpublished definitions are form data too.

The order of the checks is the order of spec crud 4.2, because it decides which status wins. A PUT is decided twice:
before its body is read, so that a client is refused early, and under the lock, where the answer counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from persistence.dialect import Dialect
from persistence.errors import DamagedError, ForbiddenError, NotFoundError, VersionError
from persistence.index.protocol import SearchIndex
from persistence.model import versions
from persistence.model.addresses import (
    DATA_XML,
    DESIGNER_VERSION,
    FORM_XHTML,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.permissions import Operations
from persistence.model.sidecar import Sidecar
from persistence.model.users import User
from persistence.model.versions import VersionRequest
from persistence.properties.properties import FormProperties, Properties
from persistence.services.access import Access
from persistence.services.codec import AS_STORED, Codec, ReceivedContent
from persistence.services.definitions import latest_version
from persistence.services.receiving import receiving
from persistence.services.requests import Delete, Get, Put
from persistence.services.results import Cleared, Read, Removed, Written
from persistence.services.rules import (
    check_data_format,
    check_precondition,
    living,
    must_live,
    next_revision,
    tombstone_of,
)
from persistence.services.singleton import Singletons
from persistence.storage.storage import Readable, Storage, Writing
from persistence.storage.stored_revision import NOTHING_THERE, StoredRevision


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a decision rests on: the resource itself and, for an attachment, its living ``data.xml``."""

    own: StoredRevision | None
    main: StoredRevision | None


@dataclass(frozen=True, slots=True)
class Documents:
    """Reading, writing and deleting below ``data/`` and ``draft/``.

    Methods raise the domain errors of ``persistence.errors``.
    """

    store: Storage
    dialect: Dialect
    properties: Properties
    access: Access
    singletons: Singletons
    checks: SearchIndex
    codec: Codec = AS_STORED

    def read(self, address: DocumentAddress, get: Get) -> Read:
        """A revision with its headers, and its content open if asked for, as the codec shows it."""
        number = self.admitted(address, get.version, get.data_format if get.content else None)
        found = self.revision(address, get, content=get.content or self.codec.needs_content(address, get))
        try:
            versions.must_equal(number, found.sidecar.version, address)
            main = found
            if not address.is_main:
                main = must_live(self.store.read(address.main, content=False), address.main)
                versions.must_equal(number, main.sidecar.version, address.main)
            operations = self.access.to_read(address, main.sidecar, get.user)
        except Exception:
            if found.file is not None:
                found.file.close()
            raise
        return _asked(get, self.codec.decode(Read(address, found, operations), address, get))

    def revision(self, address: DocumentAddress, get: Get, *, content: bool) -> StoredRevision:
        """The living revision that a GET selects, its content open if that is wanted."""
        if get.instant is None:
            return must_live(self.store.read(address, content=content), address)
        found = self.store.read_revision(address, get.instant, content=content)
        if found is None:
            raise NotFoundError(f"{address} has no revision of {get.instant}")
        return must_live(found, address)

    def write(self, address: DocumentAddress, put: Put, chunks: Iterable[bytes]) -> Written:
        """Store a revision. Saving a document removes its draft with its attachments (spec crud 4.11)."""
        number = self.admitted_to_write(address, put)
        seen = self._see(address, self.store.read(address, content=False))
        version, _ = self._check(address, put, number, seen)
        may_read = partial(self._may_read, put.user)
        encoded = self.codec.encode(ReceivedContent(address, version, seen.own, put.holder, may_read, chunks))
        checking = self.checks.checking(address.form, version) if address.is_main else None
        receipt = receiving(self.store, address, put.content_type, encoded.chunks, checking)
        with receipt as (upload, received), self.store.writing(address) as writer:
            seen = self._see(address, writer.current(address))
            version, operations = self._check(address, put, number, seen)
            sidecar = next_revision(put, received, version, over=seen.own, owner=put.user)
            sidecar = encoded.described(sidecar, seen.own)
            creates = living(seen.own) is None
            with self.singletons.only_one(address, version, put.user, creates=creates):
                stored = writer.commit(address, sidecar, upload, over=seen.own)
            if address.is_main and not address.is_draft:
                writer.discard_draft(address.form, address.document)
        return Written(address, stored, creates, operations)

    def delete(self, address: DocumentAddress, delete: Delete) -> Removed:
        """Leave a tombstone; of a draft, nothing. Deleting a document removes its draft too (spec crud 4.10)."""
        number = self.admitted(address, delete.version, None)
        with self.store.writing(address) as writer:
            current = writer.current(address)
            if current is not None and self._is_half_deleted(address, current.sidecar):
                writer.discard_draft(address.form, address.document)
            own = must_live(current, address)
            main = None if address.is_main else self.store.read(address.main, content=False)
            may_read = partial(self._may_read, delete.user, address)
            check_precondition(delete.precondition, address, own, living(main), may_read=may_read)
            versions.must_equal(number, own.sidecar.version, address)
            document = own if address.is_main else must_live(main, address.main)
            operations = self.access.to_delete(address, document.sidecar, delete.user)
            tombstone = tombstone_of(own, delete.user)
            if not address.is_draft:
                tombstone = self._delete(writer, address, own, tombstone)
                return Removed(address, own.sidecar.version, tombstone, operations)
            if address.is_main:
                writer.discard_draft(address.form, address.document)
            else:
                writer.purge(address, tombstone, over=own)
            return Removed(address, own.sidecar.version, None, operations)

    def delete_all(self, form: Form, delete: Delete) -> Cleared:
        """Delete all data of a form, or of one version of it, that the user may delete (spec crud 4.13).

        Every document is deleted for itself under its own lock, so a crash half-way leaves the others as they were,
        and the next call goes on. Drafts of documents that were never saved stay. A damaged document does not keep the
        others from being deleted; it is reported when they are.
        """
        number = _number(self.properties.of(form), delete.version, "deleting all data of a form")
        count = refused = 0
        damage: DamagedError | None = None
        refusal = ""
        for document in self.store.documents(form):
            address = DocumentAddress(form, Collection.DATA, document, DATA_XML)
            try:
                count += self._delete_one(address, number, delete)
            except DamagedError as error:
                damage = damage or error
            except ForbiddenError as error:
                refused, refusal = refused + 1, refusal or str(error)
        if damage is not None:
            raise damage
        return Cleared(count, refused, refusal)

    def _delete_one(self, address: DocumentAddress, number: int | None, delete: Delete) -> bool:
        """Delete a document that is there; raises as ``delete`` where the user may not."""
        if not self._is_to_go(address, self.store.sidecar(address), number):
            return False
        with self.store.writing(address) as writer:
            own = writer.current(address)
            if own is None or not self._is_to_go(address, own.sidecar, number):
                return False
            if own.sidecar.deleted:
                writer.discard_draft(address.form, address.document)
                return False
            self.access.to_delete(address, own.sidecar, delete.user)
            self._delete(writer, address, own, tombstone_of(own, delete.user))
            return True

    def _is_to_go(self, address: DocumentAddress, sidecar: Sidecar | None, number: int | None) -> bool:
        if sidecar is None or number not in (None, sidecar.version):
            return False
        return not sidecar.deleted or self._is_half_deleted(address, sidecar)

    def _is_half_deleted(self, address: DocumentAddress, sidecar: Sidecar) -> bool:
        """Whether a crash stopped a DELETE between tombstone and draft: the draft is older than the tombstone."""
        if not sidecar.deleted or address.is_draft or not address.is_main:
            return False
        draft = self.store.sidecar(address.moved(Collection.DRAFT))
        return draft is not None and draft.modified < sidecar.modified

    @staticmethod
    def _delete(writer: Writing, address: DocumentAddress, own: StoredRevision, tombstone: Sidecar) -> Sidecar:
        stored = writer.delete(address, tombstone, over=own)
        if address.is_main:
            writer.discard_draft(address.form, address.document)
        return stored

    def _may_read(self, user: User, address: DocumentAddress) -> bool:
        """Whether a user may read a resource of a document that is there."""
        main = self.store.sidecar(address.main)
        if main is None or main.deleted:
            return False
        try:
            self.access.to_read(address, main, user)
        except ForbiddenError:
            return False
        return True

    def _see(self, address: DocumentAddress, own: StoredRevision | None) -> _Seen:
        main = None if address.is_main else living(self.store.read(address.main, content=False))
        return _Seen(own, main)

    def admitted(self, address: DocumentAddress, asked: VersionRequest, data_format: str | None) -> int | None:
        """The version number a request names, after what can be refused without looking at the document."""
        configured = self.properties.of(address.form)
        if address.is_draft and not configured.has_drafts:
            name = f"{self.dialect.property_prefix}persistence.{configured.route.data.name}.autosave"
            raise ForbiddenError(f"drafts of {address.form} are switched off: the property {name} is false")
        check_data_format(data_format, configured.data_format)
        return _number(configured, asked, "form data")

    def admitted_to_write(self, address: DocumentAddress, put: Put) -> int | None:
        """The same of a PUT: the designer's data has one version only (spec crud 5.4)."""
        number = self.admitted(address, put.version, put.data_format)
        if number is not None and number != DESIGNER_VERSION and self.dialect.is_designer(address.form):
            raise VersionError(f"data of the designer has form definition version {DESIGNER_VERSION}, not {number}")
        return number

    def _check(self, address: DocumentAddress, put: Put, number: int | None, seen: _Seen) -> tuple[int, Operations]:
        """The version to store and what the user may do; refuses what does not fit what is stored (4.2, PUT 3 to 5)."""
        own = living(seen.own)
        may_read = partial(self._may_read, put.user, address)
        check_precondition(put.precondition, address, own, seen.main, may_read=may_read)
        for stored, where in ((own, address), (seen.main, address.main)):
            if stored is not None:
                versions.must_equal(number, stored.sidecar.version, where)
        is_settled = own is not None and (address.is_main or seen.main is not None)
        is_exempt = is_settled or number is not None or self._has_one_version(address.form)
        if self.dialect.requires_version and not is_exempt:
            raise VersionError(f"{address} is new: its form definition version must be sent")
        version = number or self._version_of(address, seen)
        self.require_published(address, version)
        document = own if address.is_main else seen.main
        if document is not None:
            return version, self.access.to_update(address, document.sidecar, put.user)
        return version, self.access.to_create(address, version, put.user)

    def require_published(self, address: DocumentAddress, version: int) -> None:
        """Refuse data of a version that was never published, where the property says so.

        A deleted version was published: its tombstone keeps its permissions, and what was begun can be saved. The
        designer's own form never is.

        Raises:
            NotFoundError: there is nothing of the version.
        """
        configured = self.properties.of(address.form)
        if not configured.needs_publication or self.dialect.is_designer(address.form):
            return
        if self.store.fingerprint(DefinitionAddress(address.form, version, FORM_XHTML)) == NOTHING_THERE:
            name = f"{self.dialect.property_prefix}persistence.{configured.route.data.name}.published-only"
            raise NotFoundError(
                f"version {version} of {address.form} was never published, and data is stored of published versions"
                f" only: the property {name} is true"
            )

    def _has_one_version(self, form: Form) -> bool:
        return self.dialect.is_designer(form) or not self.properties.of(form).has_versions

    def _version_of(self, address: DocumentAddress, seen: _Seen) -> int:
        """The version where a PUT names none: the stored one, else its document's, else that of a new document."""
        known = seen.own or seen.main
        return known.sidecar.version if known is not None else version_of_new(self.store, self.dialect, address)


def _asked(get: Get, read: Read) -> Read:
    """What a codec shows, without the content where only the headers were asked for."""
    if get.content or read.found.file is None:
        return read
    read.found.file.close()
    return replace(read, found=replace(read.found, file=None))


def _number(configured: FormProperties, asked: VersionRequest, what: str) -> int | None:
    number = versions.number_only(asked, what)
    if not configured.has_versions:
        versions.only_first(asked)
    return number


def version_of_new(store: Readable, dialect: Dialect, address: DocumentAddress) -> int:
    """The version of a new document that nobody names: that of the other collection, else the latest published, else 1.

    A document id is never used across versions (seed, rule 1), so the other collection knows the document's.
    """
    if dialect.is_designer(address.form):
        return DESIGNER_VERSION
    other = Collection.DATA if address.is_draft else Collection.DRAFT
    twin = store.sidecar(address.main.moved(other))
    if twin is not None and not twin.deleted:
        return twin.version
    return latest_version(store, address.form) or 1
