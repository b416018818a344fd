"""The seam between the service and its search index: what services, providers, commands and checks ask of any engine.

An index answers searches of the documents of forms. It is never the truth: it can be rebuilt from what is stored at
any time. Before it answers it must know every change that was acknowledged before the question.

The card of a document is the same in every engine. Each value of a control or a fact has a key, under which it is
found, sorted and listed.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum, IntFlag
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import asdict, astuple

from persistence.bounded_cache import BoundedCache
from persistence.catalog import Definition
from persistence.closable import taking
from persistence.errors import BadRequestError, BusyError, PersistenceError
from persistence.index.sources import DefinitionState, DocumentName, IndexedDefinition, IndexedDocument
from persistence.limits import (
    DEFINITIONS_KEPT,
    HIT_COSTS,
    INDEX_KEYS_KEPT_BYTES,
    LARGEST_FOUND,
    MOST_INDEXED,
    MOST_INDEXED_VALUES,
    SEARCH_SECONDS,
    SEARCH_SECONDS_PER_DOCUMENT,
    VALUE_COSTS,
)
from persistence.model.addresses import Form
from persistence.model.queries import Field, Hit, Hits, Query, Scope
from persistence.model.sidecar import DocumentFacts
from persistence.model.typed_values import OrderedType, key_of_value
from persistence.model.versions import IndexKey
from persistence.storage.storage import JobRecord, Readable
from persistence.xml import Streaming

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

    The keys of values with a type are beside them, under another number (``typed_number``), and so are the tokens of
    encrypted values (``token_number``).
    """

    values: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    reader: Owner | None = None

    @property
    def facts(self) -> DocumentFacts:
        return DocumentFacts(*astuple(self)[: len(DocumentFacts.__struct_fields__)])

    def of(self, number: int) -> tuple[str, ...]:
        if number > 0 or number in self.values:
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


class NumberedKey(msgspec.Struct, frozen=True):
    """An indexed control and its number, which it keeps for as long as the form has an index."""

    number: int
    key: IndexKey


class IndexedControls(NamedTuple):
    """The indexed controls of a version, in the order of the index: their numbers by path, and types by number."""

    keys: tuple[IndexKey, ...]
    numbers: Mapping[str, int]
    types: Mapping[int, OrderedType]


_keys: BoundedCache[IndexedControls] = BoundedCache(DEFINITIONS_KEPT, INDEX_KEYS_KEPT_BYTES)


_TYPES = tuple(OrderedType)
_TOKENS = -(1 << 30)


def typed_number(number: int, of: OrderedType) -> int:
    """Return the number of the keys of a control's values of a type, which no control and no fact has."""
    return min(Fact) - number * len(_TYPES) - _TYPES.index(of)


def token_number(number: int) -> int:
    """Return the number of the tokens of a control's encrypted values, which nothing else has."""
    return _TOKENS - number


@dataclass(frozen=True, slots=True)
class VersionState:
    """The definition by which documents of a form version are read; ``keys`` are its indexed controls (JSON).

    Documents are in partitions by generation. Those of an older one must be read again, or are hidden while the
    definition is deleted (spec search 2.5).
    """

    generation: int
    state: DefinitionState
    data_format: str
    fingerprint: str
    keys: str

    @classmethod
    def of(cls, definition: IndexedDefinition, data_format: str, numbers: Mapping[str, int]) -> VersionState:
        keys = [NumberedKey(numbers[key.path], key) for key in definition.keys]
        return cls(1, definition.state, data_format, definition.fingerprint, msgspec.json.encode(keys).decode())

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> VersionState:
        return cls(row[0], DefinitionState[row[1]], *row[2:])

    @property
    def row(self) -> tuple[int, str, str, str, str]:
        return self.generation, self.state.name, self.data_format, self.fingerprint, self.keys

    @property
    def controls(self) -> IndexedControls:
        def decode() -> IndexedControls:
            found = msgspec.json.decode(self.keys, type=tuple[NumberedKey, ...])
            return IndexedControls(
                tuple(each.key for each in found),
                {each.key.path: each.number for each in found},
                {each.number: each.key.type for each in found if each.key.type is not None},
            )

        return _keys.get(self.keys, decode)

    @property
    def definition(self) -> IndexedDefinition:
        return IndexedDefinition(self.fingerprint, self.state, self.controls.keys)

    def following(self, now: VersionState) -> VersionState:
        """Return the next state, a new generation where other controls are indexed."""
        if self.state is DefinitionState.DELETED and now.state is DefinitionState.UNKNOWN:
            now = replace(now, state=DefinitionState.DELETED)  # and was purged since: documents stay hidden
        is_same = self.indexed == now.indexed
        return replace(now, generation=self.generation if is_same else self.generation + 1)

    @property
    def indexed(self) -> object:
        return self.controls if self.state is DefinitionState.PUBLISHED else None


class PreparedDocument(msgspec.Struct, frozen=True, gc=False):
    """A document, ready to be written by any engine without a look at its index."""

    name: DocumentName
    generation: int
    fingerprint: str
    content: Card
    card: str  # the JSON of ``content``
    free_text: str  # folded


def prepared(read: IndexedDocument, by: VersionState) -> PreparedDocument:
    hit, decides = read.hit, read.hit.saved_owner
    left, number_left = MOST_INDEXED, MOST_INDEXED_VALUES
    bounded, controls = {}, by.controls
    for path, number in controls.numbers.items():
        kept = []
        for value in hit.values.get(path, ()):
            if number_left and len(value) <= left:
                kept.append(value)
                left -= len(value)
                number_left -= 1
        bounded[number] = tuple(kept)
        if path in read.tokens:
            bounded[token_number(number)] = tuple(dict.fromkeys(read.tokens[path][:number_left]))
            number_left -= len(bounded[token_number(number)])
    for number, of in controls.types.items():
        typed = [key for value in bounded[number] if (key := key_of_value(value, of)) is not None]
        if typed:
            bounded[typed_number(number, of)] = tuple(dict.fromkeys(typed))
    card = Card(
        **asdict(hit.facts),
        values=bounded,
        reader=None if decides is None else Owner(decides.name, decides.group, decides.organization),
    )
    return PreparedDocument(
        DocumentName(hit.document, hit.is_draft),
        by.generation,
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


class Budget:
    """The budget of one request, which one thread works on."""

    # Time is processor time, so that a request is not refused because others are served; ``began`` is by the clock, for
    # waits for another machine, and so is ``until``, where it must end in any case.
    def __init__(self, until: float = math.inf) -> None:
        self.began = time.monotonic()
        self.until = until
        self._allowed = SEARCH_SECONDS
        self._used = 0.0
        self._running_since: float | None = None
        self._left = LARGEST_FOUND

    def allow_for(self, documents: int) -> None:
        self._allowed = max(self._allowed, SEARCH_SECONDS + documents * SEARCH_SECONDS_PER_DOCUMENT)

    def start(self) -> None:
        self._running_since = time.thread_time()

    def stop(self) -> None:
        if self._running_since is not None:
            self._used += time.thread_time() - self._running_since
            self._running_since = None

    def is_over(self) -> bool:
        running = 0.0 if self._running_since is None else time.thread_time() - self._running_since
        return self._used + running > self._allowed or time.monotonic() > self.until

    def check(self) -> None:
        if self.is_over():
            raise self.too_long()

    def too_long(self) -> BadRequestError:
        return BadRequestError(
            f"the search takes more than {self._allowed:.2f} s of processor time: ask for less, or more narrowly"
        )

    def restart(self) -> None:
        """Reset the size of the answer: it is built again, because a document on it has changed."""
        self._left = LARGEST_FOUND

    def hold(self, hit: Hit, paths: Iterable[str]) -> None:
        """Count a document of the answer, with the values at some paths, as often as they are given."""
        texts = (text for path in paths for text in (path, *hit.values.get(path, ())))
        self._take(HIT_COSTS + len(hit.document), texts)

    def hold_value(self, value: str) -> None:
        self._take(0, (value,))

    def _take(self, size: int, texts: Iterable[str]) -> None:
        # A character of text that is not ASCII has four bytes at most.
        self._left -= size + sum(VALUE_COSTS + len(text) * (1 if text.isascii() else 4) for text in texts)
        if self._left < 0:
            raise BadRequestError(
                f"the answer would be larger than {LARGEST_FOUND >> 20} MiB: ask for fewer controls, or a smaller page"
            )


class SearchIndex(Protocol):
    """Searches the documents of forms. Methods raise ``BusyError`` while an index is being built."""

    # They raise ``DiskFullError`` without room to bring it up to date, ``BadRequestError`` beyond the budget.
    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        """Return the documents that a query finds, within a budget if there is one. An unknown form has none."""
        # The page begins at a multiple of its size. A control that the query sorts by is among its paths. Hits may have
        # values of other controls, too.

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:
        """Yield the different values of a field or control, sorted without regard to case, then as they are."""
        # A field that a document does not have gives an empty value; a control does not.

    def checking(self, definition: Definition) -> Streaming:
        """Return a parser that checks a document of a definition while it is received, and may keep its values."""


class ReportTables(Protocol):
    """Makes the tables for reports (flat views, spec search 7). Methods raise ``DiskError`` and ``BusyError``."""

    def create(self, form: Form, version: int) -> None:
        """Make the views of a version by its stored definition, with rows of all its documents."""
        # Raises ``BadRequestError`` for a definition with too much for views (the existing ones stay), and
        # ``DamagedError``.

    def drop(self, form: Form, version: int) -> None:
        """Drop the views of a version whose definition was deleted."""


class ReindexingState(Enum):
    """The state of rebuilds, as answers name it."""

    STOPPED = "stopped"
    INDEXING = "indexing"


@dataclass(frozen=True, slots=True)
class ReindexingStatus:
    """The progress of a rebuild: the number of the current document, and how many there are."""

    state: ReindexingState = ReindexingState.STOPPED
    current: int = 0
    total: int = 0


class Reindexer(Protocol):
    """Rebuilds indexes on request (spec search 5). Methods raise ``BusyError`` and ``DiskError``."""

    def all(self) -> None: ...

    def version(self, form: Form, number: int | None) -> None:
        """Rebuild the index of one version of a form, or of all (``None``); do nothing where there is no such form."""

    def status(self) -> ReindexingStatus:
        """Return the progress of the current rebuild, whichever process runs it."""


class RebuildAim(Enum):
    """The condition in which a rebuild leaves an index."""

    READY = "ready to be asked"
    VERIFIED = "compared with the tree"
    REBUILT = "rebuilt"


# The turn, the progress and the requests of rebuilds: the same for every engine of the index.


READING_SECONDS = 3.0
"""Seconds for which a search reads outdated documents again before it raises ``being_read``."""


def being_read(form: Form) -> BusyError:
    return BusyError(f"documents of {form} are being read again: its definition changed", retry_after=2)


LONGEST_WAIT = 24 * 3600.0  # Seconds for which a rebuild waits for another one, which comes to an end
_PAUSE = 0.2  # Seconds between two reports of progress
_MOST_AT_ONCE = 2  # Calls in a process that run or wait: each keeps a thread, of which there are few
_RETRY_AFTER = 30

Progress = Callable[[int], None]  # Hears how many more documents have been read


@contextmanager
def reported(
    record: JobRecord,
    count: Callable[[], int],
    progress: Progress = lambda _: None,
    is_ending: Callable[[], bool] = lambda: False,
) -> Iterator[Progress]:
    """Wait for other rebuilds to end, and report the progress of one during the block, also to ``progress``."""
    # Raises ``BusyError`` where others rebuilt for very long, or the process ``is_ending``.
    with record.turn("another index is being made", LONGEST_WAIT, is_ending):
        total, current, written = count(), 0, float("-inf")

        def report(documents: int) -> None:
            nonlocal current, written
            current += documents
            progress(documents)
            if time.monotonic() > written + _PAUSE:
                written = time.monotonic()
                status = ReindexingStatus(ReindexingState.INDEXING, min(current, total), total)
                with suppress(PersistenceError):
                    record.write(msgspec.json.encode(status))

        report(0)
        yield report


def status_in(record: JobRecord) -> ReindexingStatus:
    if not record.is_taken():
        return ReindexingStatus()
    try:
        found = msgspec.json.decode(record.read(), type=ReindexingStatus)
    except msgspec.DecodeError:
        found = ReindexingStatus()
    return replace(found, state=ReindexingState.INDEXING)


@dataclass(frozen=True, slots=True, eq=False)
class RequestedRebuilds:
    """Rebuilds indexes on request. A ``Reindexer``; ``_rebuild`` does it for some forms, or one version of one."""

    # Each call ends when the rebuild is done; of two at once the second waits, and more are refused.
    _view: Readable
    _rebuild: Callable[[Sequence[Form], int | None], None]
    status: Callable[[], ReindexingStatus]
    _turns: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(_MOST_AT_ONCE))

    def all(self) -> None:
        self._run(tuple(self._view.forms()), None)

    def version(self, form: Form, number: int | None) -> None:
        if form in set(self._view.forms(form.app)):
            self._run((form,), number)

    def _run(self, forms: Sequence[Form], version: int | None) -> None:
        refusal = BusyError("indexes are being rebuilt, and others wait for their turn already", _RETRY_AFTER)
        with taking(self._turns, refusal):
            self._rebuild(forms, version)
