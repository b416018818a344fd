"""What runs do and find, and how a long run ends: with tables, the violations, and an exit status."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import click

from tests.table import table

_MOST_LINES = 40


@dataclass(slots=True)
class Tally:
    name: str
    headings: Sequence[str] = ()
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    seconds: float = field(default_factory=lambda: -time.monotonic())

    def __getitem__(self, heading: str) -> int:
        return self.counts[heading]

    def __setitem__(self, heading: str, number: int) -> None:
        self.counts[heading] = number

    def ended(self) -> Tally:
        """Note how long the run took, which began when this was made."""
        self.seconds += time.monotonic()
        return self

    @property
    def row(self) -> tuple[object, ...]:
        counted = (self.counts[heading] for heading in self.headings)
        return self.name, *counted, len(self.violations), f"{self.seconds:.0f}"


class Report:
    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._began = time.monotonic()
        self._untried: list[str] = []
        self._tables: defaultdict[tuple[str, ...], list[Sequence[object]]] = defaultdict(list)

    def add_row(self, headings: Sequence[str], row: Sequence[object]) -> None:
        self._tables[tuple(headings)].append(row)

    def add(self, tally: Tally, *, is_planted: bool = False, found_as: str = "") -> None:
        """Add a run. In one with a planted defect, the lack of a violation is wrong, or of those with a heading."""
        click.echo(f"{tally.name}: {len(tally.violations)} violations, {tally.seconds:.0f} s")
        self.add_row(("run", *tally.headings, "violations", "seconds"), tally.row)
        if is_planted:
            self.expect_caught(tally.name, tally[found_as] if found_as else tally.violations)
        else:
            self.wrong += [f"{tally.name}: {each}" for each in tally.violations]

    def expect_caught(self, defect: str, found: object) -> None:
        if not found:
            self.wrong.append(f"not caught: {defect}")

    def leave_out(self, what: str) -> None:
        self._untried.append(f"NOT TRIED: {what}")

    def end(self) -> int:
        lines = [f"{table(headings, rows)}\n" for headings, rows in self._tables.items()]
        lines += [*self._untried, *self.wrong[:_MOST_LINES], f"{len(self.wrong)} violations"]
        click.echo("\n".join(("", *lines, f"{time.monotonic() - self._began:.0f} s in all")))
        return int(bool(self.wrong))


def prefixed(prefix: object, lines: Iterable[str]) -> list[str]:
    return [f"{prefix}: {line}" for line in lines]
