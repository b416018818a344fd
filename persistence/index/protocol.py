"""The seam between the service and its search index: what services, providers, commands and checks ask of any engine.

An index answers searches of the documents of forms. It is never the truth: it can be rebuilt from what is stored at
any time. Before it answers it must know every change that was acknowledged before the question.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from persistence.forms.messages import attribute, element
from persistence.index.budget import Budget
from persistence.model.addresses import Form
from persistence.model.search import Field, Hits, Query, Scope
from persistence.xml.streaming import Streaming


class SearchIndex(Protocol):
    """Searches the documents of forms.

    Methods raise ``BusyError`` while an index is being built, ``DiskFullError`` where there is no room to bring it up
    to date, and ``BadRequestError`` where more is asked for than the budget allows.
    """

    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        """Return the documents that a query finds, within a budget if there is one. An unknown form has none."""

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:
        """Yield the different values of a field or control, sorted without regard to case, then as they are.

        Yield an empty value for a field that a document does not have; for a control, do not.
        """

    def checking(self, form: Form, version: int) -> Streaming:
        """Return a parser that checks a document while it is received.

        It may keep the values that it reads, so that the index need not read the document again.
        """


class ReportTables(Protocol):
    """Makes the tables for reports (flat views, spec search 7). Methods raise ``DiskError`` and ``BusyError``."""

    def create(self, form: Form, version: int) -> None:
        """Make the views of a version by its stored definition, with rows of all its documents.

        Raises:
            BadRequestError: the definition has too much for views; the existing ones stay.
            DamagedError: the definition cannot be parsed.
        """

    def drop(self, form: Form, version: int) -> None:
        """Drop the views of a version whose definition was deleted."""


class ReindexingState(Enum):
    """Whether an index is being rebuilt, as answers name it."""

    STOPPED = "stopped"
    INDEXING = "indexing"


@dataclass(frozen=True, slots=True)
class ReindexingStatus:
    """The progress of a rebuild: the number of the current document, and how many there are."""

    state: ReindexingState = ReindexingState.STOPPED
    current: int = 0
    total: int = 0

    def as_xml(self) -> bytes:
        """Return the answer to a request for the status (spec search 5)."""
        said = attribute("state", self.state.value)
        if self.state is ReindexingState.INDEXING:
            said += attribute("document-current", str(self.current)) + attribute("document-total", str(self.total))
        return element("status", said).encode()


class Reindexer(Protocol):
    """Rebuilds indexes on request (spec search 5). Methods raise ``BusyError`` and ``DiskError``."""

    def all(self) -> None:
        """Rebuild all indexes."""

    def version(self, form: Form, number: int) -> None:
        """Rebuild the index of one version of a form; do nothing where there is no such form."""

    def status(self) -> ReindexingStatus:
        """Return the progress of the current rebuild, whichever process runs it."""
