"""The pages of forms: all of them with counts, the definition of a version, and deleted documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flask import render_template, request
from markupsafe import Markup
from werkzeug.wrappers import Response as AnyResponse

from persistence.errors import BadRequestError, BusyError, DamagedError, PersistenceError
from persistence.http.audit import note_in_audit
from persistence.limits import HITS_OF_A_FORM, LONGEST_SEARCHED, ROWS_SHOWN, SEARCH_ALL_SECONDS
from persistence.maintenance.reports import (
    SOURCES,
    DocumentCounts,
    PermissionsSource,
    permissions_source,
    unknown_operations,
    whom,
)
from persistence.model.addresses import DATA_XML, Collection, DocumentAddress, Form
from persistence.model.permissions import OPERATIONS
from persistence.model.queries import Drafts, Hit, Hits, Query
from persistence.pages.document_table import csv, documents, table_of, xlsx
from persistence.pages.languages import translated
from persistence.pages.served_forms import (
    CountedForms,
    ServedForms,
    ShownVersion,
    published_of,
    shown_version,
    title_of,
)
from persistence.pages.site import Site, cut, instant
from persistence.providers.router import Route
from persistence.services.document_tables import TableColumn, outline_of
from persistence.services.documents import Documents
from persistence.services.histories import before_current
from persistence.services.rules import Get, is_singleton, permissions_of
from persistence.services.shown_documents import shown_definition, shown_document


@dataclass(frozen=True, slots=True)
class ShownForm:
    """A line of the list; ``counts`` is ``None`` until they are known, and where another service has the documents."""

    form: Form
    title: str
    versions: tuple[int, ...]
    counts: DocumentCounts | None
    is_elsewhere: bool


@dataclass(frozen=True, slots=True)
class FoundIn:
    """The first hits of a search in one form, with the columns that name them."""

    shown: ShownVersion
    columns: tuple[TableColumn, ...]
    hits: Hits

    def title(self, hit: Hit) -> str:
        values = (each.shown(hit.values.get(each.path, ())) for each in self.columns)
        return " · ".join(filter(None, values)) or hit.document


_ORDERS: dict[str, Callable[[ShownForm], Any]] = {
    "name": lambda each: (each.form.app, each.form.name),
    "documents": lambda each: each.counts.documents if each.counts else 0,
    "drafts": lambda each: each.counts.drafts if each.counts else 0,
    "deleted": lambda each: each.counts.deleted if each.counts else 0,
    "size": lambda each: each.counts.size if each.counts else 0,
    "saved": lambda each: (each.counts.saved or "") if each.counts else "",
}  # The columns by which forms are sorted


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
            site.page(f"{path}/documents.csv", f"{kind}-csv", self._of_version(csv), reads="csv")
            site.page(f"{path}/documents.xlsx", f"{kind}-xlsx", self._of_version(xlsx), reads="xlsx")
            site.page(f"{path}/deleted", f"{kind}-deleted", self._of_version(self.deleted), reads="read")
        site.page(f"{_PATH}/<int:version>/definition", "version-definition", self._of_version(_definition))

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

    def search(self) -> str:
        """Show the documents of each form in which a text is found, the last saved first."""
        text = request.args.get("q", "").strip()
        if len(text) > LONGEST_SEARCHED:
            raise BadRequestError(f"a text that is searched has {LONGEST_SEARCHED} characters at most")
        found, left_out = list[FoundIn](), list[Form]()
        until = time.monotonic() + SEARCH_ALL_SECONDS
        local = (route for route in self.forms.routes() if not route.data.storage.is_remote)
        for route in sorted(local, key=lambda each: (each.form.app, each.form.name)) if text else ():
            if time.monotonic() > until:
                left_out.append(route.form)
                continue
            try:
                shown = shown_version(self.forms, route.form.app, route.form.name, None)
                table = table_of(shown)
                columns = table.columns[:2]
                query = Query(text, size=HITS_OF_A_FORM, paths=tuple(each.path for each in columns), needs_total=False)
                hits = table.find(query, Drafts.EXCLUDE, until)
            except (BadRequestError, BusyError, DamagedError):
                left_out.append(route.form)
            else:
                found += [FoundIn(shown, columns, hits)] if hits.page else []
        audited = [str(each.shown.form) for each in found if each.shown.route.properties.audits_reads]
        if audited:
            note_in_audit(request.environ, action="search", details={"forms": audited})
        return render_template("search.html", text=text, found=found, left_out=left_out)

    def _line(self, route: Route, counted: CountedForms) -> ShownForm:
        published = published_of(route)
        found = counted.counts.get(route.form)
        counts = None if found is None or (not found.of_version and not published) else found.all
        versions = {each.version for each in published} | set(() if found is None else found.of_version) - {0}
        title = title_of(published[-1] if published else None)
        return ShownForm(route.form, title, tuple(sorted(versions)), counts, route.data.storage.is_remote)

    def _of_version(self, view: Callable[[ShownVersion], str | AnyResponse]) -> Callable[..., str | AnyResponse]:
        return lambda app, form, version=None: view(shown_version(self.forms, app, form, version))

    def deleted(self, shown: ShownVersion) -> str:
        """Show what was deleted last, of the first ones with what the last revision of each was called."""
        return render_template("deleted.html", shown=shown, titles=dict(self._titles(shown)), most=ROWS_SHOWN)

    def _titles(self, shown: ShownVersion) -> Iterator[tuple[str, str]]:
        for each in shown.deleted[:ROWS_SHOWN]:
            address = DocumentAddress(shown.form, Collection.DATA, each.document, DATA_XML)
            with suppress(PersistenceError):  # the page of the document says what is wrong
                read = self.documents.read(address, Get(instant=before_current(self.documents, address)))
                outline = outline_of(shown.route, each.version)
                yield each.document, shown_document(address, read, outline, request.args.get("lang") or None).title


def _definition(shown: ShownVersion) -> str:
    language = request.args.get("lang") or None
    definition = shown_definition(shown.route, shown.version or 1, language)
    configured = shown.route.properties
    permissions, source = None, PermissionsSource.NOBODY
    if shown.published is not None:
        permissions = permissions_of(shown.published, configured)
        source = permissions_source(shown.published, configured)
    # Who, which of the operations, and the names of unknown ones.
    rules = [
        (
            translated(" and ").join(map(translated, whom(each).split(" and "))),
            [name in each.operations for name in OPERATIONS],
            unknown_operations(each),
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
    by = translated(" by {name}", name=cut(published.modifier)) if published.modifier else ""
    yield "Last published", instant(published.modified) + by
    yield "Available", translated("yes" if published.metadata.available else "no")
    yield "Singleton", translated("yes" if is_singleton(published, shown.route.properties) else "no")
    yield "Stored data format", shown.route.properties.data_format
    yield "Data is with", shown.route.properties.route.data.name
