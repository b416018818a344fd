"""The overview: the places that are served, who may call, the load, and the newest errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from flask import render_template
from markupsafe import Markup

from persistence import processors
from persistence.crypto.encryption_keys import EncryptionKeys
from persistence.keys import Keys
from persistence.maintenance import needed_keys
from persistence.maintenance.last_runs import LastBackup, LastCheck, last
from persistence.metrics.instruments import Span
from persistence.metrics.service import Metrics
from persistence.pages.plots import Series, line_plot
from persistence.pages.recent_errors import RecentErrors
from persistence.pages.site import ROOT, Site
from persistence.providers.locations import served_locations
from persistence.providers.opened import Providers
from persistence.settings import Effective

_PLOTTED = 3600.0
_MILLISECONDS = 1000
_LONGEST_GAP = 60.0
"""Seconds between two samples that are not joined by a line."""


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """The page. ``metrics`` are ``None`` where the service does not count."""

    effective: Effective
    providers: Providers
    keys: Keys
    metrics: Metrics | None
    errors: RecentErrors
    at_rest: EncryptionKeys

    def add_to(self, site: Site) -> None:
        site.page(ROOT, "overview", self.show, "Overview")

    def show(self) -> str:
        spaces = {space.place: space for space in self.providers.free_space()}
        served = served_locations(self.effective.settings, self.effective.properties)
        home = self.effective.settings.home
        return render_template(
            "overview.html",
            facts=list(self._facts()),
            places=[(place, spaces.get(place.address)) for place in served],
            shortage=self.providers.shortage(),
            lacking=needed_keys.remark(home, self.effective.settings.encryption_keys, self.at_rest),
            last_check=last(home, LastCheck),
            last_backup=last(home, LastBackup),
            reindexing=self.providers.router.reindexing_status(),
            plots=[] if self.metrics is None else _plots(self.metrics.spans(_PLOTTED)),
            errors=self.errors.newest(),
        )

    def _facts(self) -> Iterator[tuple[str, str]]:
        settings = self.effective.settings
        yield "Dialect", settings.dialect
        yield "Address", ", ".join(settings.binds)
        yield "Workers", f"{processors.workers(settings.workers)}, with {settings.threads} threads each"
        keys = len(self.keys.read())
        who = [f"callers with one of {keys} API keys" if keys > 1 else "callers with the API key"] if keys else []
        who += [f"without a key {', '.join(settings.trusted)}"] if settings.trusted else []
        everybody = "everybody" if settings.insecure else "every program of this machine, until there is an API key"
        yield "May call", everybody if settings.insecure or not who else ", ".join(who)
        yield "Audit", settings.audit_file if settings.audit == "file" else settings.audit


def _plots(spans: Sequence[Span]) -> list[Markup]:
    if not spans:
        return []
    shown = list(_with_gaps(spans))
    times = (spans[0].at, (spans[0].at + spans[-1].at) / 2, spans[-1].at)
    labels = list(dict.fromkeys(datetime.fromtimestamp(at, UTC).strftime("%H:%M") for at in times))
    rate = Series("requests", [None if each is None else each.rate for each in shown])
    errors = Series("errors", [None if each is None else each.error_rate for each in shown])
    rates = [rate, errors] if any(errors.values) else [rate]
    half = Series("half of the requests", [None if each is None else _ms(each.median) for each in shown])
    most = Series("95 of 100 requests", [None if each is None else _ms(each.slow) for each in shown])
    return [
        line_plot("Requests per second", rates, labels),
        line_plot("Latency", [half, most], labels, "ms"),
    ]


def _with_gaps(spans: Sequence[Span]) -> Iterator[Span | None]:
    before = spans[0].at
    for span in spans:
        if span.at - before > _LONGEST_GAP:
            yield None
        yield span
        before = span.at


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MILLISECONDS
