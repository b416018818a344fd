"""Keys of typed values compare as the values do."""

import itertools
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.errors import BadRequestError
from persistence.index.protocol import AS_FOLDED, key_of
from persistence.model.queries import ControlFilter, TextMatch, range_of
from persistence.model.typed_values import LAST_KEY, OrderedType, equal_to, key_of_value, type_named

_ASCENDING = {
    OrderedType.DATE: ("0001-01-01", "1999-12-31", "2024-02-29Z", " 2024-03-01+02:00 ", "9999-12-31"),
    OrderedType.DATE_TIME: (
        "2024-05-01T00:00:00+02:00",
        "2024-04-30T22:00:00.000001Z",
        "2024-05-01T00:00:00",
        "2024-04-30T19:00:01-05:00",
        "2024-05-01T24:00:00",
        "9999-12-31T23:59:59.999999",
    ),
    OrderedType.TIME: ("00:00:00", "09:59:59.5+02:00", "10:00:00", "10:00:00.25Z", "23:59:59"),
    OrderedType.INTEGER: ("-1000", "-999", "-10", "-9", "-1", "0", "1", "9", "10", "+11", "0100", "9" * 100),
    OrderedType.DECIMAL: ("-10.5", "-10.25", "-1.", "-.12", "-0.001", "0.0", "0.001", ".12", "0.123", "1.5", "10"),
    OrderedType.DOUBLE: ("-INF", "-1E300", "-1.5e2", "-1e-300", "0e5", "1e-300", "1.5", "1E+2", "101", "1e300", "INF"),
}


@pytest.mark.parametrize("of", OrderedType)
def test_keys_are_in_the_order_of_values(of: OrderedType) -> None:
    keys = [str(key_of_value(text, of)) for text in _ASCENDING[of]]
    assert keys == sorted(set(keys))
    assert all("" < key < LAST_KEY and key_of(key) == (key, AS_FOLDED) for key in keys)


@pytest.mark.parametrize(
    ("of", "texts"),
    [
        (OrderedType.DATE, ("2024-02-30", "2024-2-3", "24-02-03", "2024-02-03T10:00:00", "0000-01-01", "now", "")),
        (OrderedType.DATE_TIME, ("2024-02-03", "2024-02-03T10:00", "2024-02-03T25:00:00", "0001-01-01T00:00:00+05:00")),
        (OrderedType.TIME, ("10:00", "24:00:01", "T10:00:00", "2024-02-03T10:00:00")),
        (OrderedType.INTEGER, ("1.0", "1e2", "1 000", "٣", "", "-", "9" * 101)),
        (OrderedType.DECIMAL, ("1e2", "INF", ".", "1,5", "0x1")),
        (OrderedType.DOUBLE, ("NaN", "1e9999", "e5", "infinity")),
    ],
)
def test_values_of_other_types_have_no_key(of: OrderedType, texts: tuple[str, ...]) -> None:
    assert [key_of_value(text, of) for text in texts] == [None] * len(texts)


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=5), min_size=2, max_size=6))
def test_numbers_compare_as_their_keys(numbers: list[Decimal]) -> None:
    keyed = [(number, key_of_value(f"{number:f}"[:100], OrderedType.DECIMAL)) for number in numbers]
    for (one, key), (other, other_key) in itertools.pairwise(keyed):
        if len(f"{one:f}") <= 100 and len(f"{other:f}") <= 100:
            assert (one < other, one == other) == (str(key) < str(other_key), key == other_key)


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("xf:date", OrderedType.DATE),
        ("xs:dateTime", OrderedType.DATE_TIME),
        (" xsd:positiveInteger ", OrderedType.INTEGER),
        ("float", OrderedType.DOUBLE),
        ("xf:string", None),
        ("xs:gYear", None),
        ("", None),
    ],
)
def test_types_are_those_of_binds(name: str, of: OrderedType | None) -> None:
    assert type_named(name) is of


def range_within(*filters: tuple[str, str]) -> tuple[str, str]:
    return range_of([ControlFilter("born", TextMatch(match), text) for match, text in filters], OrderedType.DATE)


def test_a_range_is_of_all_its_conditions() -> None:
    days = [str(key_of_value(f"2024-05-0{day}", OrderedType.DATE)) for day in (1, 2, 3)]
    for filters, found in (
        ([("gte", "2024-05-02")], days[1:]),
        ([("gt", "2024-05-02")], days[2:]),
        ([("lte", "2024-05-02")], days[:2]),
        ([("lt", "2024-05-02")], days[:1]),
        ([("between", "2024-05-02  2024-05-03"), ("lt", "2024-05-03")], days[1:2]),
        ([("between", "2024-05-03 2024-05-01")], []),
    ):
        low, high = range_within(*filters)
        assert [day for day in days if low <= day < high] == found, filters


def test_a_day_is_all_its_times() -> None:
    day = equal_to("2024-05-01", OrderedType.DATE_TIME, "born")
    inside = ("2024-05-01T00:00:00", "2024-05-01T23:59:59.999999")
    outside = ("2024-04-30T23:59:59.999999", "2024-05-02T00:00:00")
    found = [day.low <= str(key_of_value(text, OrderedType.DATE_TIME)) < day.high for text in (*inside, *outside)]
    assert found == [True, True, False, False]


@pytest.mark.parametrize(
    ("match", "text", "cause"),
    [
        ("gte", "tomorrow", "'tomorrow' is not a value of the type date, which 'born' has"),
        ("between", "2024-05-01", "between needs two values with a blank between them, not '2024-05-01'"),
        ("lt", "2024-05-01 2024-05-02", "lt needs one value, not '2024-05-01 2024-05-02'"),
        ("between", "2024-05-01 2024-13-01", "'2024-13-01' is not a value of the type date, which 'born' has"),
    ],
)
def test_a_bound_that_is_not_a_value_is_refused(match: str, text: str, cause: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        range_within((match, text))
    assert str(refused.value) == cause
