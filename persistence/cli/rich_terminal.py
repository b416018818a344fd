"""Tables, coloured lines and progress bars on a terminal, drawn by rich.

Loading it takes some 50 ms, so ``terminal`` imports it only where there is a terminal; the service never does.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

_GAP = 2
_NARROWEST = 12
"""Columns below which no cell is cut or wrapped."""
_BETWEEN_FRAMES = 0.1
"""Seconds between two drawings of a bar."""
_BAD = "damaged"


def print_table(
    rows: Sequence[Sequence[str]],
    *,
    right: frozenset[int] = frozenset(),
    flexible: int | None = None,
    indent: int = 0,
    footer: Sequence[str] = (),
) -> None:
    """Print rows with headings to the width of the terminal; ``right`` are columns of numbers, ``footer`` a last row.

    Only the ``flexible`` column is cut, and the last one wrapped, so that names can be copied from the others. If that
    is not enough, the terminal wraps the lines. ``indent`` is in columns.
    """
    console = _console(sys.stdout)
    lines = [*rows, footer] if footer else rows
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for at in (flexible, len(widths) - 1):
        excess = sum(widths) + _GAP * (len(widths) - 1) - (console.width - indent)
        if at is not None and excess > 0:
            widths[at] = min(widths[at], max(widths[at] - excess, _NARROWEST))
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_footer=bool(footer))
    for at, heading in enumerate(rows[0]):
        table.add_column(
            Text(heading, style="bold"),
            Text(footer[at], style="bold") if footer else "",
            justify="right" if at in right else "left",
            width=widths[at],
            overflow="fold",
        )
    for row in rows[1:]:
        cells = [Text(cell, style="red" if cell.startswith(_BAD) else "") for cell in row]
        if flexible is not None:
            cells[flexible].no_wrap, cells[flexible].overflow = True, "ellipsis"
        table.add_row(*cells)
    console.width = max(console.width, indent + sum(widths) + (len(widths) - 1) * _GAP)
    console.print(Padding(table, (0, 0, 0, indent), expand=False), crop=False)


def print_line(line: str, style: str) -> None:
    _console(sys.stdout).print(Text(line, style=style), soft_wrap=True)


def _console(stream: TextIO) -> Console:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return Console(file=stream, highlight=False, markup=False, emoji=False)


class _AboveBar:
    """Stands for a stream while there is a bar, and prints whole lines above it.

    That of rich has no encoding, so that click writes around it.
    """

    def __init__(self, console: Console, stream: TextIO) -> None:
        self._console = console
        self._stream = stream
        self._line = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("a text stream takes no bytes")
        *lines, self._line = f"{self._line}{text}".split("\n")
        for line in lines:
            self._console.print(Text.from_ansi(line), soft_wrap=True)
        return len(text)

    def end(self) -> None:
        if self._line:
            self.write("\n")


@contextmanager
def terminal_bar(label: str, count: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """Show a bar of ``count`` steps with the time that is left, for a block, which calls what is yielded for its steps.

    What is printed to its terminal meanwhile appears above it. rich's own thread does not draw it, because commands
    fork: it is drawn when a step is made, and time has passed.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = _console(sys.stderr)
    progress = Progress(
        *columns, console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False, expand=True
    )
    is_shared = sys.stdout.isatty() and (os.fstat(sys.stdout.fileno()).st_rdev == os.fstat(sys.stderr.fileno()).st_rdev)
    errors = _AboveBar(console, sys.stderr)
    output = _AboveBar(console, sys.stdout) if is_shared else None
    with (
        progress,
        redirect_stderr(cast("TextIO", errors)),
        redirect_stdout(cast("TextIO", output)) if output is not None else nullcontext(),
    ):
        task = progress.add_task(label, total=None)
        progress.refresh()
        progress.update(task, total=count() or None)  # 0 stands for an unknown number
        progress.refresh()
        drawn = time.monotonic()

        def advance(steps: int) -> None:
            nonlocal drawn
            progress.advance(task, steps)
            if time.monotonic() - drawn >= _BETWEEN_FRAMES:
                progress.refresh()
                drawn = time.monotonic()

        try:
            yield advance
        finally:
            progress.refresh()
            errors.end()
            if output is not None:
                output.end()
