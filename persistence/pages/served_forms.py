"""The forms that are served, as the pages see them: their counts, their titles, and their versions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from flask import url_for

from persistence.dialect import Dialect
from persistence.errors import ConfigurationError, NotFoundError, PersistenceError
from persistence.limits import COUNTING_AWAITED, COUNTING_SHARE, FORMS_COUNTED
from persistence.maintenance.reports import DeletedDocument, DocumentCounts, FormCounts, TreeReader, count_documents
from persistence.model.addresses import Form
from persistence.model.versions import PublishedVersion
from persistence.pages.languages import ENGLISH, page_language
from persistence.pages.site import NAME
from persistence.providers.opened import Providers
from persistence.providers.router import Route
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
        except PersistenceError:  # other pages report the same fault
            self._last = CountedForms(known, self._last.at)
        finally:
            self._took = time.monotonic() - began
            self._due = time.monotonic() + self._took / COUNTING_SHARE
            with self._lock:
                self._thread = None

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


def title_of(published: PublishedVersion | None) -> str:
    """Return the title of a version in the language of the page, else in English, else its first one."""
    titles = {} if published is None else published.metadata.titles
    return titles.get(page_language()) or titles.get(ENGLISH) or next(iter(titles.values()), "")


def published_of(route: Route) -> list[PublishedVersion]:
    """Return the published versions of a form, lowest first, without damaged ones; empty if they cannot be read."""
    try:
        return sorted(route.catalog.published(route.form, skips_damaged=True), key=lambda each: each.version)
    except PersistenceError:  # the service that has them does not answer
        return []


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
    route = forms.providers.router.of(Form(app, name))
    published = published_of(route)
    counted = forms.counted()
    found = counted.counts.get(route.form)
    with_documents = set() if found is None else {number for number in found.of_version if number}
    numbers = tuple(sorted({each.version for each in published} | with_documents))
    if version is None and not numbers and counted.at is not None and not (found and found.of_version):
        raise NotFoundError(f"there is no form {route.form}")
    if version is not None and version not in numbers and counted.at is not None:
        raise NotFoundError(f"there is no version {version} of {route.form}")
    shown = next((each for each in reversed(published) if version in {None, each.version}), None)
    return ShownVersion(route, version, shown, numbers, found, counted.at, forms.dialect.is_designer(route.form))
