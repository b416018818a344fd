"""The pages of forms: all of them with counts, the documents of a version as a table, and its definition."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any
from urllib.parse import quote

from flask import Response, redirect, render_template, request, url_for
from markupsafe import Markup
from werkzeug.wrappers import Response as AnyResponse

from persistence.errors import BadRequestError, BusyError, ConfigurationError, NotFoundError, PersistenceError
from persistence.http.logs import REQUEST_ID, Unbroken
from persistence.limits import (
    COLUMNS_SHOWN,
    COUNTING_AWAITED,
    COUNTING_SHARE,
    FORMS_COUNTED,
    LONGEST_SEARCHED,
    MOST_SEARCHED,
    ROWS_SHOWN,
    STORED_LISTED,
)
from persistence.maintenance.reports import (
    SOURCES,
    DocumentCounts,
    FormCounts,
    PermissionsSource,
    TreeReader,
    count_documents,
    last_days,
    permissions_source,
    unknown_operations,
    whom,
)
from persistence.model.addresses import Form
from persistence.model.instants import Instant, from_datetime
from persistence.model.permissions import OPERATIONS
from persistence.model.queries import (
    Comparison,
    ControlFilter,
    Drafts,
    Field,
    FieldFilter,
    Hits,
    Query,
    Sort,
    TextMatch,
)
from persistence.model.versions import PublishedVersion
from persistence.pages.service_pages import bar_plot
from persistence.pages.site import NAME, Site, cut, instant
from persistence.providers.opened import Providers
from persistence.providers.router import Route
from persistence.services.access import is_singleton, permissions_of
from persistence.services.document_tables import VersionTable
from persistence.services.shown_documents import shown_definition
from persistence.storage.layout import Layout
from persistence.storage.reader import StoreReader

# The counts of all forms for the pages, made in the background, because counting reads a record of each document.
#
# A page shows the last counts with their time. A look at it begins new ones, the more seldom the longer they take.


@dataclass(frozen=True, slots=True)
class CountedForms:
    """Counts by form; ``at`` is when they were complete, in seconds since 1970, ``None`` before the first time."""

    counts: Mapping[Form, FormCounts] = field(default_factory=dict)
    at: float | None = None


class FormCounting:
    """Counts in a thread that ends with its work; one for all threads of a worker.

    ``places`` returns every form whose documents are counted, with the place that has them.
    """

    def __init__(self, places: Callable[[], Iterable[tuple[Form, TreeReader]]]) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last = CountedForms()
        self._began = 0.0
        self._took = 0.0
        self._due = 0.0

    def counted(self) -> CountedForms:
        """Return the known counts; wait for new ones that are quick."""
        with self._lock:
            if self._thread is None and time.monotonic() >= self._due:
                self._thread = threading.Thread(target=self._count, name="counts of forms", daemon=True)
                self._began = time.monotonic()
                self._thread.start()
            counting, left = self._thread, self._began + COUNTING_AWAITED - time.monotonic()
        if counting is not None and left > 0 and self._took <= COUNTING_AWAITED:
            counting.join(left)
        return self._last

    def _count(self) -> None:
        began = time.monotonic()
        known = dict(self._last.counts)
        try:
            found: dict[Form, FormCounts] = {}
            for form, place in islice(self._places(), FORMS_COUNTED):
                found[form] = known[form] = count_documents(place, form)
                if self._last.at is None:
                    self._last = CountedForms(dict(known))
            self._last = CountedForms(found, time.time())
        except PersistenceError:  # other pages report the same fault
            self._last = CountedForms(known, self._last.at)
        finally:
            self._took = time.monotonic() - began
            self._due = time.monotonic() + self._took / COUNTING_SHARE
            with self._lock:
                self._thread = None


@dataclass(frozen=True, slots=True)
class ShownForm:
    """A line of the list; ``counts`` is ``None`` until they are known, and where another service has the documents."""

    form: Form
    title: str
    versions: tuple[int, ...]
    counts: DocumentCounts | None
    is_elsewhere: bool

    @property
    def latest(self) -> int:
        """The version to which a link to the form leads."""
        return self.versions[-1] if self.versions else 1


_ORDERS: dict[str, Callable[[ShownForm], Any]] = {
    "name": lambda each: (each.form.app, each.form.name),
    "documents": lambda each: each.counts.documents if each.counts else 0,
    "drafts": lambda each: each.counts.drafts if each.counts else 0,
    "deleted": lambda each: each.counts.deleted if each.counts else 0,
    "size": lambda each: each.counts.size if each.counts else 0,
    "saved": lambda each: (each.counts.saved or "") if each.counts else "",
}
"""The columns by which forms are sorted."""


class ServedForms:
    """All forms of the local places and databases, with their counts. Other services show their own."""

    def __init__(self, providers: Providers) -> None:
        self.providers = providers
        self.counting = FormCounting(self._places)

    def routes(self) -> Iterator[Route]:
        """Yield the route of every form, unordered."""
        known = set[Form]()
        for provider in self.providers.local:
            for form in provider.storage.forms():
                if form not in known:
                    known.add(form)
                    with suppress(ConfigurationError):  # it has no provider, as a request for it by name reports
                        yield self.providers.router.of(form)

    def place_of(self, route: Route) -> TreeReader | None:
        """Return the place of the documents of a route; ``None`` where another service has them."""
        storage, router = route.data.storage, self.providers.router
        if storage.is_remote:
            return None
        layout = Layout(storage.root) if isinstance(storage, StoreReader) else None
        return TreeReader(storage, layout, router.properties, lambda form: router.of(form).catalog)

    def _places(self) -> Iterator[tuple[Form, TreeReader]]:
        for route in self.routes():
            place = self.place_of(route)
            if place is not None:
                yield route.form, place


def title_of(published: PublishedVersion | None) -> str:
    """Return the English title of a version, else its first one."""
    titles = {} if published is None else published.metadata.titles
    return titles.get("en", next(iter(titles.values()), ""))


def published_of(route: Route) -> list[PublishedVersion]:
    """Return the published versions of a form, lowest first, without damaged ones; empty if they cannot be read."""
    try:
        return sorted(route.catalog.published(route.form, skips_damaged=True), key=lambda each: each.version)
    except PersistenceError:  # the service that has them does not answer
        return []


_CONTROL = "c."
"""The beginning of a parameter that is about the control whose path follows."""

_EXACT = {"owner": Field.CREATED_BY, "by": Field.LAST_MODIFIED_BY, "stage": Field.WORKFLOW_STAGE}
_FIELDS = {"saved": Field.LAST_MODIFIED, "created": Field.CREATED, **_EXACT}
"""The facts by which documents are sorted, by their names in links."""

_MOST_PAGES = 1_000_000_000
_LONGEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The parameters that are known, each with a value, and what they mean."""

    parameters: Mapping[str, str]
    query: Query
    drafts: Drafts
    page: int
    sort: str

    @property
    def is_descending(self) -> bool:
        return self.query.sort.is_descending

    @property
    def has_filters(self) -> bool:
        """Tell whether anything but the search box narrows the table down."""
        return bool(self.parameters.keys() - {"q", "sort", "order", "page", "lang"})

    @property
    def is_plain(self) -> bool:
        """Tell whether it lists all documents, the last saved first, without a search."""
        return not self.parameters.keys() - {"page", "lang"}

    def linked(self, **changed: object) -> dict[str, str]:
        """Return the parameters of a link to the same table with others; a page is left out, unless it is given."""
        given = {name: value for name, value in self.parameters.items() if name != "page"}
        return given | {name: str(value) for name, value in changed.items() if value}


def table_query(given: Mapping[str, str], shown: Sequence[str], paths: Sequence[str]) -> TableQuery:
    """Read the parameters of a table, whose columns have the paths ``shown``, of all indexed ``paths``."""
    names = ("q", "from", "to", "drafts", "sort", "order", "page", "lang", *_EXACT, *(f"{_CONTROL}{x}" for x in paths))
    known = {name: value for name in names if (value := given.get(name, "").strip())}
    if any(len(value) > LONGEST_SEARCHED for value in known.values()) or sum(map(len, known.values())) > MOST_SEARCHED:
        raise BadRequestError(f"a text that is searched has {LONGEST_SEARCHED} characters at most")
    page = page_number(known.get("page", "1"))
    sort = known.get("sort", "saved")
    if sort not in _FIELDS and sort not in paths:
        raise BadRequestError(f"documents are sorted by {', '.join(_FIELDS)} or an indexed control, not {sort[:60]!r}")
    is_descending = known.get("order", "desc" if sort in {"saved", "created"} else "asc") == "desc"
    controls = tuple(
        ControlFilter(path, TextMatch.SUBSTRING, known[f"{_CONTROL}{path}"])
        for path in paths
        if f"{_CONTROL}{path}" in known
    )
    by = _FIELDS.get(sort, sort)
    query = Query(
        text=known.get("q", ""),
        controls=controls,
        fields=_fields(known),
        sort=Sort(by, is_descending),
        offset=(page - 1) * ROWS_SHOWN,
        size=ROWS_SHOWN,
        paths=tuple(dict.fromkeys((*shown, *((by,) if isinstance(by, str) else ())))),
    )
    return TableQuery(known, query, _drafts(known.get("drafts", Drafts.EXCLUDE.value)), page, sort)


def _fields(known: Mapping[str, str]) -> tuple[FieldFilter, ...]:
    found = [FieldFilter(field, Comparison.EXACT, known[name]) for name, field in _EXACT.items() if name in known]
    if "from" in known:
        found.append(FieldFilter(Field.LAST_MODIFIED, Comparison.GTE, _midnight(known["from"], 0)))
    if "to" in known:
        found.append(FieldFilter(Field.LAST_MODIFIED, Comparison.LT, _midnight(known["to"], 1)))
    return tuple(found)


def _midnight(day: str, days_later: int) -> Instant:
    try:
        wanted = date.fromisoformat(day) + timedelta(days=days_later)
        return from_datetime(datetime(wanted.year, wanted.month, wanted.day, tzinfo=UTC))
    except (ValueError, OverflowError) as error:
        raise BadRequestError(f"a day is such as 2026-03-04, not {day[:60]!r}") from error


def page_number(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER
    number = int(text) if is_number else 0
    if not 1 <= number <= _MOST_PAGES:
        raise BadRequestError(f"the page must be a number from 1, not {text[:60]!r}")
    return number


def _drafts(text: str) -> Drafts:
    try:
        return Drafts(text)
    except ValueError:
        raise BadRequestError(f"drafts must be exclude, include or only, not {text[:60]!r}") from None


_PATH = "/admin/forms/<app>/<form>"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")  # in the name of a file that is downloaded, for old browsers


def disposition(name: str, *, is_shown: bool = False) -> str:
    """Return the ``Content-Disposition`` of a download under a name, of any characters (RFC 6266)."""
    kind = "inline" if is_shown else "attachment"
    return f"{kind}; filename=\"{_UNSAFE.sub('_', name)}\"; filename*=UTF-8''{quote(name, safe='')}"


@dataclass(frozen=True, slots=True)
class ShownVersion:
    """A version, with the facts for the head of its pages. ``numbers`` are published, or have documents."""

    route: Route
    version: int
    published: PublishedVersion | None
    numbers: tuple[int, ...]
    of_form: FormCounts | None
    counted_at: float | None

    @property
    def form(self) -> Form:
        return self.route.form

    @property
    def title(self) -> str:
        return title_of(self.published)

    @property
    def counts(self) -> DocumentCounts | None:
        return None if self.of_form is None else self.of_form.of_version.get(self.version, DocumentCounts())

    def path(self, endpoint: str, **values: Any) -> str:
        return url_for(f"{NAME}.{endpoint}", app=self.form.app, form=self.form.name, version=self.version, **values)


def shown_version(forms: ServedForms, app: str, name: str, version: int) -> ShownVersion:
    route = forms.providers.router.of(Form(app, name))
    published = published_of(route)
    counted = forms.counting.counted()
    found = counted.counts.get(route.form)
    with_documents = set() if found is None else {number for number in found.of_version if number}
    numbers = tuple(sorted({each.version for each in published} | with_documents))
    if version not in numbers and counted.at is not None:
        raise NotFoundError(f"there is no version {version} of {route.form}")
    this = next((each for each in published if each.version == version), None)
    return ShownVersion(route, version, this, numbers, found, counted.at)


@dataclass(frozen=True, slots=True)
class FormPages:
    """The pages of all forms, of a form and of a version."""

    forms: ServedForms

    def add_to(self, site: Site) -> None:
        site.page("/admin/forms", "forms", self.all, "Forms")
        site.page(_PATH, "form", self.latest)
        site.page(f"{_PATH}/<int:version>", "version", self._of_version(self.documents), reads="search")
        csv = self._of_version(self.csv)
        site.page(f"{_PATH}/<int:version>/documents.csv", "version-csv", csv, reads="csv")
        site.page(f"{_PATH}/<int:version>/deleted", "version-deleted", self._of_version(_deleted))
        site.page(f"{_PATH}/<int:version>/definition", "definition", self._of_version(_definition))

    def all(self) -> str:
        sort, descending = request.args.get("sort", "name"), request.args.get("order") == "desc"
        if sort not in _ORDERS:
            raise BadRequestError(f"forms are sorted by {', '.join(_ORDERS)}, not {sort[:60]!r}")
        counted = self.forms.counting.counted()
        shown = sorted((self._line(route, counted) for route in self.forms.routes()), key=_ORDERS["name"])
        shown = [each for each in shown if each.versions or each.counts is not None]
        total = DocumentCounts()
        for each in shown:
            total.add(each.counts or DocumentCounts())
        if (sort, descending) != ("name", False):
            shown.sort(key=_ORDERS[sort], reverse=descending)
        return render_template(
            "forms.html", forms=shown, total=total, counted_at=counted.at, sort=sort, descending=descending
        )

    def _line(self, route: Route, counted: CountedForms) -> ShownForm:
        published = published_of(route)
        found = counted.counts.get(route.form)
        counts = None if found is None or (not found.of_version and not published) else found.all
        versions = {each.version for each in published} | set(() if found is None else found.of_version) - {0}
        title = title_of(published[-1] if published else None)
        return ShownForm(route.form, title, tuple(sorted(versions)), counts, route.data.storage.is_remote)

    def _of_version(self, view: Callable[[ShownVersion], str | AnyResponse]) -> Callable[..., str | AnyResponse]:
        return lambda app, form, version: view(shown_version(self.forms, app, form, version))

    def latest(self, app: str, form: str) -> AnyResponse:
        route = self.forms.providers.router.of(Form(app, form))
        numbers = [each.version for each in published_of(route)]
        if not numbers:
            found = self.forms.counting.counted().counts.get(route.form)
            numbers = [] if found is None else sorted(filter(None, found.of_version))
        if not numbers:
            raise NotFoundError(f"there is no form {route.form}")
        return redirect(url_for(f"{NAME}.version", app=app, form=form, version=numbers[-1]))

    def documents(self, shown: ShownVersion) -> str:
        table = VersionTable.of(shown.route, shown.version, request.args.get("lang") or None)
        columns, paths = table.columns[:COLUMNS_SHOWN], [column.path for column in table.columns]
        asked = table_query(request.args, [column.path for column in columns], paths)
        hits, problem = _found(table, asked)
        plot, days = "", last_days()
        if (counts := shown.counts) is not None:
            title = f"New documents a day, last {len(days)} days"
            labels = [days[0], days[len(days) // 2], days[-1]]
            plot = bar_plot(title, [counts.created[day] for day in days], labels)
        return render_template(
            "version.html",
            shown=shown,
            table=table,
            columns=columns,
            asked=asked,
            hits=hits,
            problem=problem,
            pages=max(1, -(-hits.total // ROWS_SHOWN)),
            plot=plot,
        )

    def csv(self, shown: ShownVersion) -> AnyResponse:
        table = VersionTable.of(shown.route, shown.version, request.args.get("lang") or None)
        asked = table_query(request.args, (), [column.path for column in table.columns])
        pieces = table.csv(asked.query, asked.drafts)
        name = f"{shown.form.app}-{shown.form.name}-{shown.version}.csv"
        headers = {"Content-Disposition": disposition(name), "X-Accel-Buffering": "no"}
        body = Unbroken(_begun(pieces), request.environ.get(REQUEST_ID))
        return Response(body, content_type="text/csv; charset=utf-8", headers=headers)


def _begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    first = [piece for _, piece in zip(range(2), pieces, strict=False)]

    def all_of_them() -> Iterator[bytes]:
        yield from first
        yield from pieces

    return all_of_them()


def _found(table: VersionTable, asked: TableQuery) -> tuple[Hits, str]:
    if table.route.data.storage.is_remote:
        return Hits(), f"The service {table.route.properties.route.data.name} has the documents: look at its pages."
    try:
        return table.find(replace(asked.query, needs_total=False), asked.drafts), ""
    except BusyError as error:
        problem = f"The documents cannot be searched now: {error}. Load the page again in a moment"
        if not asked.is_plain:
            return Hits(), f"{problem}."
        hits = table.stored(asked.query.offset, asked.query.size)
        listed = f"of the first {STORED_LISTED} that are stored" if hits.has_more else "as they are stored"
        problem = f"{problem} to see values of controls, too. The documents are listed {listed}."
        return replace(hits, has_more=False), problem


def _deleted(shown: ShownVersion) -> str:
    of_form = shown.of_form
    found = [] if of_form is None else [each for each in of_form.deleted if each.version == shown.version]
    return render_template("deleted.html", shown=shown, deleted=found)


def _definition(shown: ShownVersion) -> str:
    language = request.args.get("lang") or None
    definition = shown_definition(shown.route, shown.version, language)
    configured = shown.route.properties
    permissions, source = None, PermissionsSource.NOBODY
    if shown.published is not None:
        permissions = permissions_of(shown.published, configured)
        source = permissions_source(shown.published, configured)
    # Who, which of the operations, and the names of unknown ones.
    rules = [
        (whom(each), [name in each.operations for name in OPERATIONS], unknown_operations(each))
        for each in permissions or ()
    ]
    if not permissions:
        rules = [("everyone" if permissions is None else "nobody", [permissions is None] * len(OPERATIONS), [])]
    return render_template(
        "definition.html",
        shown=shown,
        definition=definition,
        language=language if language in definition.languages else next(iter(definition.languages), None),
        operations=OPERATIONS,
        permissions=rules,
        source=SOURCES[source],
        facts=list(_facts(shown)),
    )


def _facts(shown: ShownVersion) -> Iterator[tuple[str, str | Markup]]:
    published = shown.published
    if published is None:
        return
    for language, title in published.metadata.titles.items():
        yield f"Title ({language})" if language else "Title", cut(title)
    yield "Published", instant(published.created)
    by = f" by {cut(published.modifier)}" if published.modifier else ""
    yield "Last published", instant(published.modified) + by
    yield "Available", "yes" if published.metadata.available else "no"
    yield "Singleton", "yes" if is_singleton(published, shown.route.properties) else "no"
    yield "Stored data format", shown.route.properties.data_format
    yield "Data is with", shown.route.properties.route.data.name
