"""Searches, distinct values, and the list of published forms (spec search 1, 3, 4)."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

from persistence.catalog import NOTHING_ENCRYPTED, Catalog, Definition
from persistence.dialect import Dialect
from persistence.errors import BadAddressError, BadRequestError, BusyError, DamagedError, DiskFullError
from persistence.forms.answers import DistinctAnswer, FormListAnswer, SearchAnswer, WrittenForms
from persistence.forms.controls import DESIGNER_KEYS
from persistence.forms.search_xml import read_distinct_request, read_form_query, read_search_request
from persistence.index.protocol import Budget
from persistence.limits import LARGEST_LIST, LEASES_SEARCHED, MOST_LEASED, MOST_MERGED, SEARCH_FORMS_SECONDS
from persistence.model.addresses import DESIGNER_VERSION, LIBRARY_FORM, Form
from persistence.model.permissions import (
    EVERYBODY,
    FINDING,
    NOBODY,
    OPERATIONS,
    Admin,
    Operations,
    OwnerSets,
    Permissions,
    User,
    admin_entries,
    is_admin,
    on_creation,
    on_data_of,
    readable_owners,
    searchable_owners,
)
from persistence.model.queries import (
    ControlFilter,
    DraftFilter,
    Drafts,
    Field,
    FormField,
    FormFilter,
    FormMatch,
    FormQuery,
    FormSort,
    Hit,
    Hits,
    Query,
    Scope,
    SentQuery,
    Sort,
    TextMatch,
    VisibleOwners,
    range_of,
)
from persistence.model.texts import Instant, OrderedType, nearest, similar, to_datetime
from persistence.model.versions import DocumentLease, PublishedVersion, Searched, VersionRequest, only_first
from persistence.properties.properties import FormProperties
from persistence.providers.router import Route, Router
from persistence.services.rules import permissions_of
from persistence.storage.document_leases import moment
from persistence.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class PublishedForms:
    """Answers queries; if it ``is_strict``, those in XML with unknown elements or attributes are refused."""

    # A version that cannot be read is left out. Without ``filters`` every version is listed, because the proxy of a
    # runtime filters, sorts and pages. It takes an empty list for "no permissions are defined" (spec runtime 1), so a
    # damaged version is an error there.
    router: Router
    admins: Sequence[Admin]
    is_strict: bool
    filters: bool = True
    _written: WrittenForms = field(default_factory=WrittenForms, init=False)

    def find(self, query: FormQuery, user: User) -> FormListAnswer:
        latest_only = self.filters if query.latest_only is None else query.latest_only
        query = replace(query, latest_only=latest_only, all_forms=query.all_forms or not self.filters)
        total, page = select(self._listed(query, user), query)
        return FormListAnswer(total, page, self._written)

    def names(self, app: str | None, user: User) -> set[Form]:
        listed = self._listed(FormQuery(app=app, latest_only=True), user)
        return {one.published.form for one in select(listed, FormQuery())[1]}

    def search(self, sent: SentQuery, user: User) -> FormListAnswer:
        query = read_form_query(sent, is_strict=self.is_strict)
        if not self.filters:
            query = FormQuery(query.app, query.form, query.latest_only)
        try:
            return self.find(query, user)
        except BadAddressError:  # a filter may have a text that cannot be a form's name
            return FormListAnswer(0, (), self._written)

    def _listed(self, query: FormQuery, user: User) -> Iterator[Listed]:
        """Yield the versions of forms (spec search 4.4, steps 1 and 2)."""
        entries = admin_entries(self.admins, user)
        known: dict[tuple[int, bool], tuple[Permissions | None, tuple[str, ...]]] = {}
        if query.app is not None and query.form is not None:
            route = self.router.of(Form(query.app, query.form))
            forms = iter([(route, route.catalog.published(route.form, skips_damaged=self.filters))])
        else:
            forms = self.router.published(query.app, query.form)
        for route, versions in forms:
            administers = is_admin(entries, route.form)
            for published in islice(versions, 1) if query.latest_only else versions:
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
    value, wanted = _VALUES[condition.metadata](listed, condition.language), condition.wanted
    if condition.match is FormMatch.SUBSTRING:
        return isinstance(value, str) and str(wanted) in _folded(value)
    if condition.match is FormMatch.TOKEN:
        words = listed.operations
        return isinstance(wanted, tuple) and all(
            word in words or (word in OPERATIONS and _ANYTHING in words) for word in wanted
        )
    if value is None or isinstance(value, str):  # an absent text is as good as an empty one
        return _folded(value or "") == wanted
    return _COMPARE[condition.match](value, wanted)


@lru_cache(16)
def _folded(text: str) -> str:
    """Fold a title once for all filters: a hundred filters on 400 titles of 2,000 characters took a second."""
    return text.casefold()


def _is_visible(listed: Listed, query: FormQuery) -> bool:
    is_admin = ADMIN in listed.operations
    if query.all_forms or (is_admin and not query.ignore_admin):
        return True
    published, used = listed.published, listed.operations[is_admin:]
    return published.form.name != LIBRARY_FORM and bool(used) and published.metadata.available


def _title(listed: Listed, language: str) -> str | None:
    titles = listed.published.metadata.titles
    first = next(iter(titles.values()), None)
    return titles.get(language, first) if language else first


_VALUES: Mapping[FormField, Callable[[Listed, str], Any]] = {
    FormField.APPLICATION_NAME: lambda listed, _: listed.published.form.app,
    FormField.FORM_NAME: lambda listed, _: listed.published.form.name,
    FormField.FORM_VERSION: lambda listed, _: listed.published.version,
    FormField.CREATED: lambda listed, _: to_datetime(listed.published.created),
    FormField.LAST_MODIFIED: lambda listed, _: to_datetime(listed.published.modified),
    FormField.LAST_MODIFIED_BY: lambda listed, _: listed.published.modifier,
    FormField.TITLE: _title,
    FormField.AVAILABLE: lambda listed, _: listed.published.metadata.available,
    FormField.OPERATIONS: lambda listed, _: listed.operations,
}


def _key_of(sort: FormSort) -> Callable[[Listed], Any]:
    if sort.metadata is FormField.LAST_MODIFIED:
        return operator.attrgetter("published.modified")  # instants sort as texts

    def key(listed: Listed) -> tuple[bool, Any]:
        value = _VALUES[sort.metadata](listed, sort.language)
        if isinstance(value, tuple):
            value = " ".join(value)
        return value is not None, value.casefold() if isinstance(value, str) else value

    return key


_TIME_OF: Mapping[Field | str, Callable[[Hit], Instant]] = {
    Field.CREATED: operator.attrgetter("facts.created"),
    Field.LAST_MODIFIED: operator.attrgetter("facts.modified"),
}
_MOST_SHOWN = 3  # Controls that are named in one notice, and versions


# A search finds the documents that a GET by the same user shows, by the permissions of each version, where the property
# restricts searches; otherwise those of spec search 1.8, by the permissions of one version.


@dataclass(frozen=True, slots=True)
class SearchedVersions:
    """The versions of a form that a search looks at, all of them where ``numbers`` is ``None``."""

    # They are ``asked`` for. ``definition`` gives the permissions; by ``indexed`` the index reads data. ``permissions``
    # returns those of a version, which it looks up once.
    catalog: Catalog
    configured: FormProperties
    asked: int | Searched
    numbers: tuple[int, ...] | None
    definition: Definition
    indexed: Definition
    is_designer: bool
    permissions: Callable[[int], Permissions | None]

    @property
    def index_types(self) -> dict[str, OrderedType | None] | None:
        """Return the types of the indexed controls by path, in the index's order; ``None`` where none is published."""
        if self.is_designer:
            return {key.path: key.type for key in DESIGNER_KEYS}
        found = self.indexed.index_keys(self.configured.data_format)
        return {key.path: key.type for key in found.keys} if found.is_published else None

    def require_ranges(self, controls: Iterable[ControlFilter]) -> None:
        ranges = [each for each in controls if each.match.is_range]
        if ranges:
            require_ranges(self.index_types or {}, ranges)


def require_ranges(types: Mapping[str, OrderedType | None], ranges: Iterable[ControlFilter]) -> None:
    """Refuse a range of an indexed control without a type, and a bound that is not a value of its type."""
    for each in ranges:
        of = types.get(each.path)
        if of is not None:
            range_of((each,), of)
        elif each.path in types:
            known = ", ".join(of.value for of in OrderedType)
            cause = f"{each.path!r} cannot have the match {each.match.value}"
            raise BadRequestError(f"{cause}: its bind does not have one of the types {known}")


def searched_versions(
    form: Form, configured: FormProperties, catalog: Catalog, asked: int | Searched, dialect: Dialect
) -> SearchedVersions:
    """Return the versions that a request means (spec search 1.4)."""
    is_designer = form == dialect.designer
    definition, number = None, 1
    numbers: tuple[int, ...] | None = (1,)
    if is_designer or configured.has_versions:
        if isinstance(asked, int):
            number, numbers = asked, (asked,)
        elif is_designer:  # nothing is published of it
            number, numbers = DESIGNER_VERSION, None
        elif (definition := catalog.latest(form)) is not None:
            numbers = None if asked is Searched.ALL else (definition.version,)
        else:
            # Deleted versions still have permissions: the highest counts, with all that have the same ones.
            numbers = catalog.same_permissions(form) or None
            number = numbers[0] if numbers else 1
    elif isinstance(asked, int):
        only_first(VersionRequest(number=asked))
    definition = definition or catalog.of(form, number)

    @cache
    def permissions(version: int) -> Permissions | None:
        is_own = version in {0, definition.version}  # of a hit of another service the version is not known
        return permissions_of(definition if is_own else catalog.of(form, version), configured)

    return SearchedVersions(catalog, configured, asked, numbers, definition, definition, is_designer, permissions)


def scope_of(searched: SearchedVersions, drafts: DraftFilter, user: User, any_of: tuple[str, ...] = FINDING) -> Scope:
    """Return the documents on which a user has one of the operations, as far as a search may show them."""
    configured, indexed, numbers = searched.configured, searched.indexed, searched.numbers
    # A damaged definition is an error, and other versions only show nothing.
    defined = searched.permissions(searched.definition.version)

    @cache  # each partition of an index asks
    def of_version(version: int) -> OwnerSets:
        try:
            return readable_owners(searched.permissions(version), user, any_of)
        except DamagedError:
            return frozenset({NOBODY})

    seen = VisibleOwners(of_version, is_by_saved=True)
    if not configured.restricts_searches:
        owners = frozenset({searchable_owners(defined, user, any_of)} - {EVERYBODY})
        seen = VisibleOwners(lambda _: owners)
    elif not configured.has_drafts:  # a GET of one is refused
        seen = VisibleOwners(lambda _: frozenset({NOBODY})) if drafts.kind is Drafts.ONLY else seen
        drafts = replace(drafts, kind=Drafts.EXCLUDE)
    is_empty = numbers is not None and all(NOBODY in seen.of_version(each) for each in numbers)
    return Scope(numbers, drafts, seen, any_of, (indexed.version, indexed.fingerprint), is_empty)


def operations_on(searched: SearchedVersions, hits: Iterable[Hit], user: User) -> Callable[[Hit], Operations]:
    if not searched.configured.restricts_searches:
        by_owner = on_data_of(searched.permissions(searched.definition.version), user)
        return lambda hit: by_owner(hit.facts.owner)
    by_version = {
        number: on_data_of(searched.permissions(number), user) for number in {hit.facts.version for hit in hits}
    }
    return lambda hit: by_version[hit.facts.version](hit.saved_owner or hit.facts.owner)


def with_leased(query: Query, leases: Callable[[], Iterable[DocumentLease | DamagedError]]) -> Query:
    """Return a query whose conditions on lease holders name the documents, by all leases of a storage."""
    holders = {each.value for each in query.fields if each.field is Field.LEASED_BY}
    if not holders:
        return query
    found, now = {holder: list[str]() for holder in holders}, moment()
    for number, lease in enumerate(leases()):
        if number == LEASES_SEARCHED:
            raise BadRequestError(f"more than {LEASES_SEARCHED} documents are leased, too many to search by leased-by")
        if not isinstance(lease, DamagedError) and lease.user in found and lease.remaining(now):
            found[lease.user].append(lease.document)
    if sum(map(len, found.values())) > MOST_LEASED:
        raise BadRequestError(f"leased-by means more than {MOST_LEASED} documents")
    fields = (replace(each, documents=tuple(found.get(each.value, ()))) for each in query.fields)
    return replace(query, fields=tuple(fields))


class MergedHits:
    """The page of a search of several forms, and its total; ``query`` is that of each form."""

    def __init__(self, query: Query, *, names_controls: bool) -> None:
        by, self._end = _TIME_OF.get(query.sort.by), query.offset + query.size
        if names_controls or by is None:
            raise BadRequestError("a search of several forms names no controls, and is sorted by a time")
        if self._end > MOST_MERGED:
            raise BadRequestError(f"a search of several forms has {MOST_MERGED} documents at most: ask more narrowly")
        self._by, self._asked = by, query
        self.query = replace(query, offset=0, size=self._end, paths=())
        self._total = 0
        self._found: list[Hit] = []

    def add(self, form: Form, hits: Hits) -> None:
        self._total += hits.total
        self._found += [replace(hit, form=form) for hit in hits.page]
        self._found.sort(key=lambda hit: (self._by(hit), str(hit.form)), reverse=self.query.sort.is_descending)
        del self._found[self._end :]

    @property
    def page(self) -> Hits:
        return Hits(self._total, tuple(self._found[self._asked.offset :]))


# A misspelt name gets an answer without documents (spec search 1.1, 1.4), with a notice of the nearest known name.


def _with_leased(query: Query, storage: Storage) -> Query:
    return query if storage.is_remote else with_leased(query, storage.leases.listed)  # another service looks itself


@dataclass(frozen=True, slots=True)
class Searcher:
    """The caller of a search; with ``is_administrator``, permissions do not count."""

    user: User
    is_administrator: bool = False


@dataclass(frozen=True, slots=True)
class Searching:
    """Answers searches, with a notice that names requested things that do not exist, if any."""

    # A full disk is ``BusyError``: a search stores nothing, and may be repeated.
    router: Router
    dialect: Dialect
    forms: PublishedForms

    def search(
        self, form: Form, version: int | Searched, sent: SentQuery, searcher: Searcher
    ) -> tuple[SearchAnswer, str | None]:
        user = searcher.user
        request = read_search_request(sent, user, is_strict=self.dialect.is_strict)
        route = self.router.of(form)
        searched = self._searched(route, version, searcher)
        scope = scope_of(searched, request.drafts, user, request.any_of)
        query, paths = request.query, request.paths
        searched.require_ranges(query.controls)
        asked = (*paths, *(() if isinstance(query.sort.by, Field) else (query.sort.by,)))
        if request.all_indexed:
            paths = tuple(searched.index_types or ())
            # Conditions on other controls do not count (spec search 1.6).
            controls = tuple(condition for condition in query.controls if condition.path in paths)
            is_known = isinstance(query.sort.by, Field) or query.sort.by in paths
            query = replace(query, controls=controls, sort=query.sort if is_known else Sort())
        with _full_disk_is_busy():
            found = replace(_with_leased(query, route.data.storage), paths=paths)
            hits = Hits() if scope.is_empty else route.search(scope, found, Budget())
            notice = self._notice(searched, asked, user, scope.seen, found=hits.total > 0)
            if notice is None and query.controls and not hits.total:
                notice = _encrypted_controls(searched, query.controls)
        return SearchAnswer(hits, paths, operations_on(searched, hits.page, user)), notice

    def search_all(self, app: str | None, sent: SentQuery, searcher: Searcher) -> tuple[SearchAnswer, str | None]:
        """Return the documents of all versions of all forms, or of those of an application, that a query finds."""
        # Controls differ from form to form, so a condition on one is refused. Damaged forms are left out, and named.
        request = read_search_request(sent, searcher.user, is_strict=self.dialect.is_strict)
        merged = MergedHits(request.query, names_controls=bool(request.paths) or request.all_indexed)
        until = time.monotonic() + SEARCH_FORMS_SECONDS
        damaged = list[str]()
        operations_of: dict[Form | None, Callable[[Hit], Operations]] = {}
        wanted: Callable[[Any], Query] = cache(partial(_with_leased, merged.query))
        for form in self.router.forms(app):
            if time.monotonic() > until:
                raise BadRequestError(f"the search takes more than {SEARCH_FORMS_SECONDS:.0f} s: name an application")
            route = self.router.of(form)
            try:
                searched = self._searched(route, Searched.ALL, searcher)
                scope = scope_of(searched, request.drafts, searcher.user, request.any_of)
                with _full_disk_is_busy():
                    search = partial(route.data.index.search, form, scope, wanted(route.data.storage))
                    hits = Hits() if scope.is_empty else search(Budget(until))
                operations_of[form] = operations_on(searched, hits.page, searcher.user)
            except DamagedError:
                damaged.append(str(form))
                continue
            merged.add(form, hits)
        notice = f"left out, because it is damaged: {', '.join(sorted(damaged)[:_MOST_SHOWN])}" if damaged else None
        return SearchAnswer(merged.page, (), lambda hit: operations_of[hit.form](hit)), notice

    def _notice(
        self, searched: SearchedVersions, paths: Collection[str], user: User, seen: VisibleOwners, *, found: bool
    ) -> str | None:
        definition, version, catalog = searched.definition, searched.asked, searched.catalog
        form = definition.form
        if user.is_nameless and seen.of_version(definition.version):
            return f"roles and groups count only together with a user name ({self.dialect.header('Username')})"
        if not (found or searched.is_designer):
            with suppress(DamagedError):  # whose documents are not known
                published = tuple(islice((each.version for each in catalog.published(form)), _MOST_SHOWN + 1))
                if not published:
                    # The nearest name that may be shown, in the same application if possible.
                    names = self.forms.names(form.app, user) or self.forms.names(None, user)
                    near = similar(str(form), sorted({str(each) for each in names} - {str(form)}))
                    return f"{form} is not published" + ("" if near is None else f"; the nearest name is {near}")
                if isinstance(version, int) and catalog.of(form, version).published is None:
                    return unpublished_version(form, version, published)
        if not paths:
            return None
        indexed = searched.index_types
        if indexed is None and searched.indexed is not definition:
            return f"no control of {form} is indexed: publish version {definition.version} where its data is"
        return None if indexed is None else unknown_controls(form, definition.version, indexed, paths)

    def _searched(self, route: Route, version: int | Searched, searcher: Searcher) -> SearchedVersions:
        configured = route.properties
        if searcher.is_administrator:
            configured = replace(configured, has_permissions=False)
        searched = searched_versions(route.form, configured, route.catalog, version, self.dialect)
        return replace(searched, indexed=route.indexed(searched.definition))

    def distinct(
        self, form: Form, version: int | Searched, sent: SentQuery, searcher: Searcher
    ) -> tuple[DistinctAnswer, str | None]:
        """Return the different values in the documents that the user may see, drafts only for a named user."""
        user = searcher.user
        asked = read_distinct_request(sent, is_strict=self.dialect.is_strict)
        route = self.router.of(form)
        searched = self._searched(route, version, searcher)
        drafts = DraftFilter(Drafts.EXCLUDE if user.name is None else Drafts.INCLUDE)
        scope = scope_of(searched, drafts, user)
        notice = partial(self._notice, searched, tuple(by for by in asked if isinstance(by, str)), user, scope.seen)
        if scope.is_empty:
            return DistinctAnswer(()), notice(found=False)
        # Read before the answer begins, so that an error has a status.
        budget = Budget()
        values: dict[Field | str, tuple[str, ...]] = {}
        with _full_disk_is_busy():
            for by in asked:
                if by in values:
                    budget.hold_texts(values[by])  # written again
                else:
                    values[by] = tuple(route.data.index.distinct(form, scope, by, budget))
                budget.hold_texts((str(by),))
            said = notice(found=any(values.values()))
        return DistinctAnswer([(by, values[by]) for by in asked]), said


@contextmanager
def _full_disk_is_busy() -> Iterator[None]:
    try:
        yield
    except DiskFullError as error:
        raise BusyError(str(error), retry_after=30) from error


def unknown_controls(form: Form, version: int, indexed: Collection[str], asked: Iterable[str]) -> str | None:
    """Name the requested paths that belong to no indexed control; ``None`` where all do."""
    unknown = [path for path in dict.fromkeys(asked) if path not in indexed]
    if not unknown:
        return None
    shown = list(map(repr, unknown[:_MOST_SHOWN]))
    for at, path in enumerate(unknown[:_MOST_SHOWN]):
        near = nearest(path, indexed)
        shown[at] += "" if near is None else f" (the nearest is {near!r})"
    more = f" and {len(unknown) - _MOST_SHOWN} more" if len(unknown) > _MOST_SHOWN else ""
    return f"version {version} of {form} has no indexed control {', '.join(shown)}{more}"


def _encrypted_controls(searched: SearchedVersions, conditions: Iterable[ControlFilter]) -> str | None:
    """Name an encrypted control whose values a condition cannot find."""
    finds = searched.configured.finds_encrypted
    with suppress(BadRequestError, DamagedError):  # what a damaged definition encrypts is not known
        encrypted = (None if searched.is_designer else searched.definition.encrypted) or NOTHING_ENCRYPTED
        for each in conditions:
            if tuple(each.path.split("/")) in encrypted.paths and not (finds and each.match is TextMatch.EXACT):
                how = "only the match exact finds its values" if finds else "searches do not find its values"
                return f"{each.path!r} is encrypted: {how}"
    return None


def unpublished_version(form: Form, version: int, published: Iterable[int]) -> str:
    numbers = tuple(islice(published, _MOST_SHOWN + 1))
    shown = ", ".join(map(str, numbers[:_MOST_SHOWN])) + (" …" if len(numbers) > _MOST_SHOWN else "")
    return f"{form} has no published version {version}; it has {shown or 'none'}"
