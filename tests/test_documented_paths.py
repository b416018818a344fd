"""Every module, test and page that the documentation names exists, and so does every heading that it links to."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
_ROOTS = (ROOT, ROOT / "persistence", ROOT / "docs")
_NAMED = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|md|c|conf|toml|yaml)|tests/[\w/]+)(?:::\w+)?`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_EXAMPLES = {"2026-03-04T05-06-07.089Z/SHA256SUMS"}


def prose(page: Path) -> str:
    """Return the text of a page without its blocks of code."""
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.+)$", prose(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files that a page links to, each with the anchor or an empty string."""
    for link in _LINK.findall(prose(page)):
        if not link.startswith(("http://", "https://")):
            path, _, anchor = link.partition("#")
            yield (page.parent / unquote(path)).resolve() if path else page, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_and_test_that_is_named_exists(page: Path) -> None:
    named = {path for path in _NAMED.findall(prose(page)) if path not in _EXAMPLES and not path.startswith("var/")}
    assert [path for path in sorted(named) if not any((root / path).exists() for root in _ROOTS)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for path, anchor in links(page):
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(f"{path.relative_to(ROOT)}#{anchor}")
    assert broken == []


def test_the_index_links_to_every_page() -> None:
    index = ROOT / "docs/index.md"
    linked = {path for path, _ in links(index)}
    assert [page.name for page in (ROOT / "docs").iterdir() if page != index and page not in linked] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 10_240
