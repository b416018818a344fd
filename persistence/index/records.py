"""What the index keeps of a document, as values: its card, its entries and its columns of text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from itertools import islice

import msgspec

from persistence.limits import MOST_INDEXED, MOST_INDEXED_VALUES
from persistence.model.instants import Instant, epoch_nanoseconds
from persistence.model.search import Field

SEPARATOR = "\x1f"
"""Between texts that are kept as one: a character that XML cannot have, so that no text that is looked for has it."""

COLUMNS = 32
"""Columns of text of indexed controls; the controls have them in turn."""

LONGEST_KEY = 200
"""Characters of a value by which it is sorted; two that differ only after these are still told apart."""

NOTHING = 0
"""The fold, and the value, of a control without a value: before every text."""

AS_FOLDED = "\uffff"
"""The value of an entry whose fold is the value itself: after others, as small letters are after capitals."""

ROWS_PER_MILLISECOND = 1 << 20
_LAST_MILLISECOND = (1 << 43) - 2
"""Since 1970, and until then: of the instants before 1691 and after 2248 all are one, because numbers of rows end."""

Fold = str | int
Value = str | int
Entry = tuple[int, Fold, Value, int]
"""Number, fold, value and edge."""


class Fact(IntEnum):
    """What is entered like a control's value though it is none: the numbers that no control has."""

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
"""The facts of drafts only: the owner by whom their readers are told, which is that of the saved document, if any."""


FACTS: Mapping[Field, Fact] = {
    Field.CREATED: Fact.CREATED,
    Field.CREATED_BY: Fact.CREATED_BY,
    Field.LAST_MODIFIED_BY: Fact.LAST_MODIFIED_BY,
    Field.WORKFLOW_STAGE: Fact.WORKFLOW_STAGE,
}
"""The facts that searches name; the time of the last save is the order of the rows."""


class Edge(IntFlag):
    """Whether a value is the one that a document is sorted by: the lowest going up, the highest going down."""

    NONE = 0
    LOWEST = 1
    HIGHEST = 2


class Owner(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The creator of a document, as far as permissions are concerned."""

    creator: str | None
    group: str | None
    organization: tuple[str, ...]

    def of(self, fact: int) -> tuple[str, ...]:
        """The values under one of the facts of drafts."""
        if fact == Fact.SAVED_ORGANIZATION:
            return self.organization
        said = self.creator if fact == Fact.SAVED_BY else self.group
        return () if said is None else (said,)


class Card(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that an answer says of a document, and the values of every indexed control by its number.

    ``reader`` is there of drafts only: the owner of the saved document, else the draft's own.
    """

    version: int
    created: Instant
    modified: Instant
    creator: str | None
    group: str | None
    organization: tuple[str, ...]
    modifier: str | None
    stage: str | None
    values: dict[int, tuple[str, ...]]
    reader: Owner | None = None

    def of(self, number: int) -> tuple[str, ...]:
        """The values under a number, of a control or a fact."""
        if number > 0:
            return self.values.get(number, ())
        match number:
            case Fact.ORGANIZATION:
                return self.organization
            case Fact.SAVED_BY | Fact.SAVED_GROUP | Fact.SAVED_ORGANIZATION:
                return () if self.reader is None else self.reader.of(number)
            case Fact.CREATED:
                said: str | None = self.created
            case Fact.CREATED_BY:
                said = self.creator
            case Fact.LAST_MODIFIED_BY:
                said = self.modifier
            case Fact.WORKFLOW_STAGE:
                said = self.stage
            case _:
                said = self.group
        return () if said is None else (said,)


_encoder = msgspec.json.Encoder()
decode = msgspec.json.Decoder(Card).decode
"""A card from its JSON."""


def encode(card: Card) -> str:
    """A card as JSON."""
    return _encoder.encode(card).decode()


def as_in_card(text: str) -> str:
    """A text as the JSON of a card has it within a value."""
    return _encoder.encode(text).decode()[1:-1]


@dataclass(frozen=True, slots=True)
class Record:
    """A document as it is read: ``values`` by path, ``rest`` the text that is in none of them, ``reader`` as in a card.

    ``mark`` tells the state of its files from every other.
    """

    document: str
    is_draft: bool
    version: int
    mark: str
    created: Instant
    modified: Instant
    creator: str | None = None
    group: str | None = None
    organization: tuple[str, ...] = ()
    modifier: str | None = None
    stage: str | None = None
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rest: str = ""
    reader: Owner | None = None


@dataclass(frozen=True, slots=True)
class Edition:
    """A version of the form as documents are read by it.

    ``numbers`` are those of its indexed controls by path, in the order of the index; ``round`` is another one whenever
    its documents must be read anew.
    """

    version: int
    round: int
    numbers: Mapping[str, int]


class Prepared(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A document as it is written: all that needs no look at the index. ``fields`` and ``rest`` are folded."""

    document: str
    is_draft: bool
    version: int
    round: int
    mark: str
    created: Instant
    modified: Instant
    card: str
    fields: tuple[str | None, ...]
    rest: str
    entries: tuple[Entry, ...]


def prepared(record: Record, edition: Edition) -> Prepared:
    """A document, made ready to be written."""
    card = Card(
        version=record.version,
        created=record.created,
        modified=record.modified,
        creator=record.creator,
        group=record.group,
        organization=record.organization,
        modifier=record.modifier,
        stage=record.stage,
        values=_bounded({number: record.values.get(path, ()) for path, number in edition.numbers.items()}),
        reader=record.reader,
    )
    return Prepared(
        document=record.document,
        is_draft=record.is_draft,
        version=record.version,
        round=edition.round,
        mark=record.mark,
        created=record.created,
        modified=record.modified,
        card=encode(card),
        fields=columns(card),
        rest=record.rest.casefold(),
        entries=tuple(entries(card)),
    )


def _bounded(values: Mapping[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """The values of a document as far as they are indexed; those that would be more are left out, each as a whole."""
    left, number_left = MOST_INDEXED, MOST_INDEXED_VALUES
    found = {}
    for number, each in values.items():
        fits = len(each) <= number_left and sum(map(len, each)) <= left
        found[number] = each if fits else tuple(islice(_fitting(each, left), number_left))
        left -= sum(map(len, found[number]))
        number_left -= len(found[number])
    return found


def _fitting(values: Iterable[str], left: int) -> Iterator[str]:
    for value in values:
        if len(value) <= left:
            left -= len(value)
            yield value


def first_row(modified: Instant) -> int:
    """The lowest number of a row saved at an instant: rows are in the order in which documents were saved."""
    milliseconds = epoch_nanoseconds(modified) // 1_000_000
    return max(-_LAST_MILLISECOND, min(milliseconds, _LAST_MILLISECOND)) * ROWS_PER_MILLISECOND


def key_of(value: str) -> tuple[Fold, Value]:
    """What a value is entered under: its folded text and, where that differs, the value."""
    folded = value.casefold()
    if len(value) > LONGEST_KEY or len(folded) > LONGEST_KEY:
        digest = hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:32]
        return folded[:LONGEST_KEY] + SEPARATOR, digest
    return folded, AS_FOLDED if folded == value else value


def is_cut(fold: Fold) -> bool:
    """Whether an entry has only the beginning of its value."""
    return isinstance(fold, str) and fold.endswith(SEPARATOR)


BOTH = int(Edge.LOWEST | Edge.HIGHEST)
"""The edge of an only value."""


_FACTS_OF_ALL = tuple(fact for fact in Fact if fact not in OF_DRAFTS)


def entries(card: Card) -> Iterator[Entry]:
    """The entries of a document under its facts and under the controls of its form."""
    for number in (*(Fact if card.reader else _FACTS_OF_ALL), *card.values):
        values = card.of(number)
        if number is Fact.CREATED:
            yield int(number), card.created, AS_FOLDED, BOTH  # as it is, so that times are compared
        elif not values:
            yield int(number), NOTHING, NOTHING, BOTH
        elif len(values) == 1:
            yield int(number), *key_of(values[0]), BOTH
        else:
            yield from _several(int(number), values)


def _several(number: int, values: Iterable[str]) -> Iterator[Entry]:
    keys = sorted({key_of(value) for value in values}, key=order_of)
    for at, (fold, value) in enumerate(keys):
        edge = (Edge.LOWEST if at == 0 else 0) | (Edge.HIGHEST if at == len(keys) - 1 else 0)
        yield number, fold, value, int(edge)


def order_of(key: tuple[Fold, Value]) -> tuple[bool, Fold, Value]:
    """The order in which SQLite sorts keys: numbers before texts."""
    fold, value = key
    return isinstance(fold, str), fold, value


def columns(card: Card) -> tuple[str | None, ...]:
    """The columns of text of the indexed controls, folded."""
    found: list[str | None] = [None] * COLUMNS
    for number, values in card.values.items():
        if values:
            at, text = column_of(number), SEPARATOR.join(values).casefold()
            before = found[at]
            found[at] = text if before is None else f"{before}{SEPARATOR}{text}"
    return tuple(found)


def column_of(number: int) -> int:
    """The column of text of a control."""
    return number % COLUMNS
