"""The root: its format, and the probe at start."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from persistence.errors import DiskError, StartupError
from persistence.storage import files, owner, root
from persistence.storage.reader import StoreReader
from persistence.storage.store import Store
from tests import cheap
from tests.failing import refusing
from tests.initialised import initialised
from tests.opened import opened


def test_a_new_root_is_made_and_probed(tmp_path: Path) -> None:
    store = opened(Store(initialised(tmp_path / "deep" / "root"), lock_timeout=1))
    store.probe()
    assert (tmp_path / "deep/root/layout.json").read_bytes() == b'{"format":3}\n'
    assert len(list((tmp_path / "deep/root/.locks").glob("??"))) == 256
    assert list((tmp_path / "deep/root/.spool").iterdir()) == []
    assert store.free_bytes() > 0


@pytest.mark.parametrize(
    "text",
    [
        '{"format":1}',
        '{"format":2}',
        '{"format":4}',
        '{"format":3,"restoring":"it"}',
        '{"format":3,"upgrading_from":1}',
        "{",
        '{"format":"1"}',
        "{}",
    ],
)
def test_an_unknown_format_refuses_to_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "layout.json").write_text(text)
    with pytest.raises(StartupError, match=r"layout\.json"):
        opened(Store(str(tmp_path), lock_timeout=1))


def test_a_root_that_is_a_file_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("x")
    with pytest.raises(DiskError, match=r"data directory .*root: "):
        opened(Store(str(tmp_path / "root"), lock_timeout=1))


@pytest.mark.parametrize(
    ("module", "call", "what"),
    [
        (files, "sync", "writing and fsync"),
        (files, "keep_as", "hard links"),
        (files, "rename", "rename"),
        (files, "sync_directory", "fsync of a directory"),
        (os, "statvfs", "free space"),
        (fcntl, "flock", "locks between processes"),
    ],
)
def test_the_probe_names_what_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object, call: str, what: str
) -> None:
    store = opened(Store(initialised(tmp_path), lock_timeout=1))
    monkeypatch.setattr(module, call, refusing(errno.EINVAL))
    with pytest.raises(StartupError, match=f"{what}: Invalid argument"):
        store.probe()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_cannot_be_written_for_now_is_said_and_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """What is stored can still be read, so a worker that starts again must not give up."""
    store = opened(Store(initialised(tmp_path), lock_timeout=1))
    assert store.probe() is None
    monkeypatch.setattr(files, "sync", refusing(code))
    assert os.strerror(code) in str(store.probe())


def test_the_probe_notices_locks_that_do_not_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the program of the service, too; elsewhere the tests have a quicker one."""
    store = opened(Store(initialised(tmp_path), lock_timeout=1))
    monkeypatch.setattr(root, "_contend", cheap.CONTEND)
    assert store.probe() is None
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    with pytest.raises(StartupError, match="locked out"):
        store.probe()


def test_root_does_not_serve_the_tree_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files would be closed to the service's own user."""
    path = initialised(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(owner, "of", lambda _: 65534)
    with pytest.raises(StartupError, match="run this as that user"):
        Store(path, lock_timeout=1)


def test_a_tree_whose_locks_are_closed_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(Store(initialised(tmp_path), lock_timeout=1))
    monkeypatch.setattr(os, "access", lambda path, _: ".locks" not in path)
    with pytest.raises(DiskError, match="Permission denied"):
        store.free_bytes()


def test_a_store_opens_trees_only_and_makes_nothing(tmp_path: Path) -> None:
    """The issue: an unmounted disk, or a wrong directory, is not an empty tree."""
    (tmp_path / "mounted").mkdir()
    for path in (tmp_path / "mounted", tmp_path / "deep/root"):
        with pytest.raises(StartupError, match=r"is not a data directory .*'persistence init --data DIR'"):
            Store(str(path), lock_timeout=1)
        with pytest.raises(StartupError, match="is not a data directory"):
            StoreReader(str(path))
    assert list(tmp_path.rglob("*")) == [tmp_path / "mounted"]


@pytest.mark.parametrize("left", [(), ("lost+found",), (".git",), (".locks", ".spool", "layout.json.123")])
def test_a_directory_with_nothing_of_anybodys_in_it_becomes_a_tree(tmp_path: Path, left: tuple[str, ...]) -> None:
    """The last is what an ``init`` that was killed has left."""
    for name in left:
        (tmp_path / name).mkdir()
    assert root.init(str(tmp_path))
    before = (tmp_path / "layout.json").stat()
    assert not root.init(str(tmp_path)), "a second time there is nothing to be done"
    after = (tmp_path / "layout.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    Store(str(tmp_path), lock_timeout=1).close()


def test_a_directory_that_holds_something_does_not_become_a_tree(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("x")
    with pytest.raises(StartupError, match=r"is not empty .*'notes'"):
        root.init(str(tmp_path))
    assert list(tmp_path.iterdir()) == [tmp_path / "notes"]


def test_a_tree_is_not_made_in_the_directory_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "of", lambda _: 65534)
    with pytest.raises(StartupError, match="run this as that user"):
        root.init(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["a/b/data/D/data.xml.json", "a/b/form/1/form.xhtml.json", "a/b/draft/D/data.xml.json"]
)
def test_a_tree_that_has_lost_its_layout_file_is_repaired_and_not_made_new(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("{}")
    for refused in (lambda: root.init(str(tmp_path)), lambda: Store(str(tmp_path), lock_timeout=1)):
        with pytest.raises(StartupError, match=r"has lost its layout\.json.*'persistence check --repair'"):
            refused()
    assert not (tmp_path / ".locks").exists()


def test_looking_for_a_lost_tree_ends_early_in_a_large_directory(tmp_path: Path) -> None:
    """Any directory of the machine may have been named by mistake."""
    for number in range(3000):
        (tmp_path / f"home-{number}").mkdir()
    listed = 0
    scandir = os.scandir

    def counting(path: str) -> object:
        nonlocal listed
        listed += 1
        return scandir(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", counting)
        assert not root.is_left_of_a_tree(str(tmp_path))
    assert listed == 1000
