"""Tables in Markdown, a plot of bars as SVG, and the place of both in a page of the documentation."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from statistics import median

_DOCS = Path(__file__).parents[1] / "docs"
_RESULTS = Path(__file__).parent / "results"

_LABEL, _BAR, _NUMBER, _ROW, _TITLE = 190, 360, 90, 20, 30
"""The units of a plot: width of the names, of the longest bar and of its number; height of a row and of a title."""

_COLOURS = {"own": "#1f6f8b", "floor": "#b0b0b0", "peer": "#c98b3b"}


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, the first column aligned left and the others right."""
    lines = [columns, ["---", *["--:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def medians(measured: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    """Return the median of each column."""
    return tuple(median(column) for column in zip(*measured, strict=True))


def ratio(value: float, other: float) -> str:
    """Return a ratio with two digits that count, or a dash where there is none."""
    if not other:
        return "-"
    found = value / other
    return f"{found:.2f}" if found < 10 else f"{found:.0f}"


def number(value: float) -> str:
    """Return a number with about three digits that count, or more if it is large."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 or not value else 3
    return f"{value:.{digits}f}"


@dataclass(frozen=True)
class Aim:
    """A result beside what it should be: at least or at most that."""

    work: str
    result: float
    aim: float
    is_least: bool = True
    unit: str = ""

    def row(self) -> tuple[str, str, str, str]:
        """Return the row of a table."""
        is_reached = self.result >= self.aim if self.is_least else self.result <= self.aim
        shown, unit = number(self.result), f" {self.unit}" if self.unit else ""
        sign = "≥" if self.is_least else "≤"
        return self.work, f"{shown}{unit}", f"{sign} {number(self.aim)}{unit}", "yes" if is_reached else "no"


def aims(results: Iterable[Aim]) -> str:
    """Return the table of results beside their aims."""
    return table(("work", "result", "aim", "reached"), [each.row() for each in results])


def plot(groups: Iterable[tuple[str, Sequence[tuple[str, str, float]]]]) -> str:
    """Return bars in groups: each with a title, and names, their colours (own, peer, floor) and values."""
    lines: list[str] = []
    height = 0
    for title, bars in groups:
        height += _TITLE
        lines.append(f'<text x="4" y="{height - 9}" font-weight="bold">{escape(title)}</text>')
        longest = max((value for _, _, value in bars), default=0) or 1
        for name, colour, value in bars:
            width = max(1.0, _BAR * value / longest)
            size = f'width="{width:.1f}" height="{_ROW - 5}"'
            lines += [
                f'<text x="{_LABEL - 6}" y="{height + 14}" text-anchor="end">{escape(name)}</text>',
                f'<rect x="{_LABEL}" y="{height + 3}" {size} fill="{_COLOURS[colour]}"/>',
                f'<text x="{_LABEL + width + 6:.1f}" y="{height + 14}">{number(value)}</text>',
            ]
            height += _ROW
    whole = _LABEL + _BAR + _NUMBER
    height += 8
    size = f'viewBox="0 0 {whole} {height}" width="{whole}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" fill="#222">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *lines, "</svg>", ""])


def load() -> float:
    """Return the load of the machine."""
    return os.getloadavg()[0]


def machine(workers: int, threads: int, before: float) -> str:
    """Return a line about a run: its day, the machine, and its load before the run."""
    day, system, python = datetime.now(UTC).date(), platform.release().split("-")[0], platform.python_version()
    return (
        f"Measured {day} on {os.cpu_count()} processors for clients and servers, Linux {system}, Python {python},\n"
        f"{workers} workers of {threads} threads. The load before the run was {before:.1f}."
    )


def write(name: str, title: str, text: str) -> None:
    """Write the tables of a run to a file of ``bench/results``."""
    (_RESULTS / f"{name}.md").write_text(f"# {title}\n\n{text.strip()}\n")


def write_summary(text: str, drawn: str) -> None:
    """Write the summary of ``docs/reliability.md``, and its plot."""
    (_DOCS / "performance.svg").write_text(drawn)
    page = _DOCS / "reliability.md"
    page.write_text(replaced(page.read_text(), "bench", text))


def replaced(page: str, name: str, text: str) -> str:
    """Return a page of which the part between ``<!-- NAME -->`` and ``<!-- end of NAME -->`` is another text."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page has no place for {name}")
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{text.strip()}\n\n{end}{rest.partition(end)[2]}"
