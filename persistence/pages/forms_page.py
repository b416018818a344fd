"""The list of all forms, with the counts of their documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flask import render_template, request

from persistence.errors import BadRequestError, ConfigurationError, PersistenceError
from persistence.maintenance.counts import DocumentCounts, FormCounts
from persistence.maintenance.reports import TreeReader
from persistence.model.addresses import Form
from persistence.model.versions import PublishedVersion
from persistence.pages.form_counts import CountedForms, FormCounting
from persistence.pages.site import Site
from persistence.providers.opened import Providers
from persistence.providers.provider import Route
from persistence.storage.layout import Layout
from persistence.storage.reader import StoreReader

_ENGLISH = "en"


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
        for _, storage in self.providers.managed:
            for form in storage.forms():
                if form not in known:
                    known.add(form)
                    with suppress(ConfigurationError):  # it has no provider, as a request for it by name reports
                        yield self.providers.router.of(form)

    def place_of(self, route: Route) -> TreeReader | None:
        """Return the place of the documents of a route; ``None`` where another service has them."""
        storage, router = route.data.managed, self.providers.router
        if storage is None:
            return None
        layout = Layout(storage.root) if isinstance(storage, StoreReader) else None
        return TreeReader(storage, layout, router.properties, lambda form: router.of(form).catalog)

    def _places(self) -> Iterator[tuple[Form, TreeReader]]:
        for route in self.routes():
            place = self.place_of(route)
            if place is not None:
                yield route.form, place

    def counts(self, form: Form) -> tuple[FormCounts | None, CountedForms]:
        """Return the counts of a form, if they are known, and those of all."""
        counted = self.counting.counted()
        return counted.counts.get(form), counted


def title_of(published: PublishedVersion | None) -> str:
    """Return the English title of a version, else its first one."""
    titles = {} if published is None else published.metadata.titles
    return titles.get(_ENGLISH, next(iter(titles.values()), ""))


def published_of(route: Route) -> list[PublishedVersion]:
    """Return the published versions of a form, lowest first, without damaged ones; empty if they cannot be read."""
    try:
        return sorted(route.catalog.published(route.form, skips_damaged=True), key=lambda each: each.version)
    except PersistenceError:  # the service that has them does not answer
        return []


@dataclass(frozen=True, slots=True)
class FormsPage:
    """The page."""

    forms: ServedForms

    def add_to(self, site: Site) -> None:
        site.page("/admin/forms", "forms", self.show, "Forms")

    def show(self) -> str:
        sort, descending = request.args.get("sort", "name"), request.args.get("order") == "desc"
        if sort not in _ORDERS:
            raise BadRequestError(f"forms are sorted by {', '.join(_ORDERS)}, not {sort[:60]!r}")
        counted = self.forms.counting.counted()
        shown = sorted((self._shown(route, counted) for route in self.forms.routes()), key=_ORDERS["name"])
        shown = [each for each in shown if each.versions or each.counts is not None]
        total = DocumentCounts()
        for each in shown:
            total.add(each.counts or DocumentCounts())
        if (sort, descending) != ("name", False):
            shown.sort(key=_ORDERS[sort], reverse=descending)
        return render_template(
            "forms.html", forms=shown, total=total, counted_at=counted.at, sort=sort, descending=descending
        )

    def _shown(self, route: Route, counted: CountedForms) -> ShownForm:
        published = published_of(route)
        found = counted.counts.get(route.form)
        counts = None if found is None or (not found.of_version and not published) else found.all
        versions = {each.version for each in published} | set(() if found is None else found.of_version) - {0}
        title = title_of(published[-1] if published else None)
        return ShownForm(route.form, title, tuple(sorted(versions)), counts, route.data.managed is None)
