"""The tree of files: what becomes of it on disk, after failures and crashes too. The contract is in ``contract``."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from persistence.errors import DamagedError, DiskError, DiskFullError
from persistence.model.addresses import Collection, DefinitionAddress, DocumentAddress, Form
from persistence.storage import files
from persistence.storage.store import Store
from tests.failing import ending, refusing
from tests.initialised import initialised
from tests.opened import opened
from tests.storage.contract import content, delete, files_in, put, tree_at

FORM = Form("hr", "leave")
DATA = DocumentAddress(FORM, Collection.DATA, "D", "data.xml")
DRAFT = DATA.moved(Collection.DRAFT)
ATTACHMENT = DATA.moved(Collection.DATA, "a.bin")
DEFINITION = DefinitionAddress(FORM, 1, "form.xhtml")


@pytest.fixture(params=["unnamed", "spooled"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store on a file system with unnamed files, and on one without."""
    if request.param == "spooled":
        monkeypatch.setattr(files, "open_unnamed", lambda *_: None)
    return tree_at(tmp_path / "root")


def body(store: Store) -> bytes | None:
    return content(store.read(DATA, content=True))


def tree(store: Store) -> set[str]:
    return files_in(Path(store.root))


def test_a_draft_that_could_not_be_removed_goes_with_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was discarded all the same; what is left of it in the trash must not add up until a restart."""
    trash = Path(store.root) / ".trash"
    put(store, DRAFT, b"one")
    with monkeypatch.context() as patch:
        patch.setattr(files, "remove_tree", lambda _: None)
        with store.writing(DATA) as writer:
            writer.discard_draft(FORM, "D")
    assert store.read(DRAFT, content=False) is None
    assert len(list(trash.iterdir())) == 1
    put(store, DRAFT, b"two")
    with store.writing(DATA) as writer:
        writer.discard_draft(FORM, "D")
    assert list(trash.iterdir()) == []


def test_names_that_no_request_has_given_are_not_listed(store: Store) -> None:
    put(store, DATA, b"d")
    foreign = Path(store.root) / "hr/leave/data"
    (foreign / ".hidden").mkdir()
    (foreign / "a%zz:").mkdir()
    os.mkdir(os.fsencode(foreign) + b"/not-utf8-\xff")
    assert list(store.documents(FORM)) == ["D"]


def test_nothing_is_left_beside_the_files(store: Store) -> None:
    for text in (b"one", b"two"):
        put(store, DATA, text)
    delete(store, DATA)
    put(store, DATA, b"three")
    left = {name for name in tree(store) if not name.startswith("hr/leave/data/D/.history/")}
    assert left == {"hr/leave/data/D/data.xml", "hr/leave/data/D/data.xml.json"}


@pytest.mark.parametrize(
    "call", ["open_unnamed", "written", "link_descriptor", "sync", "rename", "keep_as", "sync_open"]
)
@pytest.mark.parametrize(("code", "kind"), [(5, DiskError), (28, DiskFullError), (122, DiskFullError), (30, DiskError)])
def test_a_disk_that_refuses_leaves_the_old_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, kind: type[DiskError]
) -> None:
    """EIO, ENOSPC, EDQUOT, EROFS at the first use of each call: an error of its kind, the old content, no rest."""
    store = tree_at(tmp_path / "root")
    put(store, DATA, b"one")
    before = tree(store)
    with monkeypatch.context() as patch:
        patch.setattr(files, call, refusing(code))
        with pytest.raises(kind, match=os.strerror(code)):
            put(store, DATA, b"two")
    assert body(store) == b"one"
    assert {name for name in tree(store) if ".history" not in name} == before
    put(store, DATA, b"three")
    assert body(store) == b"three"


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("step", [put, lambda store, address, _body: delete(store, address)], ids=["write", "delete"])
def test_the_next_writer_finishes_or_discards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, step: Callable[..., object]
) -> None:
    """A writer that stops before or after the commit's rename leaves one whole revision, and nothing for good."""
    store = tree_at(tmp_path / "root")
    put(store, DATA, b"one")
    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", ending(number, files.rename))
        patch.setattr(files, "remove", ending(0, files.remove))
        with pytest.raises(KeyboardInterrupt):
            step(store, DATA, b"two")
    committed = number == 1
    new = None if step is not put else b"two"
    assert body(store) == (new if committed else b"one")
    put(store, DATA, b"three")
    assert body(store) == b"three"
    left = {name for name in tree(store) if ".history" not in name}
    assert left == {"hr/leave/data/D/data.xml", "hr/leave/data/D/data.xml.json"}


def test_where_links_are_refused_the_history_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "open_unnamed", lambda *_: None)
    store = tree_at(tmp_path / "root")
    monkeypatch.setattr(files, "link", refusing(errno.EPERM))
    first = put(store, DATA, b"one")
    put(store, DATA, b"two")
    old = store.read(DATA, first.modified, content=True)
    assert (old.etag, content(old)) == (first.id, b"one")
    delete(store, DATA)
    put(store, DATA, b"three")
    assert body(store) == b"three"


def test_a_revision_replaced_by_hand_after_a_crash_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acknowledged content was in the history already, when a person put another file in its place: both stay."""
    store = tree_at(tmp_path / "root")
    put(store, DATA, b"one")
    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", ending(0, files.rename))
        with pytest.raises(KeyboardInterrupt):
            put(store, DATA, b"two")
    path = Path(store.root) / "hr/leave/data/D/data.xml"
    (tmp_path / "edited").write_bytes(b"<by-hand/>")
    (tmp_path / "edited").rename(path)
    put(store, DATA, b"three")
    history = [file.read_bytes() for file in (path.parent / ".history").iterdir() if ".json" not in file.name]
    assert sorted(history) == [b"<by-hand/>", b"one"]


def test_a_file_put_there_by_hand_is_not_overwritten(store: Store) -> None:
    """Before anything was stored, and after a deletion: it goes to the quarantine, under its path."""
    path = Path(store.root) / "hr/leave/data/D/data.xml"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"by hand")
    put(store, DATA, b"one")
    delete(store, DATA)
    path.write_bytes(b"by hand, too")
    put(store, DATA, b"two")
    assert body(store) == b"two"
    kept = sorted(file.read_bytes() for file in (Path(store.root) / ".quarantine").rglob("data.xml*"))
    assert kept == [b"by hand", b"by hand, too"]


def test_killed_uploads_are_swept_at_the_next_start(tmp_path: Path) -> None:
    root = tmp_path / "root"
    opened(Store(initialised(root), lock_timeout=1))
    abandoned, fresh = root / ".spool" / ("0" * 40), root / ".spool" / ("1" * 40)
    for path in (abandoned, fresh):
        path.write_bytes(b"x")
    os.utime(abandoned, (0, 0))
    (root / ".trash" / "draft").mkdir()
    (root / ".trash" / "draft" / "data.xml").write_bytes(b"x")
    opened(Store(initialised(root), lock_timeout=1))
    assert [path.name for path in (root / ".spool").iterdir()] == [fresh.name]
    assert list((root / ".trash").iterdir()) == []


@pytest.mark.parametrize("call", ["keep_as", "rename", "remove", "sync", "link_descriptor"])
@pytest.mark.parametrize("number", range(4))
def test_a_form_without_history_keeps_one_whole_revision_through_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    """The one before or the one after, and nothing of any other once the next writer was there."""
    store = opened(Store(initialised(tmp_path / "root"), lock_timeout=0.2, keeps_history=lambda _: False))
    put(store, DATA, b"one")
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(files, call, ending(number, getattr(files, call)))
        put(store, DATA, b"two")
    assert body(store) in {b"one", b"two"}
    put(store, DATA, b"three")
    assert body(store) == b"three"
    assert tree(store) == {"hr/leave/data/D/data.xml", "hr/leave/data/D/data.xml.json"}


def test_a_sidecar_of_a_newer_version_says_so(store: Store) -> None:
    put(store, DATA, b"one")
    sidecar = Path(store.root) / "hr/leave/data/D/data.xml.json"
    sidecar.write_bytes(sidecar.read_bytes().replace(b'"schema": 2', b'"schema": 3'))
    with pytest.raises(DamagedError, match="schema is 3, not 2: a newer version"):
        store.read(DATA, content=False)


# Single steps on files, where something else happens to them in the middle.


def test_a_small_file_with_another_name_is_replaced(tmp_path: Path) -> None:
    path, other = tmp_path / "lease", tmp_path / "copy"
    path.write_bytes(b"as it was")
    os.link(path, other)
    files.overwrite(str(path), b"new")
    assert (path.read_bytes(), other.read_bytes()) == (b"new", b"as it was")


def test_a_descriptor_is_closed_once_where_another_replaces_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another thread's by then."""
    path = tmp_path / "lease"
    path.touch()
    os.link(path, tmp_path / "copy")
    unlink = os.unlink
    opened = []

    def too_late(name: str) -> None:
        unlink(name)
        opened.append(os.open(os.devnull, os.O_RDONLY))
        raise FileNotFoundError(name)

    monkeypatch.setattr(os, "unlink", too_late)
    with pytest.raises(FileNotFoundError):
        files.overwrite(str(path), b"new")
    os.close(opened[0])  # raises where it was closed already


def test_nobody_waits_for_the_holder_of_a_lease(tmp_path: Path) -> None:
    """Such as a file server: the kernel lets it keep a file for 45 seconds."""
    path = tmp_path / "data.xml"
    path.touch()
    with path.open("r+b") as held:
        before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        try:
            said = "import sys; from persistence.storage import files; files.open_to_read(sys.argv[1])"
            done = subprocess.run(
                [sys.executable, "-c", said, str(path)], capture_output=True, text=True, check=False, timeout=20
            )
        finally:
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            signal.signal(signal.SIGIO, before)
    assert f"[Errno {errno.EAGAIN}]" in done.stderr
    os.close(files.open_to_read(str(path)))


def test_a_small_file_has_no_name_before_it_is_whole_and_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a kill leaves no copy of keys, which would outlive their retirement; one that is there is removed."""
    path, left, seen = tmp_path / "keys.json", tmp_path / f"keys.json.{os.getpid()}", []

    def sync(descriptor: int) -> None:
        seen.append((sorted(os.listdir(tmp_path)), os.fstat(descriptor).st_size))

    monkeypatch.setattr(files, "sync", sync)
    for text in (b"one", b"three"):
        left.write_bytes(b"older")
        files.write_durably(str(path), text, 0o600)
        assert (os.listdir(tmp_path), path.read_bytes()) == (["keys.json"], text)
    assert seen == [([], 3), (["keys.json"], 5)]
    assert path.stat().st_mode & 0o777 == 0o600
