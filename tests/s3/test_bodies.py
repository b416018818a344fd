"""Bodies in a bucket: what is sent, what becomes of it in a store that fails, and what is swept."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from persistence.errors import BadAddressError, BusyError, DamagedError, DiskError, DiskFullError, PersistenceError
from persistence.model.addresses import Address, Collection, DocumentAddress, Form
from persistence.model.network_addresses import parse_bucket
from persistence.model.texts import LAST
from persistence.s3.body_references import BodyReference, stray_objects
from persistence.s3.object_bodies import ObjectBodies, ObjectLimits, Objects
from persistence.services.purging import Erasing, PurgeRules
from persistence.storage.attachments import SplitStorage
from persistence.storage.storage import Storage, Writing
from tests.s3.places import LIMITS, BucketPlace
from tests.s3.server import BUCKET, SECRET_KEY, Fault, S3Server, Stored
from tests.storage.bodies_contract import CAT, DRAFT, FORM, LARGE
from tests.storage.contract import revision


@pytest.fixture
def place(tmp_path: Path, server: S3Server) -> BucketPlace:
    return BucketPlace(tmp_path, server)


def test_a_large_body_is_sent_in_parts_and_a_small_one_only_where_nothing_is(place: BucketPlace) -> None:
    stored = place.write(b"cat")
    assert [what for what in place.server.seen if what.startswith(("PUT", "POST"))] == [
        f"PUT attachments/pics/album/data/D/cat.bin/{stored.id}"
    ]
    with place.attached.upload(CAT) as upload:
        upload.write(b"cat")
        place.server.objects[f"attachments/{BodyReference(CAT, upload.id).key}"] = Stored(b"other")
        with pytest.raises(DamagedError, match="another object"):
            upload.flush()


def test_any_place_of_a_body_can_be_read(place: BucketPlace) -> None:
    place.write(LARGE)
    with revision(place.attached.read(CAT, content=True)).opened as file:
        for start in (5 << 20, 17, 0, len(LARGE) - 3):
            file.seek(start)
            assert file.read(1000) == LARGE[start : start + 1000]
        assert file.seek(-5, os.SEEK_END) == len(LARGE) - 5
        assert file.read() == LARGE[-5:]
        with pytest.raises(ValueError, match="before the beginning"):
            file.seek(-1)


def test_names_that_no_key_can_have_are_refused(place: BucketPlace) -> None:
    address = DocumentAddress(Form("a" * 255, "b" * 255), Collection.DATA, "c" * 255, "n" * 200)
    with place.attached.upload(address) as upload, pytest.raises(BadAddressError, match="too long together"):
        upload.flush()
    odd = CAT.moved(Collection.DATA, "50% näïve #1?.txt")
    stored = place.write(b"odd", odd)
    assert place.body(odd) == b"odd"
    key = place.server.keys_of()[0].removeprefix("attachments/")
    assert BodyReference.of_key(key) == BodyReference(odd, stored.id)
    for wrong in ("", "a/b", key.replace("/data/", "/form/"), key + "x", key.replace("pics", ".pics")):
        assert BodyReference.of_key(wrong) is None


def test_what_a_killed_worker_leaves_is_swept_and_nothing_else(place: BucketPlace) -> None:
    stored = place.write(b"old")
    killed = place.attached.upload(CAT)
    killed.write(b"never")
    killed.flush()
    note = killed.note  # type: ignore[attr-defined]
    assert place.sweep() == 0, "its process holds the note"
    note.close()
    assert place.sweep(3600) == 0, "it is young"
    assert len(place.ids()) == 2
    assert place.sweep() == 1
    assert (place.ids(), place.body(), place.notes()) == ({stored.id}, b"old", [])


def test_a_discarded_draft_has_its_objects_until_the_end_of_the_block(place: BucketPlace) -> None:
    kept = place.write(b"draft", DRAFT)
    with place.attached.writing(DRAFT) as writer:
        writer.discard_draft(FORM, "D")
        assert place.ids(DRAFT) == {kept.id}
    assert (place.ids(DRAFT), place.notes()) == (set(), [])


class Transactions(Storage):
    """A storage whose blocks are transactions, which a test lets fail, so to speak, when they are committed."""

    def __init__(self, store: Storage, outcome: BaseException | None) -> None:
        self._store = store
        self._outcome = outcome

    def __getattribute__(self, name: str) -> object:
        if name in {"_store", "_outcome", "writing"}:
            return object.__getattribute__(self, name)
        return getattr(self._store, name)

    @contextmanager
    def writing(self, address: Address) -> Iterator[Writing]:
        with self._store.writing(address) as writer:
            yield writer
            if self._outcome is not None:
                raise self._outcome


@pytest.mark.parametrize("outcome", [None, BusyError("the connection broke while it was committing")])
def test_bodies_go_only_when_the_block_is_committed(place: BucketPlace, outcome: BaseException | None) -> None:
    """After an outcome that nobody knows, records decide: here they were committed."""
    old = place.write(b"old", DRAFT)
    place.attached = SplitStorage(Transactions(place.store, outcome), place.bodies)
    with suppress(BusyError):
        place.write(b"new", DRAFT)
    assert place.body(DRAFT) == b"new"
    assert len(place.ids(DRAFT)) == (2 if outcome else 1)
    place.sweep()
    assert place.body(DRAFT) == b"new"
    assert (len(place.ids(DRAFT)), place.notes(), old.id in place.ids(DRAFT)) == (1, [], False)


def test_a_body_that_cannot_be_removed_now_is_removed_later(place: BucketPlace) -> None:
    place.write(b"old", DRAFT)
    place.server.faults = [Fault("^DELETE", 503, "SlowDown")]
    kept = place.write(b"new", DRAFT)
    assert len(place.ids(DRAFT)) == 2
    place.server.faults = []
    assert place.sweep() == 1
    assert place.ids(DRAFT) == {kept.id}


def test_a_purge_says_that_it_could_not_remove_bodies(place: BucketPlace) -> None:
    place.save()
    for body in (b"one", b"two", b"three"):
        current = place.write(body)
    place.server.faults = [Fault("^DELETE", 503, "SlowDown")]
    with pytest.raises(BusyError, match="SlowDown"):
        place.purging.purge(FORM, "D", PurgeRules(revisions=LAST))
    place.server.faults = []
    place.sweep()
    assert (place.ids(), place.notes()) == ({current.id}, [])


def test_objects_are_named_by_their_addresses_in_an_erasure(place: BucketPlace) -> None:
    stored = {place.write(b"one").id, place.write(b"two").id}
    files = Erasing("data", place.purging).describe(FORM, "D").files
    names = {f"s3://{BUCKET}/attachments/{BodyReference(CAT, each).key}" for each in stored}
    assert names <= {each.path for each in files}


def test_a_check_finds_objects_without_a_record(place: BucketPlace) -> None:
    for _ in range(9):
        place.write(b"body")
    strays = [f"attachments/{BodyReference(CAT, f'{number:040x}').key}" for number in range(3)]
    place.server.objects |= dict.fromkeys([*strays, "attachments/mine.txt", "elsewhere/mine.txt"], Stored(b"stray"))
    found = [each for each in stray_objects(place.bodies, lambda _: place.store, age=-1) if each is not None]
    assert [key for key, reference in found if reference is None] == ["mine.txt"]
    assert sorted(each.id for _, each in found if each is not None) == [f"{n:040x}" for n in range(3)]
    assert not any(stray_objects(place.bodies, lambda _: place.store)), "they are young"


FAULTS = [
    (10, [Fault(".", 503, "SlowDown")], BusyError, "the store answers 503"),
    (6 << 20, [Fault("partNumber|^GET", 503, "SlowDown")], BusyError, "the store answers 503 SlowDown"),
    (10, [Fault(".", 500, "InternalError")], BusyError, "the store answers 500"),
    (10, [Fault(".", 403, "AccessDenied")], BusyError, "refuses the credentials"),
    (10, [Fault(".", 507, "XMinioStorageFull")], DiskFullError, "is full"),
    (10, [Fault(".", seconds=0.8)], BusyError, "no answer within 0.5 seconds"),
    (6 << 20, [Fault("partNumber|^GET", is_cut=True)], BusyError, "the connection broke"),
    (10, [Fault(".", is_cut=True)], BusyError, "the connection broke"),
]


@pytest.mark.parametrize(("size", "faults", "kind", "line"), FAULTS)
def test_a_store_that_fails_is_one_clear_line_and_nothing_is_half_there(
    place: BucketPlace, size: int, faults: list[Fault], kind: type[PersistenceError], line: str
) -> None:
    stored = place.write(LARGE[:size])
    place.server.faults = [Fault(**vars(fault)) for fault in faults]
    for call in (lambda: place.write(LARGE[:size]), lambda: place.body()):  # noqa: PLW0108
        with pytest.raises(kind, match=line) as caught:
            call()
        assert "<" not in str(caught.value)
        assert SECRET_KEY not in str(caught.value)
        assert place.server.url not in str(caught.value)
    place.server.faults = []
    assert place.body() == LARGE[:size]
    place.sweep()
    assert (place.ids(), place.notes(), list(filter(None, place.server.parts.values()))) == ({stored.id}, [], [])


def test_a_piece_must_come_in_time_though_bytes_keep_coming(place: BucketPlace) -> None:
    place.write(b"a" * 1000)
    place.server.faults = [Fault("^GET", drips=0.3)]
    began = time.monotonic()
    with pytest.raises(BusyError, match="no answer within"):
        place.body()
    assert time.monotonic() - began < 2.5, "the whole answer takes three seconds"


def test_a_connection_that_breaks_in_the_middle_is_tried_again(place: BucketPlace) -> None:
    place.server.faults = [Fault("partNumber", is_cut=True, times=1, after=1), Fault("^GET", is_cut=True, times=1)]
    place.write(LARGE)
    assert place.body() == LARGE
    place.server.faults = [Fault("^PUT", 503, "SlowDown", times=1)]
    place.write(b"small")
    assert place.body() == b"small"


def test_a_connection_that_keeps_breaking_in_the_middle_of_a_body_breaks_the_download(place: BucketPlace) -> None:
    place.write(LARGE)
    with revision(place.attached.read(CAT, content=True)).opened as file:
        assert file.read(1000) == LARGE[:1000]
        place.server.faults = [Fault("^GET", is_cut=True)]
        with pytest.raises(BusyError, match="the connection broke"):
            file.read()
        place.server.objects.clear()
        place.server.faults = []
        file.seek(5 << 20)
        with pytest.raises(DamagedError, match="missing"):
            file.read()


def elsewhere(tmp_path: Path, bucket: str, endpoint: str) -> ObjectBodies:
    limits = ObjectLimits(LIMITS.connect, LIMITS.timeout, calls=1)
    return ObjectBodies(Objects(parse_bucket(f"s3://{bucket}", endpoint), limits), str(tmp_path))


@pytest.mark.parametrize(
    ("environment", "bucket", "endpoint", "line"),
    [
        ({"AWS_ACCESS_KEY_ID": "OTHER"}, BUCKET, "", "credentials"),
        ({"AWS_ACCESS_KEY_ID": ""}, BUCKET, "", "credentials"),
        ({}, "none", "", "the bucket none does not exist"),
        ({}, BUCKET, "http://127.0.0.1:1", "cannot be reached"),
    ],
    ids=["wrong key", "no key", "no bucket", "endpoint down"],
)
def test_a_place_that_cannot_be_used_is_said(
    place: BucketPlace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    bucket: str,
    endpoint: str,
    line: str,
) -> None:
    key = BodyReference(CAT, place.write(b"cat").id).key
    for name, value in environment.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", place.server.url)
    bodies = elsewhere(tmp_path, bucket, endpoint or place.server.url)
    for call in (lambda: bodies.objects.size(key), lambda: bodies.objects.read(key, 0, 1), lambda: store(bodies)):
        with pytest.raises(BusyError, match=line) as caught:
            call()
        assert SECRET_KEY not in str(caught.value)


def store(bodies: ObjectBodies) -> None:
    with bodies.upload(CAT) as upload:
        upload.write(b"x")
        upload.flush()


def test_an_upload_that_was_not_stored_is_never_taken_for_stored(place: BucketPlace) -> None:
    with place.bodies.upload(CAT) as upload:
        upload.write(b"x")
        place.server.faults = [Fault(".", 403, "AccessDenied")]
        with pytest.raises(BusyError):
            upload.flush()
        place.server.faults = []
        with pytest.raises(DiskError, match="it failed before"):
            upload.flush()


def test_calls_wait_for_their_turn_only_so_long(place: BucketPlace, tmp_path: Path) -> None:
    bodies = elsewhere(tmp_path, BUCKET, place.server.url)
    with bodies.objects._calling("anything"), pytest.raises(BusyError, match="1 calls are under way"):  # noqa: SLF001
        store(bodies)
