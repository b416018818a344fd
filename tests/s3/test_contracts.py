"""The contracts of storages and of places of bodies, kept by a bucket beside a tree, and beside a database."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from persistence.s3.body_references import settle_notes
from persistence.storage.attachments import SplitStorage
from persistence.storage.storage import KeepsHistory, keeps_all
from tests.postgresql.storages import rows, storage_at
from tests.s3.places import BucketPlace, bodies_at
from tests.s3.server import S3Server
from tests.storage.bodies_contract import CAT, DRAFT, FORM, BodiesContract, Places
from tests.storage.contract import TIMEOUT, WITHOUT_RECORDS, StorageContract, Subject, files_in, next_sidecar, tree_at


class TestBucket(StorageContract):
    """A tree, with the bodies of attachments in a bucket."""

    lacks = WITHOUT_RECORDS

    @pytest.fixture
    def constructed(self, tmp_path: Path, server: S3Server) -> Subject:
        root = tmp_path / "root"
        main, unlocked = (tree_at(root, is_locked=each) for each in (True, False))
        bodies = bodies_at(root, server)
        both = (SplitStorage(each, bodies) for each in (main, unlocked))
        return Subject(*both, lambda: files_in(root) | set(server.objects), main=main)


class TestBucketBesideDatabase(StorageContract):
    """A PostgreSQL database, with the bodies of attachments in a bucket."""

    lacks = WITHOUT_RECORDS | {
        f"test_{name}[{kind}]": "where a block goes on after a refusal, its object is left to 'check --repair'"
        for name, kind in (
            ("of_two_writers_over_one_revision_one_is_refused", "attachment"),
            ("of_two_writers_over_one_revision_one_is_refused", "attachment of a draft"),
            ("a_writer_that_is_refused_leaves_the_history_as_it_is", "attachment"),
        )
    }

    @pytest.fixture
    def constructed(self, tmp_path: Path, server: S3Server, storage_uri: str) -> Subject:
        local = tmp_path / "local"
        main, unlocked = (
            storage_at(storage_uri, local, lock_timeout=TIMEOUT, is_locked=each) for each in (True, False)
        )
        bodies = bodies_at(local, server)
        both = (SplitStorage(each, bodies) for each in (main, unlocked))

        def left() -> set[str]:
            """The rows and objects after a sweep, which decides by the records."""
            settle_notes(bodies, lambda _: main, -1)
            return rows(main) | set(server.objects)

        return Subject(*both, left, main=main)


class TestBodiesInBucket(BodiesContract):
    """Objects whose records are in a tree."""

    @pytest.fixture
    def places(self, tmp_path: Path, server: S3Server) -> Places:
        return partial(BucketPlace, tmp_path, server)


class TestBodiesOfDatabase(BodiesContract):
    """Objects whose records are in a database: they go only when the transaction is committed."""

    @pytest.fixture
    def places(self, tmp_path: Path, server: S3Server, storage_uri: str) -> Places:
        def made(keeps_history: KeepsHistory = keeps_all) -> BucketPlace:
            main = storage_at(storage_uri, tmp_path / "local", keeps_history=keeps_history)
            return BucketPlace(tmp_path, server, keeps_history, main)

        return made

    def test_a_transaction_that_is_rolled_back_leaves_the_body_before(self, place: BucketPlace) -> None:
        kept = place.write(b"old", DRAFT)
        with suppress(KeyError), place.attached.upload(DRAFT) as upload, place.attached.writing(DRAFT) as writer:
            upload.write(b"never")
            upload.flush()
            over = writer.current(DRAFT)
            writer.commit(DRAFT, next_sidecar(upload, over), upload, over=over)
            raise KeyError
        assert place.body(DRAFT) == b"old"
        assert place.apart() == [b"never", b"old"], "the sweep decides by the records"
        assert place.sweep() == 1
        assert (place.ids(DRAFT), place.body(DRAFT), place.notes()) == ({kept.id}, b"old", [])

    @pytest.mark.parametrize("address", [CAT, DRAFT], ids=["data", "draft"])
    def test_a_discarded_document_has_its_objects_until_the_transaction_is_committed(
        self, place: BucketPlace, address: object
    ) -> None:
        for body in (b"one", b"two"):
            place.write(body, DRAFT if address is DRAFT else CAT)
        kept = place.apart()
        for fails in (True, False):
            with suppress(KeyError), place.attached.writing(CAT) as writer:
                writer.discard_draft(FORM, "D")
                writer.discard_document(FORM, "D")
                assert place.apart() == kept
                if fails:
                    raise KeyError
            assert place.apart() == (kept if fails else [])
            assert place.sweep() == 0
        assert place.notes() == []
