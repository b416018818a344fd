"""The search among names with wildcards: spec forms 5.1."""

from itertools import combinations, product

import pytest

from persistence.properties.properties import NameTree
from persistence.properties.property_table import ANY, Name


def name(text: str) -> Name:
    return tuple(text.split("."))


def names(text: str) -> NameTree:
    """Stored names, from words with blanks between."""
    return NameTree(name(word) for word in text.split())


@pytest.mark.parametrize(
    ("stored", "asked", "winner"),
    [
        ("shop.order.data shop.order.* shop.*.data *.*.*", "shop.order.data", "shop.order.data"),
        ("shop.*.form *.order.* *.*.data", "shop.order.data", "*.order.*"),
        ("*.* *.*.*.*", "shop.order.data", None),
        ("shop.order", "shop.order.data", None),
        ("shop.order.data.attachments *.*.*", "shop.order.data", "*.*.*"),
        ("", "shop.order.data", None),
        ("shop.order.data", "Shop.order.data", None),
        ("shop.or*.data", "shop.order.data", None),
    ],
    ids=lambda value: value or "none",
)
def test_what_wins(stored: str, asked: str, winner: str | None) -> None:
    assert names(stored).find(name(asked)) == (None if winner is None else name(winner))


def test_a_dead_end_leads_back_to_every_choice_before_it() -> None:
    stored = names("a.b.c.d.x a.b.*.d.y a.*.c.*.x a.*.*.*.z *.b.c.d.e *.*.*.*.*")
    assert stored.find(name("a.b.c.d.e")) == name("*.b.c.d.e")


def test_a_name_with_a_dot_is_one_token_and_matches_only_the_wildcard() -> None:
    stored = names("permissions.my.app permissions.*.app permissions.my.app.form")
    assert stored.find(("permissions", "my.app", "form")) is None
    assert stored.find(("permissions", "my.app", "app")) == name("permissions.*.app")


def test_an_application_called_like_the_wildcard_matches_the_wildcard_once() -> None:
    explanation = names("*.leave *.*").explain(("*", "leave"))
    assert explanation.winner.name == name("*.leave")
    assert [reason.name for reason in explanation.losers] == [name("*.*")]


def test_an_explanation_says_who_wins_who_loses_and_which_branch_was_left() -> None:
    explanation = names("shop.*.form *.order.* *.*.data").explain(name("shop.order.data"))
    assert explanation.winner.name == name("*.order.*")
    assert explanation.winner.text == "it is the most literal from the left"
    (loser,) = explanation.losers
    assert (loser.name, loser.text) == (name("*.*.data"), "token 2 is *, where the winner has order")
    (failed,) = explanation.failed
    assert (failed.name, failed.text) == (name("shop.*"), "no name continues there with data or *")


@pytest.mark.parametrize(
    ("stored", "why"), [("a.b *.*", "it is the name itself"), ("a.b", "it is the name itself"), ("a.*", "nothing else")]
)
def test_an_explanation_says_why_the_winner_wins(stored: str, why: str) -> None:
    winner = names(stored).explain(name("a.b")).winner
    assert winner.text.startswith(why)


def test_an_explanation_without_a_winner_says_where_the_search_ended() -> None:
    explanation = names("a.b.c.d a.x.c").explain(name("a.b.c"))
    assert (explanation.winner, explanation.losers) == (None, ())
    (failed,) = explanation.failed
    assert (failed.name, failed.text) == (name("a.b.c"), "no name ends there")


def test_branches_tried_after_the_winner_are_no_part_of_its_explanation() -> None:
    assert names("a.b *.c").explain(name("a.b")).failed == ()


def test_the_search_is_the_comparison_of_all_that_match_from_the_left() -> None:
    """Every pair of patterns of three tokens, against the rule said in another way."""
    patterns = list(product(("a", "b", ANY), repeat=3))
    for pair in combinations(patterns, 2):
        stored = NameTree(pair)
        for asked in product("ab", repeat=3):
            matching = [one for one in pair if all(have in (want, ANY) for have, want in zip(one, asked, strict=True))]
            best = min(matching, key=lambda one: [have == ANY for have in one], default=None)
            winner = stored.explain(asked).winner
            assert stored.find(asked) == best == (None if winner is None else winner.name)
