"""The index in a database while several nodes use it: nothing is stale unseen, and nothing is counted wrong."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from persistence.errors import BusyError
from persistence.index.protocol import ReindexingState
from persistence.model.addresses import Form
from persistence.model.queries import Drafts, Query, Scope
from persistence.postgresql import database_index, index_rows
from persistence.postgresql.database import Database
from persistence.postgresql.database_check import maintained
from tests import orders
from tests.index.contract import NAME, STATUS, exact, only
from tests.opened import opened
from tests.postgresql.indexing import FormInDatabase, IndexedDatabase
from tests.waiting import PATIENCE, at_once, eventually

FORM = Form("acme", "order")
DEFINITION = orders.definition()
WITHOUT_NAME = DEFINITION.replace(b"<fr:index><fr:summary-show/></fr:index>", b"")


@pytest.fixture
def node(database_uri: str, tmp_path: Path) -> IndexedDatabase:
    return opened(IndexedDatabase(database_uri, tmp_path))


other = node


def save(form: FormInDatabase, document: str, name: str, status: str = "open") -> None:
    body = f"<form><customer><name>{name}</name><status>{status}</status></customer></form>"
    form.save(document, body.encode())


def filled(node: IndexedDatabase, documents: int, definition: bytes = DEFINITION) -> FormInDatabase:
    """A form with so many documents, ``d-0`` of ``Name 0`` and so on."""
    form = node.of(FORM)
    form.publish(definition)
    for number in range(documents):
        save(form, f"d-{number}", f"Name {number}")
    return form


def total_of(form: FormInDatabase, scope: Scope | None = None, *, named: str = "", status: str = "") -> int:
    """The total of a search for a name or a status, which waits while documents are read again."""
    controls = [exact(path, text) for path, text in ((NAME, named), (STATUS, status)) if text]
    ends = time.monotonic() + PATIENCE
    while True:
        try:
            return form.search(Query(controls=tuple(controls), paths=()), scope).total
        except BusyError:
            assert time.monotonic() < ends
            time.sleep(0.05)


def test_totals_are_exact_after_concurrent_creations_and_deletions(
    node: IndexedDatabase, other: IndexedDatabase
) -> None:
    forms = [node.of(FORM), other.of(FORM)] * 2
    forms[0].publish(DEFINITION)

    def change(number: int) -> None:
        for each in range(12):
            save(forms[number], f"d-{number}-{each}", f"Name {each}")
            if each % 3 == 0:
                forms[number].delete(f"d-{number}-{each}")

    at_once(*(lambda number=number: change(number) for number in range(4)))  # type: ignore[misc]
    assert total_of(forms[0]) == 4 * 8
    with node.database.reading("counting") as connection:
        assert connection.execute("SELECT count(*) FROM document").fetchone() == (32,)
        assert connection.execute("SELECT count(*) FROM free_text").fetchone() == (32,)
        stray = "SELECT count(*) FROM entry WHERE seq NOT IN (SELECT seq FROM document)"
        assert connection.execute(stray).fetchone() == (0,)


def test_saves_go_on_while_versions_are_published_and_nothing_is_stale(
    node: IndexedDatabase, other: IndexedDatabase
) -> None:
    """Documents that were saved by one definition and not yet committed when the next one came are read again, too."""
    ours, theirs = node.of(FORM), other.of(FORM)
    ours.publish(WITHOUT_NAME)
    is_over = threading.Event()
    saved: list[str] = []

    def keep_saving() -> None:
        while not is_over.is_set():
            save(theirs, f"d-{len(saved)}", f"Name {len(saved)}")
            saved.append(f"Name {len(saved)}")

    def publish() -> None:
        try:
            times, ends = 0, time.monotonic() + PATIENCE / 2
            while times < 4 or (len(saved) <= 4 and time.monotonic() < ends):
                times += 1
                ours.publish(WITHOUT_NAME)
                ours.publish(DEFINITION)
                for at, name in list(enumerate(saved))[-3:]:
                    assert total_of(ours, named=name) == 1, at
        finally:
            is_over.set()

    at_once(keep_saving, publish)
    assert len(saved) > 4
    for form in (ours, theirs):
        assert total_of(form) == len(saved)
        for name in saved:
            assert total_of(form, named=name) == 1


def test_a_save_of_the_edition_before_is_read_again_by_the_search_after_it(
    node: IndexedDatabase, other: IndexedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = node.of(FORM), other.of(FORM)
    ours.publish(WITHOUT_NAME)
    changed = node.rows.changed

    def after_a_publication(form: Form, document: str) -> None:
        changed(form, document)
        at_once(lambda: theirs.publish(DEFINITION))

    monkeypatch.setattr(node.rows, "changed", after_a_publication)
    save(ours, "d-1", "Ada")
    monkeypatch.undo()
    assert total_of(theirs, named="Ada") == 1


def test_many_outdated_documents_are_read_by_a_job_while_searches_are_busy(
    node: IndexedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = filled(node, 30, WITHOUT_NAME)
    monkeypatch.setattr(database_index, "READ_AT_ONCE", 5)
    form.publish(DEFINITION)
    with pytest.raises(BusyError, match="are being read again") as refused:
        form.search(Query(paths=()))
    assert refused.value.retry_after > 0
    assert total_of(form, named="Name 7") == 1
    eventually(lambda: node.reindexer.status().state is ReindexingState.STOPPED)


def test_publications_leave_no_totals_to_be_summed_up(node: IndexedDatabase) -> None:
    form = node.of(FORM)
    form.publish(DEFINITION)
    save(form, "d-1", "Ada")
    for definition in (WITHOUT_NAME, DEFINITION) * 2:
        form.publish(definition)
        assert total_of(form) == 1
    with node.database.reading("counting") as connection:
        totals = connection.execute("SELECT count(DISTINCT partition), count(*) FROM partition_total").fetchone()
    assert totals == (1, 1)


def test_a_rebuild_mends_whatever_is_wrong(node: IndexedDatabase) -> None:
    form = filled(node, 4)
    with node.database.transaction("damaging") as connection:
        connection.execute("DELETE FROM entry WHERE fold LIKE 'name 1'")
        connection.execute("DELETE FROM document WHERE document = 'd-2'")
        connection.execute("UPDATE document SET document = 'stray' WHERE document = 'd-3'")
        connection.execute("UPDATE partition_total SET documents = documents + 40")
    node.reindexer.all()
    assert total_of(form) == 4
    for number in range(4):
        assert total_of(form, named=f"Name {number}") == 1
    assert total_of(form, status="open") == 4
    assert total_of(form, only(Drafts.ONLY)) == 0


def test_two_nodes_rebuild_one_after_the_other_and_both_say_how_far_it_is(
    node: IndexedDatabase, other: IndexedDatabase
) -> None:
    form = filled(node, 20)
    seen = set()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            seen.add(other.reindexer.status().state)
            save(form, "d-3", "Name 3")

    def rebuild() -> None:
        try:
            at_once(node.reindexer.all, other.reindexer.all, lambda: node.reindexer.version(FORM, 1))
        except BusyError:
            pytest.fail("a rebuild did not wait")
        finally:
            is_over.set()

    at_once(watch, rebuild)
    assert ReindexingState.INDEXING in seen
    assert other.reindexer.status().state is ReindexingState.STOPPED
    assert total_of(form) == 20
    assert total_of(form, status="open") == 20


def test_one_connection_is_enough_for_many_threads_that_begin_forms(
    node: IndexedDatabase, database_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forms, versions and partitions are made within the transactions of saves, but apart from them."""
    defaults = Database.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "most_connections", 1)
    small = opened(IndexedDatabase(database_uri, tmp_path))

    def begin(number: int) -> None:
        form = small.of(Form("acme", f"form-{number}"))
        form.publish(DEFINITION)
        save(form, "d", f"Name {number}")

    began = time.monotonic()
    at_once(*[partial(begin, number) for number in range(12)])
    assert time.monotonic() - began < PATIENCE
    for number in range(12):
        assert total_of(node.of(Form("acme", f"form-{number}"))) == 1


_NODE = """
import sys, time
from pathlib import Path
from persistence.postgresql import database_index
from persistence.postgresql.index_rows import IndexRows
from tests.postgresql.indexing import IndexedDatabase
database_index.REREAD_AT_ONCE, database_index._READERS = 2, 2
reread = IndexRows.reread
def slowly(*given, **named):
    reread(*given, **named)
    print("some", flush=True)
    time.sleep(0.2)
IndexRows.reread = slowly
node = IndexedDatabase(sys.argv[1], Path(sys.argv[2]))
node.reindexer.all()
"""


def test_a_node_that_is_killed_in_a_rebuild_frees_it_and_leaves_nothing_half_done(
    node: IndexedDatabase, database_uri: str, tmp_path: Path
) -> None:
    form = filled(node, 10)
    command = [sys.executable, "-c", _NODE, database_uri, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as killed:
        killed.stdout.readline()
        assert node.reindexer.status().state is ReindexingState.INDEXING
        os.kill(killed.pid, signal.SIGKILL)
    eventually(lambda: node.reindexer.status().state is ReindexingState.STOPPED)
    assert total_of(form, status="open") == 10
    node.reindexer.all()
    assert total_of(form, status="open") == 10


def test_a_save_that_is_under_way_is_waited_for_alone_and_is_what_the_index_has(
    node: IndexedDatabase, other: IndexedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its document is read after it; meanwhile the others are read, and nobody waits for these."""
    ours, theirs = filled(node, 6), other.of(FORM)
    with node.database.transaction("damaging") as connection:
        connection.execute("DELETE FROM entry WHERE control > 0")
    changed, has_locks, may_commit = other.rows.changed, threading.Event(), threading.Event()

    def slowly(form: Form, document: str) -> None:
        changed(form, document)
        has_locks.set()
        assert may_commit.wait(PATIENCE)

    def others_are_read() -> bool:
        return total_of(ours, status="open") == 5

    def rebuild_and_save() -> None:
        assert has_locks.wait(PATIENCE)
        at_once(
            node.reindexer.all, lambda: (eventually(others_are_read), save(ours, "d-4", "New"), may_commit.set())[0]
        )

    monkeypatch.setattr(other.rows, "changed", slowly)
    at_once(lambda: save(theirs, "d-3", "Saved"), rebuild_and_save)
    assert total_of(ours, status="open") == 6
    for name in ("Saved", "New"):
        assert total_of(ours, named=name) == 1
    assert total_of(ours, named="Name 3") == 0


def test_saves_and_a_rebuild_of_many_documents_go_on_beside_each_other(
    node: IndexedDatabase, other: IndexedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_index, "REREAD_AT_ONCE", 8)
    form, names = filled(node, 60), {f"d-{number}": f"Name {number}" for number in range(60)}
    is_over = threading.Event()

    def keep_saving() -> None:
        for number in itertools.count():
            document = f"d-{number * 7 % 60}"
            if number % 10 == 9 and document in names:
                other.of(FORM).delete(document)
                del names[document]
            else:
                names[document] = f"Again {number}"
                save(other.of(FORM), document, names[document])
            if is_over.is_set():
                return

    def rebuild() -> None:
        try:
            for definition in (WITHOUT_NAME, DEFINITION):
                form.publish(definition)
                node.reindexer.all()
        finally:
            is_over.set()

    at_once(keep_saving, rebuild)
    for name in names.values():
        assert total_of(form, named=name) == 1
    assert total_of(form) == len(names)
    assert not any(maintained(node.storage, node.rows).inspect(True, lambda *_: None))


def test_large_and_damaged_documents_and_drafts_are_read_alone(
    node: IndexedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_rows, "LARGEST_REREAD", 200)
    form = node.of(FORM)
    form.publish(DEFINITION)
    save(form, "d-1", "Ann")
    save(form, "d-2", "Bob" + " " * 300)
    save(form, "d-3", "Eve")
    form.save("d-1", b"<form><customer><name>Draft</name></customer></form>", is_draft=True)
    with node.database.transaction("damaging") as connection:
        connection.execute("DELETE FROM document")
        connection.execute("DELETE FROM entry")
        connection.execute("UPDATE revision SET sidecar = 'x' WHERE folder = 'd-3'")
    node.reindexer.all()
    assert total_of(form) == 3
    for name in ("Ann", "Bob" + " " * 300):
        assert total_of(form, named=name) == 1
    assert total_of(form, only(Drafts.ONLY), named="Draft") == 1
