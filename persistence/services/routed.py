"""Searches, flat views and indexes of several providers as one: each form has those of its data's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from persistence.index.budget import Budget
from persistence.model.addresses import Form
from persistence.model.search import Field, Hits, Query, Scope
from persistence.services.definitions import Tables
from persistence.services.documents import Checks
from persistence.services.reindexing import Reindexes, State, Status
from persistence.services.searching import Index
from persistence.xml.streaming import Streaming


class Indexed(Index, Checks, Protocol):
    """What searches data, and checks it while it is received."""


class RoutedIndex:
    """That of every form."""

    def __init__(self, of: Callable[[Form], Indexed]) -> None:
        self._of = of

    def checking(self, form: Form, version: int) -> Streaming:
        """As ``Checks`` says."""
        return self._of(form).checking(form, version)

    def search(self, form: Form, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        """As ``Index`` says."""
        return self._of(form).search(form, scope, query, budget)

    def distinct(self, form: Form, scope: Scope, by: Field | str, budget: Budget | None = None) -> Iterator[str]:
        """As ``Index`` says."""
        return self._of(form).distinct(form, scope, by, budget)

    def keys(self, form: Form, version: int) -> tuple[str, ...] | None:
        """As ``Index`` says."""
        return self._of(form).keys(form, version)


class RoutedTables:
    """The ``Tables`` of every form."""

    def __init__(self, of: Callable[[Form], Tables]) -> None:
        self._of = of

    def create(self, form: Form, version: int) -> None:
        """As ``Tables`` says."""
        self._of(form).create(form, version)

    def drop(self, form: Form, version: int) -> None:
        """As ``Tables`` says."""
        self._of(form).drop(form, version)


class RoutedReindexing:
    """What makes every index anew: ``every`` are those of all active providers, one after the other."""

    def __init__(self, of: Callable[[Form], Reindexes], every: Callable[[], Iterable[Reindexes]]) -> None:
        self._of = of
        self._every = every

    def all(self) -> None:
        """As ``Reindexes`` says."""
        for each in self._every():
            each.all()

    def version(self, form: Form, number: int) -> None:
        """As ``Reindexes`` says."""
        self._of(form).version(form, number)

    def status(self) -> Status:
        """That of the first that is being made."""
        found = (each.status() for each in self._every())
        return next((status for status in found if status.state is not State.STOPPED), Status())
