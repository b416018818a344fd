"""The next search is right, or says that it cannot be yet: whatever happens to the files of an index."""

from __future__ import annotations

import copy
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from persistence.errors import BusyError
from persistence.index.protocol import RebuildAim
from persistence.index.sources import DocumentName, IndexedDocument
from persistence.index.sqlite import engine, tables
from persistence.index.sqlite.tables import SCHEMA_FACT, write_fact
from persistence.index.sync import staleness, updater
from persistence.index.sync.staleness import Journal
from persistence.index.sync.updater import TreeIndex, Updater
from persistence.model.addresses import Form
from persistence.model.queries import ControlFilter, Query, Scope, TextMatch
from persistence.model.texts import Instant
from tests.index import asked
from tests.index.memory import FORM, Content, Memory, index_of
from tests.opened import opened
from tests.postgresql.indexing import indexed_memory
from tests.postgresql.server import Server
from tests.waiting import eventually

_EVERYTHING = Query(size=10_000)


def content(text: str, number: int, version: int = 1) -> Content:
    when = asked.instant(number * 1000)
    return Content(
        version, when, when, creator=f"user{number % 3}", values={"name": (text,), "free": (f"free {text}",)}
    )


def token(text: str) -> Query:
    return Query(controls=(ControlFilter("name", TextMatch.EXACT, text),))


def names(index: TreeIndex, query: Query = _EVERYTHING) -> list[str]:
    return [hit.document for hit in index.search(FORM, Scope(), query).page]


@pytest.fixture
def memory() -> Memory:
    memory = Memory()
    memory.publish(1, ("name",))
    for number in range(5):
        memory.put(f"d{number}", content(f"text {number}", number))
    return memory


def pointer_of(root: Path) -> Path:
    (pointer,) = root.glob(".index/*/*/current")
    return pointer


def file_of(root: Path) -> Path:
    return pointer_of(root).parent / pointer_of(root).read_text()


def change(memory: Memory, journal: Journal, document: str, text: str, number: int) -> None:
    """Save it, noted as the service notes it; the process dies before the index hears of it."""
    journal.write(FORM, document)
    memory.put(document, content(text, number))


def test_an_index_whose_place_is_taken_by_another_while_it_is_opened(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the one that stands for the first until that is made."""
    names(index_of(tmp_path, memory)[0])
    opened, real = list[str](), tables.require_own

    def checked(path: str) -> None:
        real(path)
        opened.append(path)
        if len(opened) == 1:
            index.rebuild_of(FORM).run(RebuildAim.REBUILT, timeout=1.0)

    index, _ = index_of(tmp_path, memory)
    monkeypatch.setattr(tables, "require_own", checked)
    assert len(names(index)) == 5
    assert not os.path.exists(opened[0])


def test_a_mistake_is_told_from_damage(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that was just built fails in the same way: a caller gets an internal error, and the log its cause."""
    index, _ = index_of(tmp_path, memory)
    assert len(names(index)) == 5

    def mistaken(_reader: engine.IndexReader, *_: object) -> None:
        raise TypeError("a mistake of ours")

    with monkeypatch.context() as broken:
        broken.setattr(engine.IndexReader, "search", mistaken)
        with pytest.raises(TypeError, match="of ours"):
            names(index)
    assert len(names(index)) == 5


# What is lost of the files under a running service, which has them open.


def _put_another(root: Path) -> None:
    path = file_of(root)
    shutil.copy(path, f"{path}.copy")
    os.rename(f"{path}.copy", path)


def _write_another_schema(root: Path) -> None:
    with closing(sqlite3.connect(file_of(root))) as connection:
        write_fact(connection, SCHEMA_FACT, 10**6)
        connection.commit()


LOSSES: dict[str, Callable[[Path], object]] = {
    "all": lambda root: shutil.rmtree(root / ".index"),
    "file": lambda root: file_of(root).unlink(),
    "log": lambda root: os.unlink(f"{file_of(root)}-wal"),
    "shared memory": lambda root: os.unlink(f"{file_of(root)}-shm"),
    "companions": lambda root: [os.unlink(f"{file_of(root)}-{end}") for end in ("wal", "shm")],
    "pointer": lambda root: pointer_of(root).unlink(),
    "pointer to nothing": lambda root: pointer_of(root).write_text("0" * 40 + ".sqlite"),
    "pointer astray": lambda root: pointer_of(root).write_text("../../../layout.json"),
    "file for another": _put_another,
}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_files_that_are_lost_under_a_running_service_are_rebuilt(
    lose: Callable[[Path], object], memory: Memory, tmp_path: Path
) -> None:
    index, journal = index_of(tmp_path, memory)
    other, _ = index_of(tmp_path, memory)
    assert len(names(index)) == len(names(other)) == 5
    change(memory, journal, "d1", "before", 11)
    index.refresh(FORM, ["d1"])
    journal.leave()
    for log in list(journal.abandoned()):
        log.remove()
    lose(tmp_path)
    for each in (index, other, index_of(tmp_path, memory)[0]):
        assert names(each, token("before")) == ["d1"]
        assert names(each, token("text 1")) == []
    change(memory, journal, "d2", "after", 12)
    for each in (other, index, index_of(tmp_path, memory)[0]):
        assert names(each, token("after")) == ["d2"]
        assert len(names(each)) == 5


@pytest.mark.parametrize("lose", [*LOSSES.values(), _write_another_schema], ids=[*LOSSES, "another schema"])
def test_files_that_are_lost_while_nobody_serves_are_rebuilt(
    lose: Callable[[Path], object], memory: Memory, tmp_path: Path
) -> None:
    """As after kill -9 of all workers: the last changes are in the log only."""
    index, journal = index_of(tmp_path, memory)
    assert len(names(index)) == 5
    change(memory, journal, "d1", "before", 11)
    index.refresh(FORM, ["d1"])
    copy = tmp_path / "as it was"
    shutil.copytree(tmp_path / ".index", copy)
    index.pool.discard(FORM)  # and its files are as those of a process that was killed
    shutil.rmtree(tmp_path / ".index")
    shutil.copytree(copy, tmp_path / ".index")
    shutil.rmtree(tmp_path / ".index/.pending")
    with suppress(FileNotFoundError):
        lose(tmp_path)
    again, _ = index_of(tmp_path, memory)
    assert names(again, token("before")) == ["d1"]
    assert names(again, token("text 1")) == []


# What a process leaves that dies, and what stands in its way.


def test_what_a_dead_process_has_noted_is_taken_in(memory: Memory, tmp_path: Path) -> None:
    index, journal = index_of(tmp_path, memory)
    assert len(names(index)) == 5
    change(memory, journal, "d1", "changed", 11)
    change(memory, journal, "new", "new", 12)
    journal.write(FORM, "d2")
    memory.delete("d2")
    journal.leave()
    for each in (index, index_of(tmp_path, memory)[0]):
        assert names(each) == ["new", "d1", "d4", "d3", "d0"]
        assert names(each, token("text 1")) == []


def between_reading_and_writing(monkeypatch: pytest.MonkeyPatch, happening: Callable[[], None]) -> None:
    """Documents are read before the transaction that replaces their rows: let something happen meanwhile."""
    ahead = staleness.Refresh._look_ahead  # noqa: SLF001

    def look_ahead(self: staleness.Refresh, documents: Iterable[str]) -> object:
        found = ahead(self, documents)
        happening()
        return found

    monkeypatch.setattr(staleness.Refresh, "_look_ahead", look_ahead)


def test_what_changes_between_reading_and_writing_is_read_again_if_others_have_changed_the_index(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, _ = index_of(tmp_path, memory)
    other, _ = index_of(tmp_path, memory)
    assert len(names(index)) == 5
    read, real = list[str](), memory.read

    def read_and_note(name: DocumentName, *rest: object) -> IndexedDocument | None:
        read.append(name.document)
        return real(name, *rest)  # type: ignore[arg-type]

    def happening() -> None:
        memory.put("d1", content("later", 13))
        memory.delete("d2")
        memory.put("d3", content("in another version", 14, version=2))
        memory.publish(2, ("name",))
        memory.delete("new")
        monkeypatch.undo()
        other.refresh(FORM, ["new"])  # nothing is to be replaced: there is no row of it yet
        monkeypatch.setattr(memory, "read", read_and_note)

    memory.put("new", content("new", 12))
    for document in ("d0", "d1", "d2", "d3"):
        memory.put(document, content("changed", 12, version=2 if document == "d3" else 1))
    monkeypatch.setattr(memory, "read", read_and_note)
    between_reading_and_writing(monkeypatch, happening)
    index.refresh(FORM, ["new", "d0", "d1", "d2", "d3"])
    assert read == ["new", "d0", "d1", "d2", "d3", "d1", "d2", "d3"]
    assert names(index, token("changed")) == ["d0"]
    assert names(index, token("later")) == ["d1"]
    assert names(index, token("in another version")) == ["d3"]
    assert sorted(names(index)) == ["d0", "d1", "d3", "d4"]


def test_what_changes_between_reading_and_writing_is_brought_in_by_those_who_change_it(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as nobody else has changed the index, documents are looked at once."""
    index, _ = index_of(tmp_path, memory)
    other, journal = index_of(tmp_path, memory)
    assert len(names(index)) == 5
    real, looks = memory.fingerprints, list[str]()

    def happening() -> None:
        change(memory, journal, "d1", "later", 13)
        journal.write(FORM, "new")
        memory.delete("new")

    def look(document: str) -> tuple[str, str]:
        looks.append(document)
        return real(document)

    memory.put("new", content("new", 12))
    for document in ("d0", "d1"):
        memory.put(document, content("changed", 12))
    with monkeypatch.context() as patched:
        between_reading_and_writing(patched, happening)
        patched.setattr(memory, "fingerprints", look)
        index.refresh(FORM, ["new", "d0", "d1"])
    assert looks == ["new", "d0", "d1"]
    for each in (index, other):  # what is in the journal is looked at by every search
        assert names(each, token("changed")) == ["d0"]
        assert names(each, token("later")) == ["d1"]
        assert sorted(names(each)) == ["d0", "d1", "d2", "d3", "d4"]


def test_a_document_is_read_again_by_a_definition_that_was_published_meanwhile(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, _ = index_of(tmp_path, memory)
    assert len(names(index)) == 5
    memory.put("d0", content("changed", 12))
    between_reading_and_writing(monkeypatch, lambda: memory.publish(1, ("name", "free")))
    index.refresh(FORM, ["d0"])
    by_free_text = Query(controls=(ControlFilter("free", TextMatch.EXACT, "free changed"),))
    assert names(index, by_free_text) == names(index, token("changed")) == ["d0"]


def test_documents_of_a_deleted_definition_are_hidden_when_the_deletion_is_purged(
    memory: Memory, tmp_path: Path
) -> None:
    """Until their version is rebuilt (spec search 2.5)."""
    index, _ = index_of(tmp_path, memory)
    assert len(names(index)) == 5
    memory.unpublish(1)
    assert names(index) == []
    memory.purge(1)
    assert names(index) == []
    index.rebuild_of(FORM).run(RebuildAim.REBUILT, timeout=20, only=1)
    assert len(names(index)) == 5


def test_documents_of_a_deleted_definition_are_hidden_in_a_database_when_the_deletion_is_purged(
    database_server: Server,
) -> None:
    with indexed_memory(database_server) as indexed:
        indexed.publish(1, ("name",))
        indexed.save("one", content("text", 1))
        indexed.unpublish(1)
        indexed.memory.purge(1)
        with indexed.database.transaction("purging"):
            indexed.rows.published(FORM, 1)
        assert indexed.index.search(FORM, Scope(), _EVERYTHING).page == ()
        indexed.save("one", content("text", 2))
        assert [hit.document for hit in indexed.index.search(FORM, Scope(), _EVERYTHING).page] == ["one"]


def test_documents_saved_before_1970_are_read_again_by_a_new_definition(memory: Memory, tmp_path: Path) -> None:
    index, _ = index_of(tmp_path, memory)
    when = Instant("1969-07-20T20:17:40.000Z")
    memory.put("old", Content(1, when, when, values={"name": ("Eagle",), "place": ("sea",)}))
    assert names(index)[-1] == "old"
    memory.publish(1, ("place",))
    assert names(index, Query(controls=(ControlFilter("place", TextMatch.EXACT, "sea"),))) == ["old"]
    with engine.IndexFile(str(file_of(tmp_path)), "it") as file, file.reading() as reader:
        assert staleness.outdated(reader.partitions()) == []


def test_what_cannot_be_taken_in_because_others_write_stays_noted(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_LONGEST_WAIT", 0.05)
    index, _ = index_of(tmp_path, memory)
    assert len(names(index)) == 5
    tried, real = threading.Semaphore(0), index.refresh

    def refresh(form: Form, documents: Iterable[str]) -> None:
        try:
            real(form, documents)
        finally:
            tried.release()

    monkeypatch.setattr(index, "refresh", refresh)
    updater = opened(index.updater(lambda *_: None))
    with closing(sqlite3.connect(file_of(tmp_path), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        updater.changing(FORM, "d1")
        memory.put("d1", content("changed", 11))
        updater.changed(FORM, "d1")
        assert tried.acquire(timeout=30)
        with pytest.raises(BusyError):
            names(index)
        other.execute("ROLLBACK")
    assert names(index_of(tmp_path, memory)[0], token("changed")) == ["d1"]
    assert tried.acquire(timeout=30)  # and the updater tries again


def test_after_a_start_of_the_machine_an_index_is_compared_with_the_tree(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power cut has taken what was written last, and the notes with it."""
    index, journal = index_of(tmp_path, memory)
    assert len(names(index)) == 5
    index.pool.discard(FORM)  # all is in the one file, which is durable
    was = file_of(tmp_path).read_bytes()
    change(memory, journal, "d1", "changed", 11)
    change(memory, journal, "new", "new", 12)
    journal.write(FORM, "d2")
    memory.delete("d2")
    index.refresh(FORM, ["d1", "d2", "new"])
    index.pool.discard(FORM)
    journal.leave()
    file_of(tmp_path).write_bytes(was)
    for name in os.listdir(tmp_path / ".index/.pending"):
        os.unlink(tmp_path / ".index/.pending" / name)
    monkeypatch.setattr(staleness, "_boot", lambda: "another")
    for _ in range(2):
        again, _ = index_of(tmp_path, memory)
        assert names(again) == ["new", "d1", "d4", "d3", "d0"]
        assert names(again, token("text 1")) == []


def test_a_copied_tree_and_its_original_go_their_own_ways(memory: Memory, tmp_path: Path) -> None:
    """Copied with its index, while the service runs."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    index, journal = index_of(first, memory)
    assert len(names(index)) == 5
    change(memory, journal, "d1", "changed", 11)
    shutil.copytree(first, second)
    copied = copy.deepcopy(memory)
    other, others = index_of(second, copied)
    assert names(index, token("changed")) == names(other, token("changed")) == ["d1"]
    change(memory, journal, "d2", "only here", 12)
    change(copied, others, "d3", "only there", 13)
    assert (names(index, token("only here")), names(other, token("only here"))) == (["d2"], [])
    assert (names(index, token("only there")), names(other, token("only there"))) == ([], ["d3"])


def killed(work: Callable[[], object], after: float) -> bool:
    """Whether a process that does something was killed before its end, so many seconds after it began."""
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            work()
        os._exit(0)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("times", [6, pytest.param(20, marks=pytest.mark.long)])
def test_whoever_makes_an_index_may_be_killed_at_any_moment(memory: Memory, tmp_path: Path, times: int) -> None:
    """Until so many were killed: on a fast machine most are done before."""
    rng, kills = random.Random(1), 0
    for number in range(5, 40):
        memory.put(f"d{number}", content(f"text {number}", number))
    for number in range(40, 40 + 10 * times):
        if kills == times:
            break
        if number % 2:
            shutil.rmtree(tmp_path / ".index", ignore_errors=True)
        index, journal = index_of(tmp_path, memory)
        change(memory, journal, f"d{number}", f"text {number}", number)
        kills += killed(lambda index=index: names(index), rng.uniform(0.001, 0.04))  # type: ignore[misc]
        again, notes = index_of(tmp_path, memory)
        assert len(names(again)) == number + 1
        again.refresh(FORM, [entry.document for entry in notes.outstanding()])
        shutil.rmtree(tmp_path / ".index/.pending", ignore_errors=True)
    assert kills == times


def test_two_who_make_an_index_at_once_do_not_disturb_each_other(memory: Memory, tmp_path: Path) -> None:
    indexes = [index_of(tmp_path, memory)[0] for _ in range(4)]
    for number in range(10):
        rebuild = indexes[0].rebuild_of(FORM)
        memory.put(f"new {number}", content("new", 20 + number))
        journal = index_of(tmp_path, memory)[1]
        journal.write(FORM, f"new {number}")
        with ThreadPoolExecutor() as threads:
            rebuilds = [threads.submit(rebuild.run, RebuildAim.REBUILT, timeout=30) for _ in range(2)]
            searches = [threads.submit(names, each, token("new")) for each in indexes]
            for each in searches:
                assert len(each.result()) == number + 1
            for each in rebuilds:
                each.result()
        journal.leave()


# The updater keeps up with those who write: it takes full batches at once, and writers wait where too much waits.


@dataclass
class Index:
    """An index that takes in documents while ``may`` is set, and says which."""

    may: threading.Event = field(default_factory=threading.Event)
    taken: list[list[str]] = field(default_factory=list)

    def refresh(self, _form: Form, documents: Iterable[str]) -> None:
        self.may.wait(20)
        self.taken.append(list(documents))

    def make_ready(self, _form: Form) -> None:
        """Nothing is to be made."""

    def merge(self, _form: Form) -> bool:
        return False

    def restore(self) -> None:
        """Nothing is to be restored."""


class SilentJournal:
    def write(self, _form: Form, document: str) -> str:
        return document

    def strike(self, tickets: Iterable[str]) -> None:
        list(tickets)


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    yield made
    made.may.set()


@pytest.fixture
def updating(index: Index, monkeypatch: pytest.MonkeyPatch) -> Updater:
    monkeypatch.setattr(updater, "MOST_WAITING", 30)
    monkeypatch.setattr(updater, "_AT_ONCE", 20)
    flat = Index()
    flat.may.set()
    made = Updater(SilentJournal(), index, flat, lambda: None, lambda _form, _error: None)  # type: ignore[arg-type]
    return opened(made)


def _write(updating: Updater, names: Iterable[int]) -> float:
    began = time.monotonic()
    for name in names:
        updating.changing(FORM, str(name))
        updating.changed(FORM, str(name))
    return time.monotonic() - began


def test_a_full_batch_is_taken_without_a_pause(
    updating: Updater, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.may.set()
    monkeypatch.setattr(updater, "_GATHERING", 60)
    _write(updating, range(19))
    time.sleep(0.1)
    assert not index.taken
    _write(updating, range(19, 40))
    eventually(lambda: len(index.taken) >= 2)
    assert [len(each) for each in index.taken] == [20, 20]


def test_a_writer_waits_while_too_many_changes_wait_but_not_for_ever(
    updating: Updater, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updater, "_GATHERING", 0.0)
    monkeypatch.setattr(updater, "LONGEST_TURN", 1.0)
    _write(updating, range(30))
    while len(updating._changed) == 30:  # noqa: SLF001 - until a batch is taken, which then waits for the index
        time.sleep(0.01)
    room = 30 - len(updating._changed)  # noqa: SLF001
    assert _write(updating, range(30, 30 + room)) < 1.0
    assert _write(updating, (98,)) >= 1.0
    monkeypatch.setattr(updater, "LONGEST_TURN", 20)
    threading.Timer(0.3, index.may.set).start()
    assert 0.2 <= _write(updating, (99,)) < 15
    assert len(updating._changed) <= 30  # noqa: SLF001


def test_writers_do_not_wait_for_a_flat_view_that_is_filled_for_long(
    index: Index, updating: Updater, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes that are tried again are not counted, and are not lost."""
    monkeypatch.setattr(updater, "_GATHERING", 0.0)
    monkeypatch.setattr(updater, "LONGEST_TURN", 20)
    index.may.set()
    filling, tried = threading.Event(), list[list[str]]()
    filling.set()

    def refresh(_form: Form, documents: Iterable[str]) -> None:
        if filling.is_set():
            raise BusyError("another process makes views")
        tried.append(list(documents))

    monkeypatch.setattr(updating._flat, "refresh", refresh)  # noqa: SLF001
    assert _write(updating, range(200)) < 15
    eventually(lambda: sum(map(len, index.taken)) >= 200)
    filling.clear()
    eventually(lambda: {each for part in tried for each in part} == set(map(str, range(200))))
    eventually(lambda: not updating.delay)


def test_a_writer_that_waits_goes_on_when_the_process_ends(
    updating: Updater, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updater, "LONGEST_TURN", 20)
    monkeypatch.setattr(updater, "_GATHERING", 20)
    index.may.set()
    _write(updating, range(19))
    monkeypatch.setattr(updater, "MOST_WAITING", 0)
    ending = threading.Timer(0.2, updating.close)
    ending.start()
    assert _write(updating, (19,)) < 15
    ending.join()
