"""The values of an import: revisions with the facts that a source has of them, and the outcome for each document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from persistence.errors import BadRequestError, one_line
from persistence.forms.metadata import read_permissions
from persistence.limits import LONGEST_ENTRY, LONGEST_TEXT, MOST_LEVELS
from persistence.model.addresses import Address, DefinitionAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar

Content = Callable[[], Iterator[bytes]]
"""Opens a content, to be read once; raises ``BadRequestError`` where the source is not as it should be."""


@dataclass(frozen=True, slots=True)
class ImportFacts:
    """The facts of a revision as far as its source has them.

    ``sidecar`` has all, from an archive of this service, and with ``is_decrypted`` the content is plain although the
    sidecar says otherwise. ``tag`` is an entity tag. With ``has_own_time`` false, ``modified`` is that of the document.
    ``holder`` is the path of the element that holds an attachment.
    """

    sidecar: Sidecar | None = None
    is_decrypted: bool = False
    created: Instant | None = None
    modified: Instant | None = None
    has_own_time: bool = True
    creator: str | None = None
    group: str | None = None
    organization: tuple[str, ...] = ()
    modifier: str | None = None
    stage: str | None = None
    content_type: str | None = None
    valid: bool | None = None
    source: str | None = None
    tag: str | None = None
    holder: str | None = None
    notes: tuple[str, ...] = ()


NO_FACTS = ImportFacts()


@dataclass(frozen=True, slots=True)
class ImportedRevision:
    """A revision in a source; ``version`` is ``None`` where the source does not say it.

    ``name`` is for people. Without ``content`` it is a tombstone.
    """

    name: str
    address: Address
    version: int | None
    facts: ImportFacts
    content: Content | None

    @property
    def is_exact(self) -> bool:
        """Return whether all facts are known, and the content is the stored one."""
        return self.facts.sidecar is not None and not self.facts.is_decrypted


@dataclass(frozen=True, slots=True)
class ImportUnit:
    """All that a source has of one document with its draft, or of one version of a definition.

    ``says_owners`` says that the owner of each document is expected in such a source.
    """

    name: str
    revisions: tuple[ImportedRevision, ...]
    says_owners: bool = False

    @property
    def is_definition(self) -> bool:
        return isinstance(self.revisions[0].address, DefinitionAddress)

    @property
    def lacks_owner(self) -> bool:
        """Return whether it is a document that came without the owner that it should have."""
        data = [each for each in self.revisions if each.address.is_main and each.content is not None]
        return (
            self.says_owners
            and not self.is_definition
            and any(each.facts.sidecar is None for each in data)
            and not any(each.facts.creator for each in data)
        )


class ImportResult(Enum):
    """The result for a document or a version of a definition, or for a file that is none."""

    IMPORTED = "imported"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    REFUSED = "refused"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """The outcome for ``name``: ``placed`` revisions are new, and ``known`` ones were there already.

    ``lacks_owner`` says that it was imported without an owner. ``form`` is that of new documents.
    """

    name: str
    result: ImportResult
    is_definition: bool = False
    placed: int = 0
    known: int = 0
    cause: str = ""
    notes: tuple[str, ...] = ()
    lacks_owner: bool = False
    form: Form | None = None


class ImportSource(Protocol):
    """A place that has definitions and documents."""

    def count(self) -> int:
        """Return about how many outcomes there will be."""

    def definitions(self) -> Iterator[ImportUnit | ImportOutcome]:
        """Yield all versions of definitions, and an outcome for each file that cannot be understood."""

    def documents(self) -> Iterator[ImportUnit | ImportOutcome]:
        """Yield all documents, and an outcome for each that cannot be read."""


def refused(name: str, cause: object, *, is_definition: bool = False) -> ImportOutcome:
    return ImportOutcome(name[:LONGEST_ENTRY], ImportResult.REFUSED, is_definition, cause=one_line(str(cause)))


def check_facts(facts: ImportFacts, latest: Instant) -> None:
    """Refuse facts that no request could have given a revision; ``latest`` is the last instant that it may have."""
    if facts.sidecar is not None and facts.sidecar.metadata is not None and facts.sidecar.metadata.permissions:
        read_permissions(facts.sidecar.metadata.permissions)
    known: Sidecar | ImportFacts = facts.sidecar or facts
    texts = (known.creator, known.group, known.modifier, known.stage, known.source, *known.organization)
    hashed = None if facts.sidecar is None else facts.sidecar.client_hash  # which becomes headers
    for text in (*texts, *(() if hashed is None else (hashed.algorithm, hashed.value))):
        if text is not None and (not text.strip() or len(text) > LONGEST_TEXT or not text.isprintable()):
            raise BadRequestError(f"a fact is blank, longer than {LONGEST_TEXT} characters, or has control characters")
    if len(known.organization) > MOST_LEVELS:
        raise BadRequestError(f"an organization has more than {MOST_LEVELS} levels")
    created, modified = known.created, known.modified
    is_ahead = any(time is not None and time > latest for time in (created, modified))
    if is_ahead or (created is not None and modified is not None and created > modified):
        raise BadRequestError("a revision is of a time that is yet to come, or was modified before it was created")


def with_time(revision: ImportedRevision, modified: Instant) -> ImportedRevision:
    """Return a revision, with the time of its document where it has none of its own."""
    facts = revision.facts
    if facts.modified is not None or facts.sidecar is not None:
        return revision
    return replace(revision, facts=replace(facts, modified=modified, has_own_time=False))
