"""A storage of forms, as services and administrators need one: a tree, a database, or another service.

No path and no descriptor crosses it, so that what implements it may be far away. Methods raise the domain errors of
``persistence.errors``: ``BadAddressError`` for names that cannot be kept, ``DamagedError`` for what cannot be read as
it was written, ``BusyError`` for a lock that was not to be had, ``DiskError`` where the storage refuses.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, NoReturn, Protocol

import msgspec

from persistence.errors import DamagedError, NotSupportedError, ReplacedError
from persistence.limits import FIRST_PIECE, LARGEST_PIECE
from persistence.model.addresses import Address, Collection, DocumentAddress, Form
from persistence.model.network_addresses import Bucket
from persistence.model.permissions import User, require_second_key
from persistence.model.sidecar import ListedRevision, Sidecar, digest_text
from persistence.model.texts import Instant, one_later
from persistence.model.versions import DocumentLease, LeaseHolder
from persistence.storage.commit import Upload
from persistence.storage.findings import Finding, FindingKind
from persistence.storage.stored_revision import Fingerprint, StoredRevision

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Revisions(Protocol):
    """Revisions by their addresses. Nothing is changed, no lock is taken, and nobody waits for who reads."""

    def sidecar(self, address: Address) -> Sidecar | None:
        """Return the sidecar of the current revision, a tombstone's too; ``None`` where nothing was ever stored."""

    def read(self, address: Address, instant: Instant | None = None, *, content: bool) -> StoredRevision | None:
        """Return the current revision, or that of exactly an instant, current or older (spec crud 4.8)."""
        # ``None`` where there is none. The content is open if asked for: a seekable file, which the caller closes.

    def history(self, address: Address) -> RevisionList:
        """List all revisions, the current one and the older ones."""
        # No sidecar of an older revision is read before it is asked for.

    def names(self, main: Address) -> list[str]:
        """Return the file names that were ever stored beside a ``data.xml`` or ``form.xhtml``, its own too."""
        # Another service lists what its current revision names.


class Readable(Revisions, Protocol):
    """Revisions, with the lists, the fingerprints and the marks of what is stored."""

    def content(self, address: Address) -> BinaryIO | None:
        """Return the content, open, also where its sidecar is lost; ``None`` where it is missing."""
        found = self.read(address, content=True)
        return None if found is None else found.file

    def fingerprint(self, address: Address) -> Fingerprint:
        """Return a value that no other state of a resource has; ``NOTHING_THERE`` where there is none. Asked often."""

    def fingerprints(self, form: Form) -> Iterable[tuple[int, Fingerprint]]:
        """Return the versions of a form as ``versions`` has them, each with the fingerprint of its ``form.xhtml``."""

    def forms(self, app: str | None = None) -> Iterator[Form]:
        """Yield all forms, or the forms of one application, that have any files, in no order."""

    def versions(self, form: Form) -> Iterator[int]:
        """Yield the versions of a form's definition, deleted ones too, highest first."""

    def documents(self, form: Form, collection: Collection = Collection.DATA) -> Iterator[str]:
        """The ids of the documents in a collection, deleted ones too, in no order and without reading all at once."""

    def marks(self, form: Form) -> Iterator[StateMark]:
        """Yield a mark for each version of a form's definition, and for each document and draft."""
        # They are listed without reading all at once. What is made or removed meanwhile may be among them or not.

    def sidecars(self, main: Address) -> Iterator[tuple[str, Instant, Sidecar]]:
        """Yield file name, instant and sidecar of each revision beside a main file; of a file the oldest first."""
        # ``DamagedError`` says that a sidecar cannot be read.


class Writing(Protocol):
    """Changes while the lock of one scope is held (``Address.scope``). Methods raise ``OSError`` too."""

    # Every change says ``over`` which revision it is made, as ``current`` found it (``None``: there was nothing). Where
    # another is there, because a lock was lost, it is refused, and nothing is changed: ``ReplacedError``.
    #
    # Where it ``is_append_only``, only what adds a revision or changes a draft is done: all else begins with
    # ``require_removable``.
    is_append_only: bool = False

    def require_removable(self, address: Address) -> None:
        if self.is_append_only and not (isinstance(address, DocumentAddress) and address.is_draft):
            require_second_key()

    def current(self, address: Address) -> StoredRevision | None:
        """The stored revision, which no other writer changes now; ``None`` where nothing was ever stored."""

    def commit(self, address: Address, sidecar: Sidecar, upload: Upload, *, over: StoredRevision | None) -> Sidecar:
        """Store a content as the next revision, over what ``current`` found, wholly or not at all."""
        # ``upload`` is of the same storage's ``upload(address)``. Returns the sidecar that is stored: another than was
        # asked for, where the storage has its own ids and instants.

    def delete(self, address: Address, tombstone: Sidecar, *, over: StoredRevision | None) -> Sidecar:
        """Replace the stored revision by a tombstone, and return the one that is stored."""
        # A proxy may have one put where nothing was ever stored (spec crud 11).

    def catch_up(self, address: Address) -> None:  # noqa: ARG002 - transactions leave none without one
        """Record the event of the current revision of a resource, where a crash has left it without one."""
        return

    def purge(self, address: Address, tombstone: Sidecar, *, over: StoredRevision) -> None:
        """Remove one file without a trace: an attachment of a draft."""

    def discard_draft(self, form: Form, document: str) -> None:
        """Remove the draft of a document with its attachments, without a trace; do nothing without one."""

    def remove_older(self, address: Address, instants: Sequence[Instant]) -> int:
        """Remove older revisions without a trace; return how many there were. The current one always stays."""

    def remove_current(self, address: Address, *, over: StoredRevision) -> None:
        """Remove the only revision that is left of an attachment, without a trace."""

    def discard_document(self, form: Form, document: str) -> None:
        """Remove a saved document with its attachments and its history, without a trace; do nothing without one."""

    def finish(self, main: DocumentAddress) -> None:  # noqa: ARG002 - a transaction is never half done
        """Finish or discard interrupted writes of a document, its attachments and its older revisions."""
        return

    def rewrite(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> bool:
        """Store another content as the same revision: the current one, or with an ``instant`` an older one."""
        # ``over`` is the revision before, which is not kept; ``rewritten`` has the upload's id and the revision's
        # entity tag. ``False`` where the revision is not there any more, or not as it was: saved over, or edited by
        # hand.


def unsupported(*_: object, **_options: object) -> NoReturn:
    """Stand for a method that a storage does not have, because another service manages its revisions."""
    raise NotSupportedError("another service manages these revisions")


def require_same(address: Address, stored: StoredRevision | None, over: StoredRevision | None) -> None:
    """Raise ``ReplacedError`` where the stored revision is not the one over which a writer decided to store."""
    if (stored.sidecar.id if stored is not None else None) != (over.sidecar.id if over is not None else None):
        raise ReplacedError(f"{address} was written by another request meanwhile")


class BodyChanges(Protocol):
    """Changes of bodies of attachments while the lock of their document is held. Methods raise ``OSError`` too."""

    def placing(
        self, address: DocumentAddress, sidecar: Sidecar, upload: Upload, over: Sidecar | None
    ) -> AbstractContextManager[Sidecar]:
        """Have a body durable before the block, which commits the sidecar that it gives."""
        # That may have another content id, with the entity tag as it was. ``over`` is the living revision before. Where
        # the block fails, it may be committed all the same.

    def removing(self, address: DocumentAddress, over: Sidecar) -> AbstractContextManager[None]:
        """Remove a body after the block, which commits that it is deleted."""

    def dropping(
        self, address: DocumentAddress, records: Sequence[Sidecar], *, are_older: bool
    ) -> AbstractContextManager[None]:
        """Remove bodies after the block, which removes their records without a trace."""

    def discarding_draft(
        self, draft: DocumentAddress, version: int | None, records: Sequence[tuple[DocumentAddress, Sidecar]]
    ) -> AbstractContextManager[None]:
        """Remove the bodies of all attachments of a draft after the block, which discards it."""
        # ``version`` is its form version where that is known, and ``records`` are those of its attachments.

    def replacing(
        self, address: DocumentAddress, instant: Instant | None, over: Sidecar, rewritten: Sidecar, upload: Upload
    ) -> AbstractContextManager[None]:
        """Have another body of the same revision durable before the block; the one before goes when it is committed."""
        # It is the current revision, or with an ``instant`` an older one.


class Bodies(Protocol):
    """A second place, which has the bodies of attachments of data. Methods raise ``OSError`` too."""

    @property
    def place(self) -> Bucket | None:
        return None

    def upload(self, address: DocumentAddress) -> Upload:
        """Begin to receive a body."""

    def find(self, address: DocumentAddress, record: Sidecar, *, content: bool) -> StoredRevision | None:
        """Return the body of the revision of a record, open if asked for; ``None`` where there is none."""
        # Unless it is sure to be of that revision, it counts as edited. The sidecar that is found describes the body.
        # ``DamagedError`` says that what lies there is not what the record says of its body, and no edit.

    def changing(self) -> AbstractContextManager[BodyChanges]:
        """Change bodies in a block that has a whole block of the main storage in it, and so the commit of that."""

    def has_unfinished(self, main: DocumentAddress) -> bool:  # noqa: ARG002 - a directory looks
        """Return whether writes of a document's attachments are under way, or a crash has left something of one."""
        return False

    def finish(self, main: DocumentAddress, record_of: RecordOf) -> None:  # noqa: ARG002 - as above
        """Finish or remove the remains of crashes of a document's attachments."""
        return

    def document_files(self, form: Form, document: str) -> DocumentFiles:
        """Return all bodies of a document, for erasing it."""

    def held(self, form: Form, document: str) -> Mapping[tuple[Address, str], int]:
        """Return the sizes of the bodies of a document and its draft in a bucket, by address and content id."""


class RevisionStorage(Revisions, Protocol):
    """Revisions that are read and written."""

    def upload(self, address: Address) -> Upload:
        """Begin to receive a content for an address; no lock is held meanwhile."""

    def writing(self, address: Address) -> AbstractContextManager[Writing]:
        """Hold the lock of what an address belongs to, and write there; ``BusyError`` if it cannot be had in time."""


class Leases(Protocol):
    """Leases of documents, by their ids alone: the form of an address only leads here (spec crud 7)."""

    # Reading, checking and writing is one step for everybody else, and what was acknowledged is durable.
    # ``LockedError`` says that somebody else holds a lease.
    def lock(
        self,
        address: DocumentAddress,
        holder: LeaseHolder,
        seconds: int,
        *,
        is_stored: bool = True,
        is_by_form: bool = False,
    ) -> None:
        """Lease a document, or renew the lease of the same user. An id of which nothing ``is_stored`` has less room."""
        # With ``is_by_form`` a lease by another form is in nobody's way where the document ``is_stored``, and else in
        # everybody's: who may create documents of some form could keep all others from theirs. ``BusyError`` says that
        # too many are leased.

    def unlock(self, address: DocumentAddress, holder: LeaseHolder, *, is_by_form: bool = False) -> None:
        """End a lease; do nothing without one. With ``is_by_form`` one by another form is somebody else's."""

    def require(self, address: DocumentAddress, user: User) -> None:
        """Refuse somebody else than the holder, as far as can be seen without a lock."""

    def protecting(self, address: DocumentAddress, user: User) -> AbstractContextManager[None]:
        """Keep everybody from leasing a document for a block, in which a user writes to it."""

    def listed(self) -> Iterator[DocumentLease | DamagedError]:
        """Yield every lease, expired ones too, and the damage of one that cannot be read."""

    def broken(self, document: str, user: str | None = None) -> DocumentLease:
        """End the lease of a document, whoever holds it, or that of a ``user``, and return it."""
        # ``NotFoundError``: there is none, or it has expired. ``PreconditionError``: another user holds it.


class Storage(Readable, RevisionStorage, Protocol):
    """A storage as a provider has it, with leases of documents, and records of re-encryptions and moves."""

    # One that ``is_remote`` is another service, which manages its revisions itself: here nothing is purged, erased,
    # moved or rewritten. It has no such records, and the methods for that are ``unsupported``.
    is_remote: bool = False
    leases: Leases
    reencryption: JobRecord
    arrivals: Arrivals

    def deciding(self, address: Address) -> AbstractContextManager[None]:  # noqa: ARG002 - for those that are far away
        """Let this thread decide for a block about a write of an address, before it holds the lock."""
        # What it asks for meanwhile may be as it was when the block began.
        return nullcontext()

    def keeping_writers_out(self) -> AbstractContextManager[Callable[[], None]]:
        """Keep everybody from writing for a block; yields what raises ``BusyError`` if that holds no longer."""

    def creating(self, form: Form) -> AbstractContextManager[None]:
        """Keep others from creating documents of a form that has only one, while a document's lock is held."""

    def documents_and_drafts(self, form: Form) -> Iterator[str]:
        """Yield the ids of the documents of a form, and of the drafts of documents that were never saved."""

    def revisions(self, address: Address) -> list[Instant]:
        """Return the instants of the older revisions of a resource, newest first."""

    def read_older(self, address: Address, instant: Instant, *, content: bool) -> StoredRevision | None:
        """The older revision of an instant, also where the current one is of the same; ``None`` where there is none."""

    def is_older_name_of(self, address: Address, instant: Instant, content_id: str) -> bool:  # noqa: ARG002 - trees have some
        """Return whether the older revision of an instant is a second name of the revision with an id."""
        return False

    def removable(self, address: Address, instant: Instant | None) -> StoredRevision | None:
        """Return a revision that is to be removed, without its content: the current one, or that of an instant."""
        # Of a tombstone all facts are known. ``None`` where there is none.
        return self.read(address, instant, content=False)

    def freed(self, address: Address, instant: Instant | None) -> int:
        """Return the bytes that the removal of a revision frees: the current one, or that of an instant."""

    def freed_by_folder(self, main: DocumentAddress) -> int:
        """Return the bytes that the removal of a document in a collection frees, with all that belongs to it there."""

    def has_unfinished(self, main: DocumentAddress) -> bool:  # noqa: ARG002 - a transaction is never half done
        """Return whether writes of a document are under way, or a crash has left something of one."""
        return False

    def document_files(self, form: Form, document: str) -> DocumentFiles:
        """Return everything of a document, for erasing it."""


class Arrivals(Protocol):
    """The forms that are being moved into a storage, with the name of the place where they come from. It is durable."""

    def begun(self, source: str) -> set[Form]:
        """Return the forms of which there was nothing here when their move from a place began."""

    def begin(self, source: str, form: Form) -> None:
        """Record that the move of a form begins, and that there is nothing of the form here."""

    def end(self, source: str, forms: Iterable[Form]) -> None:
        """Record that all of some forms from a place has arrived."""

    def bring_drafts(self, source: str, etags: Iterable[str]) -> None:
        """Record the entity tags of files of drafts that a move from a place is about to store here, for good."""

    def drafts_of(self, source: str) -> set[str]:
        """Return the entity tags of the files of drafts that moves from a place have stored here."""


KeepsHistory = Callable[[Form], bool]  # Returns whether a save of a form's data keeps the revision before


def keeps_all(_: Form) -> bool:
    return True


class ChangeListener(Protocol):
    """Listens to every change of the ``data.xml`` of a document, saved or draft; not to those of definitions."""

    # Its methods are called by every thread, and raise nothing: no change fails because of its listener.
    def changing(self, form: Form, document: str) -> None:
        """A document is about to change. Its lock is held, and nobody sees anything of the change yet."""
        # ``BusyError`` says that the listener was closed; the document must not change.

    def changed(self, form: Form, document: str) -> None:
        """An announced change is over, and the lock released. It may have failed: before the commit or after it."""


class _Nobody:
    def changing(self, form: Form, document: str) -> None: ...

    def changed(self, form: Form, document: str) -> None: ...


NOBODY: ChangeListener = _Nobody()  # The listener where nobody wants to hear


OlderRevisions = Callable[[Instant], Iterable[Sidecar]]


class EventRecorder(Protocol):
    """Records an event of every commit, while the lock of its resource is held; what has no events is ignored."""

    # ``found`` is the sidecar of the current revision (``None``: there is none), and ``written`` the time of its file,
    # in seconds since 1970. ``older`` reads the sidecars of older revisions after an instant, the oldest first.
    def prepare(self) -> None:
        """Be there before a change has its instant. ``DiskError`` or ``BusyError``: it must not happen."""

    def begin(self, address: Address, found: Sidecar | None, written: float, older: OlderRevisions) -> None:
        """Note that a resource is about to change. ``DiskError`` or ``BusyError``: it must not."""

    def end(self, address: Address, sidecar: Sidecar, before: Sidecar | None, *, is_erased: bool = False) -> None:
        """Record the event of a commit, or of a removal without a trace; where that fails, it is made up for later."""

    def catch_up(self, address: Address, found: Sidecar | None, written: float, older: OlderRevisions) -> None:
        """Record the events of commits that a crash has left without them."""

    def close(self) -> None:
        """Close everything."""


@dataclass(slots=True)
class ChangeEvents:
    """The events of one lock: of every document one, however much of it changes."""

    _listener: ChangeListener
    _notified: dict[tuple[Form, str], None] = field(default_factory=dict)

    def begins(self, form: Form, document: str) -> None:
        if (form, document) not in self._notified:
            self._listener.changing(form, document)
            self._notified[form, document] = None  # a listener that refuses hears nothing of the end either

    def ends(self) -> None:
        """Tell that it is over, once the lock is released."""
        for form, document in self._notified:
            self._listener.changed(form, document)


# Marks of the states of documents and definitions: cheap to list, and others after each change.
#
# A caller that has seen a state finds out what has changed since without reading anything again.


@dataclass(frozen=True, slots=True)
class StateMark:
    """A mark of the state of a document with its draft, or of a version of a definition, by its main resource."""

    # With ``is_sum`` it is ``sum_of_revisions`` of the state. Otherwise it is of the times of directories, and the
    # state may be read after the mark: if nothing was saved or no draft there before, none must be in the state either.
    # It is empty if the directories are so young that the next state could have the same times.
    main: Address
    value: str
    is_sum: bool
    has_saved: bool = True
    has_draft: bool = True


def sum_of_revisions(found: Iterable[tuple[bool, str, Instant, str, bool]]) -> int:
    """Return a number that hardly any other revisions have, as databases calculate it, too."""
    # Each has: is it a draft's, the name of its file, its instant, its content id, and is it the current one.
    total = 0
    for is_draft, name, instant, content, is_current in found:
        line = f"{int(is_draft)} {name} {instant} {content} {int(is_current)}"
        digest = hashlib.sha256(line.encode("utf-8", "surrogatepass")).digest()
        total += int.from_bytes(digest[:8], signed=True)
    return total


RecordOf = Callable[[DocumentAddress, Instant | None], Sidecar | None]
"""Returns the stored record of an attachment: its current revision, or with an instant an older one."""


class DocumentFile(msgspec.Struct, frozen=True):
    """A file of a document: its path below the root or in a backup, its size in bytes and its digest."""

    path: str
    size: int
    digest: str


class DocumentFiles(Protocol):
    """Everything of one document, its drafts and its history, wherever it is. Methods raise ``OSError``."""

    def listed(self) -> Iterator[DocumentFile]:
        """Yield all files, each once."""

    def links(self) -> Iterator[str]:
        """Yield other names of these files, which cannot be found any more when the files are gone."""
        return iter(())

    def remove(self, links: list[str]) -> None:
        """Remove what is left when the document and its draft are discarded, and the ``links``; its lock is held."""


class JobRecord(Protocol):
    """The turn of whoever does one kind of long work in a storage, and a text on how far it is, for every process."""

    def turn(self, refusal: str, timeout: float, is_ending: Callable[[], bool]) -> AbstractContextManager[None]:
        """Wait until nobody else has the turn, and have it for a block."""
        # ``BusyError`` with the ``refusal`` says that it took too long, or that the process ``is_ending``.

    def is_taken(self) -> bool:
        """Return whether somebody has the turn."""

    def read(self) -> bytes:
        """Return the text; empty where there is none."""

    def write(self, text: bytes) -> None:
        """Replace the text."""


BodiesOf = Callable[[Form], Bodies | None]
"""Returns where the bodies of a form's attachments are, if they have a place of their own."""


RecordCheck = Callable[[DocumentAddress, Sidecar], tuple[FindingKind, str] | None]
"""Returns the fault of the body of a record, which is in another place; ``None`` if it has none."""


@dataclass(frozen=True, slots=True)
class MaintainedDatabase:
    """An open database."""

    name: str  # which one it is, without a password
    storage: Storage
    # Lets this thread read for a block what was there at its beginning.
    snapshot: Callable[[], AbstractContextManager[object]]
    # Yields all findings, and ``None`` after each document, draft or version of a definition; with ``True``, every
    # content and all of the index is read. It asks about the body of every record.
    inspect: Callable[[bool, RecordCheck], Iterator[Finding | None]]


# Histories and contents that are read as they are needed, the same for every storage.


@dataclass(frozen=True, slots=True)
class RevisionList:
    """All revisions of a resource as they were at one moment, tombstones included; position 0 is the current one."""

    # ``load`` reads those from a position up to another, without those that are gone meanwhile. Both raise what reading
    # a sidecar does, but ``DamagedError`` only for the current revision.
    total: int  # 0 where nothing was ever stored
    instant: Callable[[int], Instant]
    load: Callable[[int, int], list[ListedRevision]]

    def instants(self) -> list[Instant]:
        return list(map(self.instant, range(self.total)))

    def revision(self, position: int) -> ListedRevision | None:
        """Return the revision at a position; ``None`` where it is gone meanwhile."""
        return next(iter(self.load(position, position + 1)), None)

    def each(self, begin: int = 0) -> Iterator[ListedRevision]:
        """Yield those from a position on, each read when it is asked for."""
        for position in range(begin, self.total):
            yield from self.load(position, position + 1)

    def every(self) -> list[ListedRevision]:
        return self.load(0, self.total)

    def page(self, begin: int, end: int) -> list[ListedRevision]:
        return self.load(begin, min(end, self.total))

    def since(self, instant: Instant) -> int:
        """Return how many are of an instant or newer: the position of the first that is older."""
        low, high = 0, self.total
        if high and self.instant(high - 1) >= instant:  # which another service says without a page of its own
            return high
        while low < high:
            middle = (low + high) // 2
            if self.instant(middle) >= instant:
                low = middle + 1
            else:
                high = middle
        return low

    def position_at(self, instant: Instant) -> int:
        """Return the position of the revision that was current at an instant; ``total`` for one before the first."""
        return 0 if not self.total or instant >= self.instant(0) else self.since(one_later(instant))


NO_REVISIONS = RevisionList(0, [].__getitem__, lambda *_: [])


PieceReader = Callable[[int, int], bytes | memoryview]
"""Reads the bytes from one offset to another, or as many from the first one on as it has at once."""


class RangedFile(io.RawIOBase):
    """A content of ``size`` bytes elsewhere, read in pieces, of which one is in memory; ``let_go`` ends the reading."""

    # A reader that goes from its beginning to its end gets the last piece only if all of it has the ``digest``.
    def __init__(
        self, size: int, read: PieceReader, digest: str | None = None, let_go: Callable[[], None] | None = None
    ) -> None:
        super().__init__()
        self._size = size
        self._read = read
        self._digest = digest
        self._let_go = let_go
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._at = 0
        self._begin = 0
        self._piece = memoryview(b"")
        self._length = FIRST_PIECE

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self._at >= self._size:
            return 0
        if not self._begin <= self._at < self._begin + len(self._piece):
            self._load()
        room, start = memoryview(buffer).cast("B"), self._at - self._begin
        taken = self._piece[start : start + len(room)]
        room[: len(taken)] = taken
        self._at += len(taken)
        return len(taken)

    def _load(self) -> None:
        begin, follows = self._at, self._piece and self._at == self._begin + len(self._piece)
        self._length = min(2 * self._length, LARGEST_PIECE) if follows else FIRST_PIECE
        piece = memoryview(self._read(begin, min(begin + self._length, self._size)))
        if self._digest is not None and begin == self._hashed:
            self._hash.update(piece)
            self._hashed += len(piece)
            if self._hashed == self._size and digest_text(self._hash.hexdigest()) != self._digest:
                raise DamagedError(f"attachment content does not match its recorded digest, {self._digest}")
        self._begin, self._piece = begin, piece

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        target = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if target < 0:
            raise ValueError(f"{-target} bytes before the beginning is not a valid position")
        self._at = target
        return target

    def close(self) -> None:
        if self._let_go is not None:
            self._let_go()
        super().close()
