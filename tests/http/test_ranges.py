"""Byte ranges as a pure function: the table of spec crud 4.7."""

import pytest

from persistence.errors import BadRequestError, RangeError
from persistence.http.responses import parse_range


@pytest.mark.parametrize(
    ("header", "content_range", "length"),
    [
        ("bytes=0-1", "bytes 0-1/1000", 2),
        ("bytes=128-", "bytes 128-999/1000", 872),
        ("bytes=999-", "bytes 999-999/1000", 1),
        ("bytes=1-32770", "bytes 1-999/1000", 999),
        ("bytes=0-0,5-6", "bytes 0-0/1000", 1),
        (" bytes = 2-3", "bytes 2-3/1000", 2),
    ],
)
def test_the_first_range_is_served_and_clamped(header: str, content_range: str, length: int) -> None:
    part = parse_range(header, 1000)
    assert (f"bytes {part.start}-{part.stop - 1}/1000", len(part)) == (content_range, length)


@pytest.mark.parametrize("header", ["bytes=-500", "bytes=5-2", "lines=1-2", "bytes", "bytes=", "bytes=a-b", "0-1", ""])
def test_suffixes_reversed_ranges_other_units_and_garbage_are_refused(header: str) -> None:
    with pytest.raises(BadRequestError):
        parse_range(header, 1000)


@pytest.mark.parametrize(
    ("header", "size"),
    [("bytes=1000-", 1000), ("bytes=1000-2000", 1000), ("bytes=99999999999999999999-", 1000), ("bytes=0-", 0)],
)
def test_a_start_past_the_end_cannot_be_satisfied(header: str, size: int) -> None:
    with pytest.raises(RangeError) as refusal:
        parse_range(header, size)
    assert refusal.value.size == size
