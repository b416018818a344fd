"""Searches and distinct values: which documents of a form a user may find (spec search 1 and 3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from persistence.errors import BusyError, DiskFullError
from persistence.forms.search_xml import (
    read_distinct_request,
    read_search_request,
    write_distinct_answer,
    write_search_answer,
)
from persistence.index.budget import Budget
from persistence.index.protocol import SearchIndex
from persistence.model.addresses import Form
from persistence.model.search import DraftFilter, Drafts, Field, Hits, Query, Sort
from persistence.model.users import User
from persistence.model.versions import Searched
from persistence.services.notices import Asked, Notices
from persistence.services.searched import Versions
from persistence.services.visibility import Visibility

_RETRY_AFTER = 30
"""Seconds after which a full disk may have room again."""


VersionsOf = Callable[[Form, int | Searched], Versions]
"""Gives the versions of a form that a request means (spec search 1.4)."""


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

    def __init__(
        self, index: SearchIndex, visibility: Visibility, versions: VersionsOf, notices: Notices, *, is_strict: bool
    ) -> None:
        """With ``is_strict``, requests with unknown elements or attributes are refused."""
        self._index = index
        self._visibility = visibility
        self._searched = versions
        self._notices = notices
        self._is_strict = is_strict

    def search(self, form: Form, version: int | Searched, body: Iterable[bytes], user: User) -> Answered:
        """The documents that a query finds, as far as the user may see them.

        Raises:
            BadRequestError: the query is malformed, asks for what there is not, or the form has no such version.
            PersistenceError: whatever ``body`` raises about the client.
        """
        request = read_search_request(body, user, is_strict=self._is_strict)
        looked_at = self._searched(form, version)
        scope = self._visibility.scope(form, looked_at, request.drafts, user, request.any_of)
        query, paths = request.query, request.paths
        asked = (*paths, *(() if isinstance(query.sort.by, Field) else (query.sort.by,)))
        if request.all_indexed:
            paths = self._index.keys(form, looked_at.definition) or ()
            query = _cut(query, paths)
        # A page may be long and its documents large: only what is asked for is held.
        with _coming_back():
            found = replace(query, paths=paths)
            hits = Hits() if scope.is_empty else self._index.search(form, scope, found, Budget())
            said = Asked(form, version, looked_at.definition, asked, user)
            notice = self._notices.of(said, scope.seen, found=hits.total > 0)
        operations_of = self._visibility.operations(form, hits.page, user, looked_at.definition)
        return Answered(write_search_answer(hits, paths, operations_of), notice)

    def distinct(self, form: Form, version: int | Searched, body: Iterable[bytes], user: User) -> Answered:
        """The different values that the documents have which the user may see; drafts count for known users only.

        Raises:
            BadRequestError: the query is malformed, asks for what there is not, or the form has no such version.
            PersistenceError: whatever ``body`` raises about the client.
        """
        asked = read_distinct_request(body, is_strict=self._is_strict)
        looked_at = self._searched(form, version)
        drafts = DraftFilter(Drafts.EXCLUDE if user.name is None else Drafts.INCLUDE)
        scope = self._visibility.scope(form, looked_at, drafts, user)
        paths = tuple(by for by in asked if isinstance(by, str))
        said = Asked(form, version, looked_at.definition, paths, user)
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
                    values[by] = tuple(self._index.distinct(form, scope, by, budget))
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
