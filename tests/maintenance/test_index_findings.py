"""``persistence check`` finds what is wrong with the search index, and nothing where it is as it should be."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from persistence.dialect import SVC
from persistence.index.sqlite.tables import Generations
from persistence.index.sync.staleness import Journal
from persistence.index.sync.updater import TreeIndex
from persistence.model.addresses import Form
from persistence.model.queries import Hits, Query, Scope
from persistence.model.sidecar import fresh_id
from persistence.properties.properties import Properties
from persistence.providers.opened import open_index
from persistence.settings import Settings
from persistence.storage.layout import JOURNAL, Layout
from tests import orders
from tests.maintenance.cases import Case, Inflict
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


def remove(path: str) -> Inflict:
    return lambda workshop: shutil.rmtree(workshop.file(path))


def put_a_document_back(workshop: Workshop) -> None:
    shutil.copytree(workshop.file(D1), workshop.file("aside"))
    shutil.rmtree(workshop.file(D1))
    workshop.file("aside").rename(workshop.file(D1))


def sql(statement: str) -> Inflict:
    return lambda workshop: change(workshop, statement)


def leave(name: str) -> Inflict:
    """Leave a file in the directory of the index; an index is a copy of the current one."""
    return lambda workshop: workshop.file(f"{INDEX}/{name}").write_bytes(
        current(workshop).read_bytes() if name.endswith(".sqlite") else b"entries"
    )


def garble_a_page(workshop: Workshop) -> None:
    """A document that is read only if a control is new."""
    with closing(sqlite3.connect(current(workshop))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page, size = connection.execute(
            "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master"
            " WHERE name = 'sqlite_autoindex_control_1'"
        ).fetchone()
    with current(workshop).open("r+b") as file:
        file.seek((page - 1) * size + 8)
        file.write(b"\xff" * 64)


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


of_index = partial(Case, path=INDEX)
STALE = (
    Case("another document", put_a_document_there, "index-stale", "acme/order/data/d-9"),
    Case("removed document", remove(D1), "index-stale", D1),
    Case("removed draft", remove(DRAFT), "index-stale", DRAFT),
    Case("replaced document", put_a_document_back, "index-stale", D1),
)
CASES = (
    *STALE,
    of_index("miscounted", sql("UPDATE partition SET documents = documents + 1 WHERE draft = 0"), "index-damaged"),
    of_index("lost partition", sql("DELETE FROM partition WHERE draft = 1"), "index-damaged"),
    of_index("cut off", lambda tree: os.truncate(current(tree), current(tree).stat().st_size // 2), "index-damaged"),
    of_index("written over", lambda tree: current(tree).write_bytes(b"no index\n" * 1000), "index-damaged"),
    of_index("lost file", lambda tree: current(tree).unlink(), "index-damaged"),
    of_index("lost table", sql("DROP TABLE partition"), "index-damaged"),
    of_index("old index", leave(f"{fresh_id()}.sqlite"), "stray-temporary"),
    of_index("unfinished index", leave(f"{fresh_id()}.sqlite-staged"), "stray-temporary"),
    of_index("unfinished pointer", leave("current.4711"), "stray-temporary"),
    Case("lost form", lose_a_form, "stray-temporary", ".index/acme/gone"),
    Case("notes", leave_notes, "index-notes", JOURNAL),
)
AN_ENTRY = "INSERT INTO entry SELECT control, partition, 'eve', value, seq, edge FROM entry WHERE fold = 'ada'"
A_VALUE = "UPDATE document SET card = replace(card, 'Ada', 'Eve') WHERE document = 'd-1'"
A_TEXT = "UPDATE free_text SET text = 'never said' WHERE text LIKE '%call back%'"
DEEP = (
    Case("changed value", sql(A_VALUE), "index-wrong", D1),
    Case("lost entry", sql("DELETE FROM entry WHERE fold = 'ada'"), "index-wrong", D1),
    Case("changed text", sql(A_TEXT), "index-wrong", D1),
    of_index("lost text in the index of texts", sql("DELETE FROM free_text_data WHERE id > 10"), "index-damaged"),
    of_index("added entry", sql(AN_ENTRY), "index-damaged"),
    of_index("garbled page", garble_a_page, "index-damaged"),
)


@pytest.mark.parametrize("flags", [(), ("--deep",), ("--deep", "--repair"), ("acme/order",), (D1, "--deep")])
def test_nothing_is_found_where_the_index_is_as_it_should_be(workshop: Workshop, flags: tuple[str, ...]) -> None:
    checked = workshop.check(*flags)
    assert (checked.status, checked.findings) == (0, [])


@pytest.mark.parametrize("case", [*CASES, *DEEP], ids=str)
def test_it_is_found_and_repaired(workshop: Workshop, case: Case) -> None:
    """Some of it only by a deep check, which reads all; a check without a repair changes nothing."""
    case.inflict(workshop)
    quick, deep = workshop.check(), workshop.check("--deep")
    found = [(kind, path.startswith(case.path)) for kind, path in quick.kinds]
    assert (found, quick.status) == (([], 0) if case in DEEP else ([(case.kind, True)], 4))
    assert (case.kind, True) in [(kind, path.startswith(case.path)) for kind, path in deep.kinds]
    assert {finding["outcome"] for finding in deep.findings} == {"found"}
    assert case not in DEEP or {finding["severity"] for finding in deep.findings} == {"damage"}
    checked = workshop.check("--repair", "--deep")
    assert {finding["outcome"] for finding in checked.findings} == {"mended"}, checked.findings
    assert checked.status == 3
    after = workshop.check("--deep")
    assert (after.findings, after.status) == ([], 0)
    documents = {each.document for each in hits(workshop.root).page if not each.is_draft}
    assert documents == {path.name for path in workshop.file("acme/order/data").iterdir()}
    assert [each.document for each in hits(workshop.root, text="call back").page] == [
        name for name in ("d-9", "d-1") if name in documents
    ]


@pytest.mark.parametrize("case", STALE, ids=str)
def test_other_parts_of_the_tree_are_left_out(workshop: Workshop, case: Case) -> None:
    case.inflict(workshop)
    assert workshop.check("acme/order/data/d-2").findings == []
    assert len(workshop.check("acme/order").findings) == 1


def test_a_document_that_is_noted_is_not_stale(workshop: Workshop) -> None:
    """The next search updates the index first."""
    put_a_document_there(workshop)
    shutil.rmtree(workshop.file(D1))
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
        "UPDATE facts SET value = 0 WHERE name = 'schema'",
    ],
    ids=["before the machine was started", "of another tree", "of another version of the service"],
)
def test_what_the_service_finds_out_itself_is_nothing_to_say(workshop: Workshop, statement: str) -> None:
    """It compares or rebuilds such an index when it is needed."""
    put_a_document_there(workshop)
    change(workshop, statement)
    assert workshop.check("--deep").findings == []
    assert hits(workshop.root).total == 6


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
    leave(f"{fresh_id()}.sqlite")(workshop)
    with Generations(Layout(str(workshop.root)), ORDER).rebuilding(timeout=1):
        assert workshop.check().findings == []
    assert len(workshop.check().findings) == 1
