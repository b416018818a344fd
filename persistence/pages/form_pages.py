"""The forms that are served, and their pages: all with counts, versions, and their documents as a table."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any
from urllib.parse import quote

from flask import Response, render_template, request, url_for
from markupsafe import Markup
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response as AnyResponse

from persistence import errors, limits
from persistence.dialect import Dialect
from persistence.http.audit import note_in_audit
from persistence.http.logs import REQUEST_ID, unbroken
from persistence.http.responses import XLSX
from persistence.limits import COUNTING_AWAITED, COUNTING_SHARE, FORMS_COUNTED
from persistence.maintenance import reports
from persistence.maintenance.reports import DeletedDocument, DocumentCounts, FormCounts, TreeReader, count_documents
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.permissions import OPERATIONS
from persistence.model.queries import (
    Comparison,
    ControlFilter,
    Drafts,
    Field,
    FieldFilter,
    Hit,
    Hits,
    Query,
    Sort,
    TextMatch,
    range_of,
)
from persistence.model.texts import OrderedType
from persistence.model.versions import PublishedVersion
from persistence.pages.languages import ENGLISH, page_language, translated
from persistence.pages.service_pages import bar_plot
from persistence.pages.site import NAME, Site, cut, instant, midnight
from persistence.providers.opened import Providers
from persistence.providers.router import Route
from persistence.services.document_tables import DocumentTable, TableColumn, outline_of
from persistence.services.documents import Documents
from persistence.services.histories import before_current
from persistence.services.rules import Get, is_singleton, permissions_of
from persistence.services.shown_documents import shown_definition, shown_document
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


class ServedForms:
    """All forms of the local places and databases, with their counts. Other services show their own.

    They are counted in a thread that ends with its work; one for all threads of a worker.
    """

    def __init__(self, providers: Providers, dialect: Dialect) -> None:
        self.providers, self.dialect = providers, dialect
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
            for route in islice((each for each in self.routes() if not each.data.storage.is_remote), FORMS_COUNTED):
                if (place := self.place_of(route)) is not None:
                    found[route.form] = known[route.form] = count_documents(place, route.form)
                if self._last.at is None:
                    self._last = CountedForms(dict(known))
            self._last = CountedForms(found, time.time())
        except errors.PersistenceError:  # other pages report the same fault
            self._last = CountedForms(known, self._last.at)
        finally:
            self._took = time.monotonic() - began
            self._due = time.monotonic() + self._took / COUNTING_SHARE
            with self._lock:
                self._thread = None

    def routes(self) -> Iterator[Route]:
        known = set[Form]()
        for provider in self.providers.local:
            for form in provider.storage.forms():
                if form not in known:
                    known.add(form)
                    with suppress(errors.ConfigurationError):  # it has no provider, as a request for it by name reports
                        yield self.providers.router.of(form)

    def place_of(self, route: Route) -> TreeReader | None:
        """Return the place of the documents of a route; ``None`` where another service has them."""
        storage, router = route.data.storage, self.providers.router
        if storage.is_remote:
            return None
        layout = Layout(storage.root) if isinstance(storage, StoreReader) else None
        return TreeReader(storage, layout, router.properties, lambda form: router.of(form).catalog)

    def shown(self, route: Route, counted: CountedForms, version: int | None) -> ShownVersion:
        published, found = list[PublishedVersion](), counted.counts.get(route.form)
        with suppress(errors.PersistenceError):  # the service that has them does not answer
            published = sorted(route.catalog.published(route.form, skips_damaged=True), key=lambda each: each.version)
        with_documents = set() if found is None else {number for number in found.of_version if number}
        numbers = tuple(sorted({each.version for each in published} | with_documents))
        known = next((each for each in reversed(published) if version in {None, each.version}), None)
        is_designer = route.form == self.dialect.designer
        return ShownVersion(route, version, known, numbers, found, counted.at, is_designer)


def title_of(published: PublishedVersion | None) -> str:
    """Return the title of a version in the language of the page, else in English, else its first one."""
    titles = {} if published is None else published.metadata.titles
    return titles.get(page_language()) or titles.get(ENGLISH) or next(iter(titles.values()), "")


def form_path(form: Form) -> str:
    return url_for(f"{NAME}.form-documents", app=form.app, form=form.name)


@dataclass(frozen=True, slots=True)
class ShownVersion:
    """A version, or all of a form where ``version`` is ``None``, with the facts for the head of its pages.

    ``numbers`` are published, or have documents. ``published`` is the version itself, or the latest one of all.
    """

    route: Route
    version: int | None
    published: PublishedVersion | None
    numbers: tuple[int, ...]
    of_form: FormCounts | None
    counted_at: float | None
    is_designer: bool

    @property
    def form(self) -> Form:
        return self.route.form

    @property
    def title(self) -> str:
        return title_of(self.published)

    @property
    def counts(self) -> DocumentCounts | None:
        if self.of_form is None:
            return None
        return self.of_form.all if self.version is None else self.of_form.of_version.get(self.version, DocumentCounts())

    @property
    def deleted(self) -> list[DeletedDocument]:
        found = [] if self.of_form is None else self.of_form.deleted
        return [each for each in found if self.version in {None, each.version}]

    def path(self, endpoint: str, **values: Any) -> str:
        """Return the path of the page ``documents``, ``csv``, ``deleted`` or ``definition``; that is of one version."""
        number = self.version
        if endpoint == "definition" and number is None:
            number = self.published.version if self.published else max(self.numbers, default=1)
        if number is not None:
            values["version"] = number
        name = f"{NAME}.form-{endpoint}" if number is None else f"{NAME}.version-{endpoint}"
        return url_for(name, app=self.form.app, form=self.form.name, **values)


def shown_version(forms: ServedForms, app: str, name: str, version: int | None) -> ShownVersion:
    counted = forms.counted()
    shown = forms.shown(forms.providers.router.of(Form(app, name)), counted, version)
    found = shown.of_form
    if version is None and not shown.numbers and counted.at is not None and not (found and found.of_version):
        raise errors.NotFoundError(f"there is no form {shown.form}")
    if version is not None and version not in shown.numbers and counted.at is not None:
        raise errors.NotFoundError(f"there is no version {version} of {shown.form}")
    return shown


_CONTROL = "c."  # The beginning of a parameter that is about the control whose path follows
_BOUNDS = {"min.": (TextMatch.GTE, "from"), "max.": (TextMatch.LTE, "until")}
"""The beginnings of those that bound the values of a control with a type, with their hints."""
_INPUTS = {OrderedType.DATE: "date", OrderedType.DATE_TIME: "date", OrderedType.TIME: "text"}
"""The kinds of fields for bounds, where these are not numbers; a day is all its times."""

_FACTS = {
    "saved": "Saved",
    "by": "Saved by",
    "stage": "Stage",
    "owner": "Owner",
    "created": "Created",
    "version": "Version",
    "id": "Document",
}
_EXACT = {"owner": Field.CREATED_BY, "by": Field.LAST_MODIFIED_BY, "stage": Field.WORKFLOW_STAGE}
_PARAMETERS = ("q", "from", "to", "match", "drafts", "sort", "order", "page", "lang")
ANY_OF = "any"  # The value of ``match`` with which one of the filters must hold, but for dates and drafts
_SORTED = {"saved": Field.LAST_MODIFIED, "created": Field.CREATED, **_EXACT}
"""The facts by which documents are sorted, by their names in links."""

_MOST_PAGES = 1_000_000_000
_LONGEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The parameters that are known, each with a value, and what they mean; ``columns`` are the chosen ones."""

    parameters: Mapping[str, str]
    columns: tuple[str, ...]
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

    def linked(self, **changed: object) -> dict[str, object]:
        """Return the parameters of a link to the same table with others; a page is left out, unless it is given."""
        given: dict[str, object] = {name: value for name, value in self.parameters.items() if name != "page"}
        given |= {name: str(value) for name, value in changed.items() if value}
        return given | ({"col": list(self.columns)} if self.columns else {})


def table_query(given: MultiDict[str, str], table: DocumentTable) -> TableQuery:
    by_path = {column.path: column for column in table.columns}
    compared = {f"{_CONTROL}{path}": (path, column.match) for path, column in by_path.items()}
    typed = {path: column.type for path, column in by_path.items() if column.type is not None}
    compared |= {f"{begin}{path}": (path, match) for path in typed for begin, (match, _) in _BOUNDS.items()}
    names = (*_PARAMETERS, *_EXACT, *compared)
    known = {name: value for name in names if (value := given.get(name, "").strip())}
    if (
        any(len(value) > limits.LONGEST_SEARCHED for value in known.values())
        or sum(map(len, known.values())) > limits.MOST_SEARCHED
    ):
        raise errors.BadRequestError(f"a text that is searched has {limits.LONGEST_SEARCHED} characters at most")
    page = page_number(known.get("page", "1"))
    sort = known.get("sort", "saved")
    if sort not in _SORTED and sort not in by_path:
        raise errors.BadRequestError(
            f"documents are sorted by {', '.join(_SORTED)} or an indexed control, not {sort[:60]!r}"
        )
    is_descending = known.get("order", "desc" if sort in {"saved", "created"} else "asc") == "desc"
    alternative = known.get("match", "")
    if alternative not in {"", ANY_OF}:
        raise errors.BadRequestError(f"match must be {ANY_OF}, not {alternative[:60]!r}")
    given_filters = (ControlFilter(*compared[name], known[name], alternative) for name in compared if name in known)
    by = _SORTED.get(sort, sort)
    named = {field: known[name] for name, field in _EXACT.items() if name in known}
    fields = [FieldFilter(field, Comparison.EXACT, value, alternative) for field, value in named.items()]
    if "from" in known:
        fields.append(FieldFilter(Field.LAST_MODIFIED, Comparison.GTE, midnight(known["from"])))
    if "to" in known:
        fields.append(FieldFilter(Field.LAST_MODIFIED, Comparison.LT, midnight(known["to"], 1)))
    columns = tuple(dict.fromkeys(each for each in given.getlist("col") if each in _FACTS or each in by_path))
    query = Query(
        text=known.get("q", ""),
        controls=tuple(_joined(given_filters, typed)),
        fields=tuple(fields),
        sort=Sort(by, is_descending),
        offset=(page - 1) * limits.ROWS_SHOWN,
        size=limits.ROWS_SHOWN,
    )
    drafts = known.get("drafts", Drafts.EXCLUDE.value)
    if drafts not in {each.value for each in Drafts}:
        raise errors.BadRequestError(f"drafts must be exclude, include or only, not {drafts[:60]!r}")
    return TableQuery(known, columns, query, Drafts(drafts), page, sort)


def _joined(filters: Iterable[ControlFilter], typed: Mapping[str, OrderedType]) -> Iterator[ControlFilter]:
    """Yield conditions, the two bounds of a control as one: they are one alternative."""
    bounds: dict[str, list[ControlFilter]] = {}
    for each in filters:
        if each.match.is_range:
            bounds.setdefault(each.path, []).append(each)
        else:
            yield each
    for path, both in bounds.items():
        range_of(both, typed[path])
        match = both[0].match if len(both) == 1 else TextMatch.BETWEEN
        yield replace(both[0], match=match, text=" ".join(each.text for each in both))


def page_number(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else 0
    if not 1 <= number <= _MOST_PAGES:
        raise errors.BadRequestError(f"the page must be a number from 1, not {text[:60]!r}")
    return number


def _filters(shown: ShownVersion, table: DocumentTable) -> Iterator[tuple[str, str, str, str, Mapping[str, str]]]:
    """Yield the name, label, kind and hint of each filter, and labels by value: none where the value is typed."""
    for column in table.columns[: limits.COLUMNS_SHOWN]:
        if column.is_encrypted and not table.route.properties.finds_encrypted:
            continue
        options = column.choices if column.has_options else {}
        if column.type is None or options:
            hint = "exactly" if column.is_encrypted else "contains"
            yield f"{_CONTROL}{column.path}", column.label, "text", hint, options
            continue
        for begin, (_, hint) in _BOUNDS.items():
            yield f"{begin}{column.path}", column.label, _INPUTS.get(column.type, "number"), hint, {}
    counts = shown.counts or DocumentCounts()
    for name, found in (("stage", counts.stages), ("owner", counts.owners), ("by", counts.modifiers)):
        options = {each: each for each in sorted(found)} if 0 < len(found) <= limits.MOST_OPTIONS else {}
        yield name, translated(_FACTS[name]), "text", "exactly", options


def _language() -> str:
    return request.args.get("lang") or page_language()


def table_of(shown: ShownVersion) -> DocumentTable:
    if shown.is_designer:
        return DocumentTable.of_designer(shown.route)
    return DocumentTable.of(shown.route, shown.version, shown.numbers or (1,), _language())


def documents(shown: ShownVersion) -> str:
    table = table_of(shown)
    asked = table_query(request.args, table)
    columns = asked.columns[: limits.COLUMNS_SHOWN]
    if not columns:  # the first controls and the usual facts
        paths = (column.path for column in table.columns[: limits.CONTROLS_SHOWN])
        has_versions = shown.version is None and len(shown.numbers) > 1
        columns = (*paths, "saved", "by", "stage", *["version"] * has_versions, "id")
    hits, problem = _found(table, asked, columns)
    plot, days = "", reports.last_days()
    if (counts := shown.counts) is not None:
        title = translated("New documents a day, last {count} days", count=len(days))
        labels = [days[0], days[len(days) // 2], days[-1]]
        plot = bar_plot(title, [counts.created[day] for day in days], labels)
    controls = {column.path: column for column in table.columns}
    return render_template(
        "version.html",
        shown=shown,
        columns=columns,
        controls=controls,
        labels={each: translated(_FACTS[each]) for each in _FACTS} | {each: controls[each].label for each in controls},
        sorts=_SORTED.keys() | controls.keys(),
        filters=list(_filters(shown, table)),
        asked=asked,
        hits=hits,
        problem=problem,
        most=limits.ROWS_SHOWN,
        pages=max(1, -(-hits.total // limits.ROWS_SHOWN)),
        plot=plot,
    )


def _found(table: DocumentTable, asked: TableQuery, columns: Sequence[str]) -> tuple[Hits, str]:
    if table.route.data.storage.is_remote:
        name = table.route.properties.route.data.name
        return Hits(), translated("The service {name} has the documents: look at its pages.", name=name)
    paths = {column.path for column in table.columns}
    read = tuple(each for each in dict.fromkeys((*columns, asked.sort)) if each in paths)
    query = replace(asked.query, paths=read, needs_total=False)
    try:
        return table.find(query, asked.drafts), ""
    except errors.BusyError as error:
        problem = translated("The documents cannot be searched now: {cause}.", cause=translated(str(error)))
        if not asked.is_plain:
            return Hits(), f"{problem} {translated('Load the page again in a moment.')}"
        hits = table.stored(asked.query.offset, asked.query.size)
        again = translated("Load the page again in a moment to see values of controls, too.")
        part = "The documents are listed of the first {count} that are stored."
        listed = translated(
            part if hits.has_more else "The documents are listed as they are stored.", count=limits.STORED_LISTED
        )
        return replace(hits, has_more=False), f"{problem} {again} {listed}"


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")  # in the name of a file that is downloaded, for old browsers
_NOT_IN_NAMES = re.compile(r'[\\/:*?"<>|]')
_LONGEST_SUFFIX = 20  # characters
_LONGEST_FILE_NAME = 200  # bytes: a file system takes 255, some browsers less; proxies refuse long headers


def file_name(name: str) -> str:
    """Return a name that any system can give a file, without characters that hide what it is, shortened in its stem."""
    plain = "".join(each if each.isprintable() else "_" for each in _NOT_IN_NAMES.sub("_", name))
    stem, dot, suffix = plain.rpartition(".")
    end = f"{dot}{suffix}" if stem and len(suffix) <= _LONGEST_SUFFIX else ""
    most = _LONGEST_FILE_NAME - len(end.encode())
    return plain.removesuffix(end).encode()[:most].decode(errors="ignore") + end


def disposition(name: str, *, is_shown: bool = False) -> str:
    """Return the ``Content-Disposition`` of a download under a name, of any characters (RFC 6266)."""
    name = file_name(name)
    kind, plain = "inline" if is_shown else "attachment", _UNSAFE.sub("_", name)
    return f'{kind}; filename="{plain}"' + (f"; filename*=UTF-8''{quote(name, safe='')}" if plain != name else "")


def table_file(shown: ShownVersion, suffix: str) -> AnyResponse:
    table = table_of(shown)
    asked = table_query(request.args, table)
    if suffix == "csv":
        content_type, pieces = "text/csv; charset=utf-8", table.csv(asked.query, asked.drafts)
    else:
        content_type, pieces = XLSX, table.xlsx(asked.query, asked.drafts, _language())
    version = "" if shown.version is None else f"-{shown.version}"
    headers = {
        "Content-Disposition": disposition(f"{shown.form.app}-{shown.form.name}{version}.{suffix}"),
        "X-Accel-Buffering": "no",
    }
    begun = list(islice(pieces, 2))  # an error at the beginning is still an answer
    body = unbroken(chain(begun, pieces), request.environ.get(REQUEST_ID))
    return Response(body, content_type=content_type, headers=headers)


# The pages of forms: all of them with counts, the definition of a version, and deleted documents.


@dataclass(frozen=True, slots=True)
class FoundIn:
    """The first hits of a search in one form, with the columns that name them."""

    shown: ShownVersion
    columns: tuple[TableColumn, ...]
    hits: Hits

    def title(self, hit: Hit) -> str:
        values = (each.shown(hit.values.get(each.path, ())) for each in self.columns)
        return " · ".join(filter(None, values)) or hit.document


_ORDERS = ("name", "documents", "drafts", "deleted", "size", "saved")  # The columns by which forms are sorted


_PATH = "/admin/forms/<app>/<form>"


@dataclass(frozen=True, slots=True)
class FormPages:
    """The pages of all forms, of a form and of a version."""

    forms: ServedForms
    documents: Documents

    def add_to(self, site: Site) -> None:
        site.page("/admin/forms", "forms", self.all, "Forms")
        site.page("/admin/search", "search", self.search)
        for kind, path in (("form", _PATH), ("version", f"{_PATH}/<int:version>")):
            site.page(path, f"{kind}-documents", self._of_version(documents), reads="search")
            for suffix in ("csv", "xlsx"):
                view = self._of_version(partial(table_file, suffix=suffix))
                site.page(f"{path}/documents.{suffix}", f"{kind}-{suffix}", view, reads=suffix)
            site.page(f"{path}/deleted", f"{kind}-deleted", self._of_version(self.deleted), reads="read")
        site.page(f"{_PATH}/<int:version>/definition", "version-definition", self._of_version(_definition))

    def all(self) -> str:
        sort, descending = request.args.get("sort", "name"), request.args.get("order") == "desc"
        if sort not in _ORDERS:
            raise errors.BadRequestError(f"forms are sorted by {', '.join(_ORDERS)}, not {sort[:60]!r}")
        counted = self.forms.counted()
        every = [self.forms.shown(route, counted, None) for route in self.forms.routes()]
        shown = [each for each in every if each.numbers or (each.of_form and each.of_form.of_version)]
        shown.sort(key=lambda each: (each.form.app, each.form.name), reverse=sort == "name" and descending)
        total = reports.DocumentCounts()
        for each in shown:
            total.add(each.counts or reports.DocumentCounts())
        if sort != "name":
            nothing = "" if sort == "saved" else 0
            shown.sort(key=lambda each: getattr(each.counts, sort, None) or nothing, reverse=descending)
        return render_template(
            "forms.html", forms=shown, total=total, counted_at=counted.at, sort=sort, descending=descending
        )

    def search(self) -> str:
        text = request.args.get("q", "").strip()
        if len(text) > limits.LONGEST_SEARCHED:
            raise errors.BadRequestError(f"a text that is searched has {limits.LONGEST_SEARCHED} characters at most")
        found, left_out = list[FoundIn](), list[Form]()
        until = time.monotonic() + limits.SEARCH_ALL_SECONDS
        local = (route for route in self.forms.routes() if not route.data.storage.is_remote)
        for route in sorted(local, key=lambda each: (each.form.app, each.form.name)) if text else ():
            if time.monotonic() > until:
                left_out.append(route.form)
                continue
            try:
                shown = shown_version(self.forms, route.form.app, route.form.name, None)
                table = table_of(shown)
                columns = table.columns[:2]
                query = Query(
                    text, size=limits.HITS_OF_A_FORM, paths=tuple(each.path for each in columns), needs_total=False
                )
                hits = table.find(query, Drafts.EXCLUDE, until)
            except (errors.BadRequestError, errors.BusyError, errors.DamagedError):
                left_out.append(route.form)
            else:
                found += [FoundIn(shown, columns, hits)] if hits.page else []
        audited = [str(each.shown.form) for each in found if each.shown.route.properties.audits_reads]
        if audited:
            note_in_audit(request.environ, action="search", details={"forms": audited})
        return render_template("search.html", text=text, found=found, left_out=left_out)

    def _of_version(self, view: Callable[[ShownVersion], str | AnyResponse]) -> Callable[..., str | AnyResponse]:
        return lambda app, form, version=None: view(shown_version(self.forms, app, form, version))

    def deleted(self, shown: ShownVersion) -> str:
        titles = dict[str, str]()
        for each in shown.deleted[: limits.ROWS_SHOWN]:
            address = DocumentAddress(shown.form, Collection.DATA, each.document)
            with suppress(errors.PersistenceError):  # the page of the document says what is wrong
                read = self.documents.read(address, Get(instant=before_current(self.documents, address)))
                outline, language = outline_of(shown.route, each.version), request.args.get("lang") or None
                titles[each.document] = shown_document(address, read, outline, language).title
        return render_template("deleted.html", shown=shown, titles=titles, most=limits.ROWS_SHOWN)


def _definition(shown: ShownVersion) -> str:
    language = request.args.get("lang") or None
    definition = shown_definition(shown.route, shown.version or 1, language)
    configured = shown.route.properties
    permissions, source = None, reports.PermissionsSource.NOBODY
    if shown.published is not None:
        permissions = permissions_of(shown.published, configured)
        source = reports.permissions_source(shown.published, configured)
    # Who, which of the operations, and the names of unknown ones.
    rules = [
        (
            translated(" and ").join(map(translated, reports.whom(each).split(" and "))),
            [name in each.operations for name in OPERATIONS],
            reports.unknown_operations(each),
        )
        for each in permissions or ()
    ]
    if not permissions:
        rules = [
            (translated("everyone" if permissions is None else "nobody"), [permissions is None] * len(OPERATIONS), [])
        ]
    return render_template(
        "definition.html",
        shown=shown,
        definition=definition,
        language=language if language in definition.languages else next(iter(definition.languages), None),
        operations=OPERATIONS,
        permissions=rules,
        source=reports.SOURCES[source],
        facts=list(_facts(shown)),
    )


def _facts(shown: ShownVersion) -> Iterator[tuple[str, str | Markup]]:
    published = shown.published
    if published is None:
        return
    for language, title in published.metadata.titles.items():
        yield f"Title ({language})" if language else "Title", cut(title)
    yield "Published", instant(published.created)
    by = translated(" by {name}", name=cut(published.modifier)) if published.modifier else ""
    yield "Last published", instant(published.modified) + by
    yield "Available", translated("yes" if published.metadata.available else "no")
    yield "Singleton", translated("yes" if is_singleton(published, shown.route.properties) else "no")
    yield "Stored data format", shown.route.properties.data_format
    yield "Data is with", shown.route.properties.route.data.name
