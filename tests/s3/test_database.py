"""Attachments in a bucket whose records are in a database: a body goes only when the transaction is committed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from persistence.errors import BusyError
from persistence.model.addresses import DATA_XML, Collection
from persistence.model.instants import LAST, next_after
from persistence.model.sidecar import Sidecar
from persistence.services.purging import Erasing, PurgeRules, StoragePurge
from tests.postgresql.storages import storage_at
from tests.s3.places import CAT, DRAFT, FORM, BucketPlace
from tests.s3.server import Fault, S3Server


@pytest.fixture
def place(tmp_path: Path, server: S3Server, database_uri: str) -> BucketPlace:
    """A bucket as in the other tests, with a database in place of the tree."""
    return BucketPlace(tmp_path, server, main=storage_at(database_uri, tmp_path / "local"))


def test_bodies_records_and_history(place: BucketPlace) -> None:
    first, second = place.write(b"one"), place.write(b"two")
    assert (place.body(), place.ids()) == (b"two", {first.id, second.id})
    older = place.attached.read_revision(CAT, first.modified, content=True)
    assert older is not None
    with older.opened as file:
        assert file.read() == b"one"
    record = place.store.sidecar(CAT)
    assert record is not None
    assert record.body is not None
    assert (record.size, record.body.size) == (0, 3)


def test_a_transaction_that_is_rolled_back_leaves_the_body_before(place: BucketPlace) -> None:
    kept = place.write(b"old", DRAFT)
    with suppress(KeyError), place.attached.upload(DRAFT) as upload, place.attached.writing(DRAFT) as writer:
        upload.write(b"never")
        upload.flush()
        over = writer.current(DRAFT)
        assert over is not None
        writer.commit(DRAFT, _next(kept, upload.id, upload.digest), upload, over=over)
        raise KeyError
    assert place.body(DRAFT) == b"old"
    assert len(place.ids(DRAFT)) == 2, "the sweep decides by the records"
    assert place.sweep() == 1
    assert (place.ids(DRAFT), place.body(DRAFT), place.notes()) == ({kept.id}, b"old", [])


def _next(kept: Sidecar, content_id: str, digest: str) -> Sidecar:
    return msgspec.structs.replace(kept, id=content_id, size=5, digest=digest, modified=next_after(kept.modified))


def test_drafts_go_with_their_transaction(place: BucketPlace) -> None:
    place.write(b"old", DRAFT)
    kept = place.write(b"new", DRAFT)
    assert place.ids(DRAFT) == {kept.id}
    with place.attached.writing(DRAFT) as writer:
        writer.discard_draft(FORM, "D")
        assert place.ids(DRAFT) == {kept.id}
    assert (place.ids(DRAFT), place.store.sidecar(DRAFT), place.notes()) == (set(), None, [])


def test_purges_and_erasures(place: BucketPlace) -> None:
    main = CAT.moved(Collection.DATA, DATA_XML)
    place.write(b"<d>/fr/service/persistence/crud/pics/album/data/D/cat.bin</d>", main)
    place.write(b"one")
    current = place.write(b"two")
    purge = StoragePurge(place.store, lambda _: place.bodies)
    assert purge.purge(FORM, "D", PurgeRules(revisions=LAST)).revisions == 1
    assert place.ids() == {current.id}
    Erasing("data", place.store, purge, lambda _: place.bodies).erase(FORM, "D")
    assert (place.server.keys_of(), place.store.sidecar(CAT)) == ([], None)


def test_a_store_that_is_down_changes_nothing(place: BucketPlace) -> None:
    stored = place.write(b"one")
    place.server.faults = [Fault("^PUT", 503, "SlowDown")]
    with pytest.raises(BusyError):
        place.write(b"two")
    place.server.faults = []
    found = place.store.sidecar(CAT)
    assert found is not None
    assert (found.id, place.body(), place.ids()) == (stored.id, b"one", {stored.id})
