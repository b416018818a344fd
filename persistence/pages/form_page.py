"""The pages of a form version: its documents as a table, its deleted ones, and its definition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from flask import Response, redirect, render_template, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from persistence.errors import BusyError, NotFoundError
from persistence.http.logs import REQUEST_ID, Unbroken
from persistence.limits import COLUMNS_SHOWN, ROWS_SHOWN, STORED_LISTED
from persistence.maintenance.counts import DocumentCounts, FormCounts, last_days
from persistence.model.addresses import Form
from persistence.model.search import Hits
from persistence.model.versions import PublishedVersion
from persistence.pages.form_queries import TableQuery, table_query
from persistence.pages.forms_page import ServedForms, published_of, title_of
from persistence.pages.plots import bar_plot
from persistence.pages.site import NAME, Site
from persistence.providers.provider import Route
from persistence.services.document_tables import VersionTable

_PATH = "/admin/forms/<app>/<form>"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


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
    found, counted = forms.counts(route.form)
    with_documents = set() if found is None else {number for number in found.of_version if number}
    numbers = tuple(sorted({each.version for each in published} | with_documents))
    if version not in numbers and counted.at is not None:
        raise NotFoundError(f"there is no version {version} of {route.form}")
    this = next((each for each in published if each.version == version), None)
    return ShownVersion(route, version, this, numbers, found, counted.at)


@dataclass(frozen=True, slots=True)
class FormPages:
    """The pages."""

    forms: ServedForms

    def add_to(self, site: Site) -> None:
        site.page(_PATH, "form", self.latest)
        site.page(f"{_PATH}/<int:version>", "version", self._of_version(self.documents), reads="search")
        csv = self._of_version(self.csv)
        site.page(f"{_PATH}/<int:version>/documents.csv", "version-csv", csv, reads="csv")
        site.page(f"{_PATH}/<int:version>/deleted", "version-deleted", self._of_version(_deleted))

    def _of_version(self, view: Callable[[ShownVersion], str | AnyResponse]) -> Callable[..., str | AnyResponse]:
        return lambda app, form, version: view(shown_version(self.forms, app, form, version))

    def latest(self, app: str, form: str) -> AnyResponse:
        route = self.forms.providers.router.of(Form(app, form))
        numbers = [each.version for each in published_of(route)]
        if not numbers:
            found, _ = self.forms.counts(route.form)
            numbers = [] if found is None else sorted(filter(None, found.of_version))
        if not numbers:
            raise NotFoundError(f"there is no form {route.form}")
        return redirect(url_for(f"{NAME}.version", app=app, form=form, version=numbers[-1]))

    def documents(self, shown: ShownVersion) -> str:
        table = VersionTable.of(shown.route, shown.version, request.args.get("lang") or None)
        columns, paths = table.columns[:COLUMNS_SHOWN], [column.path for column in table.columns]
        asked = table_query(request.args, [column.path for column in columns], paths)
        hits, problem = _found(table, asked)
        return render_template(
            "version.html",
            shown=shown,
            table=table,
            columns=columns,
            asked=asked,
            hits=hits,
            problem=problem,
            pages=max(1, -(-hits.total // ROWS_SHOWN)),
            plot=_plot(shown),
        )

    def csv(self, shown: ShownVersion) -> AnyResponse:
        table = VersionTable.of(shown.route, shown.version, request.args.get("lang") or None)
        asked = table_query(request.args, (), [column.path for column in table.columns])
        pieces = table.csv(asked.query, asked.drafts)
        name = _UNSAFE.sub("_", f"{shown.form.app}-{shown.form.name}-{shown.version}.csv")
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Accel-Buffering": "no"}
        body = Unbroken(_begun(pieces), request.environ.get(REQUEST_ID))
        return Response(body, content_type="text/csv; charset=utf-8", headers=headers)


def _begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    first = [piece for _, piece in zip(range(2), pieces, strict=False)]

    def all_of_them() -> Iterator[bytes]:
        yield from first
        yield from pieces

    return all_of_them()


def _found(table: VersionTable, asked: TableQuery) -> tuple[Hits, str]:
    if table.route.data.managed is None:
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


def _plot(shown: ShownVersion) -> str:
    counts = shown.counts
    if counts is None:
        return ""
    days = last_days()
    title = f"New documents a day, last {len(days)} days"
    middle = days[len(days) // 2]
    return bar_plot(title, [counts.created[day] for day in days], [days[0], middle, days[-1]])


def _deleted(shown: ShownVersion) -> str:
    of_form = shown.of_form
    found = [] if of_form is None else [each for each in of_form.deleted if each.version == shown.version]
    return render_template("deleted.html", shown=shown, deleted=found)
