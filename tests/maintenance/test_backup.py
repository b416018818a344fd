"""``persistence backup`` and ``persistence restore``: whole documents, incremental, verified.

What is linked, and what is said, is in ``backup.txt``, ``linked-backups.txt`` and ``one-tree.txt`` of the golden
transcripts.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from persistence.app import create_app
from persistence.cli import commands
from persistence.errors import PersistenceError
from persistence.maintenance import backup_files
from persistence.model import texts
from persistence.settings import Settings
from persistence.storage import files
from tests import encrypted_form
from tests.failing import ending
from tests.initialised import initialised
from tests.maintenance.workshop import ATTACHMENT, DATA, DELETED, DOCUMENT, DRAFT, FORM, NEW, OLD, Workshop
from tests.opened import opened
from tests.rigs import disks

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


def is_as_listed(saved: Path) -> bool:
    """Return whether ``sha256sum`` finds every file as listed, and every file is listed."""
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=saved, check=False)
    listed = {line.split("  ", 1)[1] for line in (saved / "SHA256SUMS").read_text().splitlines()}
    there = {str(path.relative_to(saved)) for path in saved.rglob("*") if path.is_file()} - {"SHA256SUMS"}
    return done.returncode == 0 and listed == there


def command(*arguments: str) -> Result:
    """Run a command of ``persistence`` that must not end with a traceback."""
    done = CliRunner().invoke(commands, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit | PersistenceError), done.exception
    return done


def backup(workshop: Workshop, destination: Path) -> Path:
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
    assert not (saved / ATTACHMENT).samefile(workshop.file(ATTACHMENT))
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


def test_without_links_it_copies(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = backup(workshop, tmp_path / "backups")

    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(files, "link", refuse)
    second = backup(workshop, tmp_path / "backups")
    assert not (first / DATA).samefile(second / DATA)
    assert tree(first) == tree(second)


def test_damage_is_said_and_saved_as_it_is(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit of XML is no damage. What is not saved is named: a backup must not look whole if it is not."""
    workshop.put("app/form/data/pipe/data.xml", b"<d/>")
    workshop.put("closed/form/data/d/data.xml", b"<d/>")
    older = workshop.history(DATA)[0]
    status = older.stat()
    older.write_bytes(OLD.replace(b"old", b"odd"))
    os.utime(older, ns=(status.st_mtime_ns,) * 2)
    workshop.file(DATA).write_bytes(b"<d>cut o")
    workshop.file(ATTACHMENT).write_bytes(b"other bytes")
    workshop.file(DRAFT).write_bytes(b"<d>edited by hand</d>")
    workshop.file(f"{FORM}.json").write_bytes(b"?")
    workshop.file("app/form/data/pipe/data.xml").unlink()
    whole = {path: held for path, held in tree(workshop.root).items() if "/pipe/" not in path}
    os.mkfifo(workshop.file("app/form/data/pipe/data.xml"))
    workshop.file("app/linked").symlink_to(tmp_path)
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed/form/data"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refuse)
        done = command("backup", str(tmp_path / "backups"), "--data", str(workshop.root))
    assert done.exit_code == 4
    expected = {
        DATA: "damaged, and saved as it is: ",
        ATTACHMENT: "damaged, and saved as it is: ",
        str(older.relative_to(workshop.root)): "its digest is not sha256:",
        f"{FORM}.json": "it cannot be read as a sidecar; it is saved as it is",
        "app/form/data/pipe/data.xml": "its content is missing, or no file",
        "app/linked": "a symbolic link; the service does not follow it; it is not saved",
        "closed/form/data": "the service may not use it",
    }
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert said.keys() == expected.keys()
    assert [path for path, text in expected.items() if not said[path].startswith(text)] == []
    command("restore", str(tmp_path / "backups"), "--data", str(tmp_path / "restored"))
    assert whole.items() <= tree(tmp_path / "restored").items()


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


@pytest.mark.parametrize(("call", "after"), [("write_new", 4), ("stamp", 0)])
def test_an_interrupted_restore_is_not_served_and_goes_on(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, after: int
) -> None:
    """Also before a file had its time."""
    saved, restored = backup(workshop, tmp_path / "backups"), tmp_path / "restored"
    with monkeypatch.context() as patched:
        patched.setattr(files, call, ending(after, getattr(files, call)))
        assert command("restore", str(saved), "--data", str(restored)).exit_code == 1
    with pytest.raises(PersistenceError, match="has not finished"):
        Workshop(restored).get(DATA)
    assert command("restore", str(saved), "--data", str(restored)).exit_code == 0
    assert tree(restored) == tree(workshop.root)
    assert Workshop(restored).get(DATA) == (200, NEW)


def test_every_attachment_of_a_large_document_is_saved(workshop: Workshop, tmp_path: Path) -> None:
    """More files than a process usually may have open."""
    for number in range(1100):
        content = workshop.file(f"{DOCUMENT}/extra-{number}.bin")
        content.write_bytes(str(number).encode())
    saved = backup(workshop, tmp_path / "backups")
    assert len(list((saved / DOCUMENT).glob("extra-*.bin"))) == 1100
    digest = hashlib.sha256(b"1099").hexdigest()
    assert f"{digest}  {DOCUMENT}/extra-1099.bin" in (saved / "SHA256SUMS").read_text()


def test_zeros_take_no_room_in_a_copy(tmp_path: Path) -> None:
    chunks = [b"begin", bytes(1 << 20), bytes(1 << 20), b"between", bytes(1 << 18), bytes(7)]
    files.write_new(str(tmp_path / "copy"), chunks, 10**18)
    assert (tmp_path / "copy").read_bytes() == b"".join(chunks)
    status = (tmp_path / "copy").stat()
    assert status.st_mtime_ns == 10**18
    assert status.st_blocks * 512 < 1 << 18


# --- what is linked to the last backup: only what has the digest that it recorded, whatever size and time say -------


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
    assert is_as_listed(second)
    (older,) = (second / FRESH).parent.glob(".history/*.data.xml")
    assert older.read_bytes() == b"<d>A</d>"
    done = command("restore", str(second), "--data", str(tmp_path / "restored"))
    assert done.exit_code == 0, done.output
    assert tree(tmp_path / "restored") == tree(workshop.root)


def test_a_backup_of_the_older_format_is_restored(workshop: Workshop, tmp_path: Path) -> None:
    saved = backup(workshop, tmp_path / "backups")
    shutil.rmtree(saved / ".backup")
    lines = [line for line in (saved / "SHA256SUMS").read_text().splitlines() if ".backup/" not in line]
    (saved / "SHA256SUMS").write_text("".join(f"{line}\n" for line in reversed(lines)))  # in no order
    done = command("restore", str(tmp_path / "backups"), "--data", str(tmp_path / "restored"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert tree(tmp_path / "restored") == tree(workshop.root)


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


# Backups on a real ext4 that keeps whole seconds: contents of one size and time are not taken for one another. Only
# root can mount it.

EXT4 = disks.Kind("ext4, 128-byte inodes", ("mkfs.ext4", "-q", "-m", "0", "-I", "128", "-N", "8192"), 64)
DOCUMENTS = 20
PREFIX = "/fr/service/persistence/crud/app/form"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    disks.require(EXT4, tmp_path)
    with disks.mounted(EXT4, tmp_path) as point:
        yield point


def test_another_key_between_two_backups(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Re-encrypted, every document keeps its instant and its size."""
    keys = disk / "encryption-keys.json"
    monkeypatch.setenv("PERSISTENCE_ENCRYPTION_KEYS", str(keys))
    workshop = Workshop(disk / "data")
    options = ("--data", str(workshop.root))
    initialised(workshop.root)
    assert command("encryption-key", "new", *options).exit_code == 0
    client = opened(create_app(Settings(data=initialised(workshop.root), encryption_keys=str(keys)))).test_client()
    assert client.put(f"{PREFIX}/form/form.xhtml", data=encrypted_form.DEFINITION).status_code == 201
    for number in range(DOCUMENTS):
        body = encrypted_form.data().replace(
            encrypted_form.OPEN.encode(), f"{encrypted_form.OPEN} {number:02}".encode()
        )
        headers = {"Svc-Form-Definition-Version": "1"}
        assert client.put(f"{PREFIX}/data/{number}/data.xml", data=body, headers=headers).status_code == 201
    first = backup(workshop, disk / "backups")
    initialised(workshop.root)
    assert command("encryption-key", "new", *options).exit_code == 0
    assert command("reencrypt", *options).exit_code == 0
    second = backup(workshop, disk / "backups")
    same = 0
    for number in range(DOCUMENTS):
        contents = [root / f"app/form/data/{number}/data.xml" for root in (first, second, workshop.root)]
        status = [path.stat() for path in contents]
        same += (status[0].st_size, status[0].st_mtime_ns) == (status[1].st_size, status[1].st_mtime_ns)
        assert contents[0].read_bytes() != contents[1].read_bytes() == contents[2].read_bytes()
    assert same == DOCUMENTS
    assert is_as_listed(second)
    done = command("restore", str(disk / "backups"), "--data", str(disk / "restored"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert tree(disk / "restored") == tree(workshop.root)
