"""The list of the revisions of a resource in a tree: what is read for it, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.storage import stored_revision
from persistence.storage.layout import FilePaths
from persistence.storage.store import Store
from tests.initialised import initialised
from tests.opened import opened
from tests.storage.contract import write

DATA = DocumentAddress(Form("hr", "leave"), Collection.DATA, "D", "data.xml")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return opened(Store(initialised(tmp_path / "root"), lock_timeout=0.2))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sidecars that are read."""
    names: list[str] = []
    real = stored_revision.read_sidecar

    def reading(paths: FilePaths) -> Sidecar | None:
        names.append(paths.name)
        return real(paths)

    monkeypatch.setattr(stored_revision, "read_sidecar", reading)
    return names


def test_only_the_sidecars_of_the_page_are_read(store: Store, read: list[str]) -> None:
    for number in range(50):
        write(store, DATA, str(number))
    read.clear()
    revisions = store.history(DATA)
    assert revisions is not None
    assert (revisions.total, read) == (50, ["data.xml"])
    page = revisions.page(20, 25)
    assert len(page) == 5
    assert len(read) == 1 + 5
    revisions.since(page[0].instant)
    revisions.instant(49)
    revisions.page(0, 1)
    assert len(read) == 1 + 5


def test_a_second_name_of_the_current_revision_is_listed_once(store: Store) -> None:
    """A write that was killed leaves it."""
    current = write(store, DATA, "one")
    paths = FilePaths(f"{store.root}/hr/leave/data/D", "data.xml")
    Path(paths.history).mkdir()
    Path(paths.revision(current.modified).sidecar).hardlink_to(paths.sidecar)
    revisions = store.history(DATA)
    assert revisions is not None
    assert [each.instant for each in revisions.page(0, 9)] == [current.modified]


@pytest.mark.parametrize(
    "name",
    [
        "2025-03-04T05-06-07.089Z.a.bin.json",
        "2025-03-04T05-06-07.089Z.x.data.xml.json",
        "2025-03-04T05-06-07.089Z.data.xml",
        ".2025-03-04T05-06-07.089Z.data.xml.json",
        "2025-02-30T05-06-07.089Z.data.xml.json",
        "2025-03-04T05:06:07.089Z.data.xml.json",
        "\u0662025-03-04T05-06-07.089Z.data.xml.json",
        "x.data.xml.json",
        ".data.xml.json",
    ],
)
def test_other_files_are_no_revisions(store: Store, name: str) -> None:
    write(store, DATA, "one")
    write(store, DATA, "two")
    Path(store.root, "hr/leave/data/D/.history", name).write_bytes(b"{}")
    revisions = store.history(DATA)
    assert revisions is not None
    assert revisions.total == 2


def test_what_is_stored_meanwhile_is_not_in_the_list(store: Store) -> None:
    first = write(store, DATA, "one")
    revisions = store.history(DATA)
    write(store, DATA, "two")
    assert revisions is not None
    assert [each.sidecar for each in revisions.page(0, 9)] == [first]


def test_a_revision_that_is_gone_is_left_out(store: Store) -> None:
    stored = [write(store, DATA, str(number)).modified for number in range(3)]
    revisions = store.history(DATA)
    assert revisions is not None
    paths = FilePaths(f"{store.root}/hr/leave/data/D", "data.xml")
    Path(paths.revision(Instant(stored[1])).sidecar).unlink()
    assert [each.instant for each in revisions.page(0, 9)] == [stored[2], stored[0]]
