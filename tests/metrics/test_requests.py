"""What a request is counted as, and how its figures come together in plots."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from persistence.metrics.service import LATENCIES, PLOTS, PLOTS_BYTES, SPAN, Plots, Totals, kind_of
from tests.service import PUBLIC


@pytest.mark.parametrize("prefix", ["", PUBLIC])
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("crud/hr/leave/form/form.xhtml", "form"),
        ("crud/hr/leave/form/logo.png", "attachment"),
        ("crud/hr/leave/data/1/data.xml", "data"),
        ("crud/hr/leave/data/1/scan.bin", "attachment"),
        ("crud/hr/leave/data/", "data"),
        ("crud/hr/leave/draft/1/data.xml", "draft"),
        ("crud/hr/leave/draft/1", "draft"),
        ("crud/hr/leave/other/1", "other"),
        ("crud", "other"),
        ("form/hr/leave", "form"),
        ("search/hr/leave", "search"),
        ("distinct-values/hr/leave", "search"),
        ("history/hr/leave/1", "history"),
        ("export", "export"),
        ("import", "import"),
        ("reindex", "other"),
        ("nothing/there", "other"),
    ],
)
def test_every_path_has_a_kind(prefix: str, path: str, kind: str) -> None:
    assert kind_of("GET", f"{prefix}/{path}") == kind


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("LOCK", "/crud/hr/leave/data/1/data.xml", "lease"),
        ("UNLOCK", "/anything", "lease"),
        ("POST", "/fr/service/publish", "form"),
        ("POST", "/fr/service/svc/builder/publish/1", "form"),
        ("GET", "/fr/service/publish/leave/attachments", "attachment"),
        ("GET", "/fr/service/hr", "other"),
        ("GET", "/admin/forms/hr", "pages"),
        ("GET", "/metrics", "health"),
        ("GET", "/readyz", "health"),
        ("GET", "/", "health"),
        ("GET", "", "other"),
    ],
)
def test_so_have_paths_beside_the_interface(method: str, path: str, kind: str) -> None:
    assert kind_of(method, path) == kind


@pytest.fixture
def plots(tmp_path: Path) -> Plots:
    (tmp_path / PLOTS).write_bytes(bytes(PLOTS_BYTES))
    return Plots(str(tmp_path))


def _totals(at: float, requests: int, errors: int = 0, slow: int = 0) -> Totals:
    """Requests of 1 to 2.5 ms, of which some took 0.5 to 1 s."""
    classes = [0.0] * len(LATENCIES)
    classes[1], classes[LATENCIES.index(1.0)] = requests - slow, slow
    return Totals(at, requests, errors, 1.0, tuple(classes))


def test_spans_have_rates_and_latencies(plots: Plots) -> None:
    now = time.time()
    for each in (_totals(now - 2 * SPAN, 100), _totals(now - SPAN, 300, 20), _totals(now, 400, 20, 50)):
        plots.put(each)
    first, second = plots.spans(60)
    assert (round(first.rate, 3), round(first.error_rate, 3)) == (20, 2)
    assert first.median == pytest.approx(0.00175)
    assert (round(second.rate, 3), second.error_rate) == (10, 0)
    assert second.slow == pytest.approx(0.95)
    assert not plots.spans(SPAN)


def test_a_sample_is_due_once_in_a_span(plots: Plots) -> None:
    now = time.time() // SPAN * SPAN + 3
    assert plots.is_due(now)
    plots.put(_totals(now, 1))
    assert not plots.is_due(now + 1)
    assert plots.is_due(now + SPAN)


def test_nothing_is_said_of_a_gap_or_of_no_requests(plots: Plots) -> None:
    now = time.time()
    for each in (_totals(now - 20 * SPAN, 1), _totals(now - SPAN, 5), _totals(now, 5)):
        plots.put(each)
    (span,) = plots.spans(3600)
    assert (span.rate, span.median, span.slow) == (0, None, None)
