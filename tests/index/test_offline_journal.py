"""Changes by a command: noted before, left to the service after."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from persistence.index.sync.journal import Journal, JournalEntry, OfflineJournal
from persistence.model.addresses import Form
from persistence.storage import files
from persistence.storage.layout import JOURNAL, Layout
from tests.failing import refusing
from tests.opened import opened

FORM = Form("hr", "50%")


def service(root: Path) -> Journal:
    """The notes, as another process sees them."""
    return opened(Journal(Layout(str(root)).own(JOURNAL)))


def test_a_change_is_noted_and_stays_so(tmp_path: Path) -> None:
    noting = opened(OfflineJournal(str(tmp_path)))
    noting.changing(FORM, "D")
    assert service(tmp_path).outstanding() == (JournalEntry(FORM, "D"),)
    noting.changed(FORM, "D")
    assert service(tmp_path).outstanding() == (JournalEntry(FORM, "D"),)


def test_notes_of_a_long_command_are_left_to_the_service_meanwhile(tmp_path: Path) -> None:
    noting = opened(OfflineJournal(str(tmp_path)))
    for number in range(250):
        noting.changing(FORM, str(number))
        noting.changed(FORM, str(number))
    left = {noted.document for log in service(tmp_path).abandoned() for noted in log.entries}
    assert left == {str(number) for number in range(200)}
    assert len(service(tmp_path).outstanding()) == 250


def test_what_cannot_be_noted_voids_the_index_before_and_after_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting, current = opened(OfflineJournal(str(tmp_path))), tmp_path / ".index/hr/50%25/current"
    current.parent.mkdir(parents=True)
    current.touch()
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", refusing(errno.ENOSPC))
        noting.changing(FORM, "D")
    assert not current.exists()
    current.touch()  # rebuilt, by a search that still saw the document as it was
    noting.changed(FORM, "D")
    assert not current.exists()


def test_an_index_that_cannot_be_voided_keeps_nothing_from_changing(tmp_path: Path) -> None:
    (tmp_path / ".index").write_text("in the way")
    noting = opened(OfflineJournal(str(tmp_path)))
    noting.changing(FORM, "D")
    noting.changed(FORM, "D")
