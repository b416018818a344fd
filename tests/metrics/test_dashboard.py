"""The dashboard and the alerts name metrics and labels that exist, and Prometheus accepts them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from persistence.metrics.service import GAUGES, Instruments

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "config" / "prometheus-alerts.yml"
DASHBOARD = ROOT / "config" / "grafana-dashboard.json"
PROMTOOL = shutil.which("promtool")
_SERIES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
_ADDED = {"instance", "job", "le"}


def known() -> Iterator[tuple[str, tuple[str, tuple[str, ...]]]]:
    """Yield the name of every metric, with its kind and its labels."""
    for each in vars(Instruments()).values():
        (described,) = each.describe()
        suffix = "_total" if described.type == "counter" else ""
        yield f"{described.name}{suffix}", (described.type, tuple(each._labelnames))  # noqa: SLF001
    for name, (_, labels) in GAUGES.items():
        yield name, ("gauge", labels)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    own: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return own


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [each["expr"] for panel in panels() for each in panel["targets"]]


def series() -> dict[str, set[str]]:
    """Return the labels of each series."""
    return {name + suffix: {*labels, *_ADDED} for name, (kind, labels) in known() for suffix in _SERIES[kind]}


@pytest.mark.parametrize("expression", expressions())
def test_every_series_and_label_that_is_named_exists(expression: str) -> None:
    labels = series()
    named = re.findall(r"(persistence_\w+)(?:\{([^}]*)\})?", expression)
    assert named or expression.startswith("up{")
    for name, selectors in named:
        assert name in labels
        assert set(re.findall(r"(\w+) *[!=]~?", selectors)) <= labels[name]
    if "histogram_quantile" in expression:
        assert re.search(r"sum by \([^)]*\ble\)", expression)


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(each["expr"] for panel in panels() for each in panel["targets"])
    assert [name for name, _ in known() if name not in shown] == []


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in panels()]
    cells = [(at["x"] + x, at["y"] + y) for at in places for x in range(at["w"]) for y in range(at["h"])]
    assert len(cells) == len(set(cells))
    assert all(at["x"] + at["w"] <= 24 for at in places)
    numbers = [panel["id"] for panel in panels()]
    assert len(numbers) == len(set(numbers))


def test_every_alert_is_documented() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    documented = re.findall(r"(?m)^\| `(Persistence\w+)` \| (?:(\d+) min|at once) \|", page)
    assert documented == [(rule["alert"], rule.get("for", "").removesuffix("m")) for rule in rules()]


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (apt install prometheus)")
def test_prometheus_accepts_the_rules_and_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    shown = [each["expr"].replace("$__rate_interval", "5m") for panel in panels() for each in panel["targets"]]
    recorded = [{"record": f"x:{number}", "expr": expression} for number, expression in enumerate(shown)]
    (tmp_path / "dashboard.yml").write_text(yaml.safe_dump({"groups": [{"name": "x", "rules": recorded}]}))
    for file in (ALERTS, tmp_path / "dashboard.yml"):
        done = subprocess.run(
            [str(PROMTOOL), "check", "rules", str(file)], check=False, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
