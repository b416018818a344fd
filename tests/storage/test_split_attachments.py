"""Attachments whose bodies are elsewhere: no record without its body, whatever happens in between."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from persistence.errors import DamagedError, NotFoundError, StartupError
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.instants import LAST, next_after
from persistence.model.sidecar import SCHEMA, Sidecar, tombstone
from persistence.services.purging import Erasing, PurgeRules, StoragePurge, remove_file
from persistence.storage import files
from persistence.storage.attachments import FileBodies, RevisionRewriter, SplitStorage
from persistence.storage.store import Store
from persistence.storage.stored_revision import HandEdits, Integrity
from tests.initialised import initialised
from tests.opened import opened
from tests.storage.contract import put

FORM = Form("pics", "album")
CAT = DocumentAddress(FORM, Collection.DATA, "D", "cat.bin")
DRAFT = CAT.moved(Collection.DRAFT)


class Place:
    """A tree, a base, and both as one storage."""

    def __init__(self, directory: Path) -> None:
        self.base = directory / "base"
        self.base.mkdir()
        self.bodies = FileBodies(str(self.base))
        self.store = opened(Store(initialised(directory / "root"), lock_timeout=1))
        self.attached = SplitStorage(self.store, self.bodies)

    def write(self, body: bytes, address: DocumentAddress = CAT) -> Sidecar:
        return put(self.attached, address, body)

    def body(self, address: DocumentAddress = CAT) -> bytes:
        found = self.attached.read(address, content=True)
        assert found is not None
        with found.opened as file:
            return file.read()

    def names(self, address: DocumentAddress = CAT) -> list[str]:
        directory = self.base / f"pics/album/{address.collection.value}/D/1"
        return sorted(path.name for path in directory.iterdir() if path.name != ".history")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_is_read_is_described_as_if_it_lay_in_one_place(place: Place) -> None:
    stored = place.write(b"cat")
    found = place.attached.read(CAT, content=False)
    assert found is not None
    assert (found.sidecar, found.etag, found.size) == (stored, stored.id, 3)
    record = place.store.sidecar(CAT)
    assert record is not None
    assert record.body is not None
    assert (record.size, record.body.size, record.body.digest) == (0, 3, stored.digest)


def test_a_body_without_bytes_is_one(place: Place) -> None:
    place.write(b"")
    assert place.body() == b""
    assert place.names() == ["cat.bin"]


def test_revisions_are_told_apart_where_times_are_whole_seconds(place: Place) -> None:
    """Some file systems and copies keep no more; and all three were saved in one second, with one size."""
    stored: list[Sidecar] = []
    while len({each.modified[:19] for each in stored}) != 1:
        stored = [place.write(b"content-%d" % number) for number in range(3)]
    for path in place.base.rglob("*cat.bin"):
        second = path.stat().st_mtime_ns // 10**9 * 10**9
        os.utime(path, ns=(second, second))
    for number, each in enumerate(stored):
        found = place.attached.read_revision(CAT, each.modified, content=True)
        assert found is not None
        with found.opened as file:
            assert (file.read(), found.is_edited) == (b"content-%d" % number, False)
    assert place.body() == b"content-2"


def test_a_crash_before_the_record_leaves_what_was_there(place: Place) -> None:
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
def test_a_crash_after_the_record_leaves_the_new_body_where_it_leads(place: Place, address: DocumentAddress) -> None:
    place.write(b"old", address)
    directory = place.base / f"pics/album/{address.collection.value}/D/1"
    (directory / "cat.bin").rename(directory / "aside")
    stored = place.write(b"new", address)
    (directory / "cat.bin").rename(directory / f".cat.bin.{stored.id}")
    (directory / "aside").rename(directory / "cat.bin")
    assert place.body(address) == b"new"
    place.write(b"newest", address)
    assert (place.body(address), place.names(address)) == (b"newest", ["cat.bin"])


def test_what_a_crash_left_of_an_attachment_outlives_a_write_of_one_whose_name_begins_its_own(place: Place) -> None:
    stored = place.write(b"cat")
    directory = place.base / "pics/album/data/D/1"
    (directory / "cat.bin").rename(directory / f".cat.bin.{stored.id}")
    place.write(b"short", DocumentAddress(FORM, Collection.DATA, "D", "cat"))
    assert place.body() == b"cat"


def test_a_body_replaced_by_hand_is_damage(place: Place) -> None:
    place.write(b"cat")
    (place.base / "pics/album/data/D/1/cat.bin").write_bytes(b"by hand")
    with pytest.raises(DamagedError, match="damaged"):
        place.attached.read(CAT, content=False)


def test_a_body_replaced_by_hand_is_served_under_another_tag_where_all_edits_are(place: Place) -> None:
    stored = place.write(b"cat")
    (place.base / "pics/album/data/D/1/cat.bin").write_bytes(b"by hand")
    bodies = FileBodies(str(place.base), Integrity(HandEdits.ALL))
    found = SplitStorage(place.store, bodies).read(CAT, content=False)
    assert found is not None
    assert found.size == len(b"by hand")
    assert found.etag != stored.id


def test_an_older_body_is_found_while_the_current_one_is_deleted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write(b"one")
    record = place.store.sidecar(CAT)
    assert record is not None
    place.write(b"the second")
    real, deleted = Integrity._looked_at, list[Sidecar]()  # noqa: SLF001 - it is late

    def late(*arguments: Any) -> Any:
        if not deleted:
            deleted.append(_deleted(place, CAT))
        return real(*arguments)

    monkeypatch.setattr(Integrity, "_looked_at", late)
    found = place.bodies.find(CAT, record, content=True)
    assert deleted
    assert found is not None
    with found.opened as file:
        assert file.read() == b"one"


def test_a_body_that_is_lost_is_damage(place: Place) -> None:
    place.write(b"cat")
    (place.base / "pics/album/data/D/1/cat.bin").unlink()
    with pytest.raises(DamagedError, match="missing"):
        place.attached.read(CAT, content=True)


def test_a_base_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="there is no directory"):
        FileBodies(str(tmp_path / "none"))


def _stopping(calls: int, real: Callable[..., object]) -> Callable[..., object]:
    """A call that stops the process, so to speak, after it was made so often."""
    left = [calls]

    def call(*arguments: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(*arguments)

    return call


@pytest.mark.parametrize("calls", range(4))
@pytest.mark.parametrize(("module", "name"), [(files, "rename"), (files, "remove"), (files, "sync_open")])
def test_a_body_goes_with_its_record_and_a_crash_leaves_both_or_none(
    place: Place, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, calls: int
) -> None:
    """Every revision can be read, or is gone; what is left of a body goes with the next one."""
    stored = [place.write(b"cat"), place.write(b"tiger")]
    older, current = stored[0].modified, stored[1].modified
    for is_current in (False, True):
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt), place.attached.writing(CAT) as writer:
            over = writer.current(CAT)
            assert over is not None
            patch.setattr(module, name, _stopping(calls, getattr(module, name)))
            if is_current:
                writer.remove_current(CAT, over=over)
            else:
                writer.remove_older(CAT, [older])
        RevisionRewriter(place.store, lambda _: place.bodies).finish(CAT.main)
        for instant in (older, current):
            found = place.attached.read_revision(CAT, instant, content=True)
            if found is not None:
                found.close()
        with place.attached.writing(CAT) as writer:
            over = writer.current(CAT)
            if is_current and over is not None:
                writer.remove_current(CAT, over=over)
            elif not is_current:
                assert over is not None
                writer.remove_older(CAT, [older])
        assert place.attached.read_revision(CAT, older, content=False) is None
    assert [path for path in place.base.rglob("*") if path.is_file()] == []
    assert not (place.base / "pics/album/data/D").exists()
    assert place.store.sidecar(CAT) is None


def _tombstone(place: Place) -> Sidecar:
    """A deleted document with an attachment, which is left."""
    place.write(b"cat")
    place.write(b"<d/>", CAT.main)
    return _deleted(place, CAT.main)


def _deleted(place: Place, address: DocumentAddress) -> Sidecar:
    with place.attached.writing(address) as writer:
        over = writer.current(address)
        assert over is not None
        marked = tombstone(over.sidecar, modified=next_after(over.sidecar.modified), modifier=None)
        writer.delete(address, marked, over=over)
        return marked


def test_a_document_that_is_saved_again_while_it_is_purged_keeps_its_attachments(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tombstone(place)
    purging = StoragePurge(place.store, lambda _: place.bodies)

    def late(*arguments: Any) -> bool:
        place.write(b"<d>cat.bin</d>", CAT.main)
        return remove_file(*arguments)

    monkeypatch.setattr("persistence.services.purging.remove_file", late)
    found = purging.purge(FORM, "D", PurgeRules(tombstones=LAST))
    assert found.is_empty
    assert place.body() == b"cat"
    assert place.body(CAT.main) == b"<d>cat.bin</d>"


def test_a_deletion_that_is_not_the_current_one_any_more_is_not_purged(place: Place) -> None:
    """Nothing else of the document goes either."""
    older = _tombstone(place)
    _deleted(place, CAT)
    place.write(b"<d/>", CAT.main)
    purging = StoragePurge(place.store, lambda _: place.bodies)
    assert purging.discard(CAT.main, older) is False
    assert place.store.sidecar(CAT) is not None
    assert place.store.sidecar(CAT.main) is not None
    newer = _deleted(place, CAT.main)
    assert purging.discard(CAT.main, newer) is True
    assert place.store.names(CAT.main) == []


def test_a_document_is_erased_with_its_bodies(place: Place) -> None:
    """Those of older revisions and of the draft, strays that no record names, and what a repair has set aside."""
    for body in (b"cat", b"tiger"):
        place.write(body)
    place.write(b"draft", DRAFT)
    for inside in ("pics/album/data/D/7/stray.bin", ".quarantine/2025-03-04T05-06-07.089Z/pics/album/data/D/1/old.bin"):
        path = place.base / inside
        path.parent.mkdir(parents=True)
        path.write_bytes(b"stray")
    other = DocumentAddress(FORM, Collection.DATA, "E", "dog.bin")
    place.write(b"dog", other)

    def bodies_of(_: Form) -> FileBodies:
        return place.bodies

    erasing = Erasing("data", place.store, StoragePurge(place.store, bodies_of), bodies_of)
    found = erasing.describe(FORM, "D")
    names = {each.path.rsplit("/", 1)[1] for each in found.files}
    assert {"cat.bin", "cat.bin.json", "stray.bin", "old.bin"} <= names
    erasing.erase(FORM, "D")
    left = [path for path in (*place.base.rglob("*"), *Path(place.store.root).rglob("*")) if path.is_file()]
    assert [path.name for path in left if "D" in path.parts] == []
    assert place.body(other) == b"dog"
    with pytest.raises(NotFoundError):
        erasing.describe(FORM, "D")


def test_a_discarded_document_leaves_no_body(place: Place) -> None:
    for body in (b"one", b"two", b"three"):
        place.write(body)
    place.write(b"kept", CAT.moved(Collection.DATA, "other.bin"))
    with place.attached.writing(CAT) as writer:
        writer.discard_document(FORM, "D")
    assert place.store.sidecar(CAT) is None
    assert not (place.base / "pics/album/data/D").exists()
