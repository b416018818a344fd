"""A progress bar on a terminal, and nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from persistence.errors import one_line

_CLEAR = "\r\x1b[K"


class Progress:
    """How far a long run is; lines go to standard output, the bar to standard error."""

    def __init__(self, advance: Callable[[int], None] | None = None) -> None:
        self._advance = advance

    def step(self, steps: int = 1) -> None:
        """So many more are done."""
        if self._advance is not None:
            self._advance(steps)

    def say(self, line: str) -> None:
        """Print a line; the bar makes room for it."""
        if self._advance is not None:
            click.echo(_CLEAR, nl=False, err=True)
        click.echo(line)


@contextmanager
def progress(label: str, count: Callable[[], int]) -> Iterator[Progress]:
    """A bar of ``count`` steps for the length of a block; they are counted only where there is a terminal."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    length = count()
    with click.progressbar(
        length=length, label=label, file=sys.stderr, show_pos=True, update_min_steps=max(1, length // 200)
    ) as bar:
        yield Progress(bar.update)


def follow(label: str, total: Callable[[], int], steps: Iterator[str | None]) -> int:
    """Run to the end, with a bar and a line for each problem; returns how many problems there were."""
    problems = 0
    with progress(label, total) as bar:
        for problem in steps:
            if problem is None:
                bar.step()
            else:
                problems += 1
                bar.say(one_line(problem))
    return problems
