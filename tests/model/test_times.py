"""Times of queries, and instants as lists show them (spec search 0.3)."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from persistence.errors import BadRequestError
from persistence.model.texts import Instant, first_from, parse_time, shortest


def moment(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)  # type: ignore[arg-type,misc]


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server two hours ahead of UTC in summer."""
    monkeypatch.setenv("TZ", "EET-2EEST,M3.5.0/3,M10.5.0/4")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2024-05-01T10:00:00Z", moment(2024, 5, 1, 10)),
        ("2024-05-01T10:00:00.25Z", moment(2024, 5, 1, 10, 0, 0, 250_000)),
        ("2024-05-01T10:00:00.123456789Z", moment(2024, 5, 1, 10, 0, 0, 123_456)),
        ("2024-05-01T10:00:00+02:00", moment(2024, 5, 1, 8)),
        ("2024-05-01T10:00:00-14:00", moment(2024, 5, 2, 0)),
        ("2024-05-01T10:00:00", moment(2024, 5, 1, 7)),
        ("2024-01-01T10:00:00", moment(2024, 1, 1, 8)),
        ("2024-05-01", moment(2024, 4, 30, 21)),
        ("2024-05-01Z", moment(2024, 5, 1)),
        ("2024-05-01-05:30", moment(2024, 5, 1, 5, 30)),
        ("2024-12-31T24:00:00Z", moment(2025, 1, 1)),
    ],
)
def test_times_without_an_offset_are_of_the_servers_zone_and_dates_are_midnight(text: str, at: datetime) -> None:
    """Spec search 0.3, Input."""
    assert parse_time(text, "created") == at


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2024", "2024-05", "2024-13-01", "2024-02-30", "24-05-01", "-2024-05-01", "12024-05-01"),
        *("2024-05-01T10:00", "2024-05-01T25:00:00Z", "2024-05-01T24:00:01Z", "2024-05-01T24:00:00.5Z"),
        *("20240501T100000Z", "2024-05-01 10:00:00Z", "2024-05-01T10:00:00z", "2024-05-01T10:00:00.Z"),
        *("2024-05-01T10:00:00+15:00", "2024-05-01T10:00:00+0200", "202\N{ARABIC-INDIC DIGIT FOUR}-05-01"),
        *("2024-W01-1", "0000-01-01", "9999-12-31T24:00:00Z", "0001-01-01T00:00:00+14:00"),
        "2024-05-01T10:00:00Z\n",
    ],
)  # fmt: skip
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(BadRequestError, match="created"):
        parse_time(text, "created")


def test_instants_are_as_short_as_they_can_be() -> None:
    """Spec search 0.3, Output."""
    assert shortest(Instant("2024-05-01T10:00:00.000Z")) == "2024-05-01T10:00:00Z"
    assert shortest(Instant("2024-05-01T10:00:00.250Z")) == "2024-05-01T10:00:00.250Z"


@pytest.mark.parametrize(
    ("microsecond", "instant"),
    [(0, "2024-05-01T10:00:00.000Z"), (1, "2024-05-01T10:00:00.001Z"), (250_000, "2024-05-01T10:00:00.250Z")],
)
def test_the_first_instant_from_a_moment_on(microsecond: int, instant: str) -> None:
    assert first_from(moment(2024, 5, 1, 10, 0, 0, microsecond)) == instant


def test_there_is_no_instant_after_the_last_year() -> None:
    assert first_from(moment(2023, 12, 31, 23, 59, 59, 999_001)) == "2024-01-01T00:00:00.000Z"
    with pytest.raises(OverflowError):
        first_from(moment(9999, 12, 31, 23, 59, 59, 999_001))
