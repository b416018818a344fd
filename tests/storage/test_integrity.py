"""Damage is never taken for an edit: what of a changed content is served, and under which policy."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from persistence.errors import DamagedError, DiskError
from persistence.storage import files, stored_revision
from persistence.storage.layout import HISTORY
from persistence.storage.store import Store
from persistence.storage.stored_revision import HandEdits, Integrity
from tests.initialised import initialised
from tests.opened import opened
from tests.sidecars import resealed, said
from tests.storage.contract import content, delete, put
from tests.storage.test_store import DATA

EDIT, NO_XML = b"<d>edited by hand</d>", b"<d>cut o"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def store_at(root: Path, hand_edits: HandEdits = HandEdits.XML, verify_up_to: int = 0) -> Store:
    return opened(
        Store(initialised(root), lock_timeout=0.2, integrity=Integrity(hand_edits, verify_up_to=verify_up_to))
    )


def file_of(root: Path, name: str = "data.xml") -> Path:
    return root / "hr/leave/data/D" / name


@pytest.fixture
def store(root: Path) -> Store:
    store = store_at(root)
    put(store, DATA, b"<d>one</d>")
    return store


def served(store: Store, address=DATA) -> tuple[bytes, bool]:  # type: ignore[no-untyped-def]
    found = store.read(address, content=True)
    return content(found), found.is_edited


@pytest.mark.parametrize(
    ("hand_edits", "edit", "is_served"),
    [
        (HandEdits.XML, EDIT, True),
        (HandEdits.XML, NO_XML, False),
        (HandEdits.XML, b"", False),
        (HandEdits.NONE, EDIT, False),
        (HandEdits.NONE, NO_XML, False),
        (HandEdits.ALL, EDIT, True),
        (HandEdits.ALL, NO_XML, True),
    ],
)
def test_the_policy_tells_edits_of_xml_from_damage(
    root: Path, hand_edits: HandEdits, edit: bytes, *, is_served: bool
) -> None:
    store = store_at(root, hand_edits)
    put(store, DATA, b"<d>one</d>")
    file_of(root).write_bytes(edit)
    if is_served:
        assert served(store) == (edit, True)
        return
    for with_content in (True, False):
        with pytest.raises(DamagedError, match=r"data\.xml is damaged"):
            store.read(DATA, content=with_content)
    with pytest.raises(DamagedError, match="damaged"):
        put(store, DATA, b"<d>two</d>")


@pytest.mark.parametrize("hand_edits", list(HandEdits))
def test_the_right_content_under_another_time_keeps_its_tag(root: Path, hand_edits: HandEdits) -> None:
    """As after a checkout, or a copy without times: the digest tells."""
    store = store_at(root, hand_edits)
    put(store, DATA, b"<d>one</d>")
    os.utime(file_of(root), (1, 1))
    assert served(store) == (b"<d>one</d>", False)


def test_a_file_is_looked_at_once_per_state(store: Store, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file_of(root).write_bytes(EDIT)
    past = os.stat(file_of(root)).st_mtime_ns - 60_000_000_000
    os.utime(file_of(root), ns=(past, past))
    looked: list[str] = []
    monkeypatch.setattr(Integrity, "_looked_at", _counted(Integrity._looked_at, looked))  # noqa: SLF001 - counted
    monkeypatch.setattr("persistence.storage.stored_revision.time.time_ns", lambda: 2**62)  # long after the last change
    for _ in range(3):
        assert served(store) == (EDIT, True)
    assert len(looked) == 1
    file_of(root).write_bytes(EDIT + b"\n")
    assert served(store) == (EDIT + b"\n", True)
    file_of(root).write_bytes(NO_XML)
    for _ in range(2):
        with pytest.raises(DamagedError):
            served(store)
    assert len(looked) == 3


def _counted(function, calls: list[str]):  # type: ignore[no-untyped-def]
    def call(self, place, sidecar, path, status):  # type: ignore[no-untyped-def]
        calls.append(path)
        return function(self, place, sidecar, path, status)

    return call


def test_a_file_that_has_just_changed_is_looked_at_again(store: Store, root: Path) -> None:
    """It may change once more within the tick of the file system's clock."""
    file_of(root).write_bytes(EDIT)
    assert served(store) == (EDIT, True)
    status = os.stat(file_of(root))
    with open(file_of(root), "r+b") as file:
        file.write(b"<d>edited by hand</e>")
    os.utime(file_of(root), ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DamagedError):
        served(store)


def test_the_content_of_an_older_revision_is_no_edit(store: Store, root: Path) -> None:
    """A disk that went back, or a copy of a busy tree: well-formed, and an acknowledged save is missing."""
    put(store, DATA, b"<d>two</d>")
    older = next((file_of(root).parent / HISTORY).glob("*.data.xml"))
    file_of(root).unlink()
    os.link(older, file_of(root))
    with pytest.raises(DamagedError, match="that of an older revision"):
        served(store)


def test_a_digest_is_compared_on_reading_where_that_is_wanted(store: Store, root: Path) -> None:
    """Rot that keeps size and time is what the default cannot see."""
    status = os.stat(file_of(root))
    file_of(root).write_bytes(b"<d>ohe</d>")
    os.utime(file_of(root), ns=(status.st_atime_ns, status.st_mtime_ns))
    assert served(store) == (b"<d>ohe</d>", False)
    with pytest.raises(DamagedError, match="its digest is not the one"):
        served(store_at(root, verify_up_to=10))
    assert served(store_at(root, verify_up_to=9)) == (b"<d>ohe</d>", False)


def test_an_edit_that_is_saved_over_is_kept_with_a_sidecar_of_its_own(root: Path) -> None:
    store = store_at(root)
    first = put(store, DATA, b"<d>one</d>")
    file_of(root).write_bytes(EDIT)
    edited = store.read(DATA, content=False)
    assert edited is not None
    put(store, DATA, b"<d>two</d>")
    found = store_at(root, HandEdits.NONE, 100).read(DATA, first.modified, content=True)
    assert content(found) == EDIT
    assert (found.etag, found.is_edited, found.sidecar.adopted) == (edited.etag, False, True)


def test_every_flipped_bit_of_a_sidecar_is_noticed(root: Path) -> None:
    """Permissions hang on the owner and the group that it names: no other sidecar is read from it."""
    store = store_at(root)
    written = put(store, DATA, b"<d>one</d>")
    path = file_of(root).with_name("data.xml.json")
    data = path.read_bytes()
    harmless = 0
    for at in range(len(data)):
        for bit in range(8):
            spoilt = bytearray(data)
            spoilt[at] ^= 1 << bit
            try:
                assert stored_revision.decode(bytes(spoilt), str(path), "hr/leave/data/D/data.xml") == written
                harmless += 1  # between the fields
            except DamagedError:
                continue
    assert harmless < len(data) / 4


def test_another_layout_of_the_same_json_is_no_change(root: Path) -> None:
    store = store_at(root)
    written = put(store, DATA, b"<d>one</d>")
    path = file_of(root).with_name("data.xml.json")
    path.write_text(json.dumps(said(path)))
    assert store.read(DATA, content=False).sidecar == written
    resealed(path, creator="lea")
    assert store.read(DATA, content=False).sidecar.creator == "lea"


@pytest.mark.parametrize("name", [".locks", ".spool", ".trash", ".serve", ".quarantine", ".index"])
def test_own_directories_are_made_again_when_they_are_missing(store: Store, root: Path, name: str) -> None:
    files.remove_tree(str(root / name))
    assert store.free_bytes() > 0
    put(store, DATA.moved(DATA.collection.DRAFT), b"<d>draft</d>")
    with store.writing(DATA) as writer:
        writer.discard_draft(DATA.form, DATA.document)
    assert not (root / "hr/leave/draft/D").exists()
    put(store, DATA, b"<d>two</d>")
    with store.creating(DATA.form):
        pass


@pytest.mark.parametrize("bad", ["2026-13-01T00-00-00.000Z", "2026-02-30T00-00-00.000Z", "2026-01-01T99-00-00.000Z"])
def test_a_name_in_the_history_that_is_no_instant_is_in_nobodys_way(store: Store, root: Path, bad: str) -> None:
    put(store, DATA, b"<d>two</d>")
    (file_of(root).parent / HISTORY / f"{bad}.data.xml").write_bytes(b"?")
    file_of(root).write_bytes(EDIT)
    assert served(store) == (EDIT, True)
    put(store, DATA, b"<d>three</d>")
    assert served(store) == (b"<d>three</d>", False)


def test_a_revision_that_was_edited_meanwhile_is_not_rewritten(root: Path) -> None:
    """It was planned before: the edit must be neither overwritten nor encrypted unseen."""
    store = store_at(root)
    written = put(store, DATA, b"<d>one</d>")
    file_of(root).write_bytes(EDIT)
    with store.upload(DATA) as upload:
        upload.write(b"<d>sealed</d>")
        rewritten = msgspec.structs.replace(
            written, id=upload.id, size=upload.size, digest=upload.digest, tag=written.etag
        )
        with store.writing(DATA) as writer:
            assert not writer.rewrite(DATA, None, written, rewritten, upload)
    assert served(store) == (EDIT, True)


def test_an_edit_that_goes_on_while_it_is_saved_over_is_kept_as_it_was_copied(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at(root, HandEdits.ALL)
    first = put(store, DATA, b"<d>one</d>")
    file_of(root).write_bytes(EDIT)
    original = files.copied

    def copied(source: str, target: str) -> tuple[int, str]:
        with open(source, "ab") as file:
            file.write(b"more")
        found = original(source, target)
        with open(source, "ab") as file:
            file.write(b"and more")
        return found

    monkeypatch.setattr(files, "copied", copied)
    put(store, DATA, b"<d>two</d>")
    found = store_at(root, HandEdits.NONE, 100).read(DATA, first.modified, content=True)
    assert content(found) == EDIT + b"more"


@pytest.mark.parametrize("how", ["saved over", "deleted"])
def test_an_edit_of_what_a_kill_left_unfinished_goes_to_the_quarantine(store: Store, root: Path, how: str) -> None:
    stored = put(store, DATA, b"<d>two</d>")
    file_of(root).rename(file_of(root).with_name(f".data.xml.{stored.id}"))
    file_of(root).write_bytes(EDIT)
    if how == "saved over":
        put(store, DATA, b"<d>three</d>")
    else:
        delete(store, DATA)
    assert EDIT in [path.read_bytes() for path in (root / ".quarantine").rglob("data.xml")]


def test_a_tree_that_vanishes_under_a_service_is_no_empty_one(store: Store, root: Path) -> None:
    """An unmounted disk: nothing is found missing, and nothing is stored into the mount point."""
    root.rename(root.with_name("mounted"))
    root.mkdir()
    for look in (
        lambda: store.read(DATA, content=False),
        lambda: store.sidecar(DATA),
        lambda: list(store.forms()),
        lambda: list(store.documents(DATA.form)),
        lambda: list(store.versions(DATA.form)),
        lambda: put(store, DATA, b"<d>two</d>"),
        store.free_bytes,
    ):
        with pytest.raises(DiskError):
            look()
    assert list(root.iterdir()) == []
    root.rmdir()
    root.with_name("mounted").rename(root)
    assert served(store) == (b"<d>one</d>", False)
    put(store, DATA, b"<d>two</d>")
