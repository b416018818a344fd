"""A content that is read in pieces, and a history of which little is looked at."""

from __future__ import annotations

import hashlib
import io

import pytest

from persistence.errors import DamagedError
from persistence.limits import FIRST_PIECE, LARGEST_PIECE
from persistence.model.instants import LAST, Instant
from persistence.model.sidecar import digest_text
from persistence.storage.on_demand import RangedFile, RevisionList

BODY = bytes(range(256)) * (6 << 12)
DIGEST = digest_text(hashlib.sha256(BODY).hexdigest())


def opened(asked: list[tuple[int, int]], digest: str = DIGEST) -> io.BufferedReader:
    def read(begin: int, end: int) -> bytes:
        asked.append((begin, end))
        return BODY[begin:end]

    return io.BufferedReader(RangedFile(len(BODY), read, digest))


def test_pieces_grow_while_they_follow_each_other() -> None:
    asked: list[tuple[int, int]] = []
    assert opened(asked).read() == BODY
    assert [end - begin for begin, end in asked[:3]] == [FIRST_PIECE, 2 * FIRST_PIECE, 4 * FIRST_PIECE]
    assert max(end - begin for begin, end in asked) <= LARGEST_PIECE


def test_a_place_within_the_piece_that_is_held_asks_for_nothing() -> None:
    asked: list[tuple[int, int]] = []
    file = opened(asked)
    for at in (0, FIRST_PIECE - 5, 77, FIRST_PIECE // 2):
        file.seek(at)
        assert file.read(5) == BODY[at : at + 5]
    assert asked == [(0, FIRST_PIECE)]
    file.seek(3 * FIRST_PIECE)
    assert file.read(5) == BODY[3 * FIRST_PIECE : 3 * FIRST_PIECE + 5]
    assert asked[1:] == [(3 * FIRST_PIECE, 4 * FIRST_PIECE)]


def test_the_last_piece_of_another_content_is_not_given() -> None:
    file = opened([], digest_text("0" * 64))
    with pytest.raises(DamagedError, match="recorded digest"):
        list(iter(lambda: file.read(1 << 16), b""))
    assert file.tell() < len(BODY)


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
