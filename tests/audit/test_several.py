"""Lines of the audit about several documents, as the actions of the pages write them."""

from __future__ import annotations

import pytest

from persistence.audit.verification import is_of_kind


@pytest.mark.parametrize(
    ("wanted", "is_found"),
    [
        ({"document": "a"}, True),
        ({"document": "b", "form": "leave"}, True),
        ({"document": "c"}, False),
        ({"document": "b", "form": "other"}, False),
        ({"name": "a"}, False),
    ],
)
def test_a_line_is_about_each_of_its_documents(wanted: dict[str, str], is_found: bool) -> None:  # noqa: FBT001
    line = {"n": 1, "action": "document-delete", "form": "leave", "details": {"document": ["a", "b"], "name": "a"}}
    assert is_of_kind(line, wanted) is is_found
