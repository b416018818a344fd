"""All that is known of one document or draft, but for its content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from persistence.errors import BadRequestError, DamagedError, DiskError, NotFoundError, disk_errors
from persistence.maintenance import listing
from persistence.maintenance.sight import Attachment, Faulty, Sight
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress
from persistence.model.sidecar import Sidecar
from persistence.services.attachments import holders_in
from persistence.storage import stored_revision
from persistence.storage.stored_revision import StoredRevision


@dataclass(frozen=True, slots=True)
class Record:
    """A document or a draft.

    ``sidecar`` is that of its current revision, a tombstone too, and ``None`` where only attachments were stored;
    ``size``, in bytes, is that of the content as it is. ``other`` is the newest revision of the same document in the
    other collection. ``named`` has the names of the attachments that the data speaks of, and is ``None`` where there is
    no data to ask. ``revisions`` are the older ones, newest first. ``path`` is that of the file.
    """

    address: DocumentAddress
    sidecar: Sidecar | None
    size: int
    is_edited: bool
    other: Sidecar | Faulty | None
    attachments: tuple[Attachment | Faulty, ...]
    named: frozenset[str] | Faulty | None
    revisions: tuple[Sidecar | Faulty, ...]
    path: str

    @property
    def is_damaged(self) -> bool:
        """Whether anything of it cannot be read."""
        parts = (self.other, self.named, *self.attachments, *self.revisions)
        return any(isinstance(each, Faulty) for each in parts)


def record(sight: Sight, address: DocumentAddress) -> Record:
    """The document or draft of an address, which is that of its ``data.xml``.

    Raises:
        NotFoundError: nothing of it was ever stored, or it is a draft that is gone.
        BadAddressError: a name cannot be a file name.
        DamagedError: it cannot be read.
    """
    found, named = _current(sight, address)
    attachments = tuple(sight.attachments(address))
    if found is None and not attachments:
        raise NotFoundError(f"{address.form}/{address.collection.value}/{address.document} does not exist")
    return Record(
        address,
        sidecar=None if found is None else found.sidecar,
        size=0 if found is None else found.size,
        is_edited=found is not None and found.is_edited,
        other=_other(sight, address),
        attachments=attachments,
        named=named,
        revisions=tuple(_revisions(sight, address, found)),
        path=sight.layout.place(address).content,
    )


def _current(sight: Sight, address: DocumentAddress) -> tuple[StoredRevision | None, frozenset[str] | Faulty | None]:
    """Find the current revision, and the attachments that it names.

    Where its content is damaged, its sidecar still says what is known of it.
    """
    try:
        found = sight.store.read(address, content=True)
    except DamagedError as error:
        sidecar = sight.store.sidecar(address)
        found = None if sidecar is None else StoredRevision(sidecar, sidecar.etag, sidecar.size)
        return found, Faulty(DATA_XML, str(error))
    return found, None if found is None or found.file is None else _named(address, found.file)


def _named(address: DocumentAddress, file: BinaryIO) -> frozenset[str] | Faulty:
    try:
        return frozenset(holder.held.name for holder in holders_in(address, file))
    except (BadRequestError, DamagedError, DiskError) as error:
        return Faulty(DATA_XML, str(error))


def _other(sight: Sight, address: DocumentAddress) -> Sidecar | Faulty | None:
    other = address.moved(Collection.DATA if address.is_draft else Collection.DRAFT)
    try:
        return sight.store.sidecar(other)
    except (DamagedError, DiskError) as error:
        return Faulty(other.collection.value, str(error))


def _revisions(sight: Sight, address: DocumentAddress, current: StoredRevision | None) -> Iterator[Sidecar | Faulty]:
    """Without a second name of the current revision, which a refused write may have left."""
    place = sight.layout.place(address)
    with disk_errors(f"listing the older revisions of {address}"):
        revisions = listing.history(place.directory).of(place.name)
    for revision in revisions:
        try:
            with disk_errors(f"reading the revision {revision.instant} of {address}"):
                sidecar = stored_revision.read_sidecar(revision.place)
        except (DamagedError, DiskError) as error:
            yield Faulty(revision.instant, str(error))
            continue
        if sidecar is not None and (current is None or sidecar.id != current.sidecar.id):
            yield sidecar
