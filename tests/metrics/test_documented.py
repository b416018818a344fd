"""docs/metrics.md has every metric, with its kind and its labels."""

from __future__ import annotations

import re
from pathlib import Path

from persistence.metrics.instruments import known

DOCS = Path(__file__).parents[2] / "docs"


def test_every_metric_is_documented_with_its_kind_and_labels() -> None:
    rows = re.findall(r"(?m)^\| `(persistence_\w+)` \| (\w+) \| (.*?) ?\|", (DOCS / "metrics.md").read_text())
    documented = {name: (kind, tuple(re.findall(r"\w+", labels))) for name, kind, labels in rows}
    assert documented == dict(known())
