"""Texts, columns and permissions as the terminal gets them."""

import pytest

from persistence.cli.terminal import counted, labelled, print_table, safe, width
from persistence.forms.definition_metadata import read_permissions
from persistence.maintenance.reports import in_words
from persistence.model.permissions import from_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Ürlaub 请假 e\u0301 \N{FAMILY}", "Ürlaub 请假 e\u0301 \N{FAMILY}"),
        ("a\x1b[31mb", "a�[31mb"),
        ("a\nb\rc\td\x00e\x7ff", "a�b�c�d�e�f"),
        ("a\x85b\x9b31mc", "a�b�31mc"),
        ("a\u202eb\u2066c\u2028d\u200fe", "a�b�c�d�e"),
        ("a\udcffb", "a�b"),
    ],
)
def test_nothing_but_what_can_be_seen_reaches_a_terminal(text: str, shown: str) -> None:
    assert safe(text) == shown


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("请假条", 6), ("e\u0301e\u0301", 2), ("", 0)])
def test_texts_are_as_wide_as_the_columns_they_take(text: str, columns: int) -> None:
    assert width(text) == columns


@pytest.mark.parametrize(("number", "shown"), [(0, "0 drafts"), (1, "1 draft"), (2, "2 drafts")])
def test_one_is_not_many(number: int, shown: str) -> None:
    assert counted(number, "draft") == shown


def test_columns_are_as_wide_as_what_is_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("NAME", "N", "EMPTY", "END"), ("请假", "10", "", "x"), ("a", "9", "", "")], right=(1,))
    assert capsys.readouterr().out.splitlines() == ["NAME   N  END", "请假  10  x", "a      9"]


def test_a_label_stands_before_the_first_of_its_values() -> None:
    assert list(labelled([("titles", ["a", "b"]), ("by", []), ("file", ["c"])])) == [
        "titles  a",
        "        b",
        "file    c",
    ]


@pytest.mark.parametrize(
    ("xml", "words"),
    [
        ("<permissions/>", ["nobody may do anything"]),
        ('<permissions><permission operations="create -list"/></permissions>', ["anyone: create"]),
        ('<permissions><permission operations="-list"/></permissions>', ["anyone: nothing"]),
        (
            '<permissions><permission operations="update read"><owner/></permission></permissions>',
            ["owner: read update list"],
        ),
        (
            '<permissions><permission operations=""><owner/><user-role any-of="b%20c a"/></permission></permissions>',
            ["owner and role a or b c: list"],
        ),
        (
            '<permissions><permission operations="read fly -list"><any-authenticated-user/></permission></permissions>',
            ["whoever has a name: read fly (not known here)"],
        ),
        (
            '<permissions><permission operations="read -list"><moon-phase/></permission></permissions>',
            ["nobody, for the condition is not known here: read"],
        ),
        (
            '<permissions><permission operations="read -list"><user-role/></permission></permissions>',
            ["nobody, for no role is named: read"],
        ),
    ],
)
def test_permissions_in_words(xml: str, words: list[str]) -> None:
    """Spec crud 6.2: each is one rule; all of its conditions must hold, one of the roles."""
    assert list(in_words(read_permissions(xml))) == words


def test_undefined_permissions_and_those_of_a_property() -> None:
    """Spec crud 6.3: nothing defined is everything; in the property ``list`` is not implied."""
    assert list(in_words(None)) == ["everyone may do everything"]
    text = '{"anyone": ["create"], "anyone-with-token": ["read"], "roles": {"clerk": ["read", "list"]}}'
    assert list(in_words(from_json(text))) == [
        "anyone: create",
        "anyone with an access token: read",
        "role clerk: read list",
    ]
