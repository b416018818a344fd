"""Published form definitions and their attachments, by version (spec crud 5)."""

from __future__ import annotations

from collections.abc import Iterable

from persistence.errors import DeletedError, NotFoundError
from persistence.model import versions
from persistence.model.addresses import DATA_XML, FORM_XHTML, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.users import ANONYMOUS
from persistence.model.versions import ForDocument, VersionRequest
from persistence.service.receiving import receiving
from persistence.service.requests import Delete, Get, Put
from persistence.service.results import Read, Removed, Written
from persistence.service.rules import check_precondition, grave_of, living, must_live, next_revision
from persistence.store.store import Store


def latest_version(store: Store, form: Form) -> int | None:
    """The highest version whose ``form.xhtml`` is published and not deleted; ``None`` where there is none."""
    for version in store.versions(form):
        sidecar = store.sidecar(DefinitionAddress(form, version, FORM_XHTML))
        if sidecar is not None and not sidecar.deleted:
            return version
    return None


class Definitions:
    """Reading, publishing and deleting below ``form/``. Methods raise the domain errors of ``persistence.errors``.

    There are no permissions and no operations here: these paths are meant to be protected as a service (4.2).
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, form: Form, name: str, get: Get) -> Read:
        """One file of the version asked for, its content open if asked for."""
        if get.version.for_document is not None:
            version = self._version_of(form, get.version.for_document)
        else:
            version = versions.to_read(get.version, self._latest_if_needed(form, get.version))
        address = DefinitionAddress(form, version, name)
        return Read(address, must_live(self._store.read(address, content=get.content), address), None)

    def write(self, form: Form, name: str, put: Put, chunks: Iterable[bytes]) -> Written:
        """Publish one file. All attachments of a publication with ``next`` come before its ``form.xhtml``."""
        address, _ = self._to_publish(form, name, put.version)
        check_precondition(put.precondition, address, living(self._store.read(address, content=False)))
        receipt = receiving(self._store, address, put.content_type, chunks)
        with receipt as (upload, received), self._store.writing(address) as writer:
            # Another publisher may have taken the number meanwhile.
            address, replaces = self._to_publish(form, name, put.version)
            own = writer.current(address)
            check_precondition(put.precondition, address, living(own))
            # Definitions have a last modifier, but no owner (spec crud 4.4).
            sidecar = next_revision(put, received, address.version, over=own, owner=ANONYMOUS)
            writer.commit(address, sidecar, upload, over=own)
        return Written(address, sidecar, living(own) is None and not replaces, None)

    def delete(self, form: Form, name: str, delete: Delete) -> Removed:
        """Leave a tombstone of one file; data made with the version, and its other files, stay (4.10)."""
        asked = delete.version
        with self._store.writing(DefinitionAddress(form, 1, name)) as writer:
            version = versions.to_read(asked, self._latest_if_needed(form, asked))
            address = DefinitionAddress(form, version, name)
            own = must_live(writer.current(address), address)
            check_precondition(delete.precondition, address, own)
            grave = grave_of(own, delete.user)
            writer.bury(address, grave, over=own)
        return Removed(address, version, grave, None)

    def _to_publish(self, form: Form, name: str, asked: VersionRequest) -> tuple[DefinitionAddress, bool]:
        """The address a PUT means, and whether it counts as a replacement whatever the file (5.1, last points)."""
        latest = self._latest_if_needed(form, asked)
        address = DefinitionAddress(form, versions.to_publish(asked, latest), name)
        return address, latest is not None and not asked.wants_next

    def _latest_if_needed(self, form: Form, asked: VersionRequest) -> int | None:
        return None if asked.number is not None else latest_version(self._store, form)

    def _version_of(self, form: Form, asked: ForDocument) -> int:
        collection = Collection.DRAFT if asked.is_draft else Collection.DATA
        address = DocumentAddress(form, collection, asked.document, DATA_XML)
        sidecar = self._store.sidecar(address)
        if sidecar is None or (sidecar.deleted and asked.is_draft):
            raise NotFoundError(f"{address} does not exist, so its form definition is not known")
        if sidecar.deleted:
            raise DeletedError(f"{address} was deleted")
        return sidecar.version
