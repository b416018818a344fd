"""The values of an import: revisions with the facts of their source, and the outcome for each document."""

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
"""Opens a content to read it once; raises ``BadRequestError`` if the source is damaged."""


@dataclass(frozen=True, slots=True)
class ImportFacts:
    """The facts of a revision as far as its source has them; from an archive of this service, the ``sidecar`` has all.

    With ``is_decrypted`` the content is plain although the sidecar says otherwise. ``tag`` is an entity tag. Without
    ``has_own_time``, ``modified`` is that of the document.
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

    @property
    def modified(self) -> Instant | None:
        return self.facts.modified if self.facts.sidecar is None else self.facts.sidecar.modified


@dataclass(frozen=True, slots=True)
class ImportUnit:
    """The revisions of one document with its draft, or of one version of a definition, in a source.

    With ``says_owners`` such a source should have the owner of each document.
    """

    name: str
    revisions: tuple[ImportedRevision, ...]
    says_owners: bool = False

    @property
    def is_definition(self) -> bool:
        return isinstance(self.revisions[0].address, DefinitionAddress)

    @property
    def lacks_owner(self) -> bool:
        """Return whether it is a document without the owner that such a source should have."""
        data = [each for each in self.revisions if each.address.is_main and each.content is not None]
        return (
            self.says_owners
            and not self.is_definition
            and any(each.facts.sidecar is None for each in data)
            and not any(each.facts.creator for each in data)
        )


class ImportResult(Enum):
    """The result for a document, a version of a definition, or another file."""

    IMPORTED = "imported"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"
    REFUSED = "refused"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """The outcome for ``name``: ``placed`` revisions are new, ``known`` ones were stored already.

    ``form`` is that of new documents, which if one ``lacks_owner`` was imported without an owner.
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
    """Refuse facts that no request could have set; ``latest`` is the last instant that is accepted."""
    if facts.sidecar is not None and facts.sidecar.metadata is not None and facts.sidecar.metadata.permissions:
        read_permissions(facts.sidecar.metadata.permissions)
    known: Sidecar | ImportFacts = facts.sidecar or facts
    texts = (known.creator, known.group, known.modifier, known.stage, known.source, *known.organization)
    hashed = None if facts.sidecar is None else facts.sidecar.client_hash  # which becomes headers
    for text in (*texts, *(() if hashed is None else (hashed.algorithm, hashed.value))):
        if text is not None and (not text.strip() or len(text) > LONGEST_TEXT or not text.isprintable()):
            raise BadRequestError(
                f"a name in the metadata must have 1 to {LONGEST_TEXT} characters, none of them control characters"
            )
    if len(known.organization) > MOST_LEVELS:
        raise BadRequestError(f"an organization has more than {MOST_LEVELS} levels")
    created, modified = known.created, known.modified
    is_ahead = any(time is not None and time > latest for time in (created, modified))
    if is_ahead or (created is not None and modified is not None and created > modified):
        raise BadRequestError("a revision is from the future, or was modified before it was created")


def with_time(revision: ImportedRevision, modified: Instant) -> ImportedRevision:
    """Return a revision, with the time of its document where it has none of its own."""
    facts = revision.facts
    if facts.modified is not None or facts.sidecar is not None:
        return revision
    return replace(revision, facts=replace(facts, modified=modified, has_own_time=False))
