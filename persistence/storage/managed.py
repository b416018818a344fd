"""A storage whose revisions are managed by this service itself: purged, erased, moved, and rewritten in place.

A file tree and a database are. Another service manages its own, and is a ``Storage`` only. Commands move, back up and
check a database by what is at the end; a tree they maintain by its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from persistence.errors import DamagedError
from persistence.model.addresses import Address, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.leases import DocumentLease
from persistence.model.object_places import Bucket
from persistence.model.sidecar import Sidecar
from persistence.storage.marks import StateMarks
from persistence.storage.storage import Arrivals, Bodies, BodyChanges, Leases, Storage, Writing
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.uploads import Upload

RecordOf = Callable[[DocumentAddress, Instant | None], Sidecar | None]
"""Returns the stored record of an attachment: its current revision, or with an instant an older one."""


@dataclass(frozen=True, slots=True)
class TracedFile:
    """A file of a document: its path below the root, its size in bytes and its digest."""

    path: str
    size: int
    digest: str


class Traces(Protocol):
    """Everything of one document, its drafts and its history, wherever it is. Methods raise ``OSError``."""

    def listed(self) -> Iterator[TracedFile]:
        """Yield all files, each once."""

    def links(self) -> Iterator[str]:
        """Yield other names of these files, which cannot be found any more when the files are gone."""

    def remove(self, links: list[str]) -> None:
        """Remove what is left when the document and its draft are discarded, and the ``links``; its lock is held."""


class ManagedWriting(Writing, Protocol):
    """Changes while the lock of one scope is held, also of what is no change for clients."""

    def finish(self, main: DocumentAddress) -> None:
        """Finish or discard interrupted writes of a document, its attachments and its older revisions."""

    def rewrite(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> bool:
        """Store another content as the same revision: the current one, or with an ``instant`` an older one.

        ``over`` is the revision before, which is not kept; ``rewritten`` has the upload's id and the revision's entity
        tag. ``False`` where the revision is not there any more, or not as it was: saved over, or edited by hand.
        """


class ManagedLeases(Leases, Protocol):
    """Leases that an administrator may look at and break."""

    def listed(self) -> Iterator[DocumentLease | DamagedError]:
        """Yield every lease, expired ones too, and the damage of one that cannot be read."""

    def broken(self, document: str, user: str | None = None) -> DocumentLease:
        """End the lease of a document, whoever holds it, or that of a ``user``, and return it.

        Raises:
            NotFoundError: there is none, or it has expired.
            PreconditionError: somebody else than the user holds it.
        """


class JobRecord(Protocol):
    """The turn of whoever does one kind of long work in a storage, and a text on how far it is, for every process."""

    def turn(self, refusal: str, timeout: float, is_ending: Callable[[], bool]) -> AbstractContextManager[None]:
        """Wait until nobody else has the turn, and have it for a block; ``timeout`` is in seconds.

        Raises:
            BusyError: ``refusal``: it took longer, or the waiting process ``is_ending``.
        """

    def is_taken(self) -> bool:
        """Return whether somebody has the turn."""

    def read(self) -> bytes:
        """Return the text; empty where there is none."""

    def write(self, text: bytes) -> None:
        """Replace the text."""


class ManagedStorage(Storage, StateMarks, Protocol):
    """A storage with what purging, erasing, re-encryption and moving need.

    ``leases`` are those of its documents. ``reencryption`` is the record of the re-encryption of forms.
    """

    @property
    def leases(self) -> ManagedLeases:
        """The leases of its documents."""

    @property
    def reencryption(self) -> JobRecord:
        """The record of the re-encryption of forms, one after the other."""

    def writing(self, address: Address) -> AbstractContextManager[ManagedWriting]:
        """See ``RevisionStorage``."""

    def documents_and_drafts(self, form: Form) -> Iterator[str]:
        """Yield the ids of the documents of a form, and of the drafts of documents that were never saved."""

    def revisions(self, address: Address) -> list[Instant]:
        """Return the instants of the older revisions of a resource, newest first."""

    def read_older(self, address: Address, instant: Instant, *, content: bool) -> StoredRevision | None:
        """The older revision of an instant, also where the current one is of the same; ``None`` where there is none."""

    def is_older_name_of(self, address: Address, instant: Instant, content_id: str) -> bool:
        """Return whether the older revision of an instant is a second name of the revision with an id."""

    def freed(self, address: Address, instant: Instant | None) -> int:
        """Return the bytes that the removal of a revision frees: the current one, or that of an instant."""

    def freed_by_folder(self, main: DocumentAddress) -> int:
        """Return the bytes that the removal of a document in a collection frees, with all that belongs to it there."""

    def has_unfinished(self, main: DocumentAddress) -> bool:
        """Return whether writes of a document are under way, or a crash has left something of one."""

    def traces(self, form: Form, document: str) -> Traces:
        """Return everything of a document, for erasing it."""


class ManagedChanges(BodyChanges, Protocol):
    """Changes of bodies of attachments whose records are in a managed storage."""

    def replacing(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> AbstractContextManager[None]:
        """Have another body of the same revision durable before the block; the one before goes when it is committed.

        It is the current revision, or with an ``instant`` an older one.
        """


class ManagedBodies(Bodies, Protocol):
    """Bodies of attachments whose records are in a managed storage. Methods raise ``OSError`` too."""

    def changing(self) -> AbstractContextManager[ManagedChanges]:
        """See ``Bodies``."""

    def has_unfinished(self, main: DocumentAddress) -> bool:
        """Return whether writes of a document's attachments are under way, or a crash has left something of one."""

    def finish(self, main: DocumentAddress, record_of: RecordOf) -> None:
        """Finish or remove the remains of crashes of a document's attachments."""

    def traces(self, form: Form, document: str) -> Traces:
        """Return all bodies of a document, for erasing it."""


class ListedBodies(Bodies, Protocol):
    """Bodies in an object store, of which all that there are of a document can be listed."""

    @property
    def place(self) -> Bucket:
        """The bucket and the prefix."""

    def held(self, form: Form, document: str) -> Mapping[tuple[Address, str], int]:
        """Return the sizes of the bodies of a document and its draft, by the address and the content id of each."""


BodiesOf = Callable[[Form], ManagedBodies | None]
"""Returns where the bodies of a form's attachments are, if they have a place of their own."""


class StorageFault(Enum):
    """The kinds of faults that are found in a database."""

    UNREADABLE = "a sidecar cannot be read"
    ROW_WRONG = "a row differs from its sidecar"
    CONTENT_WRONG = "a content is missing, or not what its sidecar says"
    NO_CURRENT = "none of several revisions is the current one"
    ORDER_WRONG = "the current revision is not the newest"
    BODY_MISSING = "a body is not where its record says"
    BODY_WRONG = "a body is not what its record says"
    STRAY_CONTENT = "a content in pieces that no revision has"
    IN_USE_UNCLAIMED = "a content that a revision has, and that counts as if none had it"
    OVERDUE = "contents that should be removed by now"
    INDEX_WRONG = "the index has not what is stored of a document"
    TOTAL_WRONG = "the index counts the documents of a version wrong"


@dataclass(frozen=True, slots=True)
class StorageFinding:
    """A finding: ``place`` is the path of a resource, or another name. ``mend`` repairs it, if that can be done."""

    fault: StorageFault
    place: str
    what: str
    mend: Callable[[], None] | None = None


RecordCheck = Callable[[DocumentAddress, Sidecar], tuple[StorageFault, str] | None]
"""Returns the fault of the body of a record, which is in another place; ``None`` if it has none."""


@dataclass(frozen=True, slots=True)
class MaintainedDatabase:
    """An open database: ``name`` says which one it is, without a password.

    ``storage`` keeps all older revisions that are stored through it, whatever properties say. ``snapshot`` lets this
    thread read for a block what was there at its beginning. ``keeping_writers_out`` keeps everybody from writing for a
    block, and yields what raises ``BusyError`` if that holds no longer. ``inspect`` yields all findings, and ``None``
    after each document, draft or version of a definition; if it is called with ``True``, every content and all of the
    index is read. It asks about the body of every record.
    """

    name: str
    storage: ManagedStorage
    arrivals: Arrivals
    snapshot: Callable[[], AbstractContextManager[object]]
    keeping_writers_out: Callable[[], AbstractContextManager[Callable[[], None]]]
    inspect: Callable[[bool, RecordCheck], Iterator[StorageFinding | None]]
