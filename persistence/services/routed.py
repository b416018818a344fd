"""Searches, flat views and indexes of several providers as one: each form has those of its data's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from persistence.index.budget import Budget
from persistence.index.protocol import Reindexer, ReindexingState, ReindexingStatus, ReportTables, SearchIndex
from persistence.model.addresses import Form
from persistence.model.search import Field, Hits, Query, Scope
from persistence.xml.streaming import Streaming


class RoutedIndex:
    """That of every form."""

    def __init__(self, of: Callable[[Form], SearchIndex]) -> None:
        self._of = of

    def checking(self, form: Form, version: int) -> Streaming:
        """As ``SearchIndex`` says."""
        return self._of(form).checking(form, version)

    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        """As ``SearchIndex`` says."""
        return self._of(form).search(form, scope, query, budget)

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:
        """As ``SearchIndex`` says."""
        return self._of(form).distinct(form, scope, by, budget)

    def keys(self, form: Form, version: int) -> tuple[str, ...] | None:
        """As ``SearchIndex`` says."""
        return self._of(form).keys(form, version)


class RoutedTables:
    """The ``ReportTables`` of every form."""

    def __init__(self, of: Callable[[Form], ReportTables]) -> None:
        self._of = of

    def create(self, form: Form, version: int) -> None:
        """As ``ReportTables`` says."""
        self._of(form).create(form, version)

    def drop(self, form: Form, version: int) -> None:
        """As ``ReportTables`` says."""
        self._of(form).drop(form, version)


class RoutedReindexing:
    """What makes every index anew: ``every`` are those of all active providers, one after the other."""

    def __init__(self, of: Callable[[Form], Reindexer], every: Callable[[], Iterable[Reindexer]]) -> None:
        self._of = of
        self._every = every

    def all(self) -> None:
        """As ``Reindexer`` says."""
        for each in self._every():
            each.all()

    def version(self, form: Form, number: int) -> None:
        """As ``Reindexer`` says."""
        self._of(form).version(form, number)

    def status(self) -> ReindexingStatus:
        """That of the first that is being made."""
        found = (each.status() for each in self._every())
        return next((status for status in found if status.state is not ReindexingState.STOPPED), ReindexingStatus())
