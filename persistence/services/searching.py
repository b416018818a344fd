"""Searches and distinct values: which documents of a form a user may find (spec search 1 and 3).

A misspelt name gets an answer without documents (spec search 1.1, 1.4), with a notice of the nearest known name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice

from persistence.dialect import Dialect
from persistence.errors import BusyError, DamagedError, DiskFullError
from persistence.forms.search_xml import (
    read_distinct_request,
    read_search_request,
    write_distinct_answer,
    write_search_answer,
)
from persistence.index.protocol import Budget
from persistence.model.addresses import Form
from persistence.model.search import DraftFilter, Drafts, Field, Hits, Sort, VisibleOwners
from persistence.model.texts import nearest, similar
from persistence.model.users import User
from persistence.model.versions import Searched
from persistence.providers.provider import Route
from persistence.providers.router import Router
from persistence.services.access import SearchedVersions, operations_on, scope_of, searched_versions
from persistence.services.form_list import PublishedForms

_MOST_SHOWN = 3
"""Controls that are named in one notice, and versions."""


@dataclass(frozen=True, slots=True)
class Searcher:
    """The caller of a search; with ``is_administrator``, permissions do not count."""

    user: User
    is_administrator: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A search: the ``version`` of the request, the versions that are ``searched``, and the ``paths`` of controls."""

    version: int | Searched
    searched: SearchedVersions
    paths: Collection[str]
    user: User


_RETRY_AFTER = 30
"""Seconds after which a full disk may have room again."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer in XML, in pieces; ``notice`` names requested things that do not exist, if any."""

    pieces: Iterator[bytes]
    notice: str | None = None


class Searching:
    """Answers with XML, in pieces. A full disk is ``BusyError``: a search stores nothing, and may be repeated."""

    def __init__(self, router: Router, dialect: Dialect, forms: PublishedForms) -> None:
        self._router = router
        self._dialect = dialect
        self._forms = forms

    def search(self, form: Form, version: int | Searched, body: Iterable[bytes], searcher: Searcher) -> Answered:
        """Return the documents that a query finds, as far as the user may see them."""
        user = searcher.user
        request = read_search_request(body, user, is_strict=self._dialect.is_strict)
        route = self._router.of(form)
        searched = self._searched(route, version, searcher)
        scope = scope_of(searched, request.drafts, user, request.any_of)
        query, paths = request.query, request.paths
        asked = (*paths, *(() if isinstance(query.sort.by, Field) else (query.sort.by,)))
        if request.all_indexed:
            paths = searched.index_paths or ()
            # Conditions on other controls do not count (spec search 1.6).
            controls = tuple(condition for condition in query.controls if condition.path in paths)
            is_known = isinstance(query.sort.by, Field) or query.sort.by in paths
            query = replace(query, controls=controls, sort=query.sort if is_known else Sort())
        with _full_disk_is_busy():
            found = replace(query, paths=paths)
            hits = Hits() if scope.is_empty else route.data.index.search(form, scope, found, Budget())
            context = Asked(version, searched, asked, user)
            notice = self._notice(context, scope.seen, found=hits.total > 0)
        operations_of = operations_on(searched, hits.page, user)
        return Answered(write_search_answer(hits, paths, operations_of), notice)

    def _notice(self, asked: Asked, seen: VisibleOwners, *, found: bool) -> str | None:
        definition = asked.searched.definition
        if asked.user.is_nameless and seen.of_version(definition.version):
            return f"roles and groups count only together with a user name ({self._dialect.header('Username')})"
        notice = None if found or asked.searched.is_designer else self._unpublished(asked)
        if notice is not None or not asked.paths:
            return notice
        indexed = asked.searched.index_paths
        if indexed is None and asked.searched.indexed is not definition:
            return f"no control of {definition.form} is indexed: publish version {definition.version} where its data is"
        return None if indexed is None else unknown_controls(definition.form, definition.version, indexed, asked.paths)

    def _unpublished(self, asked: Asked) -> str | None:
        """Return a notice about the form or version; none with a damaged one, whose documents are not known."""
        form, version, catalog = asked.searched.definition.form, asked.version, asked.searched.catalog
        with suppress(DamagedError):
            published = tuple(islice((each.version for each in catalog.published(form)), _MOST_SHOWN + 1))
            if not published:
                return unpublished_form(form, lambda app: self._forms.names(app, asked.user))
            if isinstance(version, int) and catalog.of(form, version).published is None:
                return unpublished_version(form, version, published)
        return None

    def _searched(self, route: Route, version: int | Searched, searcher: Searcher) -> SearchedVersions:
        configured = route.properties
        if searcher.is_administrator:
            configured = replace(configured, has_permissions=False)
        searched = searched_versions(route.form, configured, route.catalog, version, self._dialect)
        return replace(searched, indexed=route.indexed(searched.definition))

    def distinct(self, form: Form, version: int | Searched, body: Iterable[bytes], searcher: Searcher) -> Answered:
        """Return the different values in the documents that the user may see, drafts only for a named user."""
        user = searcher.user
        asked = read_distinct_request(body, is_strict=self._dialect.is_strict)
        route = self._router.of(form)
        searched = self._searched(route, version, searcher)
        drafts = DraftFilter(Drafts.EXCLUDE if user.name is None else Drafts.INCLUDE)
        scope = scope_of(searched, drafts, user)
        paths = tuple(by for by in asked if isinstance(by, str))
        context = Asked(version, searched, paths, user)
        if scope.is_empty:
            return Answered(write_distinct_answer(()), self._notice(context, scope.seen, found=False))
        # Read before the answer begins, so that an error has a status.
        budget = Budget()
        values: dict[Field | str, tuple[str, ...]] = {}
        with _full_disk_is_busy():
            for by in asked:
                if by in values:
                    for value in values[by]:  # written again
                        budget.hold_value(value)
                else:
                    values[by] = tuple(route.data.index.distinct(form, scope, by, budget))
                budget.hold_value(str(by))
            notice = self._notice(context, scope.seen, found=any(values.values()))
        return Answered(write_distinct_answer((by, values[by]) for by in asked), notice)


@contextmanager
def _full_disk_is_busy() -> Iterator[None]:
    try:
        yield
    except DiskFullError as error:
        raise BusyError(str(error), _RETRY_AFTER) from error


def unknown_controls(form: Form, version: int, indexed: Sequence[str], asked: Iterable[str]) -> str | None:
    """Name the requested paths that belong to no indexed control; ``None`` where all do."""
    known = frozenset(indexed)
    unknown = [path for path in dict.fromkeys(asked) if path not in known]
    if not unknown:
        return None
    shown = list(map(repr, unknown[:_MOST_SHOWN]))
    for at, path in enumerate(unknown[:_MOST_SHOWN]):
        near = nearest(path, indexed)
        shown[at] += "" if near is None else f" (the nearest is {near!r})"
    more = f" and {len(unknown) - _MOST_SHOWN} more" if len(unknown) > _MOST_SHOWN else ""
    return f"version {version} of {form} has no indexed control {', '.join(shown)}{more}"


def unpublished_version(form: Form, version: int, published: Iterable[int]) -> str:
    numbers = tuple(islice(published, _MOST_SHOWN + 1))
    shown = ", ".join(map(str, numbers[:_MOST_SHOWN])) + (" …" if len(numbers) > _MOST_SHOWN else "")
    return f"{form} has no published version {version}; it has {shown or 'none'}"


def unpublished_form(form: Form, names: Callable[[str | None], Iterable[Form]]) -> str:
    """Return a notice with the nearest of the ``names`` that may be shown, in the same application if possible."""
    within = {str(each) for each in names(form.app)} or {str(each) for each in names(None)}
    near = similar(str(form), sorted(within - {str(form)}))
    return f"{form} is not published" + ("" if near is None else f"; the nearest name is {near}")
