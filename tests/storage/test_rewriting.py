"""Rewriting revisions in place whose bodies are elsewhere: one body or the other, at every step."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from persistence.errors import ConfigurationError, DamagedError
from persistence.model.addresses import DATA_XML
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar
from persistence.storage import files
from persistence.storage.attachments import RevisionRewriter
from tests.sidecars import resealed
from tests.storage.test_split_attachments import CAT, Place


class Killed(BaseException):
    """What ends a step, and is caught nowhere."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def rewritable(place: Place) -> RevisionRewriter:
    return RevisionRewriter(place.store, lambda _: place.bodies)


def rewrite(place: Place, instant: Instant | None, record: Sidecar, body: bytes) -> bool:
    stored = rewritable(place)
    with stored.upload(CAT, record) as upload:
        upload.write(body)
        rewritten = msgspec.structs.replace(
            record, id=upload.id, size=upload.size, digest=upload.digest, tag=record.etag
        )
        return stored.rewrite(CAT, instant, record, rewritten, upload)


def record_of(place: Place, instant: Instant | None) -> Sidecar:
    record = rewritable(place).record(CAT, instant)
    assert record is not None
    return record


def everything(place: Place) -> list[bytes]:
    return sorted(path.read_bytes() for path in (place.base / "pics").rglob("*") if path.is_file())


def revision(place: Place, modified: Instant) -> tuple[bytes, str]:
    """The body and the tag of a revision, as whoever reads gets it."""
    found = place.attached.read_revision(CAT, modified, content=True)
    assert found is not None
    with found.opened as file:
        return file.read(), found.etag


def kill_before(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the n-th rename be the end of whoever asks for it, and nobody's who comes after."""
    left, rename = number, files.rename

    def counted(source: str, target: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        rename(source, target)

    monkeypatch.setattr(files, "rename", counted)


@pytest.mark.parametrize("which", ["current", "older"])
def test_a_revision_is_rewritten_under_its_tag_and_nothing_stays_of_what_it_was(place: Place, which: str) -> None:
    old, new = place.write(b"old"), place.write(b"new")
    meant, instant = (old, old.modified) if which == "older" else (new, None)
    assert rewrite(place, instant, record_of(place, instant), b"sealed")
    assert revision(place, meant.modified) == (b"sealed", meant.id)
    assert everything(place) == sorted([b"sealed", b"new" if which == "older" else b"old"])
    assert record_of(place, None).size == 0
    place.write(b"newest")
    assert revision(place, meant.modified) == (b"sealed", meant.id)


@pytest.mark.parametrize("which", ["current", "older"])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_kill_leaves_one_body_or_the_other_and_who_finishes_leaves_only_that(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: int, which: str
) -> None:
    old, new = place.write(b"old"), place.write(b"new")
    meant, instant = (old, old.modified) if which == "older" else (new, None)
    record = record_of(place, instant)
    kill_before(monkeypatch, step)
    with pytest.raises(Killed):
        rewrite(place, instant, record, b"sealed")
    expected = b"sealed" if step > 1 else b"old" if which == "older" else b"new"
    assert revision(place, meant.modified) == (expected, meant.id)
    assert len(everything(place)) == 3
    rewritable(place).finish(CAT.moved(CAT.collection, DATA_XML))
    assert revision(place, meant.modified) == (expected, meant.id)
    assert everything(place) == sorted([expected, b"new" if which == "older" else b"old"])


@pytest.mark.parametrize("step", [1, 2, 3])
def test_what_a_kill_left_is_finished_by_the_next_write_too(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    stored = place.write(b"old")
    record = record_of(place, None)
    kill_before(monkeypatch, step)
    with pytest.raises(Killed):
        rewrite(place, None, record, b"sealed")
    place.write(b"new")
    assert revision(place, stored.modified) == (b"sealed" if step > 1 else b"old", stored.id)
    assert len(everything(place)) == 2


def test_what_was_saved_meanwhile_is_not_rewritten(place: Place) -> None:
    place.write(b"old")
    record = record_of(place, None)
    place.write(b"new")
    assert not rewrite(place, None, record, b"sealed")
    assert everything(place) == [b"new", b"old"]


def test_a_write_that_was_killed_is_finished_or_removed(place: Place) -> None:
    stored = place.write(b"cat")
    directory = place.base / "pics/album/data/D/1"
    (directory / "cat.bin").rename(directory / f".cat.bin.{stored.id}")
    (directory / f".cat.bin.{'0' * 40}").write_bytes(b"never committed")
    (directory / f".dog.bin.{'1' * 40}").write_bytes(b"nor this")
    rewritable(place).finish(CAT.moved(CAT.collection, DATA_XML))
    assert place.names() == ["cat.bin"]
    assert place.body() == b"cat"


def test_a_body_that_is_lost_foreign_or_in_an_unknown_place_cannot_be_rewritten(place: Place) -> None:
    place.write(b"cat")
    with pytest.raises(ConfigurationError, match="has no place here"):
        RevisionRewriter(place.store, lambda _: None).read(CAT, None)
    sidecar = Path(place.store.root, "pics/album/data/D/cat.bin.json")
    written = sidecar.read_bytes()
    resealed(sidecar, body=None)
    with pytest.raises(DamagedError, match="not stored by this service"):
        rewritable(place).read(CAT, None)
    sidecar.write_bytes(written)
    (place.base / "pics/album/data/D/1/cat.bin").unlink()
    with pytest.raises(DamagedError, match="missing"):
        rewritable(place).read(CAT, None)
