"""``persistence check`` finds what is wrong with the search index, and nothing where it is as it should be."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from persistence.dialect import SVC
from persistence.index.sync.journal import Journal
from persistence.index.sync.rebuild import Generations
from persistence.index.sync.updater import TreeIndex
from persistence.model.addresses import Form
from persistence.model.queries import Hits, Query, Scope
from persistence.model.sidecar import fresh_id
from persistence.properties.properties import Properties
from persistence.providers.tree_provider import open_index
from persistence.settings import Settings
from persistence.storage.layout import JOURNAL, Layout
from tests import orders
from tests.maintenance.workshop import Workshop
from tests.opened import opened
from tests.orders import ORDER
from tests.published import Planter
from tests.sidecars import copied

D1 = "acme/order/data/d-1"
DRAFT = "acme/order/draft/d-4"
INDEX = ".index/acme/order"


def index_at(root: Path) -> TreeIndex:
    return opened(open_index(Settings(data=str(root)), Properties.load({}, SVC.property_prefix), str(root)))


def hits(root: Path, form: Form = ORDER, text: str = "") -> Hits:
    return index_at(root).search(form, Scope(), Query(text))


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """A form whose documents are indexed, without a service."""
    root = tmp_path / "data"
    orders.plant(Planter(root))
    assert hits(root).total == 5
    return Workshop(root)


def current(workshop: Workshop, form: Form = ORDER) -> Path:
    path = Generations(Layout(str(workshop.root)), form).current()
    assert path is not None
    return Path(path)


def change(workshop: Workshop, *statements: str) -> None:
    with closing(sqlite3.connect(current(workshop))) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, statement
        connection.commit()


# --- what may happen to an index -----------------------------------------------------------------------------------


def put_a_document_there(workshop: Workshop) -> None:
    copied(workshop.file(D1), workshop.file("acme/order/data/d-9"))


def remove_a_document(workshop: Workshop) -> None:
    shutil.rmtree(workshop.file(D1))


def remove_a_draft(workshop: Workshop) -> None:
    shutil.rmtree(workshop.file(DRAFT))


def put_a_document_back(workshop: Workshop) -> None:
    shutil.copytree(workshop.file(D1), workshop.file("aside"))
    shutil.rmtree(workshop.file(D1))
    workshop.file("aside").rename(workshop.file(D1))


def miscount(workshop: Workshop) -> None:
    change(workshop, "UPDATE partitions SET documents = documents + 1 WHERE draft = 0")


def lose_a_partition(workshop: Workshop) -> None:
    change(workshop, "DELETE FROM partitions WHERE draft = 1")


def cut_off(workshop: Workshop) -> None:
    path = current(workshop)
    os.truncate(path, path.stat().st_size // 2)


def write_over(workshop: Workshop) -> None:
    current(workshop).write_bytes(b"no index\n" * 1000)


def lose_the_file(workshop: Workshop) -> None:
    current(workshop).unlink()


def lose_a_table(workshop: Workshop) -> None:
    change(workshop, "DROP TABLE partitions")


def change_a_value(workshop: Workshop) -> None:
    change(workshop, "UPDATE documents SET card = replace(card, 'Ada', 'Eve') WHERE document = 'd-1'")


def lose_an_entry(workshop: Workshop) -> None:
    change(workshop, "DELETE FROM entries WHERE fold = 'ada'")


def add_an_entry(workshop: Workshop) -> None:
    change(
        workshop,
        "INSERT INTO entries SELECT number, partition, 'eve', value, row, edge FROM entries WHERE fold = 'ada'",
    )


def change_a_text(workshop: Workshop) -> None:
    change(workshop, "UPDATE free_text SET text = 'never said' WHERE text LIKE '%call back%'")


def lose_a_text_in_the_index_of_texts(workshop: Workshop) -> None:
    change(workshop, "DELETE FROM free_text_data WHERE id > 10")


def garble_a_page(workshop: Workshop) -> None:
    """A document that is read only if a control is new."""
    with closing(sqlite3.connect(current(workshop))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page, size = connection.execute(
            "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master"
            " WHERE name = 'sqlite_autoindex_controls_1'"
        ).fetchone()
    with current(workshop).open("r+b") as file:
        file.seek((page - 1) * size + 8)
        file.write(b"\xff" * 64)


def leave_an_old_one(workshop: Workshop) -> None:
    shutil.copy(current(workshop), workshop.file(f"{INDEX}/{fresh_id()}.sqlite"))


def leave_an_unfinished_one(workshop: Workshop) -> None:
    workshop.file(f"{INDEX}/{fresh_id()}.sqlite-staged").write_bytes(b"entries")


def leave_an_unfinished_pointer(workshop: Workshop) -> None:
    workshop.file(f"{INDEX}/current.4711").write_bytes(b"")


def lose_a_form(workshop: Workshop) -> None:
    Planter(workshop.root).save("acme/gone", "d", b"<d/>", "2024-05-06T08:00:00.000Z")
    assert hits(workshop.root, Form("acme", "gone")).total == 1
    shutil.rmtree(workshop.file("acme/gone"))


def leave_notes(workshop: Workshop) -> None:
    journal = opened(Journal(str(workshop.file(JOURNAL))))
    journal.write(ORDER, "d-1")
    journal.leave()
    (log,) = workshop.file(JOURNAL).iterdir()
    os.utime(log, (time.time() - 100,) * 2)


@dataclass(frozen=True)
class Case:
    """A change of an index, and the finding with its path."""

    inflict: Callable[[Workshop], None]
    kind: str
    path: str

    def __str__(self) -> str:
        return self.inflict.__name__


STALE = (
    Case(put_a_document_there, "index-stale", "acme/order/data/d-9"),
    Case(remove_a_document, "index-stale", D1),
    Case(remove_a_draft, "index-stale", DRAFT),
    Case(put_a_document_back, "index-stale", D1),
)
CASES = (
    *STALE,
    Case(miscount, "index-damaged", INDEX),
    Case(lose_a_partition, "index-damaged", INDEX),
    Case(cut_off, "index-damaged", INDEX),
    Case(write_over, "index-damaged", INDEX),
    Case(lose_the_file, "index-damaged", INDEX),
    Case(lose_a_table, "index-damaged", INDEX),
    Case(leave_an_old_one, "stray-temporary", INDEX),
    Case(leave_an_unfinished_one, "stray-temporary", INDEX),
    Case(leave_an_unfinished_pointer, "stray-temporary", INDEX),
    Case(lose_a_form, "stray-temporary", ".index/acme/gone"),
    Case(leave_notes, "index-notes", JOURNAL),
)
DEEP = (
    Case(change_a_value, "index-wrong", D1),
    Case(lose_an_entry, "index-wrong", D1),
    Case(change_a_text, "index-wrong", D1),
    Case(lose_a_text_in_the_index_of_texts, "index-damaged", INDEX),
    Case(add_an_entry, "index-damaged", INDEX),
    Case(garble_a_page, "index-damaged", INDEX),
)


@pytest.mark.parametrize("flags", [(), ("--deep",), ("--deep", "--repair"), ("acme/order",), (D1, "--deep")])
def test_nothing_is_found_where_the_index_is_as_it_should_be(workshop: Workshop, flags: tuple[str, ...]) -> None:
    checked = workshop.check(*flags)
    assert (checked.status, checked.findings) == (0, [])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_found_and_nothing_changed(workshop: Workshop, case: Case) -> None:
    case.inflict(workshop)
    for _ in range(2):
        checked = workshop.check()
        assert [(kind, path.startswith(case.path)) for kind, path in checked.kinds] == [(case.kind, True)]
        assert {finding["outcome"] for finding in checked.findings} == {"found"}
        assert checked.status == 4


@pytest.mark.parametrize("case", DEEP, ids=str)
def test_what_only_reading_all_shows_is_found_by_a_deep_check(workshop: Workshop, case: Case) -> None:
    case.inflict(workshop)
    assert workshop.check().findings == []
    checked = workshop.check("--deep")
    assert (case.kind, True) in [(kind, path.startswith(case.path)) for kind, path in checked.kinds]
    assert {finding["severity"] for finding in checked.findings} == {"damage"}


@pytest.mark.parametrize("case", [*CASES, *DEEP], ids=str)
def test_it_is_repaired(workshop: Workshop, case: Case) -> None:
    case.inflict(workshop)
    checked = workshop.check("--repair", "--deep")
    assert {finding["outcome"] for finding in checked.findings} == {"mended"}, checked.findings
    assert checked.status == 3
    after = workshop.check("--deep")
    assert (after.findings, after.status) == ([], 0)
    found = {each.document for each in hits(workshop.root).page if not each.is_draft}
    assert found == {path.name for path in workshop.file("acme/order/data").iterdir()}
    assert workshop.check("--deep").findings == []
    assert [each.document for each in hits(workshop.root, text="call back").page] == [
        name for name in ("d-1", "d-9") if name in found
    ][::-1]


@pytest.mark.parametrize("case", STALE, ids=str)
def test_other_parts_of_the_tree_are_left_out(workshop: Workshop, case: Case) -> None:
    case.inflict(workshop)
    assert workshop.check("acme/order/data/d-2").findings == []
    assert len(workshop.check("acme/order").findings) == 1


def test_a_document_that_is_noted_is_not_stale(workshop: Workshop) -> None:
    """The next search updates the index first."""
    put_a_document_there(workshop)
    remove_a_document(workshop)
    journal = opened(Journal(str(workshop.file(JOURNAL))))
    journal.write(ORDER, "d-9")
    journal.write(ORDER, "d-1")
    assert workshop.check("--deep").findings == []
    assert hits(workshop.root, text="call back").page[0].document == "d-9"


def test_a_document_that_something_else_is_said_of_is_not_compared(workshop: Workshop) -> None:
    workshop.file(f"{D1}/data.xml").write_bytes(b"<form><customer><name>Eve</name></customer></form>")
    assert [kind for kind, _ in workshop.check("--deep").kinds] == ["edited"]
    assert workshop.check("--adopt", "--all").status == 3
    assert workshop.check("--deep").findings == []
    assert hits(workshop.root, text="eve").total == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE facts SET value = 'earlier' || substr(value, instr(value, ' ')) WHERE name = 'tree'",
        "UPDATE facts SET value = value || '0' WHERE name = 'tree'",
    ],
)
def test_what_the_service_finds_out_itself_is_nothing_to_say(workshop: Workshop, statement: str) -> None:
    """An index from before the machine was started is compared when it is needed, one of another tree rebuilt."""
    put_a_document_there(workshop)
    change(workshop, statement)
    assert workshop.check("--deep").findings == []
    assert hits(workshop.root).total == 6


def test_an_index_of_another_version_of_the_service_is_nothing_to_say(workshop: Workshop) -> None:
    change(workshop, "UPDATE facts SET value = 0 WHERE name = 'schema'")
    assert workshop.check("--deep").findings == []
    assert hits(workshop.root).total == 5


def test_documents_of_a_definition_that_changed_are_not_compared(workshop: Workshop) -> None:
    """They are read again before the next answer."""
    body = orders.definition().replace(b'class="fr-search"', b"")
    Planter(workshop.root).define(str(ORDER), 1, body, "2025-01-01T00:00:00.000Z")
    assert workshop.check("--deep").findings == []
    assert "customer/email" not in hits(workshop.root).page[0].values
    assert workshop.check("--deep").findings == []


def test_a_deleted_document_has_no_row_and_is_not_missed(workshop: Workshop) -> None:
    workshop.delete(f"{D1}/data.xml")
    assert hits(workshop.root).total == 4
    assert workshop.check("--deep").findings == []


def test_notes_are_left_to_the_service_for_a_while(workshop: Workshop) -> None:
    journal = opened(Journal(str(workshop.file(JOURNAL))))
    journal.write(ORDER, "d-1")
    assert workshop.check().findings == []
    os.utime(next(workshop.file(JOURNAL).iterdir()), (1, 1))
    assert workshop.check().findings == []  # its process lives
    journal.leave()
    assert [kind for kind, _ in workshop.check().kinds] == ["index-notes"]


def test_an_index_that_is_being_made_leaves_nothing(workshop: Workshop) -> None:
    leave_an_old_one(workshop)
    with Generations(Layout(str(workshop.root)), ORDER).rebuilding(timeout=1):
        assert workshop.check().findings == []
    assert len(workshop.check().findings) == 1
