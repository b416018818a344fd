"""A database as commands maintain it: moved, backed up and checked. A tree is maintained by its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum

from persistence.model.addresses import DocumentAddress
from persistence.model.sidecar import Sidecar
from persistence.storage.managed import ManagedStorage
from persistence.storage.storage import Arrivals


class StorageFault(Enum):
    """The kinds of faults that are found in a database."""

    UNREADABLE = "a sidecar cannot be read"
    ROW_WRONG = "a row differs from its sidecar"
    CONTENT_WRONG = "a content is missing, or not what its sidecar says"
    NO_CURRENT = "none of several revisions is the current one"
    ORDER_WRONG = "the current revision is not the newest"
    BODY_MISSING = "a body is not where its record says"
    BODY_WRONG = "a body is not what its record says"
    STRAY_CONTENT = "a content in pieces that no revision has"
    IN_USE_UNCLAIMED = "a content that a revision has, and that counts as if none had it"
    OVERDUE = "contents that should be removed by now"
    INDEX_WRONG = "the index has not what is stored of a document"
    TOTAL_WRONG = "the index counts the documents of a version wrong"


@dataclass(frozen=True, slots=True)
class StorageFinding:
    """A finding: ``place`` is the path of a resource, or another name. ``mend`` repairs it, if that can be done."""

    fault: StorageFault
    place: str
    what: str
    mend: Callable[[], None] | None = None


RecordCheck = Callable[[DocumentAddress, Sidecar], tuple[StorageFault, str] | None]
"""Returns the fault of the body of a record, which is in another place; ``None`` if it has none."""


@dataclass(frozen=True, slots=True)
class MaintainedDatabase:
    """An open database: ``name`` says which one it is, without a password.

    ``storage`` keeps all older revisions that are stored through it, whatever properties say. ``snapshot`` lets this
    thread read for a block what was there at its beginning. ``keeping_writers_out`` keeps everybody from writing for a
    block, and yields what raises ``BusyError`` if that holds no longer. ``inspect`` yields all findings, and ``None``
    after each document, draft or version of a definition; if it is called with ``True``, every content and all of the
    index is read. It asks about the body of every record.
    """

    name: str
    storage: ManagedStorage
    arrivals: Arrivals
    snapshot: Callable[[], AbstractContextManager[object]]
    keeping_writers_out: Callable[[], AbstractContextManager[Callable[[], None]]]
    inspect: Callable[[bool, RecordCheck], Iterator[StorageFinding | None]]
