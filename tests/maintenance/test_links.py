"""A backup links to the last one only what has the digest that the last one recorded, whatever size and time say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from persistence.maintenance import backup_files
from persistence.model import texts
from tests.maintenance.test_backup import backup, command, tree
from tests.maintenance.workshop import ATTACHMENT, DATA, DOCUMENT, NEW, Workshop

SECOND = 1_000_000_000
FRESH = "app/form/data/fresh/data.xml"


def set_clock(monkeypatch: pytest.MonkeyPatch, milliseconds: int) -> None:
    """Let instants be so many milliseconds after a second."""
    clock = SimpleNamespace(time_ns=lambda: 1_772_600_767 * SECOND + milliseconds * 1_000_000)
    monkeypatch.setattr(texts, "time", clock)


def keep_whole_seconds(path: Path) -> None:
    """Give a file the time that a file system with whole seconds keeps."""
    whole = path.stat().st_mtime_ns // SECOND * SECOND
    os.utime(path, ns=(whole, whole))


def digests_hold(saved: Path) -> bool:
    """Return whether ``sha256sum`` finds every file as listed."""
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=saved, check=False)
    return done.returncode == 0


def test_another_content_of_the_same_size_and_second_is_copied(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock(monkeypatch, 100)
    workshop.put(FRESH, b"<d>A</d>")
    keep_whole_seconds(workshop.file(FRESH))
    monkeypatch.undo()
    first = backup(workshop, tmp_path / "backups")
    set_clock(monkeypatch, 900)
    workshop.put(FRESH, b"<d>B</d>")
    keep_whole_seconds(workshop.file(FRESH))
    monkeypatch.undo()
    status = [(path / FRESH).stat() for path in (first, workshop.root)]
    assert (status[0].st_size, status[0].st_mtime_ns) == (status[1].st_size, status[1].st_mtime_ns)
    second = backup(workshop, tmp_path / "backups")
    assert (second / FRESH).read_bytes() == b"<d>B</d>"
    assert digests_hold(second)
    (older,) = (second / FRESH).parent.glob(".history/*.data.xml")
    assert older.read_bytes() == b"<d>A</d>"
    done = command("restore", str(second), "--data", str(tmp_path / "restored"))
    assert done.exit_code == 0, done.output
    assert tree(tmp_path / "restored") == tree(workshop.root)


def test_what_was_saved_damaged_is_not_linked_when_it_is_whole_again(workshop: Workshop, tmp_path: Path) -> None:
    """Its sidecar said then what it says now, and the file has its time."""
    whole = workshop.file(DATA).read_bytes()
    time = workshop.file(DATA).stat().st_mtime_ns
    workshop.file(DATA).write_bytes(whole.replace(b"new", b"nex"))
    os.utime(workshop.file(DATA), ns=(time, time))
    assert command("backup", str(tmp_path / "backups"), "--data", str(workshop.root)).exit_code == 4
    workshop.file(DATA).write_bytes(whole)
    os.utime(workshop.file(DATA), ns=(time, time))
    second = backup(workshop, tmp_path / "backups")
    assert (second / DATA).read_bytes() == NEW
    assert digests_hold(second)


def test_nothing_is_linked_to_a_backup_of_the_older_format(workshop: Workshop, tmp_path: Path) -> None:
    first = backup(workshop, tmp_path / "backups")
    shutil.rmtree(first / ".backup")
    second = backup(workshop, tmp_path / "backups")
    assert not (first / ATTACHMENT).samefile(second / ATTACHMENT)
    third = backup(workshop, tmp_path / "backups")
    assert (second / ATTACHMENT).samefile(third / ATTACHMENT)


def test_a_backup_of_the_older_format_is_restored(workshop: Workshop, tmp_path: Path) -> None:
    saved = backup(workshop, tmp_path / "backups")
    shutil.rmtree(saved / ".backup")
    lines = [line for line in (saved / "SHA256SUMS").read_text().splitlines() if ".backup/" not in line]
    (saved / "SHA256SUMS").write_text("".join(f"{line}\n" for line in reversed(lines)))  # in no order
    done = command("restore", str(tmp_path / "backups"), "--data", str(tmp_path / "restored"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert tree(tmp_path / "restored") == tree(workshop.root)


def test_verify_reads_the_backup_and_nothing_is_linked_to_one_that_is_wrong(workshop: Workshop, tmp_path: Path) -> None:
    first = backup(workshop, tmp_path / "backups")
    done = command("backup", str(tmp_path / "backups"), "--verify", "--data", str(workshop.root))
    assert (done.exit_code, done.stdout) == (0, "")
    time = (first / ATTACHMENT).stat().st_mtime_ns
    (first / ATTACHMENT).write_bytes(b"rotted!")  # of all three, as it is linked
    os.utime(first / ATTACHMENT, ns=(time, time))
    done = command("backup", str(tmp_path / "backups"), "--verify", "--data", str(workshop.root))
    assert done.exit_code == 4
    assert done.stdout == f"{ATTACHMENT}: it does not have the digest that SHA256SUMS says\n"
    done = command("backup", str(tmp_path / "backups"), "--verify", "--data", str(workshop.root))
    assert (done.exit_code, done.stdout) == (0, "")
    newest = max((tmp_path / "backups").glob("2*"))
    assert (newest / ATTACHMENT).read_bytes() == b"scanned"
    assert command("restore", str(newest), "--data", str(tmp_path / "restored")).exit_code == 0


def test_a_backup_comes_after_the_last_one_though_the_clock_was_set_back(workshop: Workshop, tmp_path: Path) -> None:
    first = backup(workshop, tmp_path / "backups")
    first.rename(first.with_name("2999-12-31T23-59-59.999Z"))
    workshop.put(DATA, b"<d>newest</d>")
    second = backup(workshop, tmp_path / "backups")
    assert second.name == "3000-01-01T00-00-00.000Z"
    assert (second / ATTACHMENT).samefile(tmp_path / "backups/2999-12-31T23-59-59.999Z" / ATTACHMENT)
    command("restore", str(tmp_path / "backups"), "--data", str(tmp_path / "restored"))
    assert Workshop(tmp_path / "restored").get(DATA) == (200, b"<d>newest</d>")


def test_after_the_end_of_the_calendar_no_backup_comes(workshop: Workshop, tmp_path: Path) -> None:
    first = backup(workshop, tmp_path / "backups")
    for name in ("9999-12-31T23-59-59.999Z", "9999-99-99T99-99-99.999Z"):
        first = first.rename(first.with_name(name))
        done = command("backup", str(tmp_path / "backups"), "--data", str(workshop.root))
        assert "no backup can come after" in str(done.exception)


def test_the_list_is_sorted_and_found_in_whatever_number_of_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More lines than are sorted in memory wait on the disk; nothing is left of that."""
    monkeypatch.setattr(backup_files, "_SORTED_IN_MEMORY", 7)
    for count in (0, 1, 6, 7, 100):
        directory = tmp_path / str(count)
        directory.mkdir()
        lines = backup_files.ChecksumWriter(str(directory))
        expected = {f"app/{number * 7919 % 101:x}/é{number}": f"{number:064x}" for number in range(count)}
        for path, digest in expected.items():
            lines.add(digest, path)
        lines.write()
        assert [path.name for path in directory.iterdir()] == ["SHA256SUMS"]
        with (directory / "SHA256SUMS").open("rb") as file:
            read = list(backup_files.listed(file))
        assert read == sorted(((digest, path) for path, digest in expected.items()), key=lambda line: line[1].encode())
        with backup_files.mapped(str(directory)) as recorded:
            assert {path: recorded.digest(path) for path in expected} == {
                path: f"sha256:{digest}" for path, digest in expected.items()
            }
            for path in ("", "a", "app", "zzz", *(f"{each}x" for each in expected), *(each[:-1] for each in expected)):
                assert (recorded.digest(path) is None) == (path not in expected)


def test_a_tree_of_one_kind_is_found_in_the_backup_itself(workshop: Workshop, tmp_path: Path) -> None:
    """One tree without attachments elsewhere can be copied back by hand as ever."""
    saved = backup(workshop, tmp_path / "backups")
    assert (saved / DOCUMENT).is_dir()
    shutil.copytree(saved, tmp_path / "copy")
    assert Workshop(tmp_path / "copy").check("--deep").status == 0
