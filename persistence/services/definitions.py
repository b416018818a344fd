"""Published form definitions and their attachments, by version, and their publication (spec crud 5, 8.3)."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

import msgspec

from persistence.closable import taking
from persistence.dialect import Dialect
from persistence.errors import (
    BadRequestError,
    BodyTooLargeError,
    BusyError,
    DeletedError,
    NotFoundError,
    NotSupportedError,
)
from persistence.forms.definition_metadata import Announcement, PreparedDefinition, prepare, write_publication_answer
from persistence.limits import LARGEST_TREE, MOST_PUBLISHED_ATTACHMENTS
from persistence.model import versions
from persistence.model.addresses import (
    FORM_XHTML,
    LIBRARY_FORM,
    AttachmentRef,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.network_addresses import RemoteTarget
from persistence.model.permissions import ANONYMOUS, User
from persistence.model.texts import require_plain
from persistence.model.versions import ABSENT, HIGHEST_NAMED, V4_0_0, VersionRequest
from persistence.providers.opened import PublicationServers
from persistence.providers.router import Route, Router
from persistence.services import rules
from persistence.services.codec import XHTML, marks_without_effect, receiving
from persistence.services.documents import Documents
from persistence.storage.commit import OutgoingFile, Upload


class Replaces(Enum):
    """The part of a stored file that a publication replaces."""

    ANYTHING = "any content"
    OTHER_CONTENT = "other content"
    NOTHING = "nothing: it only fills a gap"


@dataclass(frozen=True, slots=True)
class Part:
    """One file to publish, received and not yet stored."""

    name: str
    put: rules.Put
    upload: Upload
    received: rules.Received
    replaces: Replaces = Replaces.ANYTHING


@dataclass(frozen=True, slots=True)
class Definitions:
    """Reading, publishing and deleting below ``form/``, without permissions (4.2)."""

    # With ``refuses_marks`` a definition that has a mark without effect is refused. A proxy names a version always, and
    # looks for the file before it deletes or replaces it (spec crud 2 and 11).
    router: Router
    refuses_marks: bool = False
    is_behind_proxy: bool = False

    def read(self, form: Form, name: str, get: rules.Get) -> rules.Read:
        route = self._route(form, get.version)
        asked = _asked(route, get.version)
        if (of := asked.for_document) is None:
            version = versions.to_read(asked, _latest_if_needed(route, asked))
        else:
            collection = Collection.DRAFT if of.is_draft else Collection.DATA
            document = DocumentAddress(form, collection, of.document)
            sidecar = route.storage.sidecar(document)
            if sidecar is None or (sidecar.deleted and of.is_draft):
                raise NotFoundError(f"{document} does not exist, so its form definition is not known")
            if sidecar.deleted:
                raise DeletedError(f"{document} was deleted")
            version = sidecar.version
        address = DefinitionAddress(form, version, name)
        return rules.Read(
            address, rules.must_live(route.definition.storage.read(address, content=get.content), address), None
        )

    def write(self, form: Form, name: str, put: rules.Put, chunks: Iterable[bytes]) -> rules.Written:
        """Publish one file. All attachments of a publication with ``next`` come before its ``form.xhtml``."""
        route, put = self._route(form, put.version), _unowned(put)
        storage = route.definition.storage
        version, _ = _to_publish(route, _asked(route, put.version))
        address = DefinitionAddress(form, version, name)
        rules.check_precondition(put.precondition, address, rules.living(storage.read(address, content=False)))
        with receiving(storage, address, put.content_type, chunks) as (upload, received):
            for mark in marks_without_effect(upload, received) if self.refuses_marks else ():
                raise BadRequestError(mark.cause)
            return self.publish(form, put.version, [Part(name, put, upload, received)])[0]

    def receiving(
        self, address: DefinitionAddress, content_type: str | None, chunks: Iterable[bytes]
    ) -> AbstractContextManager[tuple[Upload, rules.Received]]:
        return receiving(self.router.of(address.form).definition.storage, address, content_type, chunks)

    def publish(self, form: Form, asked: VersionRequest, parts: Iterable[Part]) -> list[rules.Written]:
        """Store received files of one version while no other request publishes the form, then make its flat views."""
        # Where flat views cannot be made, the files are stored nevertheless (spec search 7.1).
        parts = list(parts)
        route = self.router.of(form)
        put = next((part.put for part in parts if part.name == FORM_XHTML), None)
        has_flat_views = put is not None and wants_flat_views(route, is_asked=put.flat_view)
        written = list[rules.Written]()
        with route.definition.storage.writing(DefinitionAddress(form, 1)) as writer:
            version, is_replacement = _to_publish(route, _asked(route, asked))
            for part in parts:
                address = DefinitionAddress(form, version, part.name)
                own = writer.current(address)
                there = rules.living(own)
                rules.check_precondition(part.put.precondition, address, there)
                if there is not None:
                    is_same = not there.is_edited and there.sidecar.digest == part.received.digest
                    if part.replaces is Replaces.NOTHING or (part.replaces is Replaces.OTHER_CONTENT and is_same):
                        written.append(rules.Written(address, there.sidecar, created=False, operations=None))
                        continue
                # Definitions have a last modifier, but no owner (spec crud 4.4).
                sidecar = rules.next_revision(part.put, part.received, version, over=own, owner=ANONYMOUS)
                if address.is_main:  # existing views stay, no matter what is published next
                    had_flat_views = there is not None and there.sidecar.flat_view
                    sidecar = msgspec.structs.replace(sidecar, flat_view=has_flat_views or had_flat_views)
                sidecar = writer.commit(address, sidecar, part.upload, over=own)
                is_created = there is None and not is_replacement and part.put.origin is None
                written.append(rules.Written(address, sidecar, is_created, operations=None))
        if has_flat_views and route.data.reports is not None:
            route.data.reports.create(form, version)
        return written

    def delete(self, form: Form, name: str, delete: rules.Delete) -> rules.Removed:
        """Leave a tombstone of one file; data made with the version, and its other files, stay (4.10)."""
        route, delete = self._route(form, delete.version), _unowned(delete)
        asked = _asked(route, delete.version)
        with route.definition.storage.writing(DefinitionAddress(form, 1, name)) as writer:
            version = versions.to_read(asked, _latest_if_needed(route, asked))
            address = DefinitionAddress(form, version, name)
            own = writer.current(address)
            if not self.is_behind_proxy:
                rules.must_live(own, address)
            rules.check_precondition(delete.precondition, address, rules.living(own))
            tombstone = writer.delete(address, rules.tombstone_over(own, version, delete), over=own)
        if name == FORM_XHTML and route.data.reports is not None:
            route.data.reports.drop(form, version)
        return rules.Removed(version, tombstone, None)

    def _route(self, form: Form, asked: VersionRequest) -> Route:
        if self.is_behind_proxy:
            versions.must_be_sent(asked.number, form)
        return self.router.of(form)


_Asked = TypeVar("_Asked", rules.Put, rules.Delete)


def _unowned(asked: _Asked) -> _Asked:
    """Return a request without the owner that a proxy has found: definitions have none (spec crud 4.4)."""
    return asked if asked.origin is None else replace(asked, origin=replace(asked.origin, owner=ANONYMOUS))


def wants_flat_views(route: Route, *, is_asked: bool) -> bool:
    """Return whether a definition will have flat views (spec search 7.1); refuse those that it cannot have."""
    form, properties = route.form, route.properties
    if form.name == LIBRARY_FORM or not (is_asked or properties.has_flat_views):
        return False
    is_apart = route.definition is not route.data  # trees of this service have no address
    if is_apart and properties.route.definition.uri != properties.route.data.uri:
        raise NotSupportedError(f"flat views of {form} need its definition where its data is: publish the form there")
    if properties.data_format != V4_0_0:
        raise NotSupportedError(
            f"flat views need data in format {V4_0_0}, and that of {form} is in {properties.data_format}"
        )
    return True


def _to_publish(route: Route, asked: VersionRequest) -> tuple[int, bool]:
    if asked.number is not None and asked.number > HIGHEST_NAMED:
        versions.must_leave_room(asked.number, route.catalog.latest_version(route.form))
    latest = _latest_if_needed(route, asked)
    return versions.to_publish(asked, latest), latest is not None and not asked.wants_next


def _asked(route: Route, version: VersionRequest) -> VersionRequest:
    return version if route.properties.has_versions else versions.only_first(version)


def _latest_if_needed(route: Route, asked: VersionRequest) -> int | None:
    return None if asked.number is not None else route.catalog.latest_version(route.form)


@dataclass(frozen=True, slots=True)
class Publication:
    """A request to publish, here or on another server (``target``)."""

    # ``source`` is the id of an unpublished definition. Other fields are as in ``Announcement`` and ``Put``.
    version: VersionRequest
    is_available: bool
    comment: str | None
    user: User
    source: str | None
    flat_view: bool = False
    lists_grids: bool = True
    target: RemoteTarget | None = None


PublishedForm = tuple[Form, int, bytes]  # The version of a form that was published, and the XML of the answer


@dataclass(frozen=True, slots=True)
class Publishing:
    """Publishes definitions, from the designer's storage or from a request."""

    # Everything is received first, and then stored under one lock, ``form.xhtml`` last: so a version is never seen
    # without its attachments, and an interrupted publication is completed by publishing again.
    dialect: Dialect
    documents: Documents
    definitions: Definitions
    servers: PublicationServers
    # One publication at a time: it has all attachments open, and the tree of its definition in memory.
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False)
    # Another server may be slow.
    _remote_turn: threading.Lock = field(default_factory=threading.Lock, init=False)

    def from_designer(self, document: str, publication: Publication) -> PublishedForm:
        """Publish an unpublished definition, which the user must be allowed to read."""
        designer = self.dialect.designer
        address = DocumentAddress(designer, Collection.DATA, document)
        read = self.documents.read(address, rules.Get(user=publication.user))
        return self._publish(_whole(read.pieces(), read.found.size), publication)

    def from_body(self, chunks: Iterable[bytes], publication: Publication) -> PublishedForm:
        return self._publish(_whole(chunks, 0), publication)

    def _publish(self, data: bytes, publication: Publication) -> PublishedForm:
        announcement = Announcement(publication.is_available, publication.comment, publication.lists_grids)
        turn = self._turn if publication.target is None else self._remote_turn
        with ExitStack() as stack:
            busy = BusyError("other definitions are being published")
            stack.enter_context(taking(turn, busy, timeout=10.0))
            prepared = prepare(data, announcement, self._is_copied)
            for name in (prepared.form.app, prepared.form.name, *(held.name for held in prepared.held)):
                require_plain(name)
            if len(prepared.held) > MOST_PUBLISHED_ATTACHMENTS:
                raise BadRequestError(f"the definition names more than {MOST_PUBLISHED_ATTACHMENTS} attachments")
            parts = [
                part for held in prepared.held if (part := self._copy(stack, held, prepared, publication)) is not None
            ]
            put = rules.Put(
                user=publication.user, content_type=XHTML, source=publication.source, flat_view=publication.flat_view
            )
            address = DefinitionAddress(prepared.form, 1)
            upload, received = stack.enter_context(self.definitions.receiving(address, XHTML, [prepared.content]))
            main = Part(FORM_XHTML, put, upload, received)
            if publication.target is None:
                written = self.definitions.publish(prepared.form, publication.version, [*parts, main])
                version = written[-1].sidecar.version
            else:
                versions.to_publish(publication.version, None)
                with self.servers.publisher(
                    publication.target,
                    prepared.form,
                    user=publication.user.name,
                    source=publication.source,
                    flat_view=publication.flat_view,
                ) as publisher:
                    version = publisher.publish(publication.version, list(map(_outgoing, parts)), _outgoing(main))
            answer = write_publication_answer(prepared.form, version=version, attachments=len(parts))
        return prepared.form, version, answer

    def _is_copied(self, form: Form, held: AttachmentRef) -> bool:
        if held.collection is not None:
            return held.form == self.dialect.designer
        return held.form.name == LIBRARY_FORM or held.form == form

    def _copy(
        self, stack: ExitStack, held: AttachmentRef, prepared: PreparedDefinition, publication: Publication
    ) -> Part | None:
        is_own, user = held.collection is None and held.form == prepared.form, publication.user
        try:
            if held.collection is not None:
                document = DocumentAddress(held.form, held.collection, held.document, held.name)
                read = self.documents.read(document, rules.Get(user=user))
            else:
                if is_own:  # a version that goes to another server is the one of that number here
                    version = None if publication.target is None else publication.version.number
                else:  # the name by which a definition gives the version of an application's library (spec forms 6.2)
                    is_global = held.form.app in ("_", self.dialect.designer.app)
                    version = prepared.libraries.get(held.form.app if is_global else "app")
                asked = VersionRequest(number=version) if version else ABSENT
                read = self.definitions.read(held.form, held.name, rules.Get(version=asked, user=user))
        except (NotFoundError, DeletedError) as error:
            if is_own:
                return None  # it may have been stored for the version that is published
            raise NotFoundError(f"an attachment of the definition is missing: {error}") from error
        sidecar = read.found.sidecar
        put = rules.Put(user=user, content_type=sidecar.content_type, client_hash=sidecar.client_hash)
        address = DefinitionAddress(prepared.form, 1, held.name)
        receipt = self.definitions.receiving(address, sidecar.content_type, read.pieces())
        upload, received = stack.enter_context(receipt)
        return Part(held.name, put, upload, received, Replaces.NOTHING if is_own else Replaces.OTHER_CONTENT)


def _outgoing(part: Part) -> OutgoingFile:
    may_stay = part.replaces is Replaces.NOTHING
    return OutgoingFile(part.name, part.received.content_type, part.upload, part.put.client_hash, may_stay)


def _whole(pieces: Iterable[bytes], size: int) -> bytes:
    data = bytearray()
    for piece in pieces:
        data += piece
        if max(size, len(data)) > LARGEST_TREE:
            raise BodyTooLargeError(f"a definition of more than {LARGEST_TREE} bytes cannot be published this way")
    return bytes(data)
