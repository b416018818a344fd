"""Twelve questions of administrators: the index leads to a page, and the page to a heading with the answer below it."""

import re

import pytest

from tests.docs.markdown import DOCS, links

ANSWERS = {
    "How do I get one document back as it was last Tuesday?": ("backup.md", "Restore one document", "--at TIME"),
    "How do new attachments come to another disk?": ("providers.md", "Attachments in a directory", "base-path"),
    "How is only the runtime let in?": ("orbeon.md", "The service", "trusted"),
    "How large a machine is needed for 200,000 documents?": ("choosing.md", "How large?", "100,000"),
    "What if the disk fills?": ("running.md", "When the disk fills", "507"),
    "How is it upgraded?": ("upgrading.md", "Upgrading the software", "install"),
    "How is the history turned off?": ("purging.md", "Retention", 'retention.history.hr.sick-note" = "none"'),
    "How is all of a person erased?": ("purging.md", "How do I erase", "--owner"),
    "How are old backups removed?": ("backup.md", "Backup", "remove its directory"),
    "How do the pages get TLS?": ("running.md", "nginx", "listen 443 ssl"),
    "How do forms come from the real system?": ("import.md", "What can be imported", "from the real"),
    "What does a refusal mean?": ("status-codes.md", "What does a status code mean?", "| 421 |"),
}


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_is_two_clicks_away(question: str) -> None:
    page, heading, answer = ANSWERS[question]
    assert DOCS / page in {path for path, _ in links(DOCS / "index.md", (DOCS / "index.md").read_text())}
    sections = re.split(r"(?m)^(?=#)", (DOCS / page).read_text())
    (section,) = [each for each in sections if re.match(rf"#+ {re.escape(heading)}", each)]
    assert answer in section
