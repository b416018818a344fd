"""Searches and distinct values: which documents of a form a user may find (spec search 1 and 3)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from persistence.dialect import Dialect
from persistence.errors import BusyError, DiskFullError
from persistence.forms.search_xml import (
    read_distinct_request,
    read_search_request,
    write_distinct_answer,
    write_search_answer,
)
from persistence.index.protocol import Budget
from persistence.model.addresses import Form
from persistence.model.search import DraftFilter, Drafts, Field, Hits, Query, Sort
from persistence.model.users import User
from persistence.model.versions import Searched
from persistence.providers.provider import Route
from persistence.providers.router import Router
from persistence.services.notices import Asked, Notices
from persistence.services.search_scope import SearchedVersions, operations_on, scope_of, searched_versions

_RETRY_AFTER = 30
"""Seconds after which a full disk may have room again."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer in XML, in pieces; ``notice`` names what was asked for and is not there, if anything."""

    pieces: Iterator[bytes]
    notice: str | None = None


class Searching:
    """Answers with XML, in pieces.

    Methods raise, besides what they say, ``BusyError``, ``DiskError``, and ``DamagedError`` where the definition cannot
    be read: nobody is let in. A full disk is ``BusyError`` too: a search stores nothing, and is to come back.
    """

    def __init__(self, router: Router, dialect: Dialect, notices: Notices) -> None:
        """In a strict dialect, refuse requests with unknown elements or attributes."""
        self._router = router
        self._dialect = dialect
        self._notices = notices

    def search(self, form: Form, version: int | Searched, body: Iterable[bytes], user: User) -> Answered:
        """Return the documents that a query finds, as far as the user may see them.

        Raises:
            BadRequestError: the query is malformed, asks for what there is not, or the form has no such version.
            PersistenceError: whatever ``body`` raises about the client.
        """
        request = read_search_request(body, user, is_strict=self._dialect.is_strict)
        route = self._router.of(form)
        searched = self._searched(route, version)
        scope = scope_of(searched, request.drafts, user, request.any_of)
        query, paths = request.query, request.paths
        asked = (*paths, *(() if isinstance(query.sort.by, Field) else (query.sort.by,)))
        if request.all_indexed:
            paths = searched.index_paths or ()
            query = _cut(query, paths)
        # A page may be long and its documents large: only what is asked for is held.
        with _coming_back():
            found = replace(query, paths=paths)
            hits = Hits() if scope.is_empty else route.data.index.search(form, scope, found, Budget())
            said = Asked(version, searched, asked, user)
            notice = self._notices.of(said, scope.seen, found=hits.total > 0)
        operations_of = operations_on(searched, hits.page, user)
        return Answered(write_search_answer(hits, paths, operations_of), notice)

    def _searched(self, route: Route, version: int | Searched) -> SearchedVersions:
        searched = searched_versions(route.form, route.properties, route.catalog, version, self._dialect)
        return replace(searched, indexed=route.indexed(searched.definition))

    def distinct(self, form: Form, version: int | Searched, body: Iterable[bytes], user: User) -> Answered:
        """Return the different values in the documents that the user may see; drafts count for known users only.

        Raises:
            BadRequestError: the query is malformed, asks for what there is not, or the form has no such version.
            PersistenceError: whatever ``body`` raises about the client.
        """
        asked = read_distinct_request(body, is_strict=self._dialect.is_strict)
        route = self._router.of(form)
        searched = self._searched(route, version)
        drafts = DraftFilter(Drafts.EXCLUDE if user.name is None else Drafts.INCLUDE)
        scope = scope_of(searched, drafts, user)
        paths = tuple(by for by in asked if isinstance(by, str))
        said = Asked(version, searched, paths, user)
        if scope.is_empty:
            return Answered(write_distinct_answer(()), self._notices.of(said, scope.seen, found=False))
        # Read at once: an error is still an answer, and what is asked for twice is read once.
        budget = Budget()
        values: dict[Field | str, tuple[str, ...]] = {}
        with _coming_back():
            for by in asked:
                if by in values:
                    for value in values[by]:  # written again
                        budget.hold_value(value)
                else:
                    values[by] = tuple(route.data.index.distinct(form, scope, by, budget))
                budget.hold_value(str(by))
            notice = self._notices.of(said, scope.seen, found=any(values.values()))
        return Answered(write_distinct_answer((by, values[by]) for by in asked), notice)


@contextmanager
def _coming_back() -> Iterator[None]:
    """Tell whoever searches on a full disk to come back."""
    try:
        yield
    except DiskFullError as error:
        raise BusyError(str(error), _RETRY_AFTER) from error


def _cut(query: Query, paths: Collection[str]) -> Query:
    """A query without what is about other controls than these (spec search 1.6)."""
    sort = query.sort
    return replace(
        query,
        controls=tuple(condition for condition in query.controls if condition.path in paths),
        sort=sort if isinstance(sort.by, Field) or sort.by in paths else Sort(),
    )
