"""The metrics that a service has."""

from __future__ import annotations

from collections.abc import Iterator

from persistence.metrics.service import GAUGES, Instruments


def known() -> Iterator[tuple[str, tuple[str, tuple[str, ...]]]]:
    """Yield the name of every metric, with its kind and its labels."""
    for each in vars(Instruments()).values():
        (described,) = each.describe()
        suffix = "_total" if described.type == "counter" else ""
        yield f"{described.name}{suffix}", (described.type, tuple(each._labelnames))  # noqa: SLF001
    for name, (_, labels) in GAUGES.items():
        yield name, ("gauge", labels)
