"""Judging what is stored by its record and the marks of definitions: bodies in other places, and values in contents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Protocol

from persistence.crypto.value_cipher import is_bound
from persistence.definitions.catalog import NOTHING_ENCRYPTED, Catalog
from persistence.errors import ConfigurationError, DamagedError, PersistenceError
from persistence.forms.controls import unusable_marks
from persistence.forms.encryption import EncryptionSurvey
from persistence.limits import CHUNK, LARGEST_TREE
from persistence.maintenance.tree_walk import Folder, History, readable
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.storage.attachments import BodiesReader
from persistence.storage.findings import Finding, FindingKind
from persistence.storage.storage import Storage
from persistence.storage.stored_revision import StoredRevision, digest_of_open


class BodyFinder(Protocol):
    """Bodies that are no files of this machine."""

    @property
    def root(self) -> str:
        """The place as it is shown."""

    def find(self, address: DocumentAddress, record: Sidecar, *, content: bool) -> StoredRevision | None:
        """Return the body of a record; see ``Bodies``."""


BodiesOf = Callable[[Form], BodiesReader | BodyFinder | None]
"""Returns the bodies of a form's attachments, if they have a place that is known."""


def body_faults(
    bodies_of: BodiesOf, folder: Folder, current: Mapping[str, Sidecar], history: History, *, deep: bool
) -> Iterator[Finding]:
    """Find fault with a document's bodies by its records; ``deep`` reads each and compares its digest."""
    for name, sidecar in current.items():
        older = ((revision.place, record) for revision, record in readable(history, name))
        for place, record in ((folder.paths(name), sidecar), *older):
            if record.body is not None and not record.deleted:
                with suppress(ConfigurationError):  # the form has no provider any more
                    bodies = bodies_of(folder.form)
                    fault = None if bodies is None else body_fault(bodies, folder.address(name), record, deep=deep)
                    if fault is not None:
                        yield fault[0].at(place.content, fault[1], place)


def body_fault(
    bodies: BodiesReader | BodyFinder, address: Address, record: Sidecar, *, deep: bool
) -> tuple[FindingKind, str] | None:
    """Find fault with the body of a record; ``deep`` reads it and compares its digest."""
    body, where = record.body, bodies.root
    if body is None or isinstance(address, DefinitionAddress):
        return None
    try:
        found = bodies.find(address, record, content=deep or isinstance(bodies, BodiesReader))
        if found is None:
            return FindingKind.BODY_MISSING, f"the body of {record.modified} is not in {where}"
        with closing(found):
            if found.size != body.size:
                return FindingKind.BODY_DAMAGED, f"its body has {found.size} bytes, and not {body.size}, in {where}"
            if (deep or found.is_edited) and digest_of_open(found.opened) != body.digest:
                return FindingKind.BODY_DAMAGED, f"the digest of its body is not {body.digest} in {where}"
    except DamagedError as error:
        return FindingKind.BODY_DAMAGED, f"{error} in {where}"
    except OSError as error:
        return FindingKind.UNREADABLE, f"its body in {where}: {error.strerror}"
    return None


_KINDS = {True: FindingKind.MARK_NOT_ENCRYPTING, False: FindingKind.MARK_NOT_INDEXING}


# Marks of definitions that have no effect, and what is stored in plain text although a definition marks it.
#
# Both are from before such definitions were refused, or from a definition that was published again with other marks.
# Encrypted values that were replaced or removed are found as far as that shows without a key.


@dataclass(frozen=True, slots=True)
class MarkCheck:
    """Judges contents by the marks of definitions, which ``catalog_of`` has; unreadable ones have other findings."""

    catalog_of: Callable[[Form], Catalog]

    def faults(
        self, address: Address, sidecar: Sidecar, file: BinaryIO, *, is_deep: bool
    ) -> list[tuple[FindingKind, str]]:
        """Find fault with the content of a main resource. Data is read if the check ``is_deep``."""
        with suppress(PersistenceError):
            if isinstance(address, DefinitionAddress):
                return [
                    (_KINDS[each.is_encryption], each.cause) for each in unusable_marks(file.read(LARGEST_TREE + 1))
                ]
            if is_deep:
                return self._values(address, sidecar, file)
        return []

    def _values(self, address: DocumentAddress, sidecar: Sidecar, file: BinaryIO) -> list[tuple[FindingKind, str]]:
        controls = self.catalog_of(address.form).of(address.form, sidecar.version).encrypted or NOTHING_ENCRYPTED
        if not controls.paths and not sidecar.encrypted:
            return []
        bound = 0

        def note(value: str) -> bool:
            nonlocal bound
            bound += is_bound(value)
            return True

        with EncryptionSurvey(controls.paths, controls.values, note, lambda _, labelled: labelled) as survey:
            found = survey.read(iter(partial(file.read, CHUNK), b""))
        faults = []
        if bound and found.seal is None:
            faults.append((FindingKind.ENCRYPTION_WRONG, f"of {sidecar.modified}: its encrypted values have no seal"))
        elif sidecar.encrypted and not (found.values or sidecar.adopted):
            what = f"of {sidecar.modified}: no value is encrypted, and its sidecar says that some are"
            faults.append((FindingKind.ENCRYPTION_WRONG, what))
        if count := found.plain + found.plain_files:
            what = f"of {sidecar.modified}: {count} plain where version {sidecar.version} marks controls as encrypted"
            faults.append((FindingKind.VALUE_PLAIN, what))
        return faults

    def of_storage(self, storage: Storage, *, is_deep: bool) -> Iterator[Finding]:
        """Yield the findings in a storage that has no files."""
        for form in storage.forms():
            for version in storage.versions(form):
                yield from self._of_resource(storage, DefinitionAddress(form, version, FORM_XHTML), is_deep=is_deep)
            for collection in Collection if is_deep else ():
                for document in storage.documents(form, collection):
                    address = DocumentAddress(form, collection, document, DATA_XML)
                    yield from self._of_resource(storage, address, is_deep=is_deep)

    def _of_resource(self, storage: Storage, address: Address, *, is_deep: bool) -> Iterator[Finding]:
        older: Sequence[Instant] = ()
        path = str(address)
        if isinstance(address, DefinitionAddress):
            path = f"{address.form}/form/{address.version}/{address.name}"
        else:
            older = storage.revisions(address)
        for instant in (None, *older):
            with suppress(PersistenceError):
                found = (
                    storage.read(address, content=True)
                    if instant is None
                    else storage.read_revision(address, instant, content=True)
                )
                if found is not None and found.file is not None:
                    with found.file as file:
                        for kind, what in self.faults(address, found.sidecar, file, is_deep=is_deep):
                            yield kind.at(path, what)
