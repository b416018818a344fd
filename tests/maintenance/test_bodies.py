"""A check finds bodies in a directory of their own that are missing, cut off or rotten, and ignores other bodies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from persistence.dialect import SVC
from persistence.maintenance.check import CheckOptions, TreeCheck
from persistence.maintenance.reports import TreeReader
from persistence.maintenance.storage_check import BodiesOf
from persistence.maintenance.tree_walk import FolderTree
from persistence.properties.properties import Properties
from persistence.providers.opened import open_index
from persistence.settings import Settings
from persistence.storage.attachments import BodiesReader
from persistence.storage.findings import FindingKind, Treatment
from persistence.storage.stored_revision import Integrity
from tests.opened import opened
from tests.storage.bodies_contract import CAT
from tests.storage.test_split_attachments import DirectoryPlace


@pytest.fixture
def place(tmp_path: Path) -> DirectoryPlace:
    """A tree with an attachment of two revisions, whose bodies are elsewhere."""
    made = DirectoryPlace(tmp_path)
    made.write(b"older")
    made.write(b"newer")
    return made


def found(
    place: DirectoryPlace, bodies_of: BodiesOf | None = None, *, deep: bool = False
) -> list[tuple[FindingKind, str]]:
    tree = FolderTree(place.root, lock_timeout=1)
    properties = Properties.load({}, SVC.property_prefix)
    index = opened(open_index(Settings(data=tree.root), properties, tree.root))
    view = BodiesReader(str(place.base))
    options = CheckOptions(
        SVC, Integrity(), bodies_of or (lambda _: view), lambda: TreeReader.of(tree.root, properties), deep=deep
    )
    treatment = Treatment()
    found = treatment.reports(TreeCheck(tree, index, options, treatment).findings())
    reports = [report.finding for report in found if report is not None]
    return [(finding.kind, os.path.basename(finding.path)) for finding in reports]


def body(place: DirectoryPlace, *, older: bool = False) -> Path:
    directory = place.base / "pics/album/data/D/1"
    return next((directory / ".history").iterdir()) if older else directory / "cat.bin"


def test_bodies_that_are_as_they_were_stored_are_not_mentioned(place: DirectoryPlace) -> None:
    assert found(place, deep=True) == []
    stored = place.store.sidecar(CAT)
    body(place).rename(body(place).with_name(f".cat.bin.{stored.id}"))
    assert found(place, deep=True) == []


def test_a_body_that_is_missing_or_has_another_size_is_damage(place: DirectoryPlace) -> None:
    with body(place).open("ab") as file:
        file.write(b"!")
    assert found(place) == [(FindingKind.BODY_DAMAGED, "cat.bin")]
    body(place).unlink()
    assert (FindingKind.BODY_MISSING, "cat.bin") in found(place)


def test_the_body_of_an_older_revision_counts_too(place: DirectoryPlace) -> None:
    name = body(place, older=True).name
    body(place, older=True).unlink()
    assert found(place) == [(FindingKind.BODY_DAMAGED, name)]


def test_other_bytes_of_the_same_size_are_found_by_their_time_or_by_reading_them(place: DirectoryPlace) -> None:
    status = body(place).stat()
    body(place).write_bytes(b"wrong")
    assert found(place) == [(FindingKind.BODY_DAMAGED, "cat.bin")]
    os.utime(body(place), ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert found(place) == []
    assert found(place, deep=True) == [(FindingKind.BODY_DAMAGED, "cat.bin")]


def test_where_nothing_says_that_bodies_are_elsewhere_only_records_count(place: DirectoryPlace) -> None:
    body(place).unlink()
    assert found(place, lambda _: None, deep=True) == []


def test_a_directory_that_is_gone_is_said_of_every_body_and_not_made(place: DirectoryPlace) -> None:
    gone = BodiesReader(str(place.base / "gone"))
    assert [kind for kind, _ in found(place, lambda _: gone)] == [FindingKind.BODY_MISSING, FindingKind.BODY_MISSING]
    assert not Path(gone.root).exists()
