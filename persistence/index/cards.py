"""The card of a document, the same in every engine, its keys, and the parts of a search.

Each value of a control or a fact has a key, under which it is found, sorted and listed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag

import msgspec
from msgspec.structs import asdict, astuple

from persistence.index.sources import DocumentName, IndexedDocument
from persistence.limits import MOST_INDEXED, MOST_INDEXED_VALUES
from persistence.model.permissions import NOBODY, OwnerSets
from persistence.model.queries import Drafts, Field, Scope
from persistence.model.sidecar import DocumentFacts

SEPARATOR = "\x1f"
"""Separates texts that are kept as one: XML cannot have this character, so no text that is searched for has it."""

LONGEST_KEY = 200
"""Characters of a value by which it is sorted; two that differ only after these are still distinguished."""

NOTHING = 0  # The fold, and the value, of a control without a value: before every text

AS_FOLDED = "\uffff"
"""The value of an entry whose fold is the value itself: after others, as small letters are after capitals."""

Fold = str | int
Value = str | int
EntryRow = tuple[int, Fold, Value, int]  # Number, fold, value and edge


class Fact(IntEnum):
    """Facts about a document that are entered like the values of a control, under numbers that no control has."""

    CREATED = -1
    CREATED_BY = -2
    LAST_MODIFIED_BY = -3
    WORKFLOW_STAGE = -4
    GROUP = -5
    ORGANIZATION = -6
    SAVED_BY = -7
    SAVED_GROUP = -8
    SAVED_ORGANIZATION = -9


OF_DRAFTS = (Fact.SAVED_BY, Fact.SAVED_GROUP, Fact.SAVED_ORGANIZATION)
"""The facts of drafts only: the owner who decides who may read them, which is the saved document's, if any."""


FACTS: Mapping[Field, Fact] = {
    Field.CREATED: Fact.CREATED,
    Field.CREATED_BY: Fact.CREATED_BY,
    Field.LAST_MODIFIED_BY: Fact.LAST_MODIFIED_BY,
    Field.WORKFLOW_STAGE: Fact.WORKFLOW_STAGE,
}
"""The facts by which searches filter and sort; the time of the last save is the order of the rows."""


class Edge(IntFlag):
    """Labels the value that a document is sorted by: the lowest in ascending order, the highest in descending order."""

    NONE = 0
    LOWEST = 1
    HIGHEST = 2


class Owner(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The owner who decides who may read a draft."""

    creator: str | None
    group: str | None
    organization: tuple[str, ...]


class Card(DocumentFacts, frozen=True, array_like=True, gc=False):
    """Everything that an answer says of a document, and the values of every indexed control by its number.

    ``reader`` is set for drafts only: the owner of the saved document, else the draft's own.
    """

    values: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    reader: Owner | None = None

    @property
    def facts(self) -> DocumentFacts:
        return DocumentFacts(*astuple(self)[: len(DocumentFacts.__struct_fields__)])

    def of(self, number: int) -> tuple[str, ...]:
        if number > 0:
            return self.values.get(number, ())
        owner = self if number not in OF_DRAFTS else self.reader
        if owner is None:
            return ()
        match number:
            case Fact.ORGANIZATION | Fact.SAVED_ORGANIZATION:
                return owner.organization
            case Fact.CREATED_BY | Fact.SAVED_BY:
                value = owner.creator
            case Fact.CREATED:
                value = self.created
            case Fact.LAST_MODIFIED_BY:
                value = self.modifier
            case Fact.WORKFLOW_STAGE:
                value = self.stage
            case _:
                value = owner.group
        return () if value is None else (value,)


decode = msgspec.json.Decoder(Card).decode  # Decodes a card from its JSON


def encode(card: Card) -> str:
    return msgspec.json.encode(card).decode()


@dataclass(frozen=True, slots=True)
class VersionKeys:
    """The indexed controls of a form version by which its documents are read.

    ``numbers`` are the numbers of the controls by path, in the order of the index. ``generation`` changes whenever the
    documents must be read again.
    """

    version: int
    generation: int
    numbers: Mapping[str, int]


class PreparedDocument(msgspec.Struct, frozen=True, gc=False):
    """A document, ready to be written by any engine without a look at its index.

    ``card`` is the JSON of ``content``, and ``free_text`` is folded.
    """

    name: DocumentName
    generation: int
    fingerprint: str
    content: Card
    card: str
    free_text: str


def prepared(read: IndexedDocument, keys: VersionKeys) -> PreparedDocument:
    hit, decides = read.hit, read.hit.saved_owner
    left, number_left = MOST_INDEXED, MOST_INDEXED_VALUES
    bounded = {}
    for path, number in keys.numbers.items():
        kept = []
        for value in hit.values.get(path, ()):
            if number_left and len(value) <= left:
                kept.append(value)
                left -= len(value)
                number_left -= 1
        bounded[number] = tuple(kept)
    card = Card(
        **asdict(hit.facts),
        values=bounded,
        reader=None if decides is None else Owner(decides.name, decides.group, decides.organization),
    )
    return PreparedDocument(
        DocumentName(hit.document, hit.is_draft),
        keys.generation,
        read.fingerprint,
        card,
        encode(card),
        read.free_text.casefold(),
    )


def key_of(value: str) -> tuple[Fold, Value]:
    """Return the key of a value: its folded text and, where that differs, the value."""
    folded = value.casefold()
    if len(value) > LONGEST_KEY or len(folded) > LONGEST_KEY:
        digest = hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:32]
        return folded[:LONGEST_KEY] + SEPARATOR, digest
    return folded, AS_FOLDED if folded == value else value


def is_cut(fold: Fold) -> bool:
    return isinstance(fold, str) and fold.endswith(SEPARATOR)


BOTH = int(Edge.LOWEST | Edge.HIGHEST)  # The edge of a value that is the only one


_FACTS_OF_ALL = tuple(fact for fact in Fact if fact not in OF_DRAFTS)


def entries(card: Card) -> Iterator[EntryRow]:
    """Yield the entries of a document under its facts and under the controls of its form."""
    for number in (*(Fact if card.reader else _FACTS_OF_ALL), *card.values):
        values = card.of(number)
        if number is Fact.CREATED:
            yield int(number), card.created, AS_FOLDED, BOTH  # as it is, so that times are compared
        elif not values:
            yield int(number), NOTHING, NOTHING, BOTH
        elif len(values) == 1:
            yield int(number), *key_of(values[0]), BOTH
        else:
            keys = sorted({key_of(value) for value in values}, key=order_of)
            for at, (fold, value) in enumerate(keys):
                edge = (Edge.LOWEST if at == 0 else 0) | (Edge.HIGHEST if at == len(keys) - 1 else 0)
                yield int(number), fold, value, int(edge)


def order_of(key: tuple[Fold, Value]) -> tuple[bool, Fold, Value]:
    fold, value = key
    return isinstance(fold, str), fold, value


OWNER_FACTS = (Fact.CREATED_BY, Fact.GROUP, Fact.ORGANIZATION)
"""The facts of the owner of a document; those of the owner of a draft's saved document are ``OF_DRAFTS``."""

OwnerFacts = tuple[Fact, Fact, Fact]

_DRAFTS = {Drafts.INCLUDE: (False, True), Drafts.EXCLUDE: (False,), Drafts.ONLY: (True,)}


def searched_owners(scope: Scope, version: int, *, is_draft: bool) -> OwnerSets | None:
    """Return the owners whose documents are seen in a partition; ``None`` where it is not searched."""
    if is_draft not in _DRAFTS[scope.drafts.kind] or (scope.versions is not None and version not in scope.versions):
        return None
    owner_sets = scope.seen.of_version(version)
    return None if NOBODY in owner_sets else owner_sets
