"""Attachments whose bodies are in a directory: no record without its body, whatever happens in between."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from persistence.errors import ConfigurationError, DamagedError, StartupError
from persistence.model.addresses import Collection, DocumentAddress
from persistence.model.sidecar import SCHEMA, Sidecar
from persistence.storage import files
from persistence.storage.attachments import FileBodies, RevisionRewriter, SplitStorage
from persistence.storage.storage import KeepsHistory, keeps_all
from persistence.storage.store import Store
from persistence.storage.stored_revision import HandEdits, Integrity
from tests.failing import ending
from tests.initialised import initialised
from tests.opened import opened
from tests.sidecars import resealed
from tests.storage.bodies_contract import CAT, DRAFT, FORM, BodiesContract, Place, Places
from tests.storage.contract import content, revision


class DirectoryPlace(Place):
    """A tree, and bodies in a directory."""

    def __init__(self, directory: Path, keeps_history: KeepsHistory = keeps_all) -> None:
        self.base = directory / "base"
        self.base.mkdir()
        self.root = initialised(directory / "root")
        store = opened(Store(self.root, lock_timeout=1, keeps_history=keeps_history))
        super().__init__(store, FileBodies(str(self.base), keeps_history=keeps_history))

    def apart(self) -> list[bytes]:
        return sorted(path.read_bytes() for path in self.base.rglob("*") if path.is_file())

    def spoil(self, change: Callable[[bytes], bytes] | None) -> None:
        (path,) = self.base.rglob("cat.bin")
        path.unlink() if change is None else path.write_bytes(change(path.read_bytes()))

    def leave(self) -> set[str]:
        quarantine = ".quarantine/2025-03-04T05-06-07.089Z/pics/album/data/D/1/old.bin"
        for inside in ("pics/album/data/D/7/stray.bin", quarantine):
            path = self.base / inside
            path.parent.mkdir(parents=True)
            path.write_bytes(b"stray")
        return {"cat.bin", "cat.bin.json", "stray.bin", "old.bin"}

    def settle(self) -> None:
        """Finish or remove what crashes have left."""
        self.rewriter.finish(CAT.main)

    def names(self, address: DocumentAddress = CAT) -> list[str]:
        directory = self.base / f"pics/album/{address.collection.value}/D/1"
        return sorted(path.name for path in directory.iterdir() if path.name != ".history")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return partial(DirectoryPlace, tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> DirectoryPlace:
    return DirectoryPlace(tmp_path)


class TestDirectory(BodiesContract):
    """Bodies in a directory."""


def test_revisions_are_told_apart_where_times_are_whole_seconds(place: DirectoryPlace) -> None:
    """Some file systems and copies keep no more; and all three were saved in one second, with one size."""
    stored: list[Sidecar] = []
    while len({each.modified[:19] for each in stored}) != 1:
        stored = [place.write(b"content-%d" % number) for number in range(3)]
    for path in place.base.rglob("*cat.bin"):
        second = path.stat().st_mtime_ns // 10**9 * 10**9
        os.utime(path, ns=(second, second))
    for number, each in enumerate(stored):
        assert place.older(each) == (b"content-%d" % number, each.id)
    assert place.body() == b"content-2"


def test_a_crash_before_the_record_leaves_what_was_there(place: DirectoryPlace) -> None:
    stored = place.write(b"old")
    with place.bodies.upload(CAT) as upload, suppress(KeyboardInterrupt):
        upload.write(b"never")
        sidecar = Sidecar(
            schema=SCHEMA, id=upload.id, version=1, modified=stored.modified, created=stored.created, size=5
        )
        with place.bodies.placing(CAT, sidecar, upload, stored):
            raise KeyboardInterrupt
    assert len(place.names()) == 2
    assert place.body() == b"old"
    place.write(b"new")
    assert (place.body(), place.names()) == (b"new", ["cat.bin"])


@pytest.mark.parametrize("address", [CAT, DRAFT], ids=["data", "draft"])
def test_a_crash_after_the_record_leaves_the_new_body_where_it_leads(
    place: DirectoryPlace, address: DocumentAddress
) -> None:
    place.write(b"old", address)
    directory = place.base / f"pics/album/{address.collection.value}/D/1"
    (directory / "cat.bin").rename(directory / "aside")
    stored = place.write(b"new", address)
    (directory / "cat.bin").rename(directory / f".cat.bin.{stored.id}")
    (directory / "aside").rename(directory / "cat.bin")
    assert place.body(address) == b"new"
    place.write(b"newest", address)
    assert (place.body(address), place.names(address)) == (b"newest", ["cat.bin"])


def test_what_a_crash_left_of_an_attachment_outlives_a_write_of_one_whose_name_begins_its_own(
    place: DirectoryPlace,
) -> None:
    stored = place.write(b"cat")
    directory = place.base / "pics/album/data/D/1"
    (directory / "cat.bin").rename(directory / f".cat.bin.{stored.id}")
    place.write(b"short", DocumentAddress(FORM, Collection.DATA, "D", "cat"))
    assert place.body() == b"cat"


def test_a_body_replaced_by_hand_is_damage_and_served_under_another_tag_where_all_edits_are(
    place: DirectoryPlace,
) -> None:
    stored = place.write(b"cat")
    (place.base / "pics/album/data/D/1/cat.bin").write_bytes(b"by hand")
    with pytest.raises(DamagedError, match="damaged"):
        place.attached.read(CAT, content=False)
    bodies = FileBodies(str(place.base), Integrity(HandEdits.ALL))
    found = revision(SplitStorage(place.store, bodies).read(CAT, content=False))
    assert (found.size, found.etag != stored.id) == (len(b"by hand"), True)


def test_an_older_body_is_found_while_the_current_one_is_deleted(
    place: DirectoryPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write(b"one")
    record = place.record()
    place.write(b"the second")
    real, deleted = Integrity._looked_at, list[Sidecar]()  # noqa: SLF001 - it is late

    def late(*arguments: Any) -> Any:
        if not deleted:
            deleted.append(place.delete(CAT))
        return real(*arguments)

    monkeypatch.setattr(Integrity, "_looked_at", late)
    found = place.bodies.find(CAT, record, content=True)
    assert deleted
    assert content(found) == b"one"


def test_a_base_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="there is no directory"):
        FileBodies(str(tmp_path / "none"))


@pytest.mark.parametrize("calls", range(4))
@pytest.mark.parametrize("name", ["rename", "remove", "sync_open"])
def test_a_body_goes_with_its_record_and_a_crash_leaves_both_or_none(
    place: DirectoryPlace, monkeypatch: pytest.MonkeyPatch, name: str, calls: int
) -> None:
    """Every revision can be read, or is gone; what is left of a body goes with the next one."""
    stored = [place.write(b"cat"), place.write(b"tiger")]
    older, current = stored[0].modified, stored[1].modified
    for is_current in (False, True):
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt), place.attached.writing(CAT) as writer:
            over = writer.current(CAT)
            assert over is not None
            patch.setattr(files, name, ending(calls, getattr(files, name)))
            if is_current:
                writer.remove_current(CAT, over=over)
            else:
                writer.remove_older(CAT, [older])
        place.settle()
        for instant in (older, current):
            found = place.attached.read(CAT, instant, content=True)
            if found is not None:
                found.close()
        with place.attached.writing(CAT) as writer:
            over = writer.current(CAT)
            if is_current and over is not None:
                writer.remove_current(CAT, over=over)
            elif not is_current:
                assert over is not None
                writer.remove_older(CAT, [older])
        assert place.attached.read(CAT, older, content=False) is None
    assert [path for path in place.base.rglob("*") if path.is_file()] == []
    assert not (place.base / "pics/album/data/D").exists()
    assert place.store.sidecar(CAT) is None


@pytest.mark.parametrize(("which", "finisher"), [("current", "check"), ("older", "check"), ("current", "write")])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_kill_leaves_one_body_or_the_other_and_who_finishes_leaves_only_that(
    place: DirectoryPlace, monkeypatch: pytest.MonkeyPatch, step: int, which: str, finisher: str
) -> None:
    old, new = place.write(b"old"), place.write(b"new")
    meant, meant_body, instant = (old, b"old", old.modified) if which == "older" else (new, b"new", None)
    record = place.record(instant)
    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", ending(step - 1, files.rename))
        with pytest.raises(KeyboardInterrupt):
            place.rewrite(instant, record, b"sealed")
    expected, other = (b"sealed" if step > 1 else meant_body), b"new" if which == "older" else b"old"
    assert place.older(meant) == (expected, meant.id)
    assert len(place.apart()) == 3
    place.settle() if finisher == "check" else place.write(b"newest")
    assert place.older(meant) == (expected, meant.id)
    assert place.apart() == sorted([expected, other, *([b"newest"] if finisher == "write" else [])])


def test_a_write_that_was_killed_is_finished_or_removed(place: DirectoryPlace) -> None:
    stored = place.write(b"cat")
    directory = place.base / "pics/album/data/D/1"
    (directory / "cat.bin").rename(directory / f".cat.bin.{stored.id}")
    (directory / f".cat.bin.{'0' * 40}").write_bytes(b"never committed")
    (directory / f".dog.bin.{'1' * 40}").write_bytes(b"nor this")
    place.settle()
    assert place.names() == ["cat.bin"]
    assert place.body() == b"cat"


def test_a_body_that_is_lost_foreign_or_in_an_unknown_place_cannot_be_rewritten(place: DirectoryPlace) -> None:
    place.write(b"cat")
    with pytest.raises(ConfigurationError, match="has no place here"):
        RevisionRewriter(place.store, lambda _: None).read(CAT, None)
    sidecar = Path(place.root, "pics/album/data/D/cat.bin.json")
    written = sidecar.read_bytes()
    resealed(sidecar, body=None)
    with pytest.raises(DamagedError, match="not stored by this service"):
        place.rewriter.read(CAT, None)
    sidecar.write_bytes(written)
    (place.base / "pics/album/data/D/1/cat.bin").unlink()
    with pytest.raises(DamagedError, match="missing"):
        place.rewriter.read(CAT, None)
