"""Publishing a form definition with its attachments in one request (spec crud 8.3)."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from persistence.dialect import Dialect
from persistence.errors import BadRequestError, BodyTooLargeError, BusyError, DeletedError, NotFoundError
from persistence.forms.publication import Announcement, PreparedDefinition, prepare, write_publication_answer
from persistence.limits import LARGEST_TREE, MOST_PUBLISHED_ATTACHMENTS
from persistence.model import versions
from persistence.model.addresses import (
    DATA_XML,
    DESIGNER_FORM,
    FORM_XHTML,
    LIBRARY_FORM,
    AttachmentRef,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.server_urls import RemoteTarget, ServerUrl
from persistence.model.texts import require_plain
from persistence.model.users import User
from persistence.model.versions import ABSENT, VersionRequest
from persistence.providers.publication_servers import PublicationServers
from persistence.services.definitions import Definitions, Part, Replaces
from persistence.services.documents import Documents
from persistence.services.receiving import XHTML
from persistence.services.rules import Get, Put, Read
from persistence.storage.uploads import OutgoingFile

_LONGEST_WAIT = 10.0


@dataclass(frozen=True, slots=True)
class Publication:
    """A request to publish, here or on another server (``target``).

    ``source`` is the id of an unpublished definition. Other fields are as in ``Announcement`` and ``Put``.
    """

    version: VersionRequest
    is_available: bool
    comment: str | None
    user: User
    source: str | None
    flat_view: bool = False
    lists_grids: bool = True
    target: RemoteTarget | None = None


@dataclass(frozen=True, slots=True)
class PublishedForm:
    """The version of a form that was published, and the XML of the answer."""

    form: Form
    version: int
    answer: bytes


class Publishing:
    """Publishes definitions, from the designer's storage or from a request.

    Everything is received first, and then stored under one lock, ``form.xhtml`` last: so a version is never seen
    without its attachments, and an interrupted publication is completed by publishing again.
    """

    def __init__(
        self, dialect: Dialect, documents: Documents, definitions: Definitions, servers: PublicationServers
    ) -> None:
        self._dialect = dialect
        self._documents = documents
        self._definitions = definitions
        self._servers = servers
        # One publication at a time: it has all attachments open, and the tree of its definition in memory.
        self._turn = threading.Lock()
        # Another server may be slow.
        self._remote_turn = threading.Lock()

    def server(self, url: str) -> ServerUrl:
        """Read the address of a server that may be published to."""
        return self._servers.require_allowed(url)

    def from_designer(self, document: str, publication: Publication) -> PublishedForm:
        """Publish an unpublished definition, which the user must be allowed to read."""
        designer = Form(self._dialect.designer_app, DESIGNER_FORM)
        address = DocumentAddress(designer, Collection.DATA, document, DATA_XML)
        read = self._documents.read(address, Get(user=publication.user))
        return self._publish(_whole(read.pieces(), read.found.size), publication)

    def from_body(self, chunks: Iterable[bytes], publication: Publication) -> PublishedForm:
        """Publish the definition of a request's body."""
        return self._publish(_whole(chunks, 0), publication)

    def _publish(self, data: bytes, publication: Publication) -> PublishedForm:
        announcement = Announcement(publication.is_available, publication.comment, publication.lists_grids)
        turn = self._turn if publication.target is None else self._remote_turn
        if not turn.acquire(timeout=_LONGEST_WAIT):
            raise BusyError("other definitions are being published")
        try:
            return self._publish_prepared(prepare(data, announcement, self._is_copied), publication)
        finally:
            turn.release()

    def _publish_prepared(self, prepared: PreparedDefinition, publication: Publication) -> PublishedForm:
        for name in (prepared.form.app, prepared.form.name, *(held.name for held in prepared.held)):
            require_plain(name)
        if len(prepared.held) > MOST_PUBLISHED_ATTACHMENTS:
            raise BadRequestError(f"the definition names more than {MOST_PUBLISHED_ATTACHMENTS} attachments")
        with ExitStack() as stack:
            parts = [
                part for held in prepared.held if (part := self._copy(stack, held, prepared, publication)) is not None
            ]
            put = Put(
                user=publication.user, content_type=XHTML, source=publication.source, flat_view=publication.flat_view
            )
            address = DefinitionAddress(prepared.form, 1, FORM_XHTML)
            upload, received = stack.enter_context(self._definitions.receiving(address, XHTML, [prepared.content]))
            main = Part(FORM_XHTML, put, upload, received)
            if publication.target is None:
                written = self._definitions.publish(prepared.form, publication.version, [*parts, main])
                version = written[-1].sidecar.version
            else:
                versions.to_publish(publication.version, None)
                with self._servers.publisher(
                    publication.target,
                    prepared.form,
                    user=publication.user.name,
                    source=publication.source,
                    flat_view=publication.flat_view,
                ) as publisher:
                    version = publisher.publish(publication.version, list(map(_outgoing, parts)), _outgoing(main))
        answer = write_publication_answer(prepared.form, version=version, attachments=len(parts))
        return PublishedForm(prepared.form, version, answer)

    def _is_copied(self, form: Form, held: AttachmentRef) -> bool:
        if held.collection is not None:
            return self._dialect.is_designer(held.form)
        return held.form.name == LIBRARY_FORM or held.form == form

    def _copy(
        self, stack: ExitStack, held: AttachmentRef, prepared: PreparedDefinition, publication: Publication
    ) -> Part | None:
        try:
            read = self._source(held, prepared, publication)
        except (NotFoundError, DeletedError) as error:
            if _is_own(held, prepared):
                return None  # it may have been stored for the version that is published
            raise NotFoundError(f"an attachment of the definition is missing: {error}") from error
        sidecar = read.found.sidecar
        put = Put(user=publication.user, content_type=sidecar.content_type, client_hash=sidecar.client_hash)
        address = DefinitionAddress(prepared.form, 1, held.name)
        receipt = self._definitions.receiving(address, sidecar.content_type, read.pieces())
        upload, received = stack.enter_context(receipt)
        replaces = Replaces.NOTHING if _is_own(held, prepared) else Replaces.OTHER_CONTENT
        return Part(held.name, put, upload, received, replaces)

    def _source(self, held: AttachmentRef, prepared: PreparedDefinition, publication: Publication) -> Read:
        user = publication.user
        if held.collection is not None:
            address = DocumentAddress(held.form, held.collection, held.document, held.name)
            return self._documents.read(address, Get(user=user))
        if held.form != prepared.form:
            # The name by which a definition gives the version of an application's library (spec forms 6.2).
            is_global = held.form.app in ("_", self._dialect.designer_app)
            version = prepared.libraries.get(held.form.app if is_global else "app")
        else:  # a version that goes to another server is the one of that number here
            version = None if publication.target is None else publication.version.number
        asked = VersionRequest(number=version) if version else ABSENT
        return self._definitions.read(held.form, held.name, Get(version=asked, user=user))


def _outgoing(part: Part) -> OutgoingFile:
    may_stay = part.replaces is Replaces.NOTHING
    return OutgoingFile(part.name, part.received.content_type, part.upload, part.put.client_hash, may_stay)


def _is_own(held: AttachmentRef, prepared: PreparedDefinition) -> bool:
    return held.collection is None and held.form == prepared.form


def _whole(pieces: Iterable[bytes], size: int) -> bytes:
    data = bytearray()
    for piece in pieces:
        data += piece
        if max(size, len(data)) > LARGEST_TREE:
            raise BodyTooLargeError(f"a definition of more than {LARGEST_TREE} bytes cannot be published this way")
    return bytes(data)
