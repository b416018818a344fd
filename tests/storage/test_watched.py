"""Values of directories are kept until something changes there, whoever changes it, and only where that is noticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from persistence.storage import watched
from persistence.storage.watched import Watch, WatchedValues


class Reading:
    """Values of the directory ``top``, which are the number of times that it was read with all directories in it."""

    def __init__(self, root: Path) -> None:
        self.top = root / "top"
        for name in ("1", "2"):
            (self.top / name).mkdir(parents=True)
            (self.top / name / "file").write_text("a")
        self.values = WatchedValues[int](str(root))
        self.times = 0

    def value(self, during: Callable[[], object] = lambda: None) -> int:
        def read(watch: Watch) -> int:
            watch(str(self.top))
            for name in os.listdir(self.top):
                watch(f"{self.top}/{name}")
            during()
            self.times += 1
            return self.times

        return self.values.get(str(self.top), read)


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reading:
    """On whatever file system tests run."""
    monkeypatch.setattr(watched, "_LOCAL", {watched.file_system_of(str(tmp_path))})
    return Reading(tmp_path)


def test_a_value_is_kept_while_nothing_changes(reading: Reading) -> None:
    assert [reading.value() for _ in range(3)] == [1, 1, 1]


def _replace(top: Path) -> None:
    (top / "2/other").write_text("b")
    (top / "2/other").rename(top / "2/file")


def _move_away(top: Path) -> None:
    top.rename(top.with_name("elsewhere"))
    shutil.copytree(top.with_name("elsewhere"), top)


@pytest.mark.parametrize(
    "change",
    [
        lambda top: (top / "2/file").write_text("b"),
        lambda top: os.utime(top / "2/file"),
        lambda top: os.truncate(top / "2/file", 0),
        lambda top: (top / "2/file").unlink(),
        lambda top: (top / "2/new").touch(),
        lambda top: os.link(top / "1/file", top / "2/link"),
        lambda top: (top / "3").mkdir(),
        lambda top: (top / "2").rename(top / "4"),
        lambda top: shutil.rmtree(top / "2"),
        _replace,
        _move_away,
    ],
    ids=["written", "touched", "cut", "removed", "new", "linked", "made", "renamed", "gone", "replaced", "moved"],
)
def test_a_change_is_noticed_once(reading: Reading, change: Callable[[Path], object]) -> None:
    assert reading.value() == 1
    change(reading.top)
    assert [reading.value() for _ in range(2)] == [2, 2]
    (reading.top / "1/file").write_text("c")
    assert reading.value() == 3


def test_a_change_of_another_process_is_noticed(reading: Reading) -> None:
    assert reading.value() == 1
    subprocess.run((sys.executable, "-c", f"open({str(reading.top / '1/file')!r}, 'a').write('b')"), check=True)
    assert reading.value() == 2


def test_a_value_that_changed_while_it_was_read_is_not_kept(reading: Reading) -> None:
    assert reading.value(during=(reading.top / "1/file").touch) == 1
    assert reading.value() == 2


def test_a_directory_that_was_replaced_while_it_was_read_is_not_kept(reading: Reading) -> None:
    assert reading.value(during=lambda: _move_away(reading.top)) == 1
    assert [reading.value() for _ in range(2)] == [2, 2]


def test_changes_that_nobody_has_heard_of_outdate_everything(reading: Reading, tmp_path: Path) -> None:
    """The kernel drops events when too many wait."""
    other = tmp_path / "other"
    other.mkdir()
    reading.values.get(str(other), lambda watch: watch(str(other)) or 0)
    assert reading.value() == 1
    for number in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) // 2 + 2):
        os.utime(other)
        (other / str(number % 2)).touch()
    (reading.top / "1/file").write_text("b")
    assert reading.value() == 2


def test_a_fork_takes_no_events_from_its_parent(reading: Reading) -> None:
    assert reading.value() == 1
    (reading.top / "1/file").write_text("b")
    child = os.fork()
    if child == 0:
        os._exit(reading.value())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert reading.value() == 2


def test_an_error_is_not_kept(reading: Reading) -> None:
    with pytest.raises(FileNotFoundError):
        reading.value(during=(reading.top / "missing").unlink)
    assert [reading.value() for _ in range(2)] == [1, 1]


@pytest.mark.parametrize(("name", "value"), [("_LOCAL", frozenset()), ("WATCHED_DIRECTORIES", 2)])
def test_values_are_read_each_time_where_directories_are_not_watched(
    reading: Reading, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(watched, name, value)
    assert [reading.value() for _ in range(3)] == [1, 2, 3]


def test_values_are_read_each_time_after_it_was_closed(reading: Reading) -> None:
    assert reading.value() == 1
    reading.values.close()
    assert [reading.value() for _ in range(2)] == [2, 3]


def test_of_two_who_read_a_directory_at_once_one_keeps_its_value(reading: Reading) -> None:
    """The second one watches nothing: it would take the watches of the first."""
    inner: list[int] = []

    def read_again() -> None:
        if not inner:
            inner.append(0)
            inner[0] = reading.value()

    assert reading.value(read_again) == 2
    assert inner == [1]
    assert [reading.value() for _ in range(2)] == [2, 2]


def test_watches_that_are_refused_are_not_asked_for_each_time(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = reading.values._watch  # noqa: SLF001

    def watch(made: object, directory: str) -> None:
        asked.append(directory)
        real(made, directory)  # type: ignore[arg-type]

    monkeypatch.setattr(reading.values, "_watch", watch)
    monkeypatch.setattr(watched, "WATCHED_DIRECTORIES", 1)
    assert [reading.value() for _ in range(3)] == [1, 2, 3]
    assert len(asked) == 3
    monkeypatch.setattr(watched, "WATCHED_DIRECTORIES", 8)
    monkeypatch.setattr(reading.values, "_refused_until", 0.0)
    assert [reading.value() for _ in range(2)] == [4, 4]


def test_a_value_is_read_again_after_its_longest_time(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reading.value() == 1
    monkeypatch.setattr(watched, "LONGEST_WATCHED", 0.0)
    assert [reading.value() for _ in range(2)] == [2, 3]
    assert len(reading.values._watched) == 3  # noqa: SLF001 - those of the values before are gone


def test_the_watches_of_a_directory_that_was_exchanged_from_above_are_ended(tmp_path: Path, reading: Reading) -> None:
    """No event says that a parent was renamed."""
    above = Reading(tmp_path / "above")
    above.values = reading.values
    assert above.value() == 1
    other = Reading(tmp_path / "other")
    os.rename(tmp_path / "above", tmp_path / "former")
    os.rename(tmp_path / "other", tmp_path / "above")
    assert (above.value(), other.times) == (2, 0)
    assert len(reading.values._watched) == 3  # noqa: SLF001
