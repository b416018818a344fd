"""The notes of what the index has still to take in: of threads, processes, those that were killed, and commands."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from persistence.index.sync.journal import Journal, JournalEntry, OfflineJournal
from persistence.model.addresses import Form
from persistence.storage import files
from persistence.storage.layout import JOURNAL
from persistence.storage.locks import try_lock
from tests.failing import refusing
from tests.opened import opened
from tests.waiting import at_once

FORM = Form("hr", "leave")
SERVED = multiprocessing.get_context("forkserver")
SERVED.set_forkserver_preload([__name__])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / ".index" / ".pending"


def notes(directory: Path) -> Journal:
    return opened(Journal(str(directory)))


def held(directory: Path) -> list[str]:
    """What this process has open below the directory, removed or not; the rest of the process is no part of it."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that with which they are listed, and whatever other threads have
            found.append(os.readlink(each))
    return sorted(each for each in found if each.startswith(f"{directory}/"))


def documents(journal: Journal) -> list[str]:
    return sorted(entry.document for entry in journal.outstanding())


def taken_up(journal: Journal) -> list[list[str]]:
    found = []
    for log in journal.abandoned():
        found.append(sorted(entry.document for entry in log.entries))
        log.remove()
    return found


def killed_after_recording(directory: Path, *names: str) -> None:
    with another(directory) as say:
        for name in names:
            say("note", name)


@contextmanager
def another(directory: Path) -> Iterator[Callable[[str, str], object]]:
    """A process of its own that notes and settles as it is told, killed at the end of the block."""
    ours, theirs = SERVED.Pipe()
    process = SERVED.Process(target=_obey, args=(str(directory), theirs), daemon=True)
    process.start()
    try:

        def say(what: str, name: str) -> object:
            ours.send((what, name))
            return heard(ours)

        yield say
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()


def heard(end: Connection) -> object:
    """What a process says, if it still does."""
    assert end.poll(20)
    return end.recv()


def _obey(directory: str, orders: Connection) -> None:
    journal = Journal(directory)
    tickets = {}
    while True:
        what, name = orders.recv()
        if what == "note":
            tickets[name] = journal.write(FORM, name)
        elif what == "settle":
            journal.strike([tickets.pop(name)])
        orders.send([entry.document for entry in journal.outstanding()])


def test_what_is_noted_is_outstanding_until_it_is_settled(directory: Path) -> None:
    journal = notes(directory)
    assert journal.outstanding() == ()
    first, again, other = (journal.write(FORM, name) for name in ("a", "a", "é \n\"'"))
    assert set(journal.outstanding()) == {JournalEntry(FORM, "a"), JournalEntry(FORM, "é \n\"'")}
    journal.strike([first, other])
    assert journal.outstanding() == (JournalEntry(FORM, "a"),)
    journal.strike([again])
    journal.strike([again])
    assert journal.outstanding() == ()
    assert [path.stat().st_size for path in directory.iterdir()] == [0]
    for form in (FORM, Form("hr", "expense")):
        journal.write(form, "a")
    assert set(notes(directory).outstanding()) == {JournalEntry(FORM, "a"), JournalEntry(Form("hr", "expense"), "a")}


def test_another_process_sees_what_is_outstanding_and_keeps_its_log_while_it_lives(directory: Path) -> None:
    journal = notes(directory)
    with another(directory) as say:
        journal.write(FORM, "ours")
        assert say("note", "theirs") == ["theirs", "ours"]
        assert taken_up(journal) == []
        assert documents(journal) == ["ours", "theirs"]
        assert say("settle", "theirs") == ["ours"]
        assert documents(journal) == ["ours"]


def test_the_log_of_a_killed_process_can_be_taken_up_once_and_again_if_it_was_not_taken_in(directory: Path) -> None:
    killed_after_recording(directory, "a", "b", "a")
    one, other = notes(directory), notes(directory)
    assert documents(one) == documents(other) == ["a", "b"]
    assert [len(log.entries) for log in other.abandoned()] == [2]
    for log in one.abandoned():
        assert sorted(entry.document for entry in log.entries) == ["a", "b"]
        assert taken_up(other) == []
        log.remove()
    assert documents(one) == documents(other) == []
    assert taken_up(other) == []
    assert list(directory.iterdir()) == []


def test_empty_logs_of_killed_processes_are_removed(directory: Path) -> None:
    with another(directory) as say:
        say("note", "a")
        say("settle", "a")
        assert len(list(directory.iterdir())) == 1
    assert taken_up(notes(directory)) == []
    assert list(directory.iterdir()) == []


def test_what_a_process_leaves_is_taken_up_while_it_lives(directory: Path) -> None:
    journal = notes(directory)
    ticket = journal.write(FORM, "a")
    journal.leave()
    journal.write(FORM, "b")
    assert documents(journal) == ["a", "b"]
    assert taken_up(notes(directory)) == [["a"]]
    journal.strike([ticket])
    assert documents(journal) == ["b"]


def test_a_line_that_is_not_whole_was_never_noted(directory: Path) -> None:
    killed_after_recording(directory, "a", "b")
    (log,) = directory.iterdir()
    log.write_bytes(log.read_bytes()[:-3])
    assert taken_up(notes(directory)) == [["a"]]


def test_a_disk_that_is_full_spoils_no_other_line(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, other = notes(directory), notes(directory)
    journal.write(FORM, "a")

    def stop_short(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:7])
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", stop_short)
        with pytest.raises(OSError, match=os.strerror(28)):
            journal.write(FORM, "b")
    ticket = journal.write(FORM, "c")
    assert documents(journal) == documents(other) == ["a", "c"]
    journal.strike([ticket])
    assert documents(journal) == ["a"]


@pytest.mark.parametrize("text", [b"\0" * 100, b"\n[1,2,3]", b'\n["a"]', b"\n\xff\xfe", b"\n" + b"[" * 100000, b"\n\n"])
def test_a_log_that_makes_no_sense_holds_nothing(directory: Path, text: bytes) -> None:
    directory.mkdir(parents=True)
    (directory / "x").write_bytes(text)
    assert notes(directory).outstanding() == ()
    assert taken_up(notes(directory)) == []
    assert list(directory.iterdir()) == []


def test_what_is_no_log_is_left_alone(directory: Path) -> None:
    """A pipe, above all, at which one would wait for ever."""
    directory.mkdir(parents=True)
    os.mkfifo(directory / "pipe")
    (directory / "directory").mkdir()
    (directory / "link").symlink_to("pipe")
    assert notes(directory).outstanding() == ()
    assert taken_up(notes(directory)) == []
    assert len(list(directory.iterdir())) == 3


def test_logs_stay_short_though_something_is_always_outstanding(directory: Path) -> None:
    journal = notes(directory)
    last = journal.write(FORM, "0")
    for number in range(1, 5000):
        ticket = journal.write(FORM, str(number))
        journal.strike([last])
        last = ticket
    sizes = [path.stat().st_size for path in directory.iterdir()]
    assert len(sizes) <= 2
    assert sum(sizes) < 1 << 15
    assert documents(journal) == ["4999"]
    assert "4999" in documents(notes(directory))


def test_a_note_that_is_never_settled_is_kept_by_others_that_are(directory: Path) -> None:
    journal, other = notes(directory), notes(directory)
    stuck = journal.write(FORM, "stuck")
    for number in range(1000):
        journal.strike([journal.write(FORM, str(number))])
    assert documents(journal) == ["stuck"]
    assert "stuck" in documents(other)
    assert len(list(directory.iterdir())) <= 2
    journal.strike([stuck])
    assert documents(other) == []
    assert len(list(directory.iterdir())) == 1


def test_notes_survive_the_removal_of_the_whole_index(directory: Path) -> None:
    journal, other = notes(directory), notes(directory)
    first = journal.write(FORM, "a")
    shutil.rmtree(directory.parent)
    assert documents(other) == []
    second = journal.write(FORM, "b")
    assert documents(journal) == documents(other) == ["a", "b"]
    journal.strike([first, second])
    assert documents(journal) == documents(other) == []


def test_notes_survive_the_removal_of_the_whole_index_though_the_disk_refuses_at_first(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = notes(directory)
    for name in ("a", "b"):
        journal.write(FORM, name)
    shutil.rmtree(directory.parent)
    written = list[bytes]()

    def break_off(descriptor: int, data: bytes) -> None:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(data)
        os.write(descriptor, data)

    before = held(directory)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", break_off)
        with pytest.raises(OSError, match="No space"):
            journal.write(FORM, "c")
    assert len(held(directory)) == len(before)
    journal.write(FORM, "d")
    assert documents(notes(directory)) == ["a", "b", "d"]


def test_threads_note_and_settle_at_once(directory: Path) -> None:
    """Whatever is noted and not settled is seen by others, at every moment."""
    journal, missed = notes(directory), []

    def work(name: str) -> None:
        other = Journal(str(directory))
        for number in range(150):
            ticket = journal.write(FORM, f"{name}-{number}")
            if f"{name}-{number}" not in documents(other):
                missed.append((name, number))
            journal.strike([ticket])

    at_once(*(partial(work, name) for name in "abcd"))
    assert missed == []
    assert documents(journal) == documents(notes(directory)) == []
    assert len(list(directory.iterdir())) == 1


def test_nothing_is_lost_between_those_who_begin_and_those_who_take_up(directory: Path) -> None:
    """A log that is just being begun looks abandoned for a moment."""
    directory.mkdir(parents=True)
    found, done = list[str](), threading.Event()

    def take_up() -> None:
        journal = notes(directory)
        while not done.is_set():
            found.extend(name for log in taken_up(journal) for name in log)

    def begin() -> None:
        for number in range(500):
            journal.write(FORM, str(number))
            journal.leave()
        done.set()

    journal = notes(directory)
    at_once(take_up, take_up, begin)
    found += [name for log in taken_up(journal) for name in log]
    assert sorted(found, key=int) == [str(number) for number in range(500)]
    assert list(directory.iterdir()) == []


def _take_up(path: str) -> None:
    assert taken_up(notes(Path(path).parent)) == []


def _hold(path: str) -> None:
    assert try_lock(files.open_to_read(path))


@pytest.mark.parametrize("meanwhile", [_take_up, _hold])
def test_a_log_that_others_have_taken_up_while_it_was_begun_is_not_used(
    directory: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[str], None]
) -> None:
    opened, first = files.open_log, list[str]()

    def open_log(path: str) -> int:
        descriptor = opened(path)
        if not first:
            first.append(path)
            meanwhile(path)
        return descriptor

    with monkeypatch.context() as patch:
        patch.setattr(files, "open_log", open_log)
        notes(directory).write(FORM, "a")
    assert documents(notes(directory)) == ["a"]
    (log,) = {str(path) for path in directory.iterdir()} - set(first)
    assert b"a" in Path(log).read_bytes()


def test_a_log_that_cannot_be_locked_is_not_kept_open(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = notes(directory)
    before = held(directory)
    with monkeypatch.context() as patched:
        patched.setattr("persistence.index.sync.journal.try_lock", refusing())
        with pytest.raises(OSError, match="Input/output"):
            journal.write(FORM, "one")
    assert held(directory) == before
    journal.write(FORM, "two")
    assert documents(journal) == ["two"]
    assert taken_up(notes(directory)) == []
    assert len(list(directory.iterdir())) == 1


ESCAPED = Form("hr", "50%")


def test_a_change_is_noted_and_stays_so(tmp_path: Path) -> None:
    noting = opened(OfflineJournal(str(tmp_path)))
    noting.changing(ESCAPED, "D")
    assert notes(tmp_path / JOURNAL).outstanding() == (JournalEntry(ESCAPED, "D"),)
    noting.changed(ESCAPED, "D")
    assert notes(tmp_path / JOURNAL).outstanding() == (JournalEntry(ESCAPED, "D"),)


def test_notes_of_a_long_command_are_left_to_the_service_meanwhile(tmp_path: Path) -> None:
    noting = opened(OfflineJournal(str(tmp_path)))
    for number in range(250):
        noting.changing(ESCAPED, str(number))
        noting.changed(ESCAPED, str(number))
    left = {noted.document for log in notes(tmp_path / JOURNAL).abandoned() for noted in log.entries}
    assert left == {str(number) for number in range(200)}
    assert len(notes(tmp_path / JOURNAL).outstanding()) == 250


def test_what_cannot_be_noted_voids_the_index_before_and_after_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting, current = opened(OfflineJournal(str(tmp_path))), tmp_path / ".index/hr/50%25/current"
    current.parent.mkdir(parents=True)
    current.touch()
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", refusing(errno.ENOSPC))
        noting.changing(ESCAPED, "D")
    assert not current.exists()
    current.touch()  # rebuilt, by a search that still saw the document as it was
    noting.changed(ESCAPED, "D")
    assert not current.exists()


def test_an_index_that_cannot_be_voided_keeps_nothing_from_changing(tmp_path: Path) -> None:
    (tmp_path / ".index").write_text("in the way")
    noting = opened(OfflineJournal(str(tmp_path)))
    noting.changing(ESCAPED, "D")
    noting.changed(ESCAPED, "D")
