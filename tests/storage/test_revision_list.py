"""The list of the revisions of a resource, and a content that is read in pieces: what is read, and what is left out."""

from __future__ import annotations

import hashlib
import io
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.errors import DamagedError
from persistence.limits import FIRST_PIECE, LARGEST_PIECE
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.sidecar import Sidecar, digest_text
from persistence.model.texts import LAST, Instant, from_datetime
from persistence.storage import reader, stored_revision
from persistence.storage.layout import FilePaths, file_name, revision_of
from persistence.storage.storage import RangedFile, RevisionList
from persistence.storage.store import Store
from tests.storage.contract import tree_at, write

DATA = DocumentAddress(Form("hr", "leave"), Collection.DATA, "D", "data.xml")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return tree_at(tmp_path / "root")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    real = stored_revision.read_sidecar

    def reading(paths: FilePaths) -> Sidecar | None:
        names.append(paths.name)
        return real(paths)

    monkeypatch.setattr(stored_revision, "read_sidecar", reading)
    return names


def test_only_the_sidecars_of_the_page_are_read(store: Store, read: list[str]) -> None:
    for number in range(50):
        write(store, DATA, str(number))
    read.clear()
    revisions = store.history(DATA)
    assert (revisions.total, read) == (50, ["data.xml"])
    page = revisions.page(20, 25)
    assert len(page) == 5
    assert len(read) == 1 + 5
    revisions.since(page[0].instant)
    revisions.instant(49)
    revisions.page(0, 1)
    assert len(read) == 1 + 5


def test_a_second_name_of_the_current_revision_is_listed_once(store: Store) -> None:
    """A write that was killed leaves it."""
    current = write(store, DATA, "one")
    paths = FilePaths(f"{store.root}/hr/leave/data/D", "data.xml")
    Path(paths.history).mkdir()
    Path(paths.revision(current.modified).sidecar).hardlink_to(paths.sidecar)
    assert [each.instant for each in store.history(DATA).page(0, 9)] == [current.modified]


@pytest.mark.parametrize(
    "name",
    [
        "2025-03-04T05-06-07.089Z.a.bin.json",
        "2025-03-04T05-06-07.089Z.x.data.xml.json",
        "2025-03-04T05-06-07.089Z.data.xml",
        ".2025-03-04T05-06-07.089Z.data.xml.json",
        "2025-02-30T05-06-07.089Z.data.xml.json",
        "2025-03-04T24-06-07.089Z.data.xml.json",
        "2025-03-04T30-06-07.089Z.data.xml.json",
        "2025-03-04T05-60-07.089Z.data.xml.json",
        "2025-03-04T05-06-60.089Z.data.xml.json",
        "2025-03-04 05-06-07.089Z.data.xml.json",
        "2025-03-04T05:06:07.089Z.data.xml.json",
        "\u0662025-03-04T05-06-07.089Z.data.xml.json",
        "x.data.xml.json",
        ".data.xml.json",
    ],
)
def test_other_files_are_no_revisions(store: Store, name: str) -> None:
    write(store, DATA, "one")
    write(store, DATA, "two")
    Path(store.root, "hr/leave/data/D/.history", name).write_bytes(b"{}")
    assert store.history(DATA).total == 2


def test_what_is_stored_meanwhile_is_not_in_the_list(store: Store) -> None:
    first = write(store, DATA, "one")
    revisions = store.history(DATA)
    write(store, DATA, "two")
    assert [each.sidecar for each in revisions.page(0, 9)] == [first]


def test_a_revision_that_is_gone_is_left_out(store: Store) -> None:
    stored = [write(store, DATA, str(number)).modified for number in range(3)]
    revisions = store.history(DATA)
    paths = FilePaths(f"{store.root}/hr/leave/data/D", "data.xml")
    Path(paths.revision(Instant(stored[1])).sidecar).unlink()
    assert [each.instant for each in revisions.page(0, 9)] == [stored[2], stored[0]]


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    real = os.listdir

    def listing(path: bytes) -> list[bytes]:
        names.append(os.path.basename(os.fsdecode(path)))
        return real(path)

    monkeypatch.setattr(reader.os, "listdir", listing)
    return names


def _instants(store: Store, address: DocumentAddress = DATA) -> list[str]:
    revisions = store.history(address)
    return [revisions.instant(position) for position in range(revisions.total)]


def test_a_directory_that_has_rested_is_listed_once(
    store: Store, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within two seconds after its last change each time, because it may change again under the same times."""
    written = [write(store, DATA, str(number)).modified for number in range(4)]
    for _ in range(2):
        assert _instants(store) == written[::-1]
    assert listed == [".history"] * 2
    monkeypatch.setattr(reader.time, "time_ns", lambda now=time.time_ns: now() + 2_100_000_000)
    for _ in range(3):
        assert _instants(store) == written[::-1]
    assert listed == [".history"] * 3
    written.append(write(store, DATA, "more").modified)
    assert _instants(store) == written[::-1]
    assert listed == [".history"] * 4


def test_each_file_has_a_list_of_its_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader.time, "time_ns", lambda now=time.time_ns: now() + 2_100_000_000)
    other = replace(DATA, name="a.bin")
    written = {address: [write(store, address, str(each)).modified for each in range(3)] for address in (DATA, other)}
    for address in (DATA, other, DATA):
        assert _instants(store, address) == written[address][::-1]


def test_a_revision_that_was_purged_goes_from_a_cached_list(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader.time, "time_ns", lambda now=time.time_ns: now() + 2_100_000_000)
    written = [write(store, DATA, str(number)).modified for number in range(3)]
    assert len(_instants(store)) == 3
    paths = FilePaths(f"{store.root}/hr/leave/data/D", "data.xml").revision(Instant(written[1]))
    Path(paths.sidecar).unlink()
    assert _instants(store) == [written[2], written[0]]


_NAMES = st.lists(
    st.one_of(
        st.datetimes(datetime(1999, 1, 1), datetime(2100, 1, 1)).map(  # noqa: DTZ001 - naive, as hypothesis wants it
            lambda moment: file_name(from_datetime(moment.replace(tzinfo=UTC))) + ".data.xml.json"
        ),
        st.from_regex(
            r"\A20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]-[0-7][0-9]-[0-7][0-9]\.[0-9]{3}Z\.data\.xml\.json\Z"
        ),
        st.sampled_from(["x.data.xml.json", ".data.xml.json", "2025-03-04T05-06-07.089Z.data.xml"]),
    )
)


@given(_NAMES)
def test_instants_are_those_that_each_name_says(names: list[str]) -> None:
    """However they are checked at once."""
    found = reader.instants_text(map(str.encode, names), b"data.xml").splitlines()
    each = (revision_of(name.removesuffix(".json")) for name in names if name.endswith(".json"))
    assert found == sorted((one[0] for one in each if one is not None and one[1] == "data.xml"), reverse=True)


CONTENT = bytes(range(256)) * (6 << 12)
DIGEST = digest_text(hashlib.sha256(CONTENT).hexdigest())


def ranged(asked: list[tuple[int, int]], digest: str = DIGEST) -> io.BufferedReader:
    def read(begin: int, end: int) -> bytes:
        asked.append((begin, end))
        return CONTENT[begin:end]

    return io.BufferedReader(RangedFile(len(CONTENT), read, digest))


def test_pieces_grow_while_they_follow_each_other() -> None:
    asked: list[tuple[int, int]] = []
    assert ranged(asked).read() == CONTENT
    assert [end - begin for begin, end in asked[:3]] == [FIRST_PIECE, 2 * FIRST_PIECE, 4 * FIRST_PIECE]
    assert max(end - begin for begin, end in asked) <= LARGEST_PIECE


def test_a_place_within_the_piece_that_is_held_asks_for_nothing() -> None:
    asked: list[tuple[int, int]] = []
    file = ranged(asked)
    for at in (0, FIRST_PIECE - 5, 77, FIRST_PIECE // 2):
        file.seek(at)
        assert file.read(5) == CONTENT[at : at + 5]
    assert asked == [(0, FIRST_PIECE)]
    file.seek(3 * FIRST_PIECE)
    assert file.read(5) == CONTENT[3 * FIRST_PIECE : 3 * FIRST_PIECE + 5]
    assert asked[1:] == [(3 * FIRST_PIECE, 4 * FIRST_PIECE)]


def test_the_last_piece_of_another_content_is_not_given() -> None:
    file = ranged([], digest_text("0" * 64))
    with pytest.raises(DamagedError, match="recorded digest"):
        list(iter(lambda: file.read(1 << 16), b""))
    assert file.tell() < len(CONTENT)


def test_few_instants_of_a_history_are_looked_at() -> None:
    instants = [Instant(f"2025-03-04T05:06:{number:02}.000Z") for number in range(59, 9, -1)]
    looked_at: list[int] = []

    def instant(position: int) -> Instant:
        looked_at.append(position)
        return instants[position]

    history = RevisionList(len(instants), instant, lambda _begin, _end: [])
    for position, each in enumerate(instants):
        looked_at.clear()
        assert (history.since(each), history.position_at(each)) == (position + 1, position)
        assert len(looked_at) <= 2 * 8 + 1
    assert (history.since(LAST), history.position_at(LAST)) == (0, 0)
    assert history.position_at(Instant("2001-01-01T00:00:00.000Z")) == len(instants)
