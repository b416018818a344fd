"""Tables and lists of facts in columns, as wide as what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from persistence.cli.texts import cut, width

_GAP = "  "
_NARROWEST = 12
_WIDEST_END = 30
"""Columns that the last cell of a row claims before a wider one is left to be wrapped by the terminal."""


def table(
    rows: Iterable[Sequence[str]], *, right: Iterable[int] = (), flexible: int = 0, room: int | None = None
) -> Iterator[str]:
    """Rows as lines. Columns in which only the first row, the headings, says anything are left out.

    ``right`` are the columns with numbers. Where all is to fit into ``room`` columns, the ``flexible`` one is cut.
    """
    lines = [list(row) for row in rows]
    used = [column for column in range(len(lines[0])) if any(line[column] for line in lines[1:])]
    if room is not None and flexible in used:
        left = _left(lines, used, flexible, room)
        for line in lines:
            line[flexible] = cut(line[flexible], left)
    widths = _widths(lines)
    right = frozenset(right)
    for line in lines:
        cells = (_padded(line[column], widths[column], is_right=column in right) for column in used)
        yield _GAP.join(cells).rstrip()


def _left(lines: Sequence[Sequence[str]], used: Sequence[int], flexible: int, room: int) -> int:
    """How many columns the flexible cells may take."""
    widths = _widths(lines)
    claimed = [widths[column] for column in used if column != flexible]
    if used[-1] != flexible:
        claimed[-1] = min(claimed[-1], _WIDEST_END)
    return max(room - sum(claimed) - len(_GAP) * (len(used) - 1), _NARROWEST)


def facts(pairs: Iterable[tuple[str, Iterable[str]]]) -> Iterator[str]:
    """Labels with their values, each value on a line; a label without values is left out."""
    kept = [(label, list(values)) for label, values in pairs]
    longest = max((width(label) for label, values in kept if values), default=0)
    for label, values in kept:
        for at, value in enumerate(values):
            yield f"{_padded('' if at else label, longest)}{_GAP}{value}"


def indented(lines: Iterable[str]) -> Iterator[str]:
    """The lines, each a step to the right."""
    return (f"{_GAP}{line}" for line in lines)


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(width, column)) for column in zip(*lines, strict=True)]


def _padded(text: str, columns: int, *, is_right: bool = False) -> str:
    blanks = " " * (columns - width(text))
    return f"{blanks}{text}" if is_right else f"{text}{blanks}"
