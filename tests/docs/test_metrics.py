"""docs/metrics.md has every metric with its kind and its labels, and no other."""

import re

from tests.docs.markdown import DOCS, rows
from tests.metrics.test_metrics import known

PAGE = DOCS / "metrics.md"

Described = dict[str, tuple[str, tuple[str, ...]]]


def described(text: str) -> Described:
    """Return the kind and the labels of each metric of a page."""
    return {
        name.strip("`"): (kind, tuple(re.findall(r"\w+", labels))) for name, kind, labels, _ in rows(text, "Metric")
    }


def test_every_metric_is_described_and_the_reverse() -> None:
    assert described(PAGE.read_text()) == dict(known())


def test_a_metric_that_is_left_out_or_described_wrongly_is_found() -> None:
    page = PAGE.read_text()
    assert described(page.replace("| `persistence_workers` ", "| `persistence_walkers` ")) != dict(known())
    assert described(page.replace("`method`, `kind`, `status`", "`method`, `status`")) != dict(known())
