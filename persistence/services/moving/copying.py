"""Copying revisions between storages: byte for byte, with their sidecars, each compared with its digest.

The revisions of a document are received first and committed under one lock, in the order of their times. So a reader of
the destination sees the document as it was at some time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import msgspec

from persistence.errors import ConflictError, DamagedError, DiskError, DiskFullError, ReplacedError, disk_errors
from persistence.limits import CHUNK, LARGEST_AT_ONCE, MOST_AT_ONCE
from persistence.model.addresses import Address, DocumentAddress
from persistence.model.sidecar import SCHEMA, Sidecar, digest_text
from persistence.services.moving.states import FileStates, MovedUnit, RevisionState, UnitState
from persistence.storage.storage import Revisions, RevisionStorage, Writing
from persistence.storage.stored_revision import StoredRevision
from persistence.storage.uploads import Upload


class SourceChangedError(DamagedError):
    """A revision that was replaced in the source since its document was looked at."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The revisions to copy, in order, after the draft or the whole document was removed from the destination."""

    copied: tuple[tuple[Address, RevisionState], ...] = ()
    discards_draft: bool = False
    discards_saved: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.copied or self.discards_draft or self.discards_saved)


def plan_copy(  # noqa: PLR0913 - each decides
    unit: MovedUnit,
    there: UnitState,
    here: UnitState,
    *,
    is_ours: bool,
    fault: str | None = None,
    has_brought: Callable[[Iterable[str]], bool] = lambda _: False,
) -> CopyPlan:
    """Compare a unit of the source (``there``) with the destination (``here``).

    If the destination ``is_ours``, other revisions in it are replaced, or all with a ``fault``. A draft that a move has
    stored, as ``has_brought`` says by its entity tags, is replaced or removed in any case.
    """
    saved = None if fault else _missing(there.saved, here.saved)
    discards_saved = saved is None
    if saved is None:
        if not is_ours or unit.is_definition:
            raise ConflictError(fault or f"{unit.name} has other revisions in the destination")
        saved = _missing(there.saved, {}) or []
    is_same_draft = there.draft == here.draft and not discards_saved and not any(each.is_main for each, _ in saved)
    is_lost = here.draft and not is_ours and (not is_same_draft or bool(saved))
    if is_lost and not has_brought(here.etags_of_draft):
        raise ConflictError(f"{unit.name} has a draft in the destination that would be lost")
    draft = [] if is_same_draft else _missing(there.draft, {}) or []
    return CopyPlan((*saved, *draft), bool(here.draft) and not is_same_draft, discards_saved)


def _missing(there: FileStates, here: FileStates) -> list[tuple[Address, RevisionState]] | None:
    if any(states != there.get(address, ())[: len(states)] for address, states in here.items()):
        return None
    found = [(address, state) for address, states in there.items() for state in states[len(here.get(address, ())) :]]
    return sorted(found, key=lambda each: (each[1].instant, each[0].is_main, each[0].name))


@dataclass(frozen=True, slots=True)
class _ReceivedCopy:
    address: Address
    sidecar: Sidecar
    upload: Upload | None


@dataclass(frozen=True, slots=True)
class SourceContents:
    """The source of contents, and where it has attachments: with ``keeps_apart`` those elsewhere stay there.

    With ``are_objects`` they are in an object store, with ``are_there`` in that of the destination.
    """

    revisions: Revisions
    keeps_apart: bool = False
    are_objects: bool = False
    are_there: bool = False

    @contextmanager
    def opened(self, address: Address, state: RevisionState) -> Iterator[StoredRevision]:
        """Open a revision for a block."""
        if state.is_apart and self.are_there:
            raise ConflictError(f"the body of {address} is in the destination's place: without --attachments it stays")
        try:
            found = self.revisions.read_revision(address, state.instant, content=True)
        except DiskFullError:
            raise
        except DiskError as error:  # one unreadable sector does not end a move
            raise DamagedError(str(error)) from error
        if found is None:
            raise SourceChangedError(f"{address} of {state.instant} was replaced while it was copied")
        try:
            if found.sidecar.id != state.id:
                raise SourceChangedError(f"{address} of {state.instant} was replaced while it was copied")
            if found.is_edited:
                raise DamagedError(
                    f"{address} of {state.instant} was edited by hand: 'persistence check --adopt' adopts it"
                )
            if found.sidecar.body is not None and not self.keeps_apart:
                raise DamagedError(f"no provider is configured for the attachment {address}")
            yield found
        finally:
            found.close()

    def sidecar_to_store(self, found: StoredRevision, state: RevisionState) -> Sidecar:
        """Return the sidecar of a copy: the id of a revision from an object store is again its entity tag."""
        sidecar = msgspec.structs.replace(found.sidecar, schema=SCHEMA)
        if state.is_apart and self.are_objects:
            return msgspec.structs.replace(sidecar, id=sidecar.etag, tag=None)
        return sidecar


def transfer(
    source: SourceContents, destination: RevisionStorage, unit: MovedUnit, plan: CopyPlan, here: UnitState
) -> int:
    """Copy the revisions of a unit by a plan; return the number of bytes of contents."""
    kept = {} if plan.discards_saved else dict(here.saved)
    if not plan.discards_draft:
        kept.update(here.draft)
    size, ids = 0, {address: states[-1].id for address, states in kept.items()}
    for number, batch in enumerate(_batches(plan.copied)):
        with ExitStack() as opened:
            received = [_receive(source, destination, address, state, opened) for address, state in batch]
            with destination.writing(unit.main) as writer:
                if number == 0 and isinstance(unit.main, DocumentAddress):
                    if plan.discards_draft:
                        writer.discard_draft(unit.main.form, unit.main.document)
                    if plan.discards_saved:
                        writer.discard_document(unit.main.form, unit.main.document)
                for each in received:
                    _commit_copy(writer, each, ids)
            size += sum(each.upload.size for each in received if each.upload is not None)
    return size


def _receive(
    source: SourceContents,
    destination: RevisionStorage,
    address: Address,
    state: RevisionState,
    opened: ExitStack,
) -> _ReceivedCopy:
    with source.opened(address, state) as found:
        sidecar = source.sidecar_to_store(found, state)
        if sidecar.deleted:
            return _ReceivedCopy(address, sidecar, None)
        upload = opened.enter_context(destination.upload(address))
        for piece in _checked_pieces(address, found):
            with disk_errors("receiving", address):
                upload.write(piece)
    with disk_errors("receiving", address):
        upload.flush()
    return _ReceivedCopy(address, sidecar, upload)


def _commit_copy(writer: Writing, received: _ReceivedCopy, ids: dict[Address, str]) -> None:
    address, sidecar = received.address, received.sidecar
    over = writer.current(address)
    if (None if over is None else over.sidecar.id) != ids.get(address):
        raise ConflictError(f"{address} was written in the destination meanwhile")
    if received.upload is None:
        stored = writer.delete(address, sidecar, over=over)
    else:
        stored = writer.commit(address, sidecar, received.upload, over=over)
    if (stored.modified, stored.etag) != (sidecar.modified, sidecar.etag):
        raise ConflictError(f"{address} of {sidecar.modified} got another time or entity tag in the destination")
    ids[address] = stored.id


def read_through(source: SourceContents, plan: CopyPlan) -> int:
    """Read all that a plan would copy, and return the number of bytes."""
    count = 0
    for address, state in plan.copied:
        with source.opened(address, state) as found:
            count += sum(map(len, _checked_pieces(address, found)))
    return count


def _batches(copied: Sequence[tuple[Address, RevisionState]]) -> Iterator[list[tuple[Address, RevisionState]]]:
    batch, size = list[tuple[Address, RevisionState]](), 0
    for each in copied:
        if len(batch) == MOST_AT_ONCE or (batch and size + each[1].size > LARGEST_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += each[1].size
    yield batch


def _checked_pieces(address: Address, found: StoredRevision) -> Iterator[bytes]:
    sidecar, digest, size = found.sidecar, hashlib.sha256(), 0
    try:
        with disk_errors("reading", address):
            while found.file is not None and (piece := found.file.read(CHUNK)):
                digest.update(piece)
                size += len(piece)
                yield piece
    except DiskError as error:
        raise DamagedError(str(error)) from error
    except ReplacedError as error:
        raise SourceChangedError(str(error)) from error
    if size != sidecar.size or sidecar.digest not in (None, digest_text(digest.hexdigest())):
        raise DamagedError(f"{address} of {sidecar.modified} does not have the digest of its sidecar")
