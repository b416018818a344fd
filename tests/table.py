"""Tables for people: what the long runs print at their end."""

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows under headings in Markdown, columns aligned; numbers to the right."""
    lines = [tuple(str(cell) for cell in row) for row in rows]
    widths = [max(len(line[column]) for line in (tuple(headings), *lines)) for column in range(len(headings))]
    right = [bool(lines) and all(_is_number(line[column]) for line in lines) for column in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(cells, widths, right, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = "|".join(
        ("-" * (width + 1) + ":") if is_right else "-" * (width + 2)
        for width, is_right in zip(widths, right, strict=True)
    )
    return "\n".join((line(headings), f"|{rule}|", *map(line, lines)))


def _is_number(cell: str) -> bool:
    return cell.replace(" ", "").replace(".", "", 1).replace(",", "").isdigit()
