"""Every module, test, page and heading that the documentation names exists, and the index leads to answers."""

import re
from pathlib import Path

import pytest

from tests.docs import commands, manual_page
from tests.docs.markdown import DOCS, PAGES, README, ROOT, anchors, links, prose

_ROOTS = (ROOT, ROOT / "persistence", DOCS)
_NAMED = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|md|c|conf|toml|yaml)|tests/[\w/]+)(?:::\w+)?`")
_EXAMPLES = {"2026-03-04T05-06-07.089Z/SHA256SUMS"}


def missing(text: str) -> list[str]:
    """Return the modules and tests that a text names and that do not exist."""
    named = {path for path in _NAMED.findall(prose(text)) if path not in _EXAMPLES and not path.startswith("var/")}
    return [path for path in sorted(named) if not any((root / path).exists() for root in _ROOTS)]


def broken(page: Path, text: str) -> list[str]:
    """Return the links of a page that lead nowhere."""
    found = []
    for path, anchor in links(page, text):
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path.read_text())):
            found.append(f"{path.relative_to(ROOT)}#{anchor}")
    return found


def unlinked(index: str) -> list[str]:
    """Return the files in docs/ to which the index does not link, but for those that ``make docs`` writes."""
    known = {path for path, _ in links(DOCS / "index.md", index)} | {DOCS / "index.md", commands.PAGE, manual_page.PAGE}
    return [page.name for page in sorted(DOCS.iterdir()) if page.is_file() and page not in known]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_and_test_that_is_named_exists(page: Path) -> None:
    assert missing(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_the_index_links_to_every_page() -> None:
    assert unlinked((DOCS / "index.md").read_text()) == []


def test_the_navigation_of_the_site_has_every_page() -> None:
    navigation = (ROOT / "config/mkdocs.yml").read_text()
    assert [page.name for page in PAGES if f"- {page.relative_to(ROOT)}\n" not in navigation] == []


def test_what_leads_nowhere_is_found() -> None:
    assert missing("`tests/docs/test_lynx.py` and `tests/docs/test_links.py`") == ["tests/docs/test_lynx.py"]
    planted = "[a](cli.md#serch) [b](cly.md) [c](cli.md#reindex) [d](#search)\n## Search\n"
    assert broken(DOCS / "index.md", planted) == ["docs/cli.md#serch", "docs/cly.md#", "docs/index.md#search"]
    assert unlinked((DOCS / "index.md").read_text().replace("(audit.md)", "")) == ["audit.md"]


def test_the_readme_is_short() -> None:
    assert len(README.read_bytes()) <= 8_192


ANSWERS = {
    "How do I get one document back as it was last Tuesday?": ("maintenance.md", "Restore one document", "--at TIME"),
    "How do new attachments come to another disk?": ("providers.md", "Attachments in a directory", "base-path"),
    "How is only the runtime let in?": ("orbeon.md", "The service", "trusted"),
    "How large a machine is needed for 200,000 documents?": ("choosing.md", "How large?", "100,000"),
    "What if the disk fills?": ("running.md", "When the disk fills", "507"),
    "How is it upgraded?": ("running.md", "Upgrading the software", "install"),
    "How is the history turned off?": ("purging.md", "Retention", 'retention.history.hr.sick-note" = "none"'),
    "How is all of a person erased?": ("purging.md", "How do I erase", "--owner"),
    "How are old backups removed?": ("maintenance.md", "Backup", "remove its directory"),
    "How do the pages get TLS?": ("running.md", "nginx", "listen 443 ssl"),
    "How do forms come from the real system?": ("export.md", "What can be imported", "from the real"),
    "What does a refusal mean?": ("http.md", "Status codes", "| 421 |"),
}


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_is_two_clicks_away(question: str) -> None:
    page, heading, answer = ANSWERS[question]
    assert DOCS / page in {path for path, _ in links(DOCS / "index.md", (DOCS / "index.md").read_text())}
    sections = re.split(r"(?m)^(?=#)", (DOCS / page).read_text())
    (section,) = [each for each in sections if re.match(rf"#+ {re.escape(heading)}", each)]
    assert answer in section
