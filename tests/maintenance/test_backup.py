"""``persistence backup`` and ``persistence restore``: whole documents, incremental, verified."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persistence.cli import commands
from persistence.errors import PersistenceError
from persistence.storage import files
from tests.cli.test_commands import persistence
from tests.maintenance.workshop import ATTACHMENT, DATA, DELETED, DOCUMENT, DRAFT, FORM, NEW, OLD, Workshop


def command(*arguments: str) -> Result:
    """Run a command of ``persistence`` that must not end with a traceback."""
    done = CliRunner().invoke(commands, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit | PersistenceError), done.exception
    return done


def backup(workshop: Workshop, destination: Path) -> Path:
    """Make a backup and return its path."""
    done = command("backup", str(destination), "--data", str(workshop.root))
    assert done.exit_code == 0, done.output
    return Path(done.stderr.partition(": ")[0])


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return the files of forms below a root, with time and bytes."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in (root / "app").rglob("*")
        if path.is_file()
    }


def test_what_is_restored_is_what_was_backed_up(workshop: Workshop, tmp_path: Path) -> None:
    """Files with their times, so entity tags too; older revisions, tombstones and drafts."""
    saved = backup(workshop, tmp_path / "backups")
    restored = tmp_path / "restored"
    done = command("restore", str(saved), "--data", str(restored))
    assert done.exit_code == 0, done.output
    assert tree(restored) == tree(saved) == tree(workshop.root)
    again = Workshop(restored)
    assert again.get(DATA) == (200, NEW)
    for path in (DATA, ATTACHMENT, DRAFT, FORM):
        assert again.head(path)["ETag"] == workshop.head(path)["ETag"]
    old = workshop.history(DATA)[0].name.removesuffix(".data.xml")
    day, _, clock = old.partition("T")
    assert again.get(DATA, f"{day}T{clock.replace('-', ':')}") == (200, OLD)
    assert again.get(DELETED) == (404, b"")
    assert again.check("--deep").findings == []


@pytest.fixture(params=[0o000, 0o002, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_no_directory_takes_its_mode_from_the_umask(workshop: Workshop, tmp_path: Path, umask: int) -> None:
    """The group reads and does not write, and others do neither, at each level of a backup and of what is restored."""
    places = [tmp_path / "backups", tmp_path / "restored", tmp_path / "verified" / "restored"]
    backup(workshop, places[0])
    workshop.put(DATA, b"<d>newer</d>")
    backup(workshop, places[0])
    for restored in places[1:]:
        assert command("restore", str(places[0]), "--data", str(restored)).exit_code == 0
    found = {path for place in places for path in (place, *place.rglob("*"))}
    assert len([path for path in found if path.is_dir()]) > 30
    modes = {path: path.stat().st_mode & 0o777 for path in found}
    assert {str(path): oct(mode) for path, mode in modes.items() if mode & (0o027 | umask)} == {}


def test_the_newest_backup_of_a_directory_is_restored(workshop: Workshop, tmp_path: Path) -> None:
    backup(workshop, tmp_path / "backups")
    workshop.put(DATA, b"<d>newest</d>")
    backup(workshop, tmp_path / "backups")
    (tmp_path / "backups/2999-01-01T00-00-00.000Z.partial").mkdir()
    command("restore", str(tmp_path / "backups"), "--data", str(tmp_path / "restored"))
    assert Workshop(tmp_path / "restored").get(DATA) == (200, b"<d>newest</d>")


def test_the_digests_are_those_of_sha256sum(workshop: Workshop, tmp_path: Path) -> None:
    saved = backup(workshop, tmp_path / "backups")
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=saved, check=False)
    assert done.returncode == 0
    listed = {line.split("  ", 1)[1] for line in (saved / "SHA256SUMS").read_text().splitlines()}
    assert listed == {str(path.relative_to(saved)) for path in saved.rglob("*") if path.is_file()} - {"SHA256SUMS"}


def test_what_has_not_changed_is_linked_to_the_last_backup(workshop: Workshop, tmp_path: Path) -> None:
    """Also a revision that was current then, and is an older one now."""
    first = backup(workshop, tmp_path / "backups")
    workshop.put(DATA, b"<d>newest</d>")
    second = backup(workshop, tmp_path / "backups")
    assert (first / ATTACHMENT).samefile(second / ATTACHMENT)
    assert not (first / DATA).samefile(second / DATA)
    kept = max((second / DOCUMENT / ".history").glob("*.data.xml"))
    assert (first / DATA).samefile(kept)
    assert (first / f"{DATA}.json").samefile(kept.with_name(f"{kept.name}.json"))
    assert not (second / ATTACHMENT).samefile(workshop.file(ATTACHMENT))
    shutil.rmtree(first)
    command("restore", str(second), "--data", str(tmp_path / "restored"))
    assert Workshop(tmp_path / "restored").check("--deep").findings == []


def test_without_links_it_copies(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = backup(workshop, tmp_path / "backups")

    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(files, "link", refuse)
    second = backup(workshop, tmp_path / "backups")
    assert not (first / DATA).samefile(second / DATA)
    assert tree(first) == tree(second)


def test_a_changed_backup_is_found_and_nothing_wrong_is_served(workshop: Workshop, tmp_path: Path) -> None:
    saved = backup(workshop, tmp_path / "backups")
    (saved / DATA).write_bytes(b"<d>bad, and wrong</d>")
    (saved / ATTACHMENT).unlink()
    restored = tmp_path / "restored"
    done = command("restore", str(saved), "--data", str(restored))
    assert done.exit_code == 4
    assert f"{DATA}: not what it was when it was saved; it is in .quarantine" in done.stdout
    assert f"{ATTACHMENT}: missing from the backup" in done.stdout
    again = Workshop(restored)
    assert again.get(DATA)[0] == 500
    assert again.get(DRAFT) == (200, b"<d>draft</d>")
    assert [path.read_bytes() for path in (restored / ".quarantine").rglob("data.xml")] == [b"<d>bad, and wrong</d>"]
    assert again.check("--repair").status == 3
    assert again.get(DATA) == (200, OLD)


def test_damage_in_the_tree_is_said_and_saved_as_it_is(workshop: Workshop, tmp_path: Path) -> None:
    """Edited files, files without sidecars and broken sidecars are in the backup; rot is named."""
    workshop.file(f"{DRAFT}.json").write_bytes(b"?")
    workshop.file(FORM).write_bytes(b"<html>edited</html>")
    workshop.file("app/form/data/dropped").mkdir()
    workshop.file("app/form/data/dropped/data.xml").write_bytes(b"<d>dropped</d>")
    status = workshop.file(DATA).stat()
    workshop.file(DATA).write_bytes(NEW.replace(b"new", b"nex"))
    os.utime(workshop.file(DATA), ns=(status.st_mtime_ns,) * 2)
    done = command("backup", str(tmp_path / "backups"), "--data", str(workshop.root))
    assert done.exit_code == 4
    lines = sorted(done.stdout.splitlines())
    assert lines[0].startswith(f"{DATA}: its digest is not sha256:")
    assert lines[1:] == [f"{DRAFT}.json: it cannot be read as a sidecar; it is saved as it is"]
    command("restore", str(tmp_path / "backups"), "--data", str(tmp_path / "restored"))
    assert tree(tmp_path / "restored") == tree(workshop.root)


def test_what_is_not_saved_is_said(workshop: Workshop, tmp_path: Path) -> None:
    """A backup must not look whole if it is not: missing contents, links, and what cannot be listed."""
    workshop.file(DATA).unlink()
    (tmp_path / "elsewhere").mkdir()
    workshop.file("app/linked").symlink_to(tmp_path / "elsewhere")
    done = command("backup", str(tmp_path / "backups"), "--data", str(workshop.root))
    assert done.exit_code == 4
    assert sorted(done.stdout.splitlines()) == [
        f"{DATA}: its content is missing, or no file",
        "app/linked: a symbolic link; the service does not follow it; it is not saved",
    ]


def test_a_directory_that_cannot_be_listed_is_said(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("app/form/data"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    done = command("backup", str(tmp_path / "backups"), "--data", str(workshop.root))
    assert done.exit_code == 4
    assert done.stdout.startswith("app/form/data: the service may not use it")


def test_a_backup_is_not_made_inside_another(workshop: Workshop, tmp_path: Path) -> None:
    saved = backup(workshop, tmp_path / "backups")
    done = command("backup", str(saved), "--data", str(workshop.root))
    assert "is a backup itself" in str(done.exception)
    assert "is not a data directory" in str(command("backup", str(tmp_path / "b"), "--data", "/nowhere").exception)


def test_a_tree_that_was_only_started_is_empty(workshop: Workshop, tmp_path: Path) -> None:
    """Somebody starts the service before restoring."""
    saved = backup(workshop, tmp_path / "backups")
    with Workshop(tmp_path / "fresh") as fresh:
        fresh.get(DATA)
    assert command("restore", str(saved), "--data", str(tmp_path / "fresh")).exit_code == 0
    assert tree(tmp_path / "fresh") == tree(workshop.root)


def test_interrupted_writes_are_saved_as_what_is_committed(workshop: Workshop, tmp_path: Path) -> None:
    content_id = workshop.sidecar(DATA)["id"]
    workshop.file(DATA).rename(workshop.file(f"{DOCUMENT}/.data.xml.{content_id}"))
    workshop.file(f"{DOCUMENT}/.scan.bin.json").write_bytes(b"")
    saved = backup(workshop, tmp_path / "backups")
    assert (saved / DATA).read_bytes() == NEW
    assert not list((saved / DOCUMENT).glob(".[ds]*"))
    assert workshop.file(f"{DOCUMENT}/.data.xml.{content_id}").exists()


def test_what_the_disk_could_not_write_later_on_is_no_backup(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel writes after the calls have returned; only syncing tells that it could not."""

    class Failing:
        def syncfs(self, _: int) -> int:
            ctypes.set_errno(5)
            return -1

    monkeypatch.setattr(files, "_libc", Failing())
    done = command("backup", str(tmp_path / "backups"), "--data", str(workshop.root))
    assert "Input/output error" in str(done.exception)
    assert list((tmp_path / "backups").glob("*Z")) == []


def test_an_interrupted_backup_is_none_and_goes_with_the_next(workshop: Workshop, tmp_path: Path) -> None:
    destination = tmp_path / "backups"
    first = backup(workshop, destination)
    half = destination / "2026-01-01T00-00-00.000Z.partial"
    half.mkdir()
    (half / "SHA256SUMS").write_bytes(b"")
    second = backup(workshop, destination)
    assert sorted(path.name for path in destination.glob("2*")) == [first.name, second.name]


def test_a_restore_that_was_killed_before_a_file_had_its_time_goes_on_with_it(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, restored = backup(workshop, tmp_path / "backups"), tmp_path / "restored"

    def killed(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(files, "stamp", killed)
        assert command("restore", str(saved), "--data", str(restored)).exit_code == 1
    assert command("restore", str(saved), "--data", str(restored)).exit_code == 0
    assert tree(restored) == tree(workshop.root)


def test_an_interrupted_restore_is_not_served_and_goes_on(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = backup(workshop, tmp_path / "backups")
    restored = tmp_path / "restored"
    write_new, written = files.write_new, []

    def fail_at_the_fifth(path: str, *arguments: object) -> None:
        written.append(path)
        if len(written) == 5:
            raise OSError(28, "No space left on device")
        write_new(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "write_new", fail_at_the_fifth)
    done = command("restore", str(saved), "--data", str(restored))
    assert "No space left on device" in str(done.exception)
    monkeypatch.undo()
    with pytest.raises(PersistenceError, match="has not finished"):
        Workshop(restored).get(DATA)
    assert command("restore", str(saved), "--data", str(restored)).exit_code == 0
    assert tree(restored) == tree(workshop.root)
    assert Workshop(restored).get(DATA) == (200, NEW)


def test_a_restore_does_not_touch_what_is_there(workshop: Workshop, tmp_path: Path) -> None:
    saved = backup(workshop, tmp_path / "backups")
    before = workshop.state()
    done = command("restore", str(saved), "--data", str(workshop.root))
    assert "holds a tree already" in str(done.exception)
    assert workshop.state() == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    assert "is not empty" in str(command("restore", str(saved), "--data", str(other)).exception)
    assert [path.name for path in other.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"short\n", "SHA256SUMS, line 1, cannot be read"),
        (b"0" * 64 + b"  ../../outside\n", "SHA256SUMS, line 1, cannot be read"),
        (b"0" * 64 + b"  /outside\n", "SHA256SUMS, line 1, cannot be read"),
        (b"0" * 64 + b"  app/form", "SHA256SUMS, line 1, cannot be read"),
    ],
)
def test_a_list_that_leads_elsewhere_is_refused(workshop: Workshop, tmp_path: Path, text: bytes, said: str) -> None:
    saved = backup(workshop, tmp_path / "backups")
    (saved / "SHA256SUMS").write_bytes(text)
    done = command("restore", str(saved), "--data", str(tmp_path / "restored"))
    assert said in str(done.exception)
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("inside", ["data/backups", ".", "data"])
def test_a_backup_does_not_lie_in_what_it_saves(workshop: Workshop, tmp_path: Path, inside: str) -> None:
    done = command("backup", str(tmp_path / inside), "--data", str(workshop.root))
    assert "must not lie inside each other" in str(done.exception)


def test_a_copied_tree_is_no_backup_and_says_what_to_do(workshop: Workshop, tmp_path: Path) -> None:
    done = command("restore", str(workshop.root), "--data", str(tmp_path / "restored"))
    assert "copy a tree back with cp -a or rsync -a, then 'persistence check --repair'" in str(done.exception)


def test_every_attachment_of_a_large_document_is_saved(workshop: Workshop, tmp_path: Path) -> None:
    """More files than a process usually may have open."""
    for number in range(1100):
        content = workshop.file(f"{DOCUMENT}/extra-{number}.bin")
        content.write_bytes(str(number).encode())
    saved = backup(workshop, tmp_path / "backups")
    assert len(list((saved / DOCUMENT).glob("extra-*.bin"))) == 1100
    digest = hashlib.sha256(b"1099").hexdigest()
    assert f"{digest}  {DOCUMENT}/extra-1099.bin" in (saved / "SHA256SUMS").read_text()


def test_what_is_damaged_is_saved_and_said(workshop: Workshop, tmp_path: Path) -> None:
    """An edit of XML is no damage; an attachment with other bytes, and XML that is cut off, are."""
    workshop.file(DRAFT).write_bytes(b"<d>edited by hand</d>")
    workshop.file(DATA).write_bytes(b"<d>cut o")
    workshop.file(ATTACHMENT).write_bytes(b"other bytes")
    older = workshop.history(DATA)[0]
    older.write_bytes(b"<d>old, but not what it was</d>")
    done = persistence("backup", "--data", str(workshop.root), str(tmp_path / "backups"), cwd=tmp_path)
    assert done.returncode == 4
    lines = done.stdout.splitlines()
    assert len(lines) == 3, lines
    for path in (DATA, ATTACHMENT, str(older.relative_to(workshop.root))):
        assert any(line.startswith(f"{path}: damaged, and saved as it is: ") for line in lines), lines
    (saved,) = (path for path in (tmp_path / "backups").iterdir() if path.is_dir())
    assert (saved / DATA).read_bytes() == b"<d>cut o"
    assert (saved / ATTACHMENT).read_bytes() == b"other bytes"
    assert (saved / DRAFT).read_bytes() == b"<d>edited by hand</d>"


def test_zeros_take_no_room_in_a_copy(tmp_path: Path) -> None:
    chunks = [b"begin", bytes(1 << 20), bytes(1 << 20), b"between", bytes(1 << 18), bytes(7)]
    files.write_new(str(tmp_path / "copy"), chunks, 10**18)
    assert (tmp_path / "copy").read_bytes() == b"".join(chunks)
    status = (tmp_path / "copy").stat()
    assert status.st_mtime_ns == 10**18
    assert status.st_blocks * 512 < 1 << 18
