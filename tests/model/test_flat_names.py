"""Names of flat views: identifiers, what is cut off them, and how they are made distinct."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence.forms.flat_tables import METADATA_COLUMNS, UniqueNames, identifier, joined

IDENTIFIERS = {
    "due-date": "due_date",
    "__a--b_": "a__b",
    "x$y.z": "xyz",
    "-": "_",
    "": "_",
    "é": "_",
    "Name-1": "Name_1",
    '"; DROP TABLE x': "DROPTABLEx",
}


@pytest.mark.parametrize("name", IDENTIFIERS)
def test_a_name_becomes_an_identifier(name: str) -> None:
    assert identifier(name) == IDENTIFIERS[name]


COLUMNS = [
    (
        30,
        [
            (["contact-information", "preferred-contact-method"], "contact_inform_preferred_conta"),
            (["contact-information", "preferred-contact-method-alt"], "contact_inform_preferred_cont1"),
        ],
    ),
    (
        24,
        [
            (["delivery-address", "street-name-and-number"], "delivery_add_street_name"),
            (["delivery-address", "street-name-and-number-2"], "delivery_add_street_nam1"),
        ],
    ),
    (
        63,
        [
            (["created"], "created"),
            (["metadata-created"], "metadata_created1"),
            (["a-b"], "a_b"),
            (["a_b"], "a_b1"),
            (["A-B"], "A_B2"),
            (["a-b-1"], "a_b_1"),
        ],
    ),
    (2, [(["ab"], "ab"), (["abc"], "a1"), (["AB"], "A2"), (["a", "b"], "_b"), (["c", "d"], "_d")]),
]


@pytest.mark.parametrize(("longest", "columns"), COLUMNS)
def test_columns_are_cut_and_counted(longest: int, columns: list[tuple[list[str], str]]) -> None:
    names = UniqueNames(METADATA_COLUMNS, longest)
    assert [names.take(joined(list(map(identifier, parts)), longest)) for parts, _ in columns] == [
        name for _, name in columns
    ]


def test_a_view_is_cut_after_its_prefix() -> None:
    parts = [identifier("human-resources"), identifier("expense-report"), "12"]
    assert "svc_f_" + joined(parts, 30 - 6) == "svc_f_human_reso_expense_re_12"


def test_counters_go_on_to_two_digits() -> None:
    names = UniqueNames((), 3)
    assert [names.take("abc") for _ in range(12)] == ["abc", *(f"ab{n}" for n in range(1, 10)), "a10", "a11"]


def step_by_step(parts: list[str], longest: int) -> str:
    """The rule as it is written."""
    parts = list(parts)
    while sum(map(len, parts)) > longest - (len(parts) - 1):
        at = max(range(len(parts)), key=lambda number: (len(parts[number]), -number))
        parts[at] = parts[at][:-1].rstrip("_")
    return "_".join(parts)


@given(st.lists(st.text("ab_", max_size=12), min_size=1, max_size=5), st.integers(4, 40))
def test_cutting_at_once_is_cutting_step_by_step(parts: list[str], longest: int) -> None:
    assert joined(parts, longest) == step_by_step(parts, longest)


@given(st.lists(st.text("ab_", max_size=12), min_size=1, max_size=9), st.integers(-3, 12))
def test_what_has_no_room_at_all_is_still_no_longer(parts: list[str], longest: int) -> None:
    assert len(joined(parts, longest)) <= max(longest, 1)


def test_long_names_are_cut_at_once() -> None:
    assert joined(["a" * 1_000_000, "b" * 1_000_000], 63) == "a" * 31 + "_" + "b" * 31
