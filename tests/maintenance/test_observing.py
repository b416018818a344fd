"""Every change by a check is noted for the index, while the service runs and in a tree that was copied back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from persistence.cli import commands
from persistence.dialect import SVC
from persistence.errors import BusyError
from persistence.index.sync.staleness import Journal, OfflineJournal
from persistence.maintenance.check import TreeCheck
from persistence.maintenance.reports import TreeReader
from persistence.maintenance.tree_walk import Folder, FolderTree
from persistence.model.addresses import Collection, Form
from persistence.properties.properties import Properties
from persistence.providers.opened import open_index
from persistence.settings import Settings
from persistence.storage.findings import FindingKind, Outcome, Remedy, Report, Treatment
from persistence.storage.layout import JOURNAL
from persistence.storage.storage import ChangeListener
from persistence.storage.stored_revision import Integrity
from tests.maintenance.cases import OUTDATED, Inflict, put_long_ago, write
from tests.maintenance.workshop import DATA, DELETED, DOCUMENT, DRAFT, FORM, Workshop, furnished
from tests.opened import opened
from tests.waiting import eventually


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """A tree whose index has all that was stored."""
    made = furnished(tmp_path / "data")
    settled(made.root)
    return made


def settled(root: Path) -> None:
    eventually(lambda: not noted(root))


def check_of(root: Path, listener: ChangeListener, *remedies: Remedy) -> Iterator[Report | None]:
    """A check without the command around it, which lets the index take in what was noted."""
    tree = FolderTree(str(root), lock_timeout=1, listener=listener)
    properties = Properties.load({}, SVC.property_prefix)
    index = opened(open_index(Settings(data=tree.root), properties, tree.root))
    treatment, reader = Treatment(frozenset(remedies)), partial(TreeReader.of, tree.root, properties)
    check = TreeCheck(tree, index, SVC, Integrity(), lambda _: None, reader, treatment)
    return treatment.reports(check.findings())


def looked_after(workshop: Workshop, *remedies: Remedy) -> list[FindingKind]:
    """Check without applying the notes; return what was found."""
    noting = opened(OfflineJournal(str(workshop.root)))
    reports = list(check_of(workshop.root, noting, *remedies))
    noting.leave()
    return [report.finding.kind for report in reports if report is not None]


def noted(root: Path) -> set[str]:
    found = opened(Journal(str(root / JOURNAL))).outstanding()
    assert {each.form for each in found} <= {Form("app", "form")}
    return {each.document for each in found}


def put_a_document_there(workshop: Workshop) -> None:
    copy = workshop.file("app/form/data/copy")
    shutil.copytree(workshop.file(DOCUMENT), copy, ignore=shutil.ignore_patterns("*.json", ".history"))


def garble_sidecars(workshop: Workshop) -> None:
    workshop.file(f"{DATA}.json").write_bytes(b"{")
    workshop.file(f"{DELETED}.json").unlink()
    workshop.file(f"{DRAFT}.json").write_bytes(b"")


REPAIR, ADOPT = Remedy.REPAIR, Remedy.ADOPT
CHECKS: dict[str, tuple[Inflict, tuple[Remedy, ...], set[str]]] = {
    "what is only found": (garble_sidecars, (), set()),
    "an adoption": (write(DATA, b"<d>edited</d>"), (ADOPT,), {"document"}),
    "a document that was put there": (put_a_document_there, (ADOPT,), {"copy"}),
    "repairs": (garble_sidecars, (REPAIR, ADOPT), {"document", "deleted", "draft"}),
    "a draft that goes to the quarantine": (put_long_ago(f"{OUTDATED}/data.xml"), (REPAIR,), {"document"}),
    "a definition": (write(FORM, b"<h/>"), (ADOPT,), set()),
}


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_changed_is_noted_and_nothing_else(workshop: Workshop, name: str) -> None:
    inflict, remedies, expected = CHECKS[name]
    inflict(workshop)
    settled(workshop.root)
    workshop.close()
    assert looked_after(workshop, *remedies)
    assert noted(workshop.root) == expected


def test_what_is_in_order_is_not_noted(workshop: Workshop) -> None:
    assert looked_after(workshop, REPAIR, ADOPT) == []
    assert noted(workshop.root) == set()


class Listener:
    """Observes a tree: the events of each document, and whether it could have been locked then."""

    def __init__(self, root: Path) -> None:
        self.told: list[tuple[str, str, bool]] = []
        self._tree = FolderTree(str(root), lock_timeout=0.02)

    def changing(self, form: Form, document: str) -> None:
        self.told.append(("changing", document, self._is_free(form, document)))

    def changed(self, form: Form, document: str) -> None:
        self.told.append(("changed", document, self._is_free(form, document)))

    def _is_free(self, form: Form, document: str) -> bool:
        try:
            with self._tree.locked(Folder("", form, Collection.DATA, document)):
                return True
        except BusyError:
            return False


def test_a_document_is_told_of_under_its_lock_and_when_it_is_released(workshop: Workshop) -> None:
    workshop.file(DATA).write_bytes(b"<d>edited</d>")
    (workshop.file(DATA).parent / "dropped.txt").write_bytes(b"put here")
    listener = Listener(workshop.root)
    reports = filter(None, check_of(workshop.root, listener, Remedy.ADOPT))
    assert [each.outcome for each in reports] == [Outcome.MENDED] * 2
    assert listener.told == [("changing", "document", False), ("changed", "document", True)]


def test_restoring_drops_the_index_of_a_tree_that_was_here_before(workshop: Workshop, tmp_path: Path) -> None:
    """``rm -rf data/*`` leaves the index: of other documents, or of the same ones in another state."""
    root, backups = tmp_path / "restored", tmp_path / "backups"
    run("backup", str(backups), "--data", str(workshop.root))
    (root / ".index/app/form").mkdir(parents=True)
    (root / ".index/app/form/current").touch()
    run("restore", str(backups), "--data", str(root))
    assert list((root / ".index").iterdir()) == []
    assert (root / DATA).exists()


def test_a_backup_leaves_the_index_out(workshop: Workshop, tmp_path: Path) -> None:
    assert list(workshop.file(".index/app/form").iterdir())
    run("backup", str(tmp_path / "backups"), "--data", str(workshop.root))
    assert not [path for path in (tmp_path / "backups").rglob("*") if path.name in {".index", "current"}]
    assert workshop.check().findings == []


def run(*arguments: str) -> None:
    done = CliRunner().invoke(commands, arguments)
    assert done.exit_code == 0, done.output
