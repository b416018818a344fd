"""The pages of the documentation as tests read them: prose, headings, links, tables and blocks of code."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = (README, ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md")))

_BLOCK = re.compile(r"(?ms)^( *)```(.*?)\n(.*?)^ *```$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`]+)`")
_MARKED = re.compile(r'(\w*)(?: not-run="([^"]+)")?')


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page: its language, and the reason why a test does not run it."""

    page: str
    line: int
    language: str
    not_run: str | None
    text: str


def blocks(page: Path, text: str | None = None) -> list[Block]:
    """Return the fenced blocks of a page, in their order.

    ```` ```sh not-run="needs systemd" ```` begins a block that no test runs.

    Raises:
        ValueError: the words after a fence are something else.
    """
    text = page.read_text() if text is None else text
    found = []
    for match in _BLOCK.finditer(text):
        marked = _MARKED.fullmatch(match[2].strip())
        line = text.count("\n", 0, match.start()) + 1
        if marked is None:
            raise ValueError(f"{page.name}:{line}: ```{match[2]}")
        content = re.sub(f"(?m)^{match[1]}", "", match[3])
        found.append(Block(page.name, line, marked[1], marked[2], content))
    return found


def prose(text: str) -> str:
    """Return a text without its blocks of code."""
    return _BLOCK.sub("", text)


def spans(text: str) -> list[str]:
    """Return the words in code type."""
    return _SPAN.findall(text)


def rows(text: str, *headings: str) -> list[list[str]]:
    """Return the cells of all rows of the tables whose first heading is one of these, or of all tables."""
    found: list[list[str]] = []
    is_wanted = False
    before: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] if line.startswith("|") else []
        if before and "-" in "".join(cells) and set("".join(cells)) <= set("-: "):
            is_wanted = not headings or before[0] in headings
            found = [row for row in found if row is not before]
        elif cells and is_wanted:
            found.append(cells)
        is_wanted = is_wanted and bool(cells)
        before = cells
    return found


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.+)$", prose(text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path, text: str) -> Iterator[tuple[Path, str]]:
    """Yield the files that a page links to, each with the anchor or an empty string."""
    for link in _LINK.findall(prose(text)):
        if not link.startswith(("http://", "https://")):
            path, _, anchor = link.partition("#")
            yield (page.parent / unquote(path)).resolve() if path else page, anchor
