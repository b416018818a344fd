"""The form metadata API: the published forms that a query finds, as a user may see them (spec search 4)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from persistence.errors import BadAddressError, BadRequestError
from persistence.forms.form_list_xml import FormListWriter, read_form_query
from persistence.limits import LARGEST_LIST
from persistence.model.addresses import LIBRARY_FORM, Form
from persistence.model.instants import to_datetime
from persistence.model.permissions import OPERATIONS, Permissions, on_creation
from persistence.model.search import FormField, FormFilter, FormMatch, FormQuery, FormSort
from persistence.model.users import Admin, User, admin_entries, is_admin
from persistence.model.versions import PublishedVersion
from persistence.providers.provider import Route
from persistence.providers.router import Router
from persistence.services.access import permissions_of


class PublishedForms:
    """Answers queries with XML. A version that cannot be read is left out."""

    def __init__(self, router: Router, admins: Iterable[Admin], *, is_strict: bool, filters: bool = True) -> None:
        """With ``is_strict``, refuse queries with unknown elements or attributes.

        Without ``filters`` every version is listed, because the proxy of a runtime filters, sorts and pages. It takes
        an empty list for "no permissions are defined" (spec runtime 1), so a damaged version is an error there.
        """
        self._router = router
        self._is_strict = is_strict
        self._filters = filters
        self._admins = tuple(admins)
        self._list = FormListWriter()

    def find(self, query: FormQuery, user: User) -> bytes:
        latest_only = self._filters if query.latest_only is None else query.latest_only
        query = replace(query, latest_only=latest_only, all_forms=query.all_forms or not self._filters)
        total, page = select(self._listed(self._looked_up(query), user), query)
        return self._list.write(total, ((one.published, " ".join(one.operations)) for one in page))

    def names(self, app: str | None, user: User) -> set[Form]:
        """Return the forms that the list shows to a user, or those of one application."""
        listed = self._listed(self._looked_up(FormQuery(app=app, latest_only=True)), user)
        return {one.published.form for one in select(listed, FormQuery())[1]}

    def search(self, body: Iterable[bytes], user: User) -> bytes:
        """Return the list for a query in XML."""
        query = read_form_query(body, is_strict=self._is_strict)
        if not self._filters:
            query = FormQuery(query.app, query.form, query.latest_only)
        try:
            return self.find(query, user)
        except BadAddressError:  # a filter may have a text that cannot be a form's name
            return self._list.write(0, ())

    def _looked_up(self, query: FormQuery) -> Iterator[tuple[Route, Iterator[PublishedVersion]]]:
        """Return the routes of forms with their versions (spec search 4.4, steps 1 and 2)."""
        if query.app is not None and query.form is not None:
            route = self._router.of(Form(query.app, query.form))
            forms = iter([(route, route.catalog.published(route.form, skips_damaged=self._filters))])
        else:
            forms = self._router.published(query.app, query.form)
        return ((route, islice(versions, 1)) for route, versions in forms) if query.latest_only else forms

    def _listed(self, forms: Iterable[tuple[Route, Iterator[PublishedVersion]]], user: User) -> Iterator[Listed]:
        entries = admin_entries(self._admins, user)
        known: dict[tuple[int, bool], tuple[Permissions | None, tuple[str, ...]]] = {}
        for route, versions in forms:
            administers = is_admin(entries, route.form)
            for published in versions:
                permissions = permissions_of(published, route.properties)
                key = id(permissions), administers
                found = known.get(key)
                if found is None:  # kept with the value, whose id can then be no other's
                    found = known[key] = permissions, operations(permissions, user, is_admin=administers)
                yield Listed(published, found[1])


ADMIN = "admin"

_ANYTHING = "*"
_COMPARE: Mapping[FormMatch, Callable[[Any, Any], bool]] = {
    FormMatch.GTE: operator.ge,
    FormMatch.GT: operator.gt,
    FormMatch.LTE: operator.le,
    FormMatch.LT: operator.lt,
    FormMatch.EXACT: operator.eq,
}


class Listed(NamedTuple):
    """A published version, and the words for the operations of the user, for an administrator ``admin`` first."""

    published: PublishedVersion
    operations: tuple[str, ...]


def operations(permissions: Permissions | None, user: User, *, is_admin: bool) -> tuple[str, ...]:
    """Return the words for the operations of a user on a form (spec search 4.5)."""
    allowed = on_creation(permissions, user).allowed
    words = (_ANYTHING,) if allowed is None else allowed
    return (ADMIN, *words) if is_admin else words


def select(listed: Iterable[Listed], query: FormQuery) -> tuple[int, list[Listed]]:
    """Return the number of versions that a query finds, and the page of them that it asks for."""
    found = []
    left = LARGEST_LIST
    for one in listed:
        if _is_visible(one, query) and (not query.filters or all(holds(each, one) for each in query.filters)):
            left -= one.published.weight
            if left < 0:
                raise BadRequestError(f"the forms of the list have more than {LARGEST_LIST} bytes: ask for fewer")
            found.append(one)
    found.sort(key=lambda one: (one.published.form.app, one.published.form.name, -one.published.version))
    found.sort(key=_key_of(query.sort), reverse=query.sort.is_descending)
    if query.page is None:
        return len(found), found
    begin = (query.page.number - 1) * query.page.size
    return len(found), found[begin : begin + query.page.size]


def holds(condition: FormFilter, listed: Listed) -> bool:
    """Return whether a filter lets a version pass (spec search 4.2)."""
    value, wanted = _value(listed, condition.metadata, condition.language), condition.wanted
    if condition.match is FormMatch.SUBSTRING:
        return isinstance(value, str) and str(wanted) in value.casefold()
    if condition.match is FormMatch.TOKEN:
        words = listed.operations
        return isinstance(wanted, tuple) and all(
            word in words or (word in OPERATIONS and _ANYTHING in words) for word in wanted
        )
    if value is None or isinstance(value, str):  # an absent text is as good as an empty one
        return (value or "").casefold() == wanted
    return _COMPARE[condition.match](value, wanted)


def _is_visible(listed: Listed, query: FormQuery) -> bool:
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
            titles = published.metadata.titles
            first = next(iter(titles.values()), None)
            return titles.get(language, first) if language else first
        case FormField.AVAILABLE:
            return published.metadata.available
        case FormField.OPERATIONS:
            return listed.operations


def _key_of(sort: FormSort) -> Callable[[Listed], Any]:
    if sort.metadata is FormField.LAST_MODIFIED:
        return operator.attrgetter("published.modified")  # instants sort as texts

    def key(listed: Listed) -> tuple[bool, Any]:
        value = _value(listed, sort.metadata, sort.language)
        if isinstance(value, tuple):
            value = " ".join(value)
        return value is not None, value.casefold() if isinstance(value, str) else value

    return key
