"""The contract of places of bodies: a storage with the bodies of its attachments apart, however these are kept.

A subclass of ``BodiesContract`` finds a fixture ``places``, which makes a ``Place``, by default one with histories.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from persistence.errors import DamagedError, NotFoundError
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.sidecar import Sidecar
from persistence.model.texts import LAST, Instant
from persistence.services.purging import Erasing, PurgeRules, StoragePurge, remove_file
from persistence.storage.attachments import RevisionRewriter, SplitStorage
from persistence.storage.storage import Bodies, Storage
from tests.storage.contract import content, delete, put, revision

FORM = Form("pics", "album")
CAT = DocumentAddress(FORM, Collection.DATA, "D", "cat.bin")
DRAFT = CAT.moved(Collection.DRAFT)
OTHER = DocumentAddress(FORM, Collection.DATA, "E", "dog.bin")
LARGE = os.urandom(6 << 20)


class Place:
    """A storage, a place of bodies, and both as one storage."""

    def __init__(self, store: Storage, bodies: Bodies) -> None:
        self.store = store
        self.bodies = bodies
        self.attached = SplitStorage(store, bodies)
        self.rewriter = RevisionRewriter(store, lambda _: bodies)
        self.purging = StoragePurge(store, lambda _: bodies)

    # What an implementation has.

    def apart(self) -> list[bytes]:
        """The bytes of all bodies that are there, sorted, also those that no record names."""
        raise NotImplementedError

    def spoil(self, change: Callable[[bytes], bytes] | None) -> None:
        """Change the only body, or remove it."""
        raise NotImplementedError

    def leave(self) -> set[str]:
        """Leave bodies of the document that no record names; return the names that an erasure has for them."""
        raise NotImplementedError

    # What a test does.

    def write(self, body: bytes, address: DocumentAddress = CAT) -> Sidecar:
        return put(self.attached, address, body)

    def save(self) -> None:
        """Save a document that names the attachment, which orphans would not survive."""
        self.write(b"<d>/fr/service/persistence/crud/pics/album/data/D/cat.bin</d>", CAT.main)

    def delete(self, address: DocumentAddress) -> Sidecar:
        return delete(self.attached, address)

    def body(self, address: DocumentAddress = CAT) -> bytes | None:
        return content(self.attached.read(address, content=True))

    def older(self, stored: Sidecar) -> tuple[bytes | None, str]:
        found = revision(self.attached.read(CAT, stored.modified, content=True))
        assert not found.is_edited
        return content(found), found.etag

    def record(self, instant: Instant | None = None) -> Sidecar:
        record = self.rewriter.record(CAT, instant)
        assert record is not None
        return record

    def rewrite(self, instant: Instant | None, record: Sidecar, body: bytes) -> bool:
        """Rewrite the revision of a record, whose instant is given unless it is the current one."""
        with self.rewriter.upload(CAT, record) as upload:
            upload.write(body)
            upload.flush()
            rewritten = msgspec.structs.replace(
                record, id=upload.id, size=upload.size, digest=upload.digest, tag=record.etag
            )
            return self.rewriter.rewrite(CAT, instant, record, rewritten, upload)


Places = Callable[..., Place]


class BodiesContract:
    @pytest.fixture
    def place(self, places: Places) -> Place:
        return places()

    @pytest.mark.parametrize("body", [b"", b"cat", os.urandom(300_000), LARGE], ids=["0", "3", "300000", "6 MiB"])
    def test_every_byte_comes_back_described_as_if_it_lay_in_one_place(self, place: Place, body: bytes) -> None:
        stored = place.write(body)
        assert (place.body(), place.apart()) == (body, [body])
        found = revision(place.attached.read(CAT, content=False))
        assert (found.sidecar, found.etag, found.size) == (stored, stored.id, len(body))
        record = place.record().body
        assert (place.record().size, record.size, record.digest) == (0, len(body), stored.digest)

    @pytest.mark.parametrize("size", [1000, len(LARGE)])
    def test_other_bytes_than_those_that_were_stored_are_damage(self, place: Place, size: int) -> None:
        place.write(LARGE[:size])
        for change in (lambda body: body[:-1] + bytes([body[-1] ^ 1]), lambda body: body[:-1]):
            place.spoil(change)
            with pytest.raises(DamagedError):
                place.body()

    def test_a_body_that_is_lost_is_damage(self, place: Place) -> None:
        place.write(b"cat")
        place.spoil(None)
        for is_asked in (False, True):
            with pytest.raises(DamagedError, match="missing"):
                place.attached.read(CAT, content=is_asked)

    def test_a_history_keeps_its_bodies_and_a_draft_does_not(self, place: Place) -> None:
        stored = [place.write(body) for body in (b"one", b"two")]
        for body in (b"draft", b"newer"):
            place.write(body, DRAFT)
        assert [place.older(each) for each in stored] == [(b"one", stored[0].id), (b"two", stored[1].id)]
        assert place.apart() == [b"newer", b"one", b"two"]
        with place.attached.writing(DRAFT) as writer:
            writer.discard_draft(FORM, "D")
        assert (place.apart(), place.store.sidecar(DRAFT)) == ([b"one", b"two"], None)

    def test_a_form_that_keeps_no_history_keeps_no_bodies(self, places: Places) -> None:
        place = places(lambda _: False)
        for body in (b"one", b"two"):
            place.write(body)
        assert place.apart() == [b"two"]

    @pytest.mark.parametrize("is_older", [False, True], ids=["current", "older"])
    def test_a_revision_is_rewritten_under_its_tag_and_nothing_stays_of_what_it_was(
        self, place: Place, *, is_older: bool
    ) -> None:
        old, new = place.write(b"old"), place.write(b"new")
        meant, instant = (old, old.modified) if is_older else (new, None)
        assert place.rewrite(instant, place.record(instant), b"sealed")
        assert place.older(meant) == (content(place.rewriter.read(CAT, instant)), meant.id) == (b"sealed", meant.id)
        assert place.apart() == sorted([b"sealed", b"new" if is_older else b"old"])
        assert place.record().size == 0
        place.write(b"newest")
        assert place.older(meant) == (b"sealed", meant.id)

    def test_what_was_saved_meanwhile_is_not_rewritten(self, place: Place) -> None:
        place.write(b"old")
        record = place.record()
        place.write(b"new")
        assert not place.rewrite(None, record, b"sealed")
        assert place.apart() == [b"new", b"old"]

    def test_a_purge_leaves_the_current_body(self, place: Place) -> None:
        place.save()
        for body in (b"one", b"two", b"three"):
            place.write(body)
        assert place.purging.purge(FORM, "D", PurgeRules(revisions=LAST)).revisions == 2
        assert place.apart() == [b"three"]

    def test_a_document_that_is_saved_again_while_it_is_purged_keeps_its_attachments(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place.write(b"cat")
        place.save()
        place.delete(CAT.main)

        def late(*arguments: Any) -> bool:
            place.save()
            return remove_file(*arguments)

        monkeypatch.setattr("persistence.services.purging.remove_file", late)
        assert place.purging.purge(FORM, "D", PurgeRules(tombstones=LAST)).is_empty
        assert place.body() == b"cat"
        assert b"cat.bin" in (place.body(CAT.main) or b"")

    def test_a_deletion_is_not_purged_after_which_something_was_saved(self, place: Place) -> None:
        """An attachment, or the data: nothing else of the document goes either."""
        place.write(b"cat")
        place.save()
        older = place.delete(CAT.main)
        place.write(b"later")
        assert (place.purging.discard(CAT.main, older), place.body()) == (False, b"later")
        place.delete(CAT)
        place.save()
        assert place.purging.discard(CAT.main, older) is False
        assert None not in (place.store.sidecar(CAT), place.store.sidecar(CAT.main))
        assert place.purging.discard(CAT.main, place.delete(CAT.main)) is True
        assert (place.store.names(CAT.main), place.apart()) == ([], [])

    def test_a_document_is_erased_with_its_bodies(self, place: Place) -> None:
        """Those of older revisions and of the draft, and strays that no record names; the description has each."""
        place.save()
        stored = [place.write(b"one"), place.write(b"two"), place.write(b"draft", DRAFT)]
        strays = place.leave()
        place.write(b"dog", OTHER)
        erasing = Erasing("data", place.store, place.purging, lambda _: place.bodies)
        files = erasing.describe(FORM, "D").files
        assert {each.digest for each in stored} <= {each.digest for each in files}
        assert strays <= {each.path.rsplit("/", 1)[1] for each in files}
        erasing.erase(FORM, "D")
        assert (place.apart(), place.store.sidecar(CAT), place.body(OTHER)) == ([b"dog"], None, b"dog")
        with pytest.raises(NotFoundError):
            erasing.describe(FORM, "D")

    def test_a_discarded_document_leaves_no_body(self, place: Place) -> None:
        for address in (CAT, CAT, CAT, CAT.moved(Collection.DATA, "other.bin")):
            place.write(b"body", address)
        with place.attached.writing(CAT) as writer:
            writer.discard_document(FORM, "D")
        assert (place.apart(), place.store.sidecar(CAT)) == ([], None)
