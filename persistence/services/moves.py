"""Moving forms between storages: a pass while the source is written to, and a last one while it can only be read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import msgspec

from persistence import errors
from persistence.index.protocol import ReportTables
from persistence.limits import CHUNK, LARGEST_AT_ONCE, MOST_REMEMBERED, MOVED_AT_ONCE
from persistence.model.addresses import Address, Collection, DefinitionAddress, DocumentAddress, Form
from persistence.model.network_addresses import Bucket
from persistence.model.queries import FormPattern
from persistence.model.sidecar import SCHEMA, HashedPieces, Sidecar, described
from persistence.model.texts import Instant
from persistence.services.documents import DataRevision, living_revisions, opened_revision
from persistence.services.transfers import TransferOutcome, TransferResult, batches, mains_of, store_next, update_views
from persistence.storage.attachments import RevisionRewriter, SplitStorage
from persistence.storage.commit import Upload
from persistence.storage.storage import (
    Bodies,
    BodiesOf,
    Readable,
    Revisions,
    RevisionStorage,
    StateMark,
    Storage,
    sum_of_revisions,
)
from persistence.storage.stored_revision import StoredRevision

# The state of a document or of a version of a definition in a storage: the revisions of each of its files.
#
# Two storages with equal states have the same revisions: an entity tag is made once. Re-encryption changes the digest.


@dataclass(frozen=True, slots=True)
class RevisionState:
    """The instant and entity tag of a revision, and the size and digest of its content."""

    # ``id`` is the content id, which is not the same in each storage. If it ``is_apart``, the content is elsewhere.
    instant: Instant
    etag: str
    size: int
    digest: str | None
    id: str = field(compare=False)
    is_apart: bool = field(default=False, compare=False)


FileStates = Mapping[Address, tuple[RevisionState, ...]]  # The revisions of each file, the oldest first


@dataclass(frozen=True, slots=True)
class UnitState:
    """The files of a unit that keep their history, and those of its draft."""

    saved: FileStates
    draft: FileStates

    def each(self) -> Iterator[tuple[Address, RevisionState]]:
        for address, states in {**self.saved, **self.draft}.items():
            yield from ((address, state) for state in states)

    @property
    def etags_of_draft(self) -> list[str]:
        return [state.etag for states in self.draft.values() for state in states]

    def has(self, mark: StateMark) -> bool:
        """Return whether a mark was made from this very state."""
        if mark.is_sum:
            found = (
                (not address.keeps_history, address.name, each.instant, each.id, each is states[-1])
                for address, states in {**self.saved, **self.draft}.items()
                for each in states
            )
            return mark.value == str(sum_of_revisions(found))
        return bool(mark.value) and (mark.has_saved, mark.has_draft) == (bool(self.saved), bool(self.draft))


NOTHING = UnitState({}, {})


def state_of(storage: Readable, main: Address) -> UnitState:
    """Read the state of a unit, without a draft that is older than the last save: the next writer removes it."""
    saved = _file_states(storage, main)
    if isinstance(main, DefinitionAddress):
        return UnitState(saved, {})
    draft, other = _file_states(storage, main.counterpart), main.counterpart
    is_older = other in draft and main in saved and draft[other][-1].instant <= saved[main][-1].instant
    return UnitState(saved, {} if is_older else draft)


def _file_states(storage: Readable, main: Address) -> FileStates:
    found = dict[Address, list[RevisionState]]()
    for name, instant, sidecar in storage.sidecars(main):
        whole = described(sidecar)
        state = RevisionState(instant, whole.etag, whole.size, whole.digest, whole.id, sidecar.body is not None)
        found.setdefault(replace(main, name=name), []).append(state)
    return {address: tuple(states) for address, states in found.items()}


# Copying revisions between storages: byte for byte, with their sidecars, each compared with its digest.


class SourceChangedError(errors.DamagedError):
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


def _missing(there: FileStates, here: FileStates) -> list[tuple[Address, RevisionState]] | None:
    if any(states != there.get(address, ())[: len(states)] for address, states in here.items()):
        return None
    found = [(address, state) for address, states in there.items() for state in states[len(here.get(address, ())) :]]
    return sorted(found, key=lambda each: (each[1].instant, each[0].is_main, each[0].name))


@dataclass(frozen=True, slots=True)
class SourceContents:
    """The source of contents, and where it has attachments: with ``keeps_apart`` those elsewhere stay there."""

    # With ``are_objects`` they are in an object store, with ``are_there`` in that of the destination.
    revisions: Revisions
    keeps_apart: bool = False
    are_objects: bool = False
    are_there: bool = False

    @contextmanager
    def opened(self, address: Address, state: RevisionState) -> Iterator[StoredRevision]:
        if state.is_apart and self.are_there:
            raise errors.ConflictError(
                f"the body of {address} is in the destination's place: without --attachments it stays"
            )
        try:
            found = self.revisions.read(address, state.instant, content=True)
        except errors.DiskFullError:
            raise
        except errors.DiskError as error:  # one unreadable sector does not end a move
            raise errors.DamagedError(str(error)) from error
        if found is None:
            raise SourceChangedError(f"{address} of {state.instant} was replaced while it was copied")
        try:
            if found.sidecar.id != state.id:
                raise SourceChangedError(f"{address} of {state.instant} was replaced while it was copied")
            if found.is_edited:
                raise errors.DamagedError(
                    f"{address} of {state.instant} was edited by hand: 'persistence check --adopt' adopts it"
                )
            if found.sidecar.body is not None and not self.keeps_apart:
                raise errors.DamagedError(f"no provider is configured for the attachment {address}")
            yield found
        finally:
            found.close()


def copy_revisions(
    source: SourceContents, destination: RevisionStorage, main: Address, plan: CopyPlan, here: UnitState
) -> int:
    """Copy the revisions of a unit by a plan; return the number of bytes of contents."""
    kept = {} if plan.discards_saved else dict(here.saved)
    if not plan.discards_draft:
        kept.update(here.draft)
    size = 0
    ids: dict[Address, str | None] = {address: states[-1].id for address, states in kept.items()}

    def is_large(batch: list[tuple[Address, RevisionState]], following: tuple[Address, RevisionState]) -> bool:
        return sum(state.size for _, state in (*batch, following)) > LARGEST_AT_ONCE

    for number, batch in enumerate(batches(plan.copied, is_large)):
        with ExitStack() as opened:
            received = [(address, *_receive(source, destination, address, state, opened)) for address, state in batch]
            with destination.writing(main) as writer:
                if number == 0 and isinstance(main, DocumentAddress):
                    if plan.discards_draft:
                        writer.discard_draft(main.form, main.document)
                    if plan.discards_saved:
                        writer.discard_document(main.form, main.document)
                for address, sidecar, upload in received:
                    changed = errors.ConflictError(f"{address} was written in the destination meanwhile")
                    stored = store_next(writer, address, upload, ids, described=sidecar, changed=changed)
                    if (stored.modified, stored.etag) != (sidecar.modified, sidecar.etag):
                        raise errors.ConflictError(
                            f"{address} of {sidecar.modified} got another time or entity tag in the destination"
                        )
            size += sum(upload.size for _, _, upload in received if upload is not None)
    return size


def _receive(
    source: SourceContents, destination: RevisionStorage, address: Address, state: RevisionState, opened: ExitStack
) -> tuple[Sidecar, Upload | None]:
    with source.opened(address, state) as found:
        sidecar = msgspec.structs.replace(found.sidecar, schema=SCHEMA)
        if state.is_apart and source.are_objects:  # the id of a revision from an object store is again its entity tag
            sidecar = msgspec.structs.replace(sidecar, id=sidecar.etag, tag=None)
        if sidecar.deleted:
            return sidecar, None
        upload = opened.enter_context(destination.upload(address))
        _fill(upload, address, found, "receiving")
    return sidecar, upload


def _fill(upload: Upload, address: Address, found: StoredRevision, action: str) -> None:
    for piece in _checked_pieces(address, found):
        with errors.disk_errors(action, address):
            upload.write(piece)
    with errors.disk_errors(action, address):
        upload.flush()


def _checked_pieces(address: Address, found: StoredRevision) -> Iterator[bytes]:
    sidecar, file = found.sidecar, found.file
    pieces = HashedPieces(() if file is None else iter(partial(file.read, CHUNK), b""))
    try:
        with errors.disk_errors("reading", address):
            yield from pieces
    except errors.DiskError as error:
        raise errors.DamagedError(str(error)) from error
    except errors.ReplacedError as error:
        raise SourceChangedError(str(error)) from error
    if pieces.size != sidecar.size or sidecar.digest not in (None, pieces.digest):
        raise errors.DamagedError(f"{address} of {sidecar.modified} does not have the digest of its sidecar")


@dataclass(frozen=True, slots=True)
class MoveSource:
    """The source: ``storage`` has the forms, ``revisions`` also their attachments; ``name`` has no passwords."""

    # ``bucket_of`` returns the object store with the attachments of a form, where ``keeps_objects`` leaves them.
    name: str
    storage: Readable
    revisions: Callable[[Form], Revisions]
    bucket_of: Callable[[Form], Bucket | None] = lambda _: None
    keeps_objects: bool = True

    def contents(self, form: Form, bodies: Bodies | None) -> SourceContents:
        """Return the contents of a form, for a destination with its ``bodies`` in an object store, if any."""
        place = self.bucket_of(form)
        if place is None:
            return SourceContents(self.revisions(form))
        if self.keeps_objects:
            return SourceContents(self.revisions(form), keeps_apart=True)
        are_there = bodies is not None and bodies.place is not None and bodies.place.meets(place)
        return SourceContents(self.revisions(form), are_objects=True, are_there=are_there)


@dataclass(frozen=True, slots=True)
class MoveTarget:
    """The destination and its flat views; with ``bodies``, attachments in an object store."""

    storage: Storage
    reports: ReportTables | None = None
    bodies: Bodies | None = None

    @property
    def attached(self) -> RevisionStorage:
        return self.storage if self.bodies is None else SplitStorage(self.storage, self.bodies)

    def fault(
        self, main: Address, there: UnitState, here: UnitState, *, keeps_apart: bool, is_ours: bool
    ) -> str | None:
        """Return the first revision ``here`` whose body is missing, or in a place of an earlier move."""
        # ``there`` is the state in the source. Unless the destination ``is_ours``, a body may be beside its record.
        apart = [each for each in here.each() if each[1].is_apart]
        wrong = apart
        if apart and keeps_apart:
            known = {(address, state.id) for address, state in there.each()}
            wrong = [(address, state) for address, state in apart if (address, state.id) not in known]
        elif apart and self.bodies is not None and isinstance(main, DocumentAddress):
            held = self.bodies.held(main.form, main.document)
            wrong = [(address, state) for address, state in apart if held.get((address, state.id)) != state.size]
        if self.bodies is not None and is_ours:
            wrong += [
                (address, state)
                for address, state in here.each()
                if isinstance(address, DocumentAddress) and not (address.is_main or state.is_apart) and state.size > 0
            ]
        return None if not wrong else f"the body of {wrong[0][0]} of {wrong[0][1].instant} is not in its place"


_ATTEMPTS = 5


# The first pass remembers the fingerprint of each document that was the same in both places. The last one reads only
# documents with another fingerprint, and removes from the destination those that the source does not have any more. The
# destination of a form is this move's own if it had nothing of the form before, which Arrivals records. Otherwise only
# drafts that a move has stored are replaced.


@dataclass
class Move:
    """Moves the forms that match ``patterns``; with ``is_dry``, also without a ``target``, they are only compared."""

    source: MoveSource
    target: MoveTarget | None
    patterns: Sequence[FormPattern] = (FormPattern(),)
    is_dry: bool = False
    _known: set[int] = field(default_factory=set)
    _ours: set[Form] = field(default_factory=set)
    _begun_before: frozenset[Form] = frozenset()
    """Forms that an earlier run has begun: it may have been killed within a commit."""
    _published: dict[DefinitionAddress, None] = field(default_factory=dict)
    """Versions whose flat views in the destination will be made or dropped."""

    def count(self) -> int:
        return sum(1 for form in self._forms(self.source.storage) for _ in self.source.storage.marks(form))

    def require_matches(self) -> None:
        """Check that each pattern matches a form in the source, or one that an earlier run has begun to move."""
        forms = self._forms(self.source.storage)
        if self.target is not None:
            forms.extend(self.target.storage.arrivals.begun(self.source.name))
        for pattern in self.patterns:
            if pattern != FormPattern() and not any(map(pattern.matches, forms)):
                raise errors.NotFoundError(f"no form here matches {pattern.app or '*'}/{pattern.name or '*'}")

    def first(self) -> Iterator[TransferOutcome]:
        """Copy everything, or again all that was changed since, while others may write to the source."""
        if self.target is not None:
            self._begun_before = frozenset(filter(self._matches, self.target.storage.arrivals.begun(self.source.name)))
            self._ours |= self._begun_before
        for form in self._forms(self.source.storage):
            yield from self._copy_all(form, None)

    def last(self) -> Iterator[TransferOutcome]:
        """Copy all that was changed since the first pass; nobody may write to the source."""
        # Outcomes are those of the whole move, except for copies of the first pass.
        moved = set[Form]()
        for form in self._forms(self.source.storage):
            moved.add(form)
            found = set[int]()
            yield from self._copy_all(form, found)
            yield from self._remove_others(form, found)
        if self.target is not None:
            for form in {*self._ours, *self._forms(self.target.storage)} - moved:
                yield from self._remove_others(form, set())

    def views(self) -> Iterator[str]:
        """Make the flat views of published versions in the destination; yield a line for each failure."""
        reports = None if self.target is None else self.target.reports
        while self.target is not None and reports is not None and self._published:
            address, _ = self._published.popitem()
            try:
                update_views(reports, self.target.storage, address)
            except errors.PersistenceError as error:
                yield f"no flat views of {address.form}, version {address.version}: {error}"

    def end(self) -> None:
        """Record that the forms are whole in the destination, and no longer this move's own."""
        if self.target is not None:
            self.target.storage.arrivals.end(self.source.name, self._ours)

    def _forms(self, storage: Readable) -> list[Form]:
        return sorted(filter(self._matches, storage.forms()), key=lambda form: (form.app, form.name))

    def _matches(self, form: Form) -> bool:
        return any(pattern.matches(form) for pattern in self.patterns)

    def _claim(self, form: Form) -> bool:
        if self.target is None or self.is_dry or form in self._ours:
            return False
        if next(mains_of(self.target.storage, form), None) is not None:
            return False
        self.target.storage.arrivals.begin(self.source.name, form)
        self._ours.add(form)
        return True

    def _copy_all(self, form: Form, found: set[int] | None) -> Iterator[TransferOutcome]:
        """Copy all of a form; the last pass notes the documents that it has ``found``."""
        is_empty = self._claim(form)
        with ThreadPoolExecutor(MOVED_AT_ONCE, "moving") as pool:
            begun = deque[Future[TransferOutcome]]()
            try:
                for mark in self.source.storage.marks(form):
                    if found is not None and isinstance(mark.main, DocumentAddress):
                        found.add(hash(mark.main.document))
                    if _key(mark) in self._known:
                        yield _outcome(mark.main, TransferResult.THERE)
                        continue
                    begun.append(pool.submit(self._copy_unit, mark, is_empty=is_empty, is_last=found is not None))
                    if isinstance(mark.main, DefinitionAddress) or len(begun) > MOVED_AT_ONCE:
                        yield begun.popleft().result()
                while begun:
                    yield begun.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _copy_unit(self, mark: StateMark, *, is_empty: bool, is_last: bool) -> TransferOutcome:
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    return self._compare_and_copy(mark, is_new=is_empty and not attempt, is_last=is_last)
                except SourceChangedError as error:
                    changed = error
            if not is_last:
                return _outcome(mark.main, TransferResult.CHANGING)
            raise changed
        # Errors of one document, which is named. Others end the move: a disk or a database that refuses.
        except (errors.BadRequestError, errors.ConflictError, errors.DamagedError) as error:
            return _outcome(mark.main, TransferResult.REFUSED, cause=str(error))

    def _compare_and_copy(self, mark: StateMark, *, is_new: bool, is_last: bool) -> TransferOutcome:
        target, main, is_ours = self.target, mark.main, mark.main.form in self._ours
        contents = self.source.contents(main.form, None if target is None else target.bodies)
        there = state_of(self.source.storage, main)
        here, fault = NOTHING, None
        if target is not None and not is_new:
            here = state_of(target.storage, main)
            fault = target.fault(main, there, here, keeps_apart=contents.keeps_apart, is_ours=is_ours)
        plan = self._plan(main, there, here, fault)
        result = TransferResult.THERE if plan.is_empty else TransferResult.MOVED
        size = self._carry_out(main, plan, here, contents)
        if isinstance(main, DefinitionAddress) and not self.is_dry and (plan.copied or not is_last):
            self._published[main] = None
        if there.has(mark) and len(self._known) < MOST_REMEMBERED:
            self._known.add(_key(mark))
        return _outcome(main, result, placed=len(plan.copied), size=size)

    def _plan(self, main: Address, there: UnitState, here: UnitState, fault: str | None) -> CopyPlan:
        """Compare a unit of the source (``there``) with the destination (``here``)."""
        # If that is this move's own, other revisions in it are replaced, or all with a ``fault``. A draft that a move
        # has stored is replaced or removed in any case.
        is_ours, saved = main.form in self._ours, None if fault else _missing(there.saved, here.saved)
        discards_saved = saved is None
        if saved is None:
            if not is_ours or isinstance(main, DefinitionAddress):
                raise errors.ConflictError(fault or f"{main.folder} has other revisions in the destination")
            saved = _missing(there.saved, {}) or []
        is_same_draft = there.draft == here.draft and not discards_saved and not any(each.is_main for each, _ in saved)
        is_lost = here.draft and not is_ours and (not is_same_draft or bool(saved))
        if is_lost and not self._drafts.issuperset(here.etags_of_draft):
            raise errors.ConflictError(f"{main.folder} has a draft in the destination that would be lost")
        draft = [] if is_same_draft else _missing(there.draft, {}) or []
        return CopyPlan((*saved, *draft), bool(here.draft) and not is_same_draft, discards_saved)

    def _carry_out(self, main: Address, plan: CopyPlan, here: UnitState, contents: SourceContents) -> int:
        if self.target is None or self.is_dry:
            size = 0
            for address, state in plan.copied:
                with contents.opened(address, state) as found:
                    size += sum(map(len, _checked_pieces(address, found)))
            return size
        known = (*here.saved, *here.draft)
        if known and main.form in self._begun_before:
            with self.target.storage.writing(main) as writer:
                for address in known:
                    writer.current(address)  # it finishes a commit
        if plan.is_empty:
            return 0
        drafts = [state.etag for address, state in plan.copied if not address.keeps_history]
        if drafts:
            self.target.storage.arrivals.bring_drafts(self.source.name, drafts)
            self._drafts.update(drafts)
        return copy_revisions(contents, self.target.attached, main, plan, here)

    def _remove_others(self, form: Form, found: set[int]) -> Iterator[TransferOutcome]:
        if self.target is None or self.is_dry:
            return
        storage, is_ours = self.target.storage, form in self._ours
        collections = Collection if is_ours else (Collection.DRAFT,)
        every = (each for collection in collections for each in storage.documents(form, collection))
        for document in {each for each in every if hash(each) not in found}:
            main = DocumentAddress(form, Collection.DATA, document)
            if not is_ours:  # only a draft that a move has stored
                try:
                    here = state_of(storage, main)
                except errors.DamagedError:
                    continue
                if here.saved or not here.draft or not self._drafts.issuperset(here.etags_of_draft):
                    continue
            with self.target.attached.writing(main) as writer:
                writer.discard_draft(form, main.document)
                if is_ours:
                    writer.discard_document(form, main.document)
            yield _outcome(main, TransferResult.REMOVED)

    @cached_property
    def _drafts(self) -> set[str]:
        """The entity tags of the files of drafts that moves have stored in the destination."""
        return set() if self.target is None else self.target.storage.arrivals.drafts_of(self.source.name)


def _outcome(
    main: Address, result: TransferResult, *, placed: int = 0, size: int = 0, cause: str = ""
) -> TransferOutcome:
    return TransferOutcome(main.folder, result, isinstance(main, DefinitionAddress), placed, size, cause=cause)


def _key(mark: StateMark) -> int:
    return hash((mark.main, mark.value))


# Moving attachments out of their tree, to where the properties lead those of their form, while the service runs.
#
# Each revision by itself: its body is copied and made durable at the new place, then its record takes the place of its
# content in the tree, in one commit. A run that was interrupted leaves each body in one place or in both; the next run
# removes what no record leads to, and goes on.


@dataclass(slots=True)
class AttachmentMove:
    """Moves attachments of documents and drafts; with ``is_dry`` they are only read."""

    # It counts the revisions that were moved, or would be, and their bytes in ``size``.
    storage: Storage
    bodies_of: BodiesOf
    is_dry: bool = False
    revisions: int = 0
    size: int = 0

    def documents(self, form: Form) -> Iterator[list[str]]:
        rewriter = RevisionRewriter(self.storage, self.bodies_of)
        for document in self.storage.documents_and_drafts(form):
            problems = list[str]()
            try:
                if not self.is_dry:
                    for collection in Collection:
                        rewriter.finish(DocumentAddress(form, collection, document))
                for revision in list(living_revisions(rewriter, form, document, problems)):
                    record = revision.sidecar
                    if not revision.address.is_main and record.body is None and record.size:
                        self._move(rewriter, revision, problems)
            except errors.PersistenceError as error:
                problems.append(str(error))
            yield problems

    def _move(self, rewriter: RevisionRewriter, revision: DataRevision, problems: list[str]) -> None:
        address, old = revision.address, revision.sidecar
        try:
            found = opened_revision(rewriter, revision)
            if found is None:
                return  # it was replaced meanwhile: a new one goes to the new place
            with found.opened, rewriter.upload_apart(address) as upload:
                if found.is_edited:
                    raise errors.DamagedError(
                        f"{address} was edited by hand: 'persistence check --adopt PATH' adopts it"
                    )
                _fill(upload, address, found, "moving")
                moved = msgspec.structs.replace(old, id=upload.id, tag=old.etag)
                if self.is_dry or rewriter.place_apart(address, revision.instant, old, moved, upload):
                    self.revisions += 1
                    self.size += upload.size
        except errors.PersistenceError as error:
            problems.append(str(error))
