"""Texts of a sidecar or a request: instants, times, time spans, truth values, names and causes (spec search 0.3)."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from persistence.errors import BadRequestError, one_line
from persistence.model.sidecar import SCHEMA, Sidecar, fresh_id, stamp
from persistence.model.texts import (
    Instant,
    cutoff,
    duration,
    epoch_nanoseconds,
    first_from,
    flag,
    from_datetime,
    nearest,
    next_after,
    parse_instant,
    parse_time,
    retention,
    short,
    shortest,
    similar,
    to_datetime,
)

LATER = Instant("2999-12-31T23:59:59.999Z")
NOW = datetime(2026, 3, 4, 5, 6, 7, 89_000, UTC)
DAY = 86_400


def moment(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)  # type: ignore[arg-type,misc]


def test_an_instant_has_three_digits_always() -> None:
    assert parse_instant("2025-03-04T05:06:07Z") == "2025-03-04T05:06:07.000Z"
    assert parse_instant("2025-03-04T06:06:07.089+01:00") == "2025-03-04T05:06:07.089Z"


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2025-03-04", "2025-03-04T05:06:07.089", "2025-03-04T05:06:07.0891Z"]
)
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_instant(text)


def test_the_next_instant_is_now_or_a_millisecond_later() -> None:
    """A clock that was set back must not give two revisions one instant."""
    assert abs(to_datetime(next_after(None)).timestamp() - time.time()) < 5
    assert next_after(LATER) == "3000-01-01T00:00:00.000Z"
    instant = None
    for _ in range(1000):
        following = next_after(instant)
        assert instant is None or following > instant
        instant = following


def test_an_instant_survives_the_trip_through_datetime() -> None:
    instant = Instant("2025-03-04T05:06:07.089Z")
    assert from_datetime(to_datetime(instant)) == instant
    assert epoch_nanoseconds(instant) == 1741064767_089_000_000


def test_nanoseconds_are_in_the_order_of_the_instants() -> None:
    """Also before 1970, where a second that was cut off towards 1970 would be one too many."""
    seconds = ("0001-01-01T00:00:00", "1583-10-15T12:00:00", "1969-12-31T23:59:58", "1969-12-31T23:59:59")
    instants = [Instant(f"{second}.{part}Z") for second in seconds for part in ("000", "001", "500", "999")]
    found = [epoch_nanoseconds(each) for each in (*instants, Instant("1970-01-01T00:00:00.000Z"))]
    assert found == sorted(set(found))
    assert (found[-1], found[-2]) == (0, -1_000_000)


def test_a_stamp_is_the_instant_and_something_of_the_id() -> None:
    modified = next_after(None)
    stamps = {
        stamp(Sidecar(schema=SCHEMA, id=fresh_id(), version=1, modified=modified, created=modified, size=0))
        for _ in range(50)
    }
    assert len(stamps) > 45
    assert {value // 1_000_000 for value in stamps} == {epoch_nanoseconds(modified) // 1_000_000}


@pytest.fixture
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server two hours ahead of UTC in summer."""
    monkeypatch.setenv("TZ", "EET-2EEST,M3.5.0/3,M10.5.0/4")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_zone")
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
    assert shortest(Instant("2024-05-01T10:00:00.000Z")) == "2024-05-01T10:00:00Z"
    assert shortest(Instant("2024-05-01T10:00:00.250Z")) == "2024-05-01T10:00:00.250Z"


def test_the_first_instant_from_a_moment_on() -> None:
    for microsecond, digits in ((0, "000"), (1, "001"), (250_000, "250")):
        assert first_from(moment(2024, 5, 1, 10, 0, 0, microsecond)) == f"2024-05-01T10:00:00.{digits}Z"
    assert first_from(moment(2023, 12, 31, 23, 59, 59, 999_001)) == "2024-01-01T00:00:00.000Z"
    with pytest.raises(OverflowError):
        first_from(moment(9999, 12, 31, 23, 59, 59, 999_001))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90s", 90), ("10m", 600), ("1h30m", 5400), ("7d", 604_800), ("1d2h3m4s", 93_784)),
        *((each, None) for each in ("", "0", "90", "1d5", "0d", "s", "d", "1m1h", "1d1d", "-1s", "1.5h", "1 d")),
        *((each, None) for each in ("10s5", "\u0661d", "1234567")),
    ],
)
def test_time_spans(text: str, seconds: int | None) -> None:
    if seconds is not None:
        assert duration(text) == seconds
    else:
        with pytest.raises(BadRequestError):
            duration(text)


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("30d", "2026-02-02T05:06:07.089Z"),
        ("2w", "2026-02-18T05:06:07.089Z"),
        ("1y", "2025-03-04T05:06:07.089Z"),
        ("1h30m", "2026-03-04T03:36:07.089Z"),
        ("9999y", "0001-01-01T00:00:00.000Z"),
        ("2025-03-04T05:06:07Z", "2025-03-04T05:06:07.000Z"),
        ("2026-03-04T05:06:07.089Z", "2026-03-04T05:06:07.089Z"),
    ],
)
def test_a_time_before_which_things_go(text: str, before: str) -> None:
    assert cutoff(text, NOW) == before


@pytest.mark.parametrize("text", ["", "0d", "0y", "-1d", "2 y", "y", "1.5y", "2026-03-04T05:06:07.090Z", "2026-13-01"])
def test_neither_a_time_nor_a_time_span_nor_one_in_the_future(text: str) -> None:
    cause = r"must be a time span such as 12h, 30d or 2y, or a date|is in the future"
    with pytest.raises(BadRequestError, match=cause):
        cutoff(text, NOW)


@pytest.mark.parametrize(("text", "seconds"), [("forever", None), ("none", 0), ("30d", 30 * DAY), ("2y", 730 * DAY)])
def test_how_long_something_is_kept(text: str, seconds: int | None) -> None:
    assert retention(text, may_be_none=True) == seconds


@pytest.mark.parametrize("text", ["none", "never", "0", "90", "2 years"])
def test_what_is_no_retention(text: str) -> None:
    with pytest.raises(BadRequestError):
        retention(text, may_be_none=False)


@pytest.mark.parametrize(
    ("text", "has_any_case", "value"),
    [
        *((text, has_any_case, value) for text, value in ((None, None), ("true", True), ("false", False))
          for has_any_case in (False, True)),
        *(("TRUE", True, True), ("False", True, False)),
    ],
)  # fmt: skip
def test_truth_values(text: str | None, *, has_any_case: bool, value: bool | None) -> None:
    assert flag(text, "valid", has_any_case=has_any_case) is value


@pytest.mark.parametrize("text", ["", " true", "yes", "1", "TRUE", "False"])
def test_other_truth_values_are_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match=r"^valid must be 'true' or 'false', not "):
        flag(text, "valid")


def test_the_nearest_of_many_is_the_one_that_was_misspelt() -> None:
    known = [f"section-{number}/control-{number}" for number in range(5_000)]
    assert nearest("section-1234/contrl-1234", known) == "section-1234/control-1234"
    assert nearest("sction-77/control-77", known) == "section-77/control-77"
    assert similar("nothing like it", known) is None


def test_long_names_that_are_all_alike_take_no_long_time() -> None:
    known = ["ab" * 90 + str(number) for number in range(10_000)]
    began = time.process_time()
    assert nearest("ba" * 100, known) is not None
    assert time.process_time() - began < 1.0


def test_short_texts_are_trimmed_and_bounded() -> None:
    assert [short(text, "text") for text in ("  a b ", "   ", "x" * 255)] == ["a b", None, "x" * 255]
    for bad in ("x" * 256, "a\nb", "a\x00"):
        with pytest.raises(BadRequestError):
            short(bad, "text")


def test_a_cause_is_one_printable_line_that_keeps_its_subject_and_its_remedy() -> None:
    assert one_line("a\r\nb\x00\x1b[31mc") == "a b [31mc"
    assert len(one_line("x" * 1000)) == 300
    shown = one_line(f"the host {'x' * 1000} is not served: add it to the setting hosts")
    assert shown.startswith("the host x")
    assert shown.endswith("x is not served: add it to the setting hosts")
