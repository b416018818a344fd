"""How long things are kept, as people write it."""

from datetime import UTC, datetime

import pytest

from persistence.errors import BadRequestError
from persistence.model.texts import cutoff, retention

NOW = datetime(2026, 3, 4, 5, 6, 7, 89_000, UTC)
DAY = 86_400


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
    with pytest.raises(
        BadRequestError, match=r"must be a time span such as 12h, 30d or 2y, or a date|is in the future"
    ):
        cutoff(text, NOW)


@pytest.mark.parametrize(("text", "seconds"), [("forever", None), ("none", 0), ("30d", 30 * DAY), ("2y", 730 * DAY)])
def test_how_long_something_is_kept(text: str, seconds: int | None) -> None:
    assert retention(text, may_be_none=True) == seconds


@pytest.mark.parametrize("text", ["none", "never", "0", "90", "2 years"])
def test_what_is_no_retention(text: str) -> None:
    with pytest.raises(BadRequestError):
        retention(text, may_be_none=False)
