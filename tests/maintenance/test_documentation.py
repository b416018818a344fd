"""docs/maintenance.md tells administrators of every kind of finding, as it is."""

import re
from pathlib import Path

from persistence.maintenance.findings import FindingKind, Remedy

_ROW = re.compile(r"^\| `([a-z-]+)` \| (\w+) \| .+ \| (.+) \|$", re.MULTILINE)


def test_every_kind_of_finding_is_documented_with_its_severity_and_remedy() -> None:
    text = (Path(__file__).parents[2] / "docs/maintenance.md").read_text()
    rows = {label: (severity, remedy) for label, severity, remedy in _ROW.findall(text)}
    assert {label: severity for label, (severity, _) in rows.items()} == {
        kind.label: kind.severity.value for kind in FindingKind
    }
    for kind in FindingKind:
        is_automatic = f"`{kind.remedy.value}`" in rows[kind.label][1]
        assert is_automatic == (kind.remedy is not Remedy.NONE) or kind is FindingKind.DIGEST_WRONG
