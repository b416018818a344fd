"""The rows of a document, ready to be written: its card, its entries and its columns of text."""

from __future__ import annotations

import msgspec

from persistence.index.cards import SEPARATOR, Card, EntryRow, VersionKeys, card_of, encode, entries
from persistence.index.sources import IndexedDocument
from persistence.model.instants import Instant, epoch_nanoseconds

COLUMNS = 32
"""The number of columns of text of indexed controls; controls share them in turn."""

ROWS_PER_MILLISECOND = 1 << 20
_LAST_MILLISECOND = (1 << 43) - 2
"""Since 1970, and until then: of the instants before 1691 and after 2248 all are one, because numbers of rows end."""


def as_in_card(text: str) -> str:
    """Return a text as it is written within a value in the JSON of a card."""
    return msgspec.json.encode(text).decode()[1:-1]


class PreparedDocument(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A document, ready to be written without a look at the index. ``fields`` and ``rest`` are folded."""

    document: str
    is_draft: bool
    version: int
    round: int
    fingerprint: str
    created: Instant
    modified: Instant
    card: str
    fields: tuple[str | None, ...]
    rest: str
    entries: tuple[EntryRow, ...]


def prepared(read: IndexedDocument, keys: VersionKeys) -> PreparedDocument:
    """Make a document ready to be written."""
    card = card_of(read, keys.numbers)
    return PreparedDocument(
        document=read.hit.document,
        is_draft=read.hit.is_draft,
        version=card.version,
        round=keys.round,
        fingerprint=read.fingerprint,
        created=card.created,
        modified=card.modified,
        card=encode(card),
        fields=columns(card),
        rest=read.rest.casefold(),
        entries=tuple(entries(card)),
    )


def first_row(modified: Instant) -> int:
    """Return the lowest number of a row saved at an instant: rows are in the order in which documents were saved."""
    milliseconds = epoch_nanoseconds(modified) // 1_000_000
    return max(-_LAST_MILLISECOND, min(milliseconds, _LAST_MILLISECOND)) * ROWS_PER_MILLISECOND


def columns(card: Card) -> tuple[str | None, ...]:
    """Return the columns of text of the indexed controls, folded."""
    found: list[str | None] = [None] * COLUMNS
    for number, values in card.values.items():
        if values:
            at, text = column_of(number), SEPARATOR.join(values).casefold()
            before = found[at]
            found[at] = text if before is None else f"{before}{SEPARATOR}{text}"
    return tuple(found)


def column_of(number: int) -> int:
    """Return the column of text of a control."""
    return number % COLUMNS
