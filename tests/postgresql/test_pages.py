"""The pages for administrators over a database: some tests of ``tests/pages`` again, and a check of the database.

``make test-postgresql`` repeats all of them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import on_database
from tests import service as services
from tests.pages import test_document_pages, test_looking
from tests.pages.administrator import administrator
from tests.pages.test_looking import ended, save
from tests.postgresql.server import Server

_SELECTED: tuple[Any, ...] = (
    test_looking.test_the_overview_says_what_is_served,
    test_document_pages.test_the_history_has_every_revision_with_views_and_changes,
    test_document_pages.test_a_deleted_document_is_readable_and_comes_back,
    test_document_pages.test_a_lease_is_shown_and_broken,
    test_document_pages.test_drafts_are_shown_and_lead_to_the_saved_document,
)
globals().update({each.__name__: each for each in _SELECTED})
found = test_document_pages.found


@pytest.fixture(autouse=True)
def in_a_database(database_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "place_of", partial(on_database.address, database_server))
    monkeypatch.setattr(services, "prepare", partial(on_database.prepare, database_server))


def test_a_check_of_a_database_is_begun_from_the_page(tmp_path: Path) -> None:
    found = administrator(tmp_path)
    save(found)
    assert "hr" in (found.get("/admin/forms") and found.text)
    found.do("/admin/actions/check?mode=look")
    ended(found, "check")
    assert "Nothing was found" in found.text
    assert "nothing is wrong" in found.text
    found.do("/admin/actions/check?mode=adopt")
    ended(found, "check")
    assert "--adopt and --budget are for data directories" in found.text
