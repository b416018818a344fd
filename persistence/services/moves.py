"""Moving forms between storages: a pass while the source is written to, and a last one while it can only be read."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum

import msgspec

from persistence.errors import (
    BadRequestError,
    ConflictError,
    DamagedError,
    DiskError,
    DiskFullError,
    NotFoundError,
    PersistenceError,
    ReplacedError,
    disk_errors,
)
from persistence.index.protocol import ReportTables
from persistence.limits import CHUNK, LARGEST_AT_ONCE, MOST_AT_ONCE, MOST_REMEMBERED, MOVED_AT_ONCE
from persistence.model.addresses import (
    DATA_XML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.instants import Instant
from persistence.model.network_addresses import Bucket
from persistence.model.queries import FormPattern
from persistence.model.sidecar import SCHEMA, Sidecar, described, digest_text
from persistence.storage.attachments import SplitStorage
from persistence.storage.commit import Upload
from persistence.storage.storage import (
    Arrivals,
    Bodies,
    Readable,
    Revisions,
    RevisionStorage,
    StateMark,
    Storage,
    Writing,
    sum_of_revisions,
)
from persistence.storage.stored_revision import StoredRevision

# The state of a document or of a version of a definition in a storage: the revisions of each of its files.
#
# Two storages with equal states have the same revisions: an entity tag is made once. Re-encryption changes the digest.


@dataclass(frozen=True, slots=True)
class RevisionState:
    """The instant and entity tag of a revision, and the size and digest of its content.

    ``id`` is the content id, which is not the same in each storage. If it ``is_apart``, the content is elsewhere.
    """

    instant: Instant
    etag: str
    size: int
    digest: str | None
    id: str = field(compare=False)
    is_apart: bool = field(default=False, compare=False)


FileStates = Mapping[Address, tuple[RevisionState, ...]]  # The revisions of each file, the oldest first


@dataclass(frozen=True, slots=True)
class MovedUnit:
    """A document with its draft, or a version of a definition, by its ``data.xml`` or ``form.xhtml``."""

    main: Address

    @property
    def is_definition(self) -> bool:
        return isinstance(self.main, DefinitionAddress)

    @property
    def name(self) -> str:
        if isinstance(self.main, DefinitionAddress):
            return f"{self.main.form}/form/{self.main.version}"
        return f"{self.main.form}/{self.main.collection.value}/{self.main.document}"

    @property
    def draft(self) -> Address | None:
        """The ``data.xml`` of the draft; ``None`` for a definition."""
        return self.main.moved(Collection.DRAFT) if isinstance(self.main, DocumentAddress) else None


@dataclass(frozen=True, slots=True)
class UnitState:
    """The files of a unit that keep their history, and those of its draft."""

    saved: FileStates
    draft: FileStates

    @property
    def revisions(self) -> int:
        return sum(map(len, (*self.saved.values(), *self.draft.values())))

    @property
    def etags_of_draft(self) -> list[str]:
        return [state.etag for states in self.draft.values() for state in states]

    def has(self, mark: StateMark) -> bool:
        """Return whether a mark was made from this very state."""
        if mark.is_sum:
            return mark.value == str(
                sum_of_revisions(
                    (is_draft, address.name, each.instant, each.id, each is states[-1])
                    for is_draft, files in ((False, self.saved), (True, self.draft))
                    for address, states in files.items()
                    for each in states
                )
            )
        return bool(mark.value) and (mark.has_saved, mark.has_draft) == (bool(self.saved), bool(self.draft))


NOTHING = UnitState({}, {})


def state_of(storage: Readable, unit: MovedUnit) -> UnitState:
    """Read the state of a unit, without a draft that is older than the last save: the next writer removes it."""
    saved = _file_states(storage, unit.main)
    draft: FileStates = {}
    if unit.draft is not None:
        draft = _file_states(storage, unit.draft)
        if unit.draft in draft and unit.main in saved and draft[unit.draft][-1].instant <= saved[unit.main][-1].instant:
            draft = {}
    return UnitState(saved, draft)


def _file_states(storage: Readable, main: Address) -> FileStates:
    found = dict[Address, list[RevisionState]]()
    for name, instant, sidecar in storage.sidecars(main):
        whole = described(sidecar)
        state = RevisionState(instant, whole.etag, whole.size, whole.digest, whole.id, sidecar.body is not None)
        found.setdefault(replace(main, name=name), []).append(state)
    return {address: tuple(states) for address, states in found.items()}


# Copying revisions between storages: byte for byte, with their sidecars, each compared with its digest.
#
# The revisions of a document are received first and committed under one lock, in the order of their times. So a reader
# of the destination sees the document as it was at some time.


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


@dataclass(frozen=True, slots=True)
class MoveSource:
    """The source: ``storage`` has the forms, ``revisions`` also their attachments; ``name`` has no passwords.

    ``bucket_of`` returns the object store with the attachments of a form, where ``keeps_objects`` leaves them.
    """

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
    """The destination, its record of moves, and its flat views; with ``bodies``, attachments in an object store."""

    storage: Storage
    arrivals: Arrivals
    reports: ReportTables | None = None
    bodies: Bodies | None = None

    @property
    def attached(self) -> RevisionStorage:
        """The storage with its attachments."""
        return self.storage if self.bodies is None else SplitStorage(self.storage, self.bodies)

    def fault(
        self, unit: MovedUnit, there: UnitState, here: UnitState, *, keeps_apart: bool, is_ours: bool
    ) -> str | None:
        """Return the first revision ``here`` whose body is missing, or in a place of an earlier move.

        ``there`` is the state in the source. Unless the destination ``is_ours``, a body may be beside its record.
        """
        apart = [each for each in _each(here) if each[1].is_apart]
        wrong = apart
        if apart and keeps_apart:
            known = {(address, state.id) for address, state in _each(there)}
            wrong = [(address, state) for address, state in apart if (address, state.id) not in known]
        elif apart and self.bodies is not None and isinstance(unit.main, DocumentAddress):
            held = self.bodies.held(unit.main.form, unit.main.document)
            wrong = [(address, state) for address, state in apart if held.get((address, state.id)) != state.size]
        if self.bodies is not None and is_ours:
            wrong += [
                (address, state)
                for address, state in _each(here)
                if isinstance(address, DocumentAddress) and not (address.is_main or state.is_apart) and state.size > 0
            ]
        return None if not wrong else f"the body of {wrong[0][0]} of {wrong[0][1].instant} is not in its place"


def _each(unit: UnitState) -> Iterator[tuple[Address, RevisionState]]:
    for files in (unit.saved, unit.draft):
        for address, states in files.items():
            yield from ((address, state) for state in states)


_KINDS = {True: "definitions", False: "documents"}
_MEBIBYTE = 1 << 20


class MoveResult(Enum):
    """The result for a document or a version of a definition; ``CHANGING`` ones are left to the last pass."""

    MOVED = "moved"
    THERE = "there"
    REMOVED = "removed"
    CHANGING = "changing"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """The outcome for ``name``: ``revisions`` were copied, with ``size`` bytes of contents."""

    name: str
    result: MoveResult
    is_definition: bool = False
    revisions: int = 0
    size: int = 0
    cause: str = ""


@dataclass(slots=True)
class MoveReport:
    """Counts the outcomes of one pass."""

    counts: Counter[tuple[bool, MoveResult]] = field(default_factory=Counter)
    revisions: int = 0
    size: int = 0

    def add(self, outcome: MoveOutcome) -> None:
        self.counts[outcome.is_definition, outcome.result] += 1
        self.revisions += outcome.revisions
        self.size += outcome.size

    @property
    def refused(self) -> int:
        """The number of refused documents and versions."""
        return sum(count for (_, result), count in self.counts.items() if result is MoveResult.REFUSED)

    def facts(self) -> dict[str, object]:
        """Return the counts for programs; ``bytes`` are those of contents."""
        counts = {
            kind: {result.value: self.counts[is_definition, result] for result in MoveResult}
            for is_definition, kind in _KINDS.items()
        }
        return {**counts, "revisions": self.revisions, "bytes": self.size}

    def line(self, *, is_dry: bool = False) -> str:
        """Return the counts for people."""
        parts = []
        for is_definition, kind in _KINDS.items():
            own = {result: self.counts[is_definition, result] for result in MoveResult}
            text = f"{own[MoveResult.MOVED]} {kind} {'to be moved' if is_dry else 'moved'}"
            text += f", {own[MoveResult.THERE]} there already"
            for result in (MoveResult.REMOVED, MoveResult.CHANGING, MoveResult.REFUSED):
                text += f", {own[result]} {result.value}" if own[result] else ""
            parts.append(text)
        return f"{'; '.join(parts)}; {self.revisions} revisions, {self.size / _MEBIBYTE:.1f} MiB"


_ATTEMPTS = 5
_REFUSED = (BadRequestError, ConflictError, DamagedError)
"""Errors of one document, which is named. Others end the move: a disk or a database that refuses."""


# A move: a first pass while the source is written to, and a last one while it can only be read.
#
# The first pass remembers the fingerprint of each document that was the same in both places. The last one reads only
# documents with another fingerprint, and removes from the destination those that the source does not have any more. The
# destination of a form is this move's own if it had nothing of the form before, which Arrivals records. Otherwise only
# drafts that a move has stored are replaced.


@dataclass(slots=True)
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
    _moved_drafts: set[str] | None = None
    _published: dict[DefinitionAddress, None] = field(default_factory=dict)
    """Versions whose flat views in the destination will be made or dropped."""

    def count(self) -> int:
        """Count the outcomes: one for each document with its draft, and each version of a definition."""
        return sum(1 for form in self._forms(self.source.storage) for _ in self.source.storage.marks(form))

    def require_matches(self) -> None:
        """Check that each pattern matches a form in the source, or one that an earlier run has begun to move."""
        forms = self._forms(self.source.storage)
        if self.target is not None:
            forms.extend(self.target.arrivals.begun(self.source.name))
        for pattern in self.patterns:
            if pattern != FormPattern() and not any(map(pattern.matches, forms)):
                raise NotFoundError(f"no form here matches {pattern.app or '*'}/{pattern.name or '*'}")

    def first(self) -> Iterator[MoveOutcome]:
        """Copy everything, or again all that was changed since, while others may write to the source."""
        if self.target is not None:
            self._begun_before = frozenset(filter(self._matches, self.target.arrivals.begun(self.source.name)))
            self._ours |= self._begun_before
        for form in self._forms(self.source.storage):
            is_empty = self._claim(form)
            yield from self._copy_all(self.source.storage.marks(form), is_empty=is_empty, is_last=False)

    def last(self) -> Iterator[MoveOutcome]:
        """Copy all that was changed since the first pass; nobody may write to the source.

        Outcomes are those of the whole move, except for copies of the first pass.
        """
        moved = set[Form]()
        for form in self._forms(self.source.storage):
            moved.add(form)
            is_empty, found = self._claim(form), set[int]()
            marks = _recording(found, self.source.storage.marks(form))
            yield from self._copy_all(marks, is_empty=is_empty, is_last=True)
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
                stored = self.target.storage.sidecar(address)
                if stored is not None and stored.deleted:
                    reports.drop(address.form, address.version)
                elif stored is not None and stored.flat_view:
                    reports.create(address.form, address.version)
            except PersistenceError as error:
                yield f"no flat views of {address.form}, version {address.version}: {error}"

    def end(self) -> None:
        """Record that the forms are whole in the destination, and no longer this move's own."""
        if self.target is not None:
            self.target.arrivals.end(self.source.name, self._ours)

    def _forms(self, storage: Readable) -> list[Form]:
        return sorted(filter(self._matches, storage.forms()), key=lambda form: (form.app, form.name))

    def _matches(self, form: Form) -> bool:
        return any(pattern.matches(form) for pattern in self.patterns)

    def _claim(self, form: Form) -> bool:
        if self.target is None or self.is_dry or form in self._ours:
            return False
        storage = self.target.storage
        names = (each for collection in Collection for each in storage.documents(form, collection))
        if next(storage.versions(form), None) is not None or next(names, None) is not None:
            return False
        self.target.arrivals.begin(self.source.name, form)
        self._ours.add(form)
        return True

    def _copy_all(self, marks: Iterable[StateMark], *, is_empty: bool, is_last: bool) -> Iterator[MoveOutcome]:
        with ThreadPoolExecutor(MOVED_AT_ONCE, "moving") as pool:
            begun = deque[Future[MoveOutcome]]()
            try:
                for mark in marks:
                    unit = MovedUnit(mark.main)
                    if _key(mark) in self._known:
                        yield MoveOutcome(unit.name, MoveResult.THERE, unit.is_definition)
                        continue
                    begun.append(pool.submit(self._copy_unit, unit, mark, is_empty=is_empty, is_last=is_last))
                    if unit.is_definition or len(begun) > MOVED_AT_ONCE:
                        yield begun.popleft().result()
                while begun:
                    yield begun.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _copy_unit(self, unit: MovedUnit, mark: StateMark, *, is_empty: bool, is_last: bool) -> MoveOutcome:
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    return self._compare_and_copy(unit, mark, is_new=is_empty and not attempt, is_last=is_last)
                except SourceChangedError as error:
                    changed = error
            if not is_last:
                return MoveOutcome(unit.name, MoveResult.CHANGING, unit.is_definition)
            raise changed
        except _REFUSED as error:
            return MoveOutcome(unit.name, MoveResult.REFUSED, unit.is_definition, cause=str(error))

    def _compare_and_copy(self, unit: MovedUnit, mark: StateMark, *, is_new: bool, is_last: bool) -> MoveOutcome:
        target, is_ours = self.target, unit.main.form in self._ours
        contents = self.source.contents(unit.main.form, None if target is None else target.bodies)
        there = state_of(self.source.storage, unit)
        here, fault = NOTHING, None
        if target is not None and not is_new:
            here = state_of(target.storage, unit)
            fault = target.fault(unit, there, here, keeps_apart=contents.keeps_apart, is_ours=is_ours)
        plan = plan_copy(unit, there, here, is_ours=is_ours, fault=fault, has_brought=self._has_brought)
        result = MoveResult.THERE if plan.is_empty else MoveResult.MOVED
        size = self._carry_out(unit, plan, here, contents)
        if isinstance(unit.main, DefinitionAddress) and not self.is_dry and (plan.copied or not is_last):
            self._published[unit.main] = None
        if there.has(mark) and len(self._known) < MOST_REMEMBERED:
            self._known.add(_key(mark))
        return MoveOutcome(unit.name, result, unit.is_definition, len(plan.copied), size)

    def _carry_out(self, unit: MovedUnit, plan: CopyPlan, here: UnitState, contents: SourceContents) -> int:
        if self.target is None or self.is_dry:
            return read_through(contents, plan)
        known = (*here.saved, *here.draft)
        if known and unit.main.form in self._begun_before:
            with self.target.storage.writing(unit.main) as writer:
                for address in known:
                    writer.current(address)  # it finishes a commit
        if plan.is_empty:
            return 0
        drafts = [state.etag for address, state in plan.copied if not address.keeps_history]
        if drafts:
            self.target.arrivals.bring_drafts(self.source.name, drafts)
            self._drafts().update(drafts)
        return transfer(contents, self.target.attached, unit, plan, here)

    def _remove_others(self, form: Form, found: set[int]) -> Iterator[MoveOutcome]:
        if self.target is None or self.is_dry:
            return
        storage, is_ours = self.target.storage, form in self._ours
        collections = Collection if is_ours else (Collection.DRAFT,)
        every = (each for collection in collections for each in storage.documents(form, collection))
        for document in {each for each in every if hash(each) not in found}:
            main = DocumentAddress(form, Collection.DATA, document, DATA_XML)
            if not is_ours and not self._is_draft_of_moves(storage, MovedUnit(main)):
                continue
            with self.target.attached.writing(main) as writer:
                writer.discard_draft(form, main.document)
                if is_ours:
                    writer.discard_document(form, main.document)
            yield MoveOutcome(MovedUnit(main).name, MoveResult.REMOVED)

    def _is_draft_of_moves(self, storage: Readable, unit: MovedUnit) -> bool:
        try:
            here = state_of(storage, unit)
        except DamagedError:
            return False
        return bool(here.draft) and not here.saved and self._has_brought(here.etags_of_draft)

    def _has_brought(self, etags: Iterable[str]) -> bool:
        return self._drafts().issuperset(etags)

    def _drafts(self) -> set[str]:
        if self._moved_drafts is None:
            self._moved_drafts = set() if self.target is None else self.target.arrivals.drafts_of(self.source.name)
        return self._moved_drafts


def _recording(found: set[int], marks: Iterator[StateMark]) -> Iterator[StateMark]:
    for mark in marks:
        if isinstance(mark.main, DocumentAddress):
            found.add(hash(mark.main.document))
        yield mark


def _key(mark: StateMark) -> int:
    return hash((mark.main, mark.value))
