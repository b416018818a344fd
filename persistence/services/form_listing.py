"""The selection and order of the published forms that a user sees: decisions without I/O (spec search 4)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from persistence.errors import BadRequestError
from persistence.limits import LARGEST_LIST
from persistence.model.addresses import LIBRARY_FORM
from persistence.model.form_query import FormField, FormFilter, FormMatch, FormPage, FormQuery, FormSort
from persistence.model.form_versions import PublishedVersion
from persistence.model.instants import to_datetime
from persistence.model.permissions import OPERATIONS, Permissions, on_creation
from persistence.model.users import User

ADMIN = "admin"

_ANYTHING = "*"
_COMPARE: Mapping[FormMatch, Callable[[Any, Any], bool]] = {
    FormMatch.GTE: operator.ge,
    FormMatch.GT: operator.gt,
    FormMatch.LTE: operator.le,
    FormMatch.LT: operator.lt,
    FormMatch.EXACT: operator.eq,
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A published version, and the words for what the user may do with it: ``admin`` is the first, if it is one."""

    published: PublishedVersion
    operations: tuple[str, ...]


def operations(permissions: Permissions | None, user: User, *, is_admin: bool) -> tuple[str, ...]:
    """Return what a user may do with a form whose permissions are known (spec search 4.5)."""
    allowed = on_creation(permissions, user).allowed
    words = (_ANYTHING,) if allowed is None else allowed
    return (ADMIN, *words) if is_admin else words


def select(listed: Iterable[Listed], query: FormQuery) -> tuple[int, list[Listed]]:
    """How many versions a query finds among those that were looked up, and the page of them that it asks for.

    Raises:
        BadRequestError: those that it finds take more memory than a list may (``LARGEST_LIST``).
    """
    found = []
    left = LARGEST_LIST
    for one in listed:
        if _is_visible(one, query) and all(holds(each, one) for each in query.filters):
            left -= one.published.weight
            if left < 0:
                raise BadRequestError(f"the forms of the list have more than {LARGEST_LIST} bytes: ask for fewer")
            found.append(one)
    found.sort(key=_place)
    found.sort(key=lambda one: _sort_key(one, query.sort), reverse=query.sort.is_descending)
    return len(found), found if query.page is None else found[_window(query.page)]


def holds(condition: FormFilter, listed: Listed) -> bool:
    """Return whether a filter lets a version pass (spec search 4.2)."""
    value, wanted = _value(listed, condition.metadata, condition.language), condition.wanted
    if condition.match is FormMatch.SUBSTRING:
        return isinstance(value, str) and str(wanted) in _folded(value)
    if condition.match is FormMatch.TOKEN:
        return isinstance(wanted, tuple) and _allow(listed.operations, wanted)
    if value is None or isinstance(value, str):  # an absent text is as good as an empty one
        return _folded(value or "") == wanted
    return _COMPARE[condition.match](value, wanted)


@lru_cache(16)
def _folded(text: str) -> str:
    """A text without regard to case, kept because a query may have a hundred filters that look at the same title."""
    return text.casefold()


def _allow(words: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return all(word in words or (word in OPERATIONS and _ANYTHING in words) for word in wanted)


def _is_visible(listed: Listed, query: FormQuery) -> bool:
    """Spec search 4.4, step 3; to administer a form is not to use it."""
    is_admin = ADMIN in listed.operations
    if query.all_forms or (is_admin and not query.ignore_admin):
        return True
    published, used = listed.published, listed.operations[is_admin:]
    return published.form.name != LIBRARY_FORM and bool(used) and published.metadata.available


def _value(listed: Listed, metadata: FormField, language: str) -> str | int | datetime | tuple[str, ...] | None:
    published = listed.published
    match metadata:
        case FormField.APPLICATION_NAME:
            return published.form.app
        case FormField.FORM_NAME:
            return published.form.name
        case FormField.FORM_VERSION:
            return published.version
        case FormField.CREATED:
            return to_datetime(published.created)
        case FormField.LAST_MODIFIED:
            return to_datetime(published.modified)
        case FormField.LAST_MODIFIED_BY:
            return published.modifier
        case FormField.TITLE:
            return _title(published.metadata.titles, language)
        case FormField.AVAILABLE:
            return published.metadata.available
        case FormField.OPERATIONS:
            return listed.operations


def _title(titles: Mapping[str, str], language: str) -> str | None:
    """The title in a language, else the first."""
    first = next(iter(titles.values()), None)
    return titles.get(language, first) if language else first


def _place(listed: Listed) -> tuple[str, str, int]:
    """The order of versions between which the sort makes no difference."""
    published = listed.published
    return published.form.app, published.form.name, -published.version


def _sort_key(listed: Listed, sort: FormSort) -> tuple[bool, Any]:
    """Return the key of a sort: absent values are lowest, and texts are compared without regard to case."""
    if sort.metadata is FormField.LAST_MODIFIED:
        return True, listed.published.modified  # instants sort as texts
    value = _value(listed, sort.metadata, sort.language)
    if isinstance(value, tuple):
        value = " ".join(value)
    return value is not None, value.casefold() if isinstance(value, str) else value


def _window(page: FormPage) -> slice:
    return slice((page.number - 1) * page.size, page.number * page.size)
