"""Output: text that is safe for a terminal, tables, lists of facts, JSON lines, and progress bars."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import click

from persistence.errors import one_line
from persistence.model.texts import json_line

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that move the cursor, end a line, change the direction of text, or are half a character."""
_WIDE = ("W", "F")
_GAP = "  "
_NARROWEST = 12
_WIDEST_END = 30
"""Columns that the last cell of a row claims; the terminal wraps a wider one."""
_CLEAR = "\r\x1b[K"

json_option = click.option("--json", "as_json", is_flag=True, help="JSON objects, one a line: see docs/json.md.")
"""The option of all commands that print facts."""


def safe(text: str) -> str:
    """Replace each character that does more than being seen."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def shown_path(path: str) -> str:
    """Return a path on one line; bytes that are not UTF-8 are replaced."""
    return safe(os.fsencode(path).decode("utf-8", "replace"))


def counted(number: int, what: str) -> str:
    """Return a number of things: ``1 draft``, ``2 drafts``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def say(line: str) -> None:
    """Print a line; characters that the terminal's encoding lacks become question marks."""
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(line.encode(encoding, "replace").decode(encoding))


def json_text(facts: Mapping[str, object]) -> str:
    """Return an object of ``--json`` on one line, whatever the encoding of standard output."""
    text = json_line(facts).decode()
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), separators=(",", ":"))
    return text


def say_json(facts: Mapping[str, object]) -> None:
    """Print an object of ``--json``."""
    click.echo(json_text(facts))


def width(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in _WIDE else 1 for each in text
    )


def cut(text: str, columns: int) -> str:
    """Cut a text, with a mark at its end, to at least one column."""
    if width(text) <= columns:
        return text
    while text and width(text) >= columns:
        text = text[:-1]
    return f"{text}…"


def terminal_width() -> int | None:
    """Return the number of columns of the terminal; ``None`` if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    rows: Iterable[Sequence[str]], *, right: Iterable[int] = (), flexible: int = 0, room: int | None = None
) -> Iterator[str]:
    """Yield rows as lines, the headings first. Columns without any value are left out.

    ``right`` are the columns of numbers. If ``room`` is given, the ``flexible`` column is cut to fit into it.
    """
    lines = [list(row) for row in rows]
    used = [column for column in range(len(lines[0])) if any(line[column] for line in lines[1:])]
    widths = _widths(lines)
    if room is not None and flexible in used:
        claimed = [widths[column] for column in used if column != flexible]
        if used[-1] != flexible:
            claimed[-1] = min(claimed[-1], _WIDEST_END)
        left = max(room - sum(claimed) - len(_GAP) * (len(used) - 1), _NARROWEST)
        for line in lines:
            line[flexible] = cut(line[flexible], left)
        widths = _widths(lines)
    right = frozenset(right)
    for line in lines:
        cells = (_padded(line[column], widths[column], is_right=column in right) for column in used)
        yield _GAP.join(cells).rstrip()


def facts(pairs: Iterable[tuple[str, Iterable[str]]]) -> Iterator[str]:
    """Yield labels with their values, each value on a line; a label without values is left out."""
    kept = [(label, list(values)) for label, values in pairs]
    longest = max((width(label) for label, values in kept if values), default=0)
    for label, values in kept:
        for at, value in enumerate(values):
            yield f"{_padded('' if at else label, longest)}{_GAP}{value}"


def indented(lines: Iterable[str]) -> Iterator[str]:
    """Indent lines by one step."""
    return (f"{_GAP}{line}" for line in lines)


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(width, column)) for column in zip(*lines, strict=True)]


def _padded(text: str, columns: int, *, is_right: bool = False) -> str:
    blanks = " " * (columns - width(text))
    return f"{blanks}{text}" if is_right else f"{text}{blanks}"


class ProgressBar:
    """The progress of a long run: ``lines`` go to standard output, the bar of ``steps`` to standard error.

    With ``only_errors``, lines go to standard error, too: where the result itself may go to standard output.
    """

    def __init__(self, advance: Callable[[int], None] | None = None, *, only_errors: bool = False) -> None:
        self.steps = self.lines = 0
        self._advance = advance
        self._only_errors = only_errors

    def step(self, steps: int = 1) -> None:
        """Advance by some steps."""
        self.steps += steps
        if self._advance is not None:
            self._advance(steps)

    def say(self, line: str) -> None:
        """Print a line in the place of the bar."""
        self.lines += 1
        if self._advance is not None:
            click.echo(_CLEAR, nl=False, err=True)
        click.echo(line, err=self._only_errors)


@contextmanager
def progress(label: str, count: Callable[[], int], *, only_errors: bool = False) -> Iterator[ProgressBar]:
    """Show a bar of ``count`` steps for a block. Without a terminal nothing is counted or shown."""
    if not sys.stderr.isatty():
        yield ProgressBar(only_errors=only_errors)
        return
    length = count()
    with click.progressbar(
        length=length, label=label, file=sys.stderr, show_pos=True, update_min_steps=max(1, length // 200)
    ) as bar:
        yield ProgressBar(bar.update, only_errors=only_errors)


def follow(label: str, total: Callable[[], int], steps: Iterator[str | None], *, as_json: bool) -> int:
    """Run to the end, with a bar and a line or an object for each problem; return the number of problems."""
    with progress(label, total) as bar:
        for problem in steps:
            if problem is None:
                bar.step()
            else:
                bar.say(json_text({"problem": one_line(problem)}) if as_json else one_line(problem))
    return bar.lines
