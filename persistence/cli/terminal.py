"""Output: text that is safe for a terminal, tables, lists of facts, JSON lines, and progress bars.

On a terminal rich draws tables and bars (``rich_terminal``). Elsewhere the output is plain, in a fixed layout.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import click
import msgspec

from persistence.errors import one_line
from persistence.model.texts import json_line

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that move the cursor, end a line, change the direction of text, or are half a character."""
_WIDE = ("W", "F")
_GAP = "  "
_COMMAND = "persistence"

Facts = dict[str, Any]
"""An object of ``--json``."""
Columns = Iterable[str | tuple[str, str | Callable[[Facts], object]]]
"""Names of fields, which are the headings, or headings, each with the name of a field, or a function of the object."""


def _note(context: click.Context, option: click.Parameter, value: bool) -> None:  # noqa: FBT001 - as click has it
    context.meta[f"{__name__}.{option.name}"] = value


def _is_noted(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(f"{__name__}.{name}") is True


_flag = partial(click.option, is_flag=True, expose_value=False, callback=_note)

json_option = _flag("--json", help="JSON objects, one a line: see docs/cli.md.")
quiet_option = _flag("--quiet", help="Print only what is wrong: no progress bar, and no summary.")


def is_json() -> bool:
    return _is_noted("json")


def is_quiet() -> bool:
    return _is_noted("quiet")


def say_error(line: str) -> None:
    click.echo(line, err=True)


def summarize(line: str) -> None:
    if not is_quiet():
        say_error(line)


def safe(text: str) -> str:
    """Replace characters that control a terminal, or change the direction of text."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def shown_path(path: str) -> str:
    """Return a path on one line; bytes that are not UTF-8 are replaced."""
    return safe(os.fsencode(path).decode("utf-8", "replace"))


def own_command() -> str:
    """Return the command as a person can call it again: its name, or its path if it is not on PATH."""
    called = sys.argv[0]
    directory, name = os.path.split(called)
    if name != _COMMAND or not directory:
        return _COMMAND
    found = shutil.which(_COMMAND)
    is_on_path = found is not None and os.path.realpath(found) == os.path.realpath(called)
    return _COMMAND if is_on_path else shown_path(called)


def to_second(instant: str | None) -> str:
    """Return an instant without its milliseconds; empty for none."""
    return "" if instant is None else f"{instant[:19]}Z"


def counted(number: int, noun: str) -> str:
    """Return a number of things: ``1 draft``, ``2 drafts``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def say(line: str, style: str = "") -> None:
    """Print a line, on a terminal in a style of rich; characters that the encoding lacks become question marks."""
    if style and sys.stdout.isatty():
        from persistence.cli import rich_terminal  # noqa: PLC0415 - it takes 50 ms

        rich_terminal.print_line(line, style)
        return
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(line.encode(encoding, "replace").decode(encoding))


def say_json(facts: Mapping[str, object]) -> None:
    """Print an object of ``--json`` on one line, in the encoding of standard output; ``seconds`` in thousandths."""
    if isinstance(seconds := facts.get("seconds"), float):
        facts = {**facts, "seconds": round(seconds, 3)}
    try:
        text = json_line(facts).decode()
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(facts, enc_hook=repr), separators=(",", ":"))
    click.echo(text)


def say_result(facts: Mapping[str, object], text: str, say_text: Callable[[str], None] = say) -> None:
    """Print the result of a command: ``facts`` with ``--json``, else ``text``."""
    if is_json():
        say_json(facts)
    else:
        say_text(text)


def width(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in _WIDE else 1 for each in text
    )


def print_table(
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[int] = (),
    flexible: int | None = None,
    is_indented: bool = False,
    footer: Sequence[str] = (),
) -> None:
    """Print rows, the headings first. Columns without any value are left out.

    ``right`` are the columns of numbers. On a terminal the ``flexible`` column is cut if the row is too wide, and the
    ``footer`` is the last row.
    """
    lines = [list(row) for row in rows]
    used = [column for column in range(len(lines[0])) if any(line[column] for line in lines[1:])]
    numbers = frozenset(at for at, column in enumerate(used) if column in frozenset(right))
    kept = [[line[column] for column in used] for line in lines]
    if sys.stdout.isatty():
        from persistence.cli import rich_terminal  # noqa: PLC0415 - it takes 50 ms

        rich_terminal.print_table(
            kept,
            right=numbers,
            flexible=used.index(flexible) if flexible in used else None,
            indent=len(_GAP) if is_indented else 0,
            footer=[footer[column] for column in used] if footer else (),
        )
        return
    widths = [max(map(width, column)) for column in zip(*kept, strict=True)]
    for line in kept:
        cells = [_padded(cell, widths[at], is_right=at in numbers) for at, cell in enumerate(line)]
        say(f"{_GAP if is_indented else ''}{_GAP.join(cells).rstrip()}")


def say_table(
    objects: Sequence[Facts],
    columns: Columns,
    *,
    nothing: str = "",
    flexible: int | None = None,
    is_indented: bool = False,
) -> None:
    """Print objects: with ``--json`` as they are, else a table of them; if there are none, ``nothing`` as an error.

    Columns of numbers are flush right.
    """
    if is_json():
        for each in objects:
            say_json(each)
        return
    named = [(each.upper().replace("_", " "), each) if isinstance(each, str) else each for each in columns]
    found = [[each.get(of) if isinstance(of, str) else of(each) for _, of in named] for each in objects]
    if found:
        cells = [["" if value is None else safe(str(value)) for value in row] for row in found]
        right = {at for row in found for at, value in enumerate(row) if isinstance(value, int)}
        headings = [safe(heading) for heading, _ in named]
        print_table((headings, *cells), right=right, flexible=flexible, is_indented=is_indented)
    elif nothing:
        say_error(nothing)


def labelled(pairs: Iterable[tuple[str, Iterable[str]]]) -> Iterator[str]:
    """Yield labels with their values, each value on a line; a label without values is left out."""
    kept = [(label, list(values)) for label, values in pairs]
    longest = max((width(label) for label, values in kept if values), default=0)
    for label, values in kept:
        for at, value in enumerate(values):
            yield f"{_padded('' if at else label, longest)}{_GAP}{value}"


def _padded(text: str, columns: int, *, is_right: bool = False) -> str:
    blanks = " " * (columns - width(text))
    return f"{blanks}{text}" if is_right else f"{text}{blanks}"


@dataclass(slots=True)
class ProgressBar:
    """The progress of a long run: ``lines`` go to standard output, the bar of ``steps`` to standard error.

    With ``only_errors`` lines go to standard error, too, because the result may go to standard output.
    """

    only_errors: bool
    advance: Callable[[int], None] = lambda _: None
    steps: int = 0
    lines: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def step(self, steps: int = 1) -> None:
        self.steps += steps
        self.advance(steps)

    def done(self, problems: Iterable[str], *, tree: str, prefix: str) -> None:
        for problem in problems:
            self.say_either({"tree": tree, "problem": problem}, safe(f"{prefix}{problem}"))
        self.step()

    def say_either(self, facts: Mapping[str, object], text: str, style: str = "") -> None:
        """Print an object with ``--json``, else a line above the bar, on a terminal in a style of rich."""
        self.lines += 1
        say_result(facts, text, say_error if self.only_errors else partial(say, style=style))


@contextmanager
def progress(label: str, count: Callable[[], int], *, only_errors: bool = False) -> Iterator[ProgressBar]:
    """Show a bar of ``count`` steps for a block. Without a terminal, or if quiet, nothing is counted or shown."""
    if is_quiet() or not sys.stderr.isatty():
        yield ProgressBar(only_errors)
        return
    from persistence.cli import rich_terminal  # noqa: PLC0415 - it takes 50 ms

    with rich_terminal.terminal_bar(label, count) as advance:
        yield ProgressBar(only_errors, advance)


def follow(label: str, total: Callable[[], int], steps: Iterator[str | None]) -> int:
    """Run to the end, with a bar and a line or an object for each problem; return the number of problems."""
    with progress(label, total) as bar:
        for problem in steps:
            if problem is None:
                bar.step()
            else:
                bar.say_either({"problem": one_line(problem)}, one_line(problem))
    return bar.lines
