"""Plots as SVG, without a script: lines over time, and bars for days.

A browser stretches the drawing to its box, so labels are text beside it. A sentence describes it to screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from flask import render_template
from markupsafe import Markup

from persistence.limits import MOST_PLOTTED

WIDTH, HEIGHT = 600, 120
"""The units of a drawing."""

_STEPS = (1, 2, 5, 10)
_BAR = 0.8
"""Width of a bar, as a part of its place."""


@dataclass(frozen=True, slots=True)
class Series:
    """Values at equal distances, ``None`` for a gap; ``name`` is in the legend of several."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class _Shape:
    name: str
    lines: tuple[str, ...]
    areas: tuple[str, ...]
    dots: tuple[str, ...] = ()
    bars: tuple[tuple[float, float, float, float], ...] = ()


def line_plot(title: str, series: Sequence[Series], labels: Sequence[str], unit: str = "") -> Markup:
    """Return a plot of lines; ``labels`` are a few texts below it, from the first value to the last."""
    top = _top(value for each in series for value in each.values)
    shapes = [_drawn(each, top, has_area=len(series) == 1) for each in series]
    return _rendered(title, series, shapes, labels, top, unit)


def bar_plot(title: str, values: Sequence[float], labels: Sequence[str], unit: str = "") -> Markup:
    """Return a plot of bars, one for each value; ``labels`` as for ``line_plot``."""
    values = values[-MOST_PLOTTED:]
    top, place = _top(values), WIDTH / max(1, len(values))
    boxes = tuple(
        (place * (number + (1 - _BAR) / 2), HEIGHT - HEIGHT * value / top, place * _BAR, HEIGHT * value / top)
        for number, value in enumerate(values)
        if value > 0
    )
    return _rendered(title, [Series("", values)], [_Shape("", (), (), bars=boxes)], labels, top, unit)


def _rendered(  # noqa: PLR0913, PLR0917 - the parts of a plot
    title: str, series: Sequence[Series], shapes: Sequence[_Shape], labels: Sequence[str], top: float, unit: str
) -> Markup:
    scale = [_text(top, unit), _text(top / 2, unit), "0"]
    text = render_template(
        "plot.html",
        title=title,
        shapes=shapes,
        labels=labels,
        scale=scale,
        is_empty=all(value is None for each in series for value in each.values),
        sentence="; ".join(_sentence(each, unit) for each in series),
        width=WIDTH,
        height=HEIGHT,
    )
    return Markup(text)  # noqa: S704 - a template has escaped it


def _top(values: Iterable[float | None]) -> float:
    highest = max((value for value in values if value is not None), default=0.0)
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (*_STEPS, 2 * _STEPS[-1]) if step * power >= highest)


def _drawn(series: Series, top: float, *, has_area: bool) -> _Shape:
    found = [run for run in _runs(series.values[-MOST_PLOTTED:], top) if run]
    runs = [run for run in found if len(run) > 1]
    # A line without length has round ends only, which are not stretched with the drawing as a circle would be.
    dots = tuple(f"M{run[0][0]:g} {run[0][1]:g}h0" for run in found if len(run) == 1)
    paths = tuple("M" + "L".join(f"{x:g} {y:g}" for x, y in run) for run in runs)
    areas = tuple(
        f"{path}L{run[-1][0]:g} {HEIGHT}L{run[0][0]:g} {HEIGHT}Z" for path, run in zip(paths, runs, strict=True)
    )
    return _Shape(series.name, paths, areas if has_area else (), dots)


def _runs(values: Sequence[float | None], top: float) -> Iterator[list[tuple[float, float]]]:
    run: list[tuple[float, float]] = []
    step = WIDTH / max(1, len(values) - 1)
    for number, value in enumerate(values):
        if value is None:
            yield run
            run = []
        else:
            run.append((round(number * step, 1), round(HEIGHT - HEIGHT * value / top, 1)))
    yield run


def _sentence(series: Series, unit: str) -> str:
    known = [value for value in series.values if value is not None]
    if not known:
        return f"{series.name} no values".strip()
    return f"{series.name} at most {_text(max(known), unit)}, last {_text(known[-1], unit)}".strip()


def _text(value: float, unit: str) -> str:
    return f"{value:,.4g}{f' {unit}' if unit else ''}"
