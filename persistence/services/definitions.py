"""Published form definitions and their attachments, by version (spec crud 5)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum

import msgspec

from persistence.errors import BadRequestError, DeletedError, NotFoundError, NotSupportedError
from persistence.model import versions
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    LIBRARY_FORM,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.users import ANONYMOUS
from persistence.model.versions import HIGHEST_NAMED, V4_0_0, ForDocument, VersionRequest
from persistence.providers.provider import Route
from persistence.providers.router import Router
from persistence.services.receiving import marks_without_effect, receiving
from persistence.services.rules import (
    Delete,
    Get,
    Put,
    Read,
    Received,
    Removed,
    Written,
    check_precondition,
    living,
    must_live,
    next_revision,
    tombstone_over,
)
from persistence.storage.storage import Writing
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.uploads import Upload


class Replaces(Enum):
    """The part of a stored file that a publication replaces."""

    ANYTHING = "any content"
    OTHER_CONTENT = "other content"
    NOTHING = "nothing: it only fills a gap"


@dataclass(frozen=True, slots=True)
class Part:
    """One file to publish, received and not yet stored."""

    name: str
    put: Put
    upload: Upload
    received: Received
    replaces: Replaces = Replaces.ANYTHING


@dataclass(frozen=True, slots=True)
class Definitions:
    """Reading, publishing and deleting below ``form/``, without permissions (4.2).

    With ``refuses_marks`` a definition that has a mark without effect is refused.
    """

    router: Router
    refuses_marks: bool = False

    def read(self, form: Form, name: str, get: Get) -> Read:
        """Return one file of the version asked for, its content open if asked for."""
        route = self.router.of(form)
        asked = _asked(route, get.version)
        if asked.for_document is not None:
            version = _version_of_document(route, asked.for_document)
        else:
            version = versions.to_read(asked, _latest_if_needed(route, asked))
        address = DefinitionAddress(form, version, name)
        return Read(address, must_live(route.definition.storage.read(address, content=get.content), address), None)

    def write(self, form: Form, name: str, put: Put, chunks: Iterable[bytes]) -> Written:
        """Publish one file. All attachments of a publication with ``next`` come before its ``form.xhtml``."""
        route = self.router.of(form)
        storage = route.definition.storage
        version, _ = _to_publish(route, _asked(route, put.version))
        address = DefinitionAddress(form, version, name)
        check_precondition(put.precondition, address, living(storage.read(address, content=False)))
        with receiving(storage, address, put.content_type, chunks) as (upload, received):
            for mark in marks_without_effect(upload, received) if self.refuses_marks else ():
                raise BadRequestError(mark.cause)
            return self.publish(form, put.version, [Part(name, put, upload, received)])[0]

    def receiving(
        self, address: DefinitionAddress, content_type: str | None, chunks: Iterable[bytes]
    ) -> AbstractContextManager[tuple[Upload, Received]]:
        """Receive a file that will be published, for the length of a block."""
        return receiving(self.router.of(address.form).definition.storage, address, content_type, chunks)

    def publish(self, form: Form, asked: VersionRequest, parts: Iterable[Part]) -> list[Written]:
        """Store received files of one version while no other request publishes the form, then make its flat views.

        Where flat views cannot be made, the files are stored nevertheless (spec search 7.1).
        """
        parts = list(parts)
        route = self.router.of(form)
        wants_flat_views = _wants_flat_views(route, parts)
        with route.definition.storage.writing(DefinitionAddress(form, 1, FORM_XHTML)) as writer:
            version, is_replacement = _to_publish(route, _asked(route, asked))
            written = [
                _commit(
                    writer,
                    DefinitionAddress(form, version, part.name),
                    part,
                    is_replacement=is_replacement,
                    has_flat_views=wants_flat_views,
                )
                for part in parts
            ]
        if wants_flat_views and route.data.reports is not None:
            route.data.reports.create(form, version)
        return written

    def delete(self, form: Form, name: str, delete: Delete) -> Removed:
        """Leave a tombstone of one file; data made with the version, and its other files, stay (4.10)."""
        route = self.router.of(form)
        asked = _asked(route, delete.version)
        with route.definition.storage.writing(DefinitionAddress(form, 1, name)) as writer:
            version = versions.to_read(asked, _latest_if_needed(route, asked))
            address = DefinitionAddress(form, version, name)
            own = writer.current(address)
            self.required(own, address)
            check_precondition(delete.precondition, address, living(own))
            tombstone = writer.delete(address, tombstone_over(own, version, delete), over=own)
        if name == FORM_XHTML and route.data.reports is not None:
            route.data.reports.drop(form, version)
        return Removed(address, version, tombstone, None)

    def required(self, found: StoredRevision | None, address: DefinitionAddress) -> None:
        must_live(found, address)


def _wants_flat_views(route: Route, parts: Iterable[Part]) -> bool:
    """Return whether a publication will have flat views (spec search 7.1)."""
    form, properties = route.form, route.properties
    put = next((part.put for part in parts if part.name == FORM_XHTML), None)
    if put is None or form.name == LIBRARY_FORM or not (put.flat_view or properties.has_flat_views):
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


def _version_of_document(route: Route, asked: ForDocument) -> int:
    collection = Collection.DRAFT if asked.is_draft else Collection.DATA
    address = DocumentAddress(route.form, collection, asked.document, DATA_XML)
    sidecar = route.storage.sidecar(address)
    if sidecar is None or (sidecar.deleted and asked.is_draft):
        raise NotFoundError(f"{address} does not exist, so its form definition is not known")
    if sidecar.deleted:
        raise DeletedError(f"{address} was deleted")
    return sidecar.version


def _commit(
    writer: Writing, address: DefinitionAddress, part: Part, *, is_replacement: bool, has_flat_views: bool
) -> Written:
    own = writer.current(address)
    there = living(own)
    check_precondition(part.put.precondition, address, there)
    if there is not None:
        is_same = not there.is_edited and there.sidecar.digest == part.received.digest
        if part.replaces is Replaces.NOTHING or (part.replaces is Replaces.OTHER_CONTENT and is_same):
            return Written(address, there.sidecar, created=False, operations=None)
    # Definitions have a last modifier, but no owner (spec crud 4.4).
    sidecar = next_revision(part.put, part.received, address.version, over=own, owner=ANONYMOUS)
    if address.is_main:  # existing views stay, no matter what is published next
        had_flat_views = there is not None and there.sidecar.flat_view
        sidecar = msgspec.structs.replace(sidecar, flat_view=has_flat_views or had_flat_views)
    stored = writer.commit(address, sidecar, part.upload, over=own)
    return Written(address, stored, created=there is None and not is_replacement, operations=None)
