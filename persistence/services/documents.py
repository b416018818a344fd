"""Form data, drafts and their attachments, with their leases: reading, writing and deleting (spec crud 4, 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from persistence import errors
from persistence.catalog import Catalog, Definition
from persistence.dialect import Dialect
from persistence.forms.messages import read_lock, write_lock
from persistence.model import versions
from persistence.model.addresses import DESIGNER_VERSION, Address, Collection, DocumentAddress, Form
from persistence.model.permissions import Bearer, Operations, User
from persistence.model.sidecar import Sidecar
from persistence.model.texts import Instant
from persistence.model.versions import LeaseHolder, Precondition, Tags, VersionRequest
from persistence.providers.router import Route, Router
from persistence.services import rules
from persistence.services.codec import AS_STORED, Codec, EncodedContent, ReceivedContent, receiving
from persistence.services.purging import forget_history
from persistence.storage.attachments import RevisionRewriter
from persistence.storage.commit import Upload
from persistence.storage.storage import NO_REVISIONS, Revisions, Storage, Writing
from persistence.storage.stored_revision import StoredRevision


def selected(route: Route, address: DocumentAddress, get: rules.Get, *, content: bool) -> StoredRevision:
    """Return the living revision that a GET selects, with ``content`` open."""
    if get.as_of is not None:
        return rules.must_live(as_of(route.storage, address, get.as_of, content=content), address)
    found = route.storage.read(address, get.instant, content=content)
    if found is None and get.instant is not None:
        raise errors.NotFoundError(f"{address} has no revision of {get.instant}")
    return rules.must_live(found, address)


def as_of(storage: Revisions, address: Address, moment: Instant, *, content: bool) -> StoredRevision:
    """Return the revision that was current at a moment, perhaps a tombstone."""
    found = storage.read(address, content=content)
    # Only the history of another service says since when something is deleted.
    if found is not None and not found.sidecar.deleted and found.sidecar.modified <= moment:
        return found
    if found is not None:
        found.close()
    revisions = storage.history(address) if address.keeps_history else NO_REVISIONS
    position = revisions.position_at(moment)
    if position < revisions.total:
        older = storage.read(address, revisions.instant(position), content=content)
        if older is not None:
            return older
    raise errors.NotFoundError(f"{address} did not exist at {moment}")


@dataclass(frozen=True, slots=True)
class DataRevision:
    """A living revision: the current one, or with an ``instant`` an older one."""

    address: DocumentAddress
    instant: Instant | None
    sidecar: Sidecar


def living_revisions(
    rewriter: RevisionRewriter, form: Form, document: str, problems: list[str]
) -> Iterator[DataRevision]:
    """Yield the living revisions of a document, its attachments and its draft; add what is damaged to ``problems``."""
    for collection in (Collection.DRAFT, Collection.DATA):
        main = DocumentAddress(form, collection, document)
        for name in rewriter.store.names(main):
            address, current = main.moved(collection, name), ""
            for instant in (None, *rewriter.store.revisions(address)):
                try:
                    if instant is not None and rewriter.store.is_older_name_of(address, instant, current):
                        continue  # it goes with the first name, when that is rewritten
                    record = rewriter.record(address, instant)
                except errors.DamagedError as error:
                    problems.append(str(error))
                    continue
                if record is not None and instant is None:
                    current = record.id
                if record is not None and not record.deleted:
                    yield DataRevision(address, instant, record)


def opened_revision(rewriter: RevisionRewriter, revision: DataRevision) -> StoredRevision | None:
    """Return a revision with its content open; ``None`` where it is not there any more."""
    found = rewriter.read(revision.address, revision.instant)
    if found is None or found.file is None:
        return None
    if found.sidecar.id != revision.sidecar.id:
        found.file.close()
        return None
    return found


# Leasing documents, and keeping others from writing to a leased one, where a property asks for that (spec crud 7).
#
# In the real system a lease does not restrict writers, and needs no permission. Where it does restrict them, the caller
# must be allowed to save the document.


@dataclass(frozen=True, slots=True)
class Leasing:
    """LOCK and UNLOCK."""

    router: Router
    dialect: Dialect
    access: rules.Access | None  # None behind a proxy, which has the permissions

    def lock(self, address: DocumentAddress, caller: Bearer, seconds: int, body: Iterable[bytes]) -> LeaseHolder:
        """Lease a document for a user, or renew the lease; return the user, whom the body names."""
        route = self._route(address)
        stored = self._admitted(route, address, caller, creates=True)
        holder = read_lock(body)
        is_by_form, is_stored = self._enforces(route), stored is not None
        route.data.storage.leases.lock(address, holder, seconds, is_stored=is_stored, is_by_form=is_by_form)
        return holder

    def unlock(self, address: DocumentAddress, caller: Bearer, body: Iterable[bytes]) -> LeaseHolder:
        """Give a lease back; do nothing without one."""
        route = self._route(address)
        self._admitted(route, address, caller, creates=False)
        holder = read_lock(body)
        route.data.storage.leases.unlock(address, holder, is_by_form=self._enforces(route))
        return holder

    def _admitted(self, route: Route, address: DocumentAddress, caller: Bearer, *, creates: bool) -> Sidecar | None:
        enforces = self._enforces(route)
        if route.data.storage.is_remote and not enforces:
            return None  # another service has both, and looks
        main = address.main.moved(Collection.DATA)
        found = (route.storage.sidecar(each) for each in (main, main.moved(Collection.DRAFT)))
        stored = next((each for each in found if each is not None and not each.deleted), None)
        if self.access is not None and enforces and (stored is not None or creates):
            newest = route.catalog.latest_version(address.form) or 1
            self.access.to_write(rules.subject_of(route, main, stored, newest), caller)
        return stored

    def _enforces(self, route: Route) -> bool:
        return self.access is not None and route.properties.enforces_leases

    def _route(self, address: DocumentAddress) -> Route:
        route = self.router.of(address.form)
        if not route.properties.has_leases:
            name = f"{self.dialect.property_prefix}persistence.{route.properties.route.data.name}.lease"
            raise errors.ForbiddenError(f"leases of {address.form} are switched off: the property {name} is false")
        return route


def holder_document(error: errors.LockedError) -> bytes:
    """Return the document that names the holder of a lease, for the others; empty where the holder is not known."""
    return b"" if error.user is None else write_lock(LeaseHolder(error.user, error.group))


def protecting(route: Route, address: DocumentAddress, user: User) -> AbstractContextManager[None]:
    """Keep everybody else from leasing a document for a block, in which it is changed; its lock is held."""
    if not route.properties.enforces_leases:
        return nullcontext()
    return route.data.storage.leases.protecting(address, user)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a PUT ``over`` what was stored then, the definition that decided, and the operations."""

    # ``number`` is the version that the PUT names. With ``is_only`` it must become the only document of its user.
    put: rules.Put
    number: int | None
    over: StoredRevision | None
    definition: Definition
    operations: Operations | None
    creates: bool
    is_only: bool


@dataclass(frozen=True, slots=True)
class PutRequest:
    """A PUT whose body was received as an upload; the decision was made before, and again under the lock."""

    route: Route
    address: DocumentAddress
    put: rules.Put
    decision: Decision
    encoded: EncodedContent
    upload: Upload
    received: rules.Received


@dataclass(frozen=True, slots=True)
class FactsChange:
    """Another ``owner`` or ``stage`` of documents; ``None`` keeps what they have. An empty stage is none."""

    # ``user`` makes the change.
    user: User
    owner: User | None = None
    stage: str | None = None

    def is_made(self, sidecar: Sidecar) -> bool:
        has_owner = self.owner is None or self.owner == sidecar.facts.owner
        return has_owner and (self.stage is None or (self.stage or None) == sidecar.stage)

    def require_possible(self, form: Form, storage: Storage) -> None:
        """Refuse another owner where another service has the data: it would keep the one before, and not say so."""
        if self.owner is not None and storage.is_remote:
            raise errors.NotSupportedError(f"the data of {form} is with another service, where no owner is changed")


class ChangedDocument(NamedTuple):
    """A document and what it was before; or with a ``cause``, one that could not be changed."""

    document: str
    before: Sidecar | None
    cause: str = ""


# Form data, drafts and their attachments: the designer's unpublished definitions are form data too.
#
# The order of the checks is the order of spec crud 4.2, because it decides which status wins. A PUT is decided twice:
# before its body is read, so that a client is refused early, and under the lock, where the answer counts.


@dataclass(frozen=True, slots=True)
class Documents:
    """Reading, writing and deleting below ``data/`` and ``draft/``."""

    # ``codec`` translates between answers to clients and stored content.
    router: Router
    dialect: Dialect
    access: rules.Access
    codec: Codec = AS_STORED

    def read(self, address: DocumentAddress, get: rules.Get) -> rules.Read:
        """Return a revision with its headers, and its content open if asked for, as the codec shows it."""
        route = self.router.of(address.form)
        number = self.admitted(route, address, get.version, get.data_format if get.content else None)
        found = selected(route, address, get, content=get.content or self.codec.needs_content(address, get))
        try:
            versions.must_equal(number, found.sidecar.version, address)
            main = found
            if not address.is_main:
                main = rules.must_live(route.storage.read(address.main, content=False), address.main)
                versions.must_equal(number, main.sidecar.version, address.main)
            subject = rules.subject_of(route, address, main.sidecar, 0)
            operations = self.access.allow(rules.READING, subject, get)
        except Exception:
            found.close()
            raise
        read = rules.Read(address, found, operations)
        if not address.is_main or found.is_edited or found.sidecar.encrypted is not False:  # noted when it was stored
            read = self.codec.decode(read, address, get)
        if not get.content:
            read.found.close()
            read = replace(read, found=replace(read.found, file=None))
        return read

    def write(self, address: DocumentAddress, put: rules.Put, chunks: Iterable[bytes]) -> rules.Written:
        """Store a revision. Saving a document removes its draft with its attachments (spec crud 4.11)."""
        route = self.router.of(address.form)
        with self.receiving(route, address, put, chunks) as request, route.storage.writing(address) as writer:
            prepared = self.prepared(writer, request)
            with protecting(route, address, put.user):
                return commit(writer, *prepared)

    @contextmanager
    def receiving(
        self, route: Route, address: DocumentAddress, put: rules.Put, chunks: Iterable[bytes]
    ) -> Iterator[PutRequest]:
        """Decide about a PUT, and receive its body, which is there for the length of a block. No lock is held."""
        decision = self.decided_early(route, address, put)
        definition = decision.definition
        may_read = partial(self.may_read, put, address)
        encoded = self.codec.encode(ReceivedContent(address, definition, decision.over, put.holder, may_read, chunks))
        checking = route.data.index.checking(route.indexed(definition)) if address.is_main else None
        receipt = receiving(route.storage, address, put.content_type, encoded.chunks, checking)
        with receipt as (upload, received):
            yield PutRequest(route, address, put, decision, encoded, upload, received)

    def prepared(self, writer: Writing, request: PutRequest) -> tuple[PutRequest, Sidecar]:
        """Decide again about what was received, under the lock, by what is stored now; return the sidecar to store."""
        over, decision, put = writer.current(request.address), request.decision, request.put
        before = decision.over
        # Other decisions are made again: they depend also on the clock (a token), or on another document or version.
        if (
            before is not None
            and over is not None
            and put.token is None
            and counts(request.address)
            and (before.etag, before.sidecar.id) == (over.etag, over.sidecar.id)
            and decision.definition.is_current()
        ):
            decision = replace(decision, over=over)
        else:
            decision = self.decided(request.route, request.address, put, decision.number, over)
        definition, put = decision.definition, decision.put
        sidecar = rules.next_revision(put, request.received, definition.version, over=over, owner=put.user)
        return replace(request, decision=decision), request.encoded.described(sidecar, over, definition)

    def change_each(
        self, form: Form, document: str | None, owned_by: str | None, change: FactsChange, *, is_trial: bool
    ) -> Iterator[ChangedDocument]:
        """Change a document, or all of a form that are ``owned_by`` a user and differ; a trial changes nothing."""
        storage = self.router.of(form).data.storage
        change.require_possible(form, storage)
        for each in (document,) if document is not None else storage.documents(form):
            address = DocumentAddress(form, Collection.DATA, each)
            try:
                found = storage.read(address, content=False)
                if document is None and (
                    found is None
                    or found.sidecar.deleted
                    or found.sidecar.creator != owned_by
                    or change.is_made(found.sidecar)
                ):
                    continue
                found = rules.must_live(found, address)
                if not is_trial:
                    self.change_facts(address, found.etag, change)
            except (errors.BusyError, errors.DamagedError, errors.LockedError, errors.PreconditionError) as error:
                yield ChangedDocument(each, None, str(error))
            except (
                errors.BadRequestError,
                errors.BodyTooLargeError,
                errors.DeletedError,
                errors.NotFoundError,
            ) as error:
                if document is not None:
                    raise
                yield ChangedDocument(each, None, str(error))  # what refuses one document does not keep back the others
            else:
                yield ChangedDocument(each, found.sidecar)

    def change_facts(self, address: DocumentAddress, tag: str, change: FactsChange) -> rules.Written:
        """Store the content of an entity tag again with another owner or stage, as a new revision without a draft."""
        route = self.router.of(address.form)
        change.require_possible(address.form, route.data.storage)
        found = rules.must_live(route.storage.read(address, content=True), address)
        with found.opened:
            sidecar = found.sidecar
            put = replace(
                rules.Put.of(sidecar, change.user),
                precondition=Precondition(expected=Tags(frozenset({tag})), must_exist=True),
                stage=sidecar.stage if change.stage is None else change.stage or None,
                origin=rules.Origin(sidecar.created, sidecar.facts.owner if change.owner is None else change.owner),
            )
            return self.write(address, put, rules.Read(address, found, None).pieces())

    def delete(self, address: DocumentAddress, delete: rules.Delete) -> rules.Removed:
        """Leave a tombstone; of a draft, nothing. Deleting a document removes its draft too (spec crud 4.10)."""
        route = self.router.of(address.form)
        number = self.admitted(route, address, delete.version, None)
        with route.storage.writing(address) as writer:
            own = writer.current(address)
            if own is not None and _is_half_deleted(route, address, own.sidecar):
                writer.discard_draft(address.form, address.document)
            decided, tombstone = self.decided_to_delete(route, address, delete, number, own)
            with protecting(route, address, delete.user):
                if not address.is_draft:
                    decided = replace(decided, tombstone=writer.delete(address, tombstone, over=own))
                    forget_history(route, writer, address)
                elif not address.is_main and own is not None:
                    writer.purge(address, tombstone, over=own)
                if address.is_main:
                    writer.discard_draft(address.form, address.document)
        return decided

    def discard_draft(self, form: Form, document: str, delete: rules.Delete) -> rules.Removed:  # noqa: ARG002 - others do it
        """Refuse: a draft is deleted by its ``data.xml``, and this path is one between services (spec crud 11)."""
        raise errors.BadAddressError(f"the draft {document} has no folder of its own: name a file in it")

    def delete_all(self, form: Form, delete: rules.Delete) -> rules.Cleared:
        """Delete all data of a form, or of one version of it, that the user may delete (spec crud 4.13)."""
        # Each document is deleted under its own lock; a damaged one is reported when the others are deleted. Access
        # tokens do not count here, and drafts of documents that were never saved stay.
        route = self.router.of(form)
        number = versions.number_only(delete.version, "deleting all data of a form")
        if not route.properties.has_versions:
            versions.only_first(delete.version)
        count = refused = 0
        damage: errors.DamagedError | None = None
        refusal = ""
        for document in route.data.storage.documents(form):
            address = DocumentAddress(form, Collection.DATA, document)
            try:
                count += self._delete_one(route, address, number, delete)
            except errors.DamagedError as error:
                damage = damage or error
            except (errors.ForbiddenError, errors.LockedError) as error:
                refused, refusal = refused + 1, refusal or str(error)
        if damage is not None:
            raise damage
        return rules.Cleared(count, refused, refusal)

    def _delete_one(self, route: Route, address: DocumentAddress, number: int | None, delete: rules.Delete) -> bool:
        if not _is_cleared(route, address, route.storage.sidecar(address), number):
            return False
        with route.storage.writing(address) as writer:
            own = writer.current(address)
            if own is None or not _is_cleared(route, address, own.sidecar, number):
                return False
            if own.sidecar.deleted:
                writer.discard_draft(address.form, address.document)
                return False
            self.access.to_delete(rules.subject_of(route, address, own.sidecar, 0), Bearer(delete.user))
            with protecting(route, address, delete.user):
                writer.delete(address, rules.tombstone_of(own, delete.user), over=own)
                forget_history(route, writer, address)
                writer.discard_draft(address.form, address.document)
            return True

    def may_read(self, asked: rules.Put | rules.Delete, own: DocumentAddress, address: DocumentAddress) -> bool:
        """Return whether the caller of a request for ``own``, whose token counts for that only, may read a resource."""
        token = asked.token if (own.form, own.document) == (address.form, address.document) else None
        route = self.router.of(address.form)
        main = route.storage.sidecar(address.main)
        if main is None or main.deleted:
            return False
        try:
            self.access.allow(rules.READING, rules.subject_of(route, address, main, 0), Bearer(asked.user, token))
        except errors.ForbiddenError:
            return False
        return True

    def admitted(
        self, route: Route, address: DocumentAddress, asked: VersionRequest, data_format: str | None
    ) -> int | None:
        """Return the version number a request names, after what can be refused without looking at the document."""
        configured = route.properties
        if address.is_draft and not configured.has_drafts:
            name = f"{self.dialect.property_prefix}persistence.{configured.route.data.name}.autosave"
            raise errors.ForbiddenError(f"drafts of {address.form} are switched off: the property {name} is false")
        stored = configured.data_format_name
        if data_format and data_format not in (rules.RAW, stored):  # spec crud 3.1
            if versions.is_data_format(data_format):
                raise errors.BadRequestError(f"form data is stored in format {stored}, not {data_format}")
            formats = ", ".join((*versions.DATA_FORMATS, rules.RAW))
            raise errors.BadRequestError(f"data-format-version must be one of {formats}, not {data_format!r}")
        number = versions.number_only(asked, "form data")
        if not configured.has_versions:
            versions.only_first(asked)
        return number

    def decided_early(self, route: Route, address: DocumentAddress, put: rules.Put) -> Decision:
        """Decide about a PUT without a lock. The designer's data has one version only (spec crud 5.4)."""
        number = self.admitted(route, address, put.version, put.data_format)
        if number not in (None, DESIGNER_VERSION) and address.form == self.dialect.designer:
            raise errors.VersionError(
                f"data of the designer has form definition version {DESIGNER_VERSION}, not {number}"
            )
        with route.data.storage.deciding(address):
            over = route.storage.read(address, content=False)
            decision = self.decided(route, address, put, number, over)
            if route.properties.enforces_leases:
                route.data.storage.leases.require(address, put.user)
        return decision

    def decided(
        self, route: Route, address: DocumentAddress, put: rules.Put, number: int | None, over: StoredRevision | None
    ) -> Decision:
        """Decide about a PUT by the stored revision (spec crud 4.2, PUT 3 to 5)."""
        own, main = self.checked(route, address, over, put, number)
        is_settled = own is not None and (address.is_main or main is not None)
        is_exempt = is_settled or number is not None or not route.properties.has_versions
        if self.dialect.requires_version and not (is_exempt or route.form == self.dialect.designer):
            raise errors.VersionError(f"{address} is new: its form definition version must be sent")
        known = over or main
        version = number or (
            version_of_new(route.storage, route.catalog, self.dialect, address)
            if known is None
            else known.sidecar.version
        )
        document = own if address.is_main else main
        subject = rules.subject_of(route, address, None if document is None else document.sidecar, version)
        definition = subject.definition
        if route.properties.needs_publication:
            if definition.version != version:
                definition = route.catalog.of(route.form, version)
            self.require_published(route, definition)
        operations = self.access.to_write(subject, put)
        if definition.version != version:  # read only for who has the permission
            definition = route.catalog.of(route.form, version)
        is_only = own is None and counts(address) and rules.is_singleton(definition.published, route.properties)
        return Decision(put, number, over, definition, operations, own is None, is_only)

    def decided_to_delete(
        self,
        route: Route,
        address: DocumentAddress,
        delete: rules.Delete,
        number: int | None,
        current: StoredRevision | None,
    ) -> tuple[rules.Removed, Sidecar]:
        """Decide about a DELETE by the stored revision (spec crud 4.2); return the tombstone for a history, too."""
        own = rules.must_live(current, address)
        main = None if address.is_main else route.storage.read(address.main, content=False)
        may_read = partial(self.may_read, delete, address, address)
        rules.check_precondition(delete.precondition, address, own, rules.living(main), may_read=may_read)
        versions.must_equal(number, own.sidecar.version, address)
        document = own if address.is_main else rules.must_live(main, address.main)
        subject = rules.subject_of(route, address, document.sidecar, 0)
        operations = self.access.to_delete(subject, delete)
        return rules.Removed(own.sidecar.version, None, operations), rules.tombstone_of(own, delete.user)

    def checked(
        self,
        route: Route,
        address: DocumentAddress,
        current: StoredRevision | None,
        asked: rules.Put | rules.Delete,
        number: int | None,
    ) -> tuple[StoredRevision | None, StoredRevision | None]:
        """Compare the stored revision with the precondition and the version of a request (spec crud 4.2, 4.6)."""
        # Return the living revision, and of an attachment its living ``data.xml``.
        own = rules.living(current)
        main = None if address.is_main else rules.living(route.storage.read(address.main, content=False))
        may_read = partial(self.may_read, asked, address, address)
        rules.check_precondition(asked.precondition, address, own, main, may_read=may_read)
        if own is not None:
            versions.must_equal(number, own.sidecar.version, address)
        if main is not None:
            versions.must_equal(number, main.sidecar.version, address.main)
        return own, main

    def require_published(self, route: Route, definition: Definition) -> None:
        """Refuse data of a version that was never published, where a property asks for that."""
        # A deleted version was published: users can save documents that they have begun.
        if definition.is_stored or route.form == self.dialect.designer:
            return
        name = f"{self.dialect.property_prefix}persistence.{route.properties.route.data.name}.published-only"
        raise errors.NotFoundError(
            f"version {definition.version} of {route.form} was never published, and data is stored of published"
            f" versions only: the property {name} is true"
        )


def counts(address: DocumentAddress) -> bool:
    """Return whether a document counts as the one of a singleton form: attachments and drafts do not (crud 16, D17)."""
    return address.is_main and not address.is_draft


def _is_cleared(route: Route, address: DocumentAddress, sidecar: Sidecar | None, number: int | None) -> bool:
    if sidecar is None or number not in (None, sidecar.version):
        return False
    return not sidecar.deleted or _is_half_deleted(route, address, sidecar)


def _is_half_deleted(route: Route, address: DocumentAddress, sidecar: Sidecar) -> bool:
    if not sidecar.deleted or address.is_draft or not address.is_main:
        return False
    draft = route.storage.sidecar(address.moved(Collection.DRAFT))
    return draft is not None and draft.modified < sidecar.modified


def commit(writer: Writing, request: PutRequest, sidecar: Sidecar) -> rules.Written:
    """Store what was decided about, while others are kept from leasing the document."""
    route, address, decision = request.route, request.address, request.decision
    alone: AbstractContextManager[None] = nullcontext()
    if decision.is_only:
        alone = rules.only_document(route, route.catalog.of(route.form, decision.definition.version), decision.put.user)
    with alone:
        sidecar = writer.commit(address, sidecar, request.upload, over=decision.over)
    if counts(address):
        writer.discard_draft(address.form, address.document)
    return rules.Written(address, sidecar, decision.creates, decision.operations)


def version_of_new(data: Revisions, definitions: Catalog, dialect: Dialect, address: DocumentAddress) -> int:
    """Return the version of a new document where none is named: the latest published one, else 1."""
    # A document id is never used across versions (seed, rule 1), so a draft has the version of its document.
    if address.form == dialect.designer:
        return DESIGNER_VERSION
    counterpart = data.sidecar(address.counterpart)
    if counterpart is not None and not counterpart.deleted:
        return counterpart.version
    return definitions.latest_version(address.form) or 1
