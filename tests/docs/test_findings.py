"""docs/maintenance.md tells administrators of every kind of finding, as it is."""

from persistence.storage.findings import FindingKind, Remedy
from tests.docs.markdown import DOCS, rows

PAGE = DOCS / "maintenance.md"


def described(text: str) -> dict[str, tuple[str, str]]:
    """Return the severity and the remedy of each kind of finding of a page."""
    return {cells[0].strip("`"): (cells[1], cells[-1]) for cells in rows(text, "Kind")}


def test_every_kind_of_finding_is_described_with_its_severity_and_remedy_and_the_reverse() -> None:
    found = described(PAGE.read_text())
    assert {label: severity for label, (severity, _) in found.items()} == {
        kind.label: kind.severity.value for kind in FindingKind
    }
    for kind in FindingKind:
        is_automatic = f"`{kind.remedy.value}`" in found[kind.label][1]
        assert is_automatic == (kind.remedy is not Remedy.NONE) or kind is FindingKind.DIGEST_WRONG


def test_a_finding_that_is_left_out_is_found() -> None:
    kind = next(iter(FindingKind)).label
    assert kind not in described(PAGE.read_text().replace(f"| `{kind}` |", "| `forgotten` |"))
