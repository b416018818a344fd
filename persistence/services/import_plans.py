"""The revisions of an import, their plan and their sidecars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

import msgspec

from persistence.errors import BadRequestError, ConflictError, one_line
from persistence.forms.archive_metadata import ImportFacts
from persistence.forms.definition_metadata import read_permissions
from persistence.limits import LONGEST_ENTRY, LONGEST_TEXT, MOST_LEVELS
from persistence.model.addresses import Address, Collection, DefinitionAddress, DocumentAddress
from persistence.model.permissions import ANONYMOUS, User
from persistence.model.sidecar import SCHEMA, Sidecar, described, owned, tombstone
from persistence.model.texts import LAST, Instant, next_after
from persistence.services.codec import EncodedContent
from persistence.services.rules import Put, Received, living, next_revision
from persistence.services.transfers import TransferOutcome, TransferResult
from persistence.storage.commit import Upload
from persistence.storage.storage import RevisionStorage
from persistence.storage.stored_revision import StoredRevision

Content = Callable[[], Iterator[bytes]]
"""Opens a content to read it once; raises ``BadRequestError`` if the source is damaged."""


@dataclass(frozen=True, slots=True)
class ImportedRevision:
    """A revision in a source; ``version`` is ``None`` where the source does not say it."""

    # ``name`` is for people. Without ``content`` it is a tombstone.
    name: str
    address: Address
    version: int | None
    facts: ImportFacts
    content: Content | None

    @property
    def exact(self) -> Sidecar | None:
        """The sidecar if it has all facts, and those of this very content."""
        return None if self.facts.is_decrypted else self.facts.sidecar

    @property
    def modified(self) -> Instant | None:
        return self.facts.modified if self.facts.sidecar is None else self.facts.sidecar.modified


@dataclass(frozen=True, slots=True)
class ImportUnit:
    """The revisions of one document with its draft, or of one version of a definition, in a source."""

    # With ``says_owners`` such a source should have the owner of each document.
    name: str
    revisions: tuple[ImportedRevision, ...]
    says_owners: bool = False

    @property
    def is_definition(self) -> bool:
        return isinstance(self.revisions[0].address, DefinitionAddress)

    @property
    def lacks_owner(self) -> bool:
        data = [each for each in self.revisions if each.address.is_main and each.content is not None]
        return (
            self.says_owners
            and not self.is_definition
            and any(each.facts.sidecar is None for each in data)
            and not any(each.facts.creator for each in data)
        )


class ImportSource(Protocol):
    """A place that has definitions and documents."""

    def count(self) -> int:
        """Return about how many outcomes there will be."""

    def units(self) -> Iterator[ImportUnit | TransferOutcome]:
        """Yield all versions of definitions, then all documents, and an outcome for each that cannot be read."""


def refused(name: str, cause: object, *, is_definition: bool = False) -> TransferOutcome:
    return TransferOutcome(name[:LONGEST_ENTRY], TransferResult.REFUSED, is_definition, cause=one_line(str(cause)))


def check_facts(facts: ImportFacts, latest: Instant) -> None:
    """Refuse facts that no request could have set; ``latest`` is the last instant that is accepted."""
    if facts.sidecar is not None and facts.sidecar.metadata is not None and facts.sidecar.metadata.permissions:
        read_permissions(facts.sidecar.metadata.permissions)
    known: Sidecar | ImportFacts = facts.sidecar or facts
    texts = (known.creator, known.group, known.modifier, known.stage, known.source, *known.organization)
    hashed = known.client_hash  # which becomes headers
    for name in (*texts, *(() if hashed is None else (hashed.algorithm, hashed.value))):
        if name is not None and (not name.strip() or len(name) > LONGEST_TEXT or not name.isprintable()):
            raise BadRequestError(
                f"a name in the metadata must have 1 to {LONGEST_TEXT} characters, none of them control characters"
            )
    if len(known.organization) > MOST_LEVELS:
        raise BadRequestError(f"an organization has more than {MOST_LEVELS} levels")
    created, modified = known.created, known.modified
    is_ahead = any(time is not None and time > latest for time in (created, modified))
    if is_ahead or (created is not None and modified is not None and created > modified):
        raise BadRequestError("a revision is from the future, or was modified before it was created")


# History is never rewritten. A revision is placed if it is newer than all stored revisions of its file; one that is
# not, and is not stored, is a conflict. A document with a conflict is left as it is, as a whole.


class OnConflict(Enum):
    """The way to treat a document that differs here: refuse it, skip it, or store the newest as a new revision."""

    REFUSE = "refuse"
    SKIP = "skip"
    NEW_REVISION = "new-revision"


SameContent = Callable[[ImportedRevision, StoredRevision], bool]
"""Returns whether an open revision, which it closes, has the content of one in the source, encrypted or not."""


@dataclass(slots=True)
class ImportPlan:
    """The plan of an import into one storage, which if not ``is_exact`` gives revisions its own times and tags."""

    # ``placed`` are new revisions, in order, those of ``renewed`` files with a new time. ``known`` counts those that
    # are stored already. ``over`` has the id of the current revision of each file.
    storage: RevisionStorage
    has_same_content: SameContent
    on_conflict: OnConflict
    is_exact: bool = True
    placed: list[ImportedRevision] = field(default_factory=list)
    over: dict[Address, str | None] = field(default_factory=dict)
    renewed: set[Address] = field(default_factory=set)
    known: Counter[Address] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    @property
    def revisions(self) -> tuple[tuple[Address, int, int], ...]:
        new = Counter(each.address for each in self.placed)
        return tuple((address, new[address], self.known[address]) for address in self.over)

    @property
    def replaces_drafts(self) -> bool:
        return self.on_conflict is OnConflict.NEW_REVISION

    def add(self, unit: ImportUnit) -> None:
        known = [modified for each in unit.revisions if each.address.is_main and (modified := each.modified)]
        first = min(known, default=None)
        files: dict[Address, list[ImportedRevision]] = {}
        for each in unit.revisions:
            revision = each
            if first is not None and each.modified is None:  # the time of its document
                revision = replace(each, facts=replace(each.facts, modified=first, has_own_time=False))
            files.setdefault(revision.address, []).append(revision)
        for address, revisions in files.items():
            revisions.sort(key=lambda each: each.modified or LAST)
            times = [each.modified for each in revisions]
            if len(set(times)) < len(times):
                raise ConflictError(f"{address} has two revisions of one time, {times[0]}")
        for address, revisions in files.items():
            self._add_file(address, revisions)
        self.placed.sort(key=_order)
        self._leave_out_drafts()

    def _add_file(self, address: Address, revisions: list[ImportedRevision]) -> None:
        stored = self.storage.read(address, content=False)
        self.over[address] = None if stored is None else stored.sidecar.id
        if not self.is_exact:
            if len(revisions) > 1:
                self.notes.append("older revisions are left out where another service has the data")
            self.known[address] += len(revisions) - 1
            revisions = revisions[-1:]
        try:
            for revision in revisions:
                if stored is None or self._is_newer(revision, stored):
                    self.placed.append(revision)
                elif self._is_known(revision, stored):
                    self.known[address] += 1
                else:
                    raise _conflict(address, revision, stored)
        except ConflictError:
            if not self.replaces_drafts or not address.keeps_history:
                raise
            self.placed = [each for each in self.placed if each.address != address]
            self.renewed.add(address)
            self.placed.append(revisions[-1])

    def _is_newer(self, revision: ImportedRevision, stored: StoredRevision) -> bool:
        modified = revision.modified
        if modified is None or not self.is_exact or not revision.address.keeps_history:
            return False
        if not revision.facts.has_own_time and self._is_same(revision, stored.sidecar.modified):
            return False
        return modified > stored.latest

    def _is_known(self, revision: ImportedRevision, stored: StoredRevision) -> bool:
        """Return whether the revision, or without a time of its own its content, is stored already."""
        # The real system gives its revisions times in milliseconds, or in seconds if it exports no history.
        modified, current = revision.modified, stored.sidecar.modified
        if modified is None or not revision.facts.has_own_time or not self.is_exact:
            return self._is_same(revision, current)
        is_second = modified == Instant(f"{current[:19]}.000Z")
        return self._is_same(revision, modified) or (is_second and self._is_same(revision, current))

    def _is_same(self, revision: ImportedRevision, instant: Instant) -> bool:
        found = self._read(revision.address, instant, content=False)
        if found is None:
            return False
        if found.sidecar.deleted or revision.content is None:
            return found.sidecar.deleted and revision.content is None
        tag = revision.facts.sidecar.etag if revision.facts.sidecar is not None else None
        if tag is not None and self.is_exact:
            return found.etag == tag
        opened = self._read(revision.address, instant, content=True)
        return opened is not None and self.has_same_content(revision, opened)

    def _read(self, address: Address, instant: Instant, *, content: bool) -> StoredRevision | None:
        current = self.storage.read(address, content=content)
        if current is None or current.sidecar.modified == instant:
            return current
        current.close()
        return self.storage.read(address, instant, content=content)

    def _leave_out_drafts(self) -> None:
        newest = ""
        for revision in self.placed:
            address = revision.address
            if isinstance(address, DocumentAddress) and address.is_main and not address.is_draft:
                newest = max(newest, revision.modified or "")
                draft = self.storage.sidecar(address.moved(Collection.DRAFT))
                if draft is not None and not draft.deleted and not self.replaces_drafts:
                    raise ConflictError(f"{address} has a draft here, of {draft.modified}, that a save would remove")
        kept = list[ImportedRevision]()
        for revision in self.placed:
            address, modified = revision.address, revision.modified
            if isinstance(address, DocumentAddress) and address.is_draft and modified is not None:
                saved = self.storage.sidecar(address.main.moved(Collection.DATA))
                if modified <= max(newest, "" if saved is None else saved.modified):
                    self.known[address] += 1
                    continue
            kept.append(revision)
        if len(kept) < len(self.placed):
            self.notes.append("a draft that is older than the saved document is left out")
            self.placed = kept


def _order(revision: ImportedRevision) -> tuple[bool, Instant, bool]:
    address = revision.address
    is_draft = isinstance(address, DocumentAddress) and address.is_draft
    return is_draft, revision.modified or LAST, address.is_main


def _conflict(address: Address, revision: ImportedRevision, stored: StoredRevision) -> ConflictError:
    modified, here = revision.modified, stored.sidecar
    if modified is None or not address.keeps_history:
        return ConflictError(f"{address} has another content here, of {here.modified}")
    if modified == here.modified:
        return ConflictError(f"{address} has another revision of {modified} here")
    return ConflictError(f"{address} has a newer revision here, of {here.modified}, and lacks the one of {modified}")


@dataclass(frozen=True, slots=True)
class ReceivedRevision:
    """A revision that was received and checked; ``encoded`` describes its encryption."""

    revision: ImportedRevision
    version: int
    upload: Upload | None = None
    content: Received | None = None
    encoded: EncodedContent | None = None


def stored_sidecar(received: ReceivedRevision, content: Received, over: StoredRevision | None) -> Sidecar:
    facts = received.revision.facts
    if facts.sidecar is None:
        return _composed_sidecar(received, content, over)
    own, is_main = described(facts.sidecar), received.revision.address.is_main
    is_edit = own.adopted and own.metadata is None
    sidecar = msgspec.structs.replace(
        own,
        schema=SCHEMA,
        version=received.version,
        size=content.size,
        digest=content.digest,
        metadata=None if is_edit else content.metadata,
        encrypted=None if own.encrypted is False and not content.is_plain else own.encrypted,
    )
    if not facts.is_decrypted and content.digest == own.digest:
        return sidecar
    is_plain = False if is_main and content.is_plain else None
    return msgspec.structs.replace(sidecar, id=content.id, tag=own.etag, encrypted=is_plain, sealed_hash=None)


def _composed_sidecar(received: ReceivedRevision, content: Received, over: StoredRevision | None) -> Sidecar:
    """Return a sidecar with the facts of the source; other facts are as after a PUT."""
    facts = received.revision.facts
    is_document = isinstance(received.revision.address, DocumentAddress)
    owner = User(name=facts.creator, group=facts.group, organization=facts.organization) if is_document else ANONYMOUS
    put = Put(
        user=User(name=facts.modifier),
        valid=facts.valid,
        stage=facts.stage,
        source=facts.source,
        client_hash=facts.client_hash,
    )
    sidecar = next_revision(put, content, received.version, over=over, owner=owner)
    modified = facts.modified or sidecar.modified
    is_new = living(over) is None
    created = facts.created or (modified if is_new else sidecar.created)
    if is_document and facts.creator is not None:
        sidecar = owned(sidecar, owner)
    return msgspec.structs.replace(sidecar, modified=modified, created=min(created, modified), tag=facts.tag)


def deleted_sidecar(received: ReceivedRevision, over: StoredRevision | None) -> Sidecar:
    """Return the tombstone of a revision, which keeps the metadata of a definition."""
    facts = received.revision.facts
    if facts.sidecar is not None:
        metadata = facts.sidecar.metadata if over is None else over.sidecar.metadata
        return msgspec.structs.replace(facts.sidecar, schema=SCHEMA, version=received.version, metadata=metadata)
    modified = facts.modified or next_after(None if over is None else over.latest)
    if over is not None:
        return tombstone(over.sidecar, modified=modified, modifier=facts.modifier)
    nothing = Received("0" * 40, 0, "", "")
    before = next_revision(
        Put(), nothing, received.version, over=None, owner=User(name=facts.creator, group=facts.group)
    )
    before = msgspec.structs.replace(before, created=min(facts.created or modified, modified))
    return tombstone(before, modified=modified, modifier=facts.modifier)
