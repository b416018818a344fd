"""A cache is bounded in entries and in bytes of memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from persistence.keeping import Kept, size_of
from persistence.model.form_versions import IndexKey, PathStep


@dataclass(frozen=True, slots=True)
class Held:
    """Something with a text."""

    text: str


def test_an_answer_is_made_once() -> None:
    kept: Kept[str] = Kept(10, 10_000)
    assert kept.of("a", lambda: "first") == "first"
    assert kept.of("a", lambda: "second") == "first"
    assert kept.known("a") == "first"
    assert kept.known("b") is None


def test_those_used_last_are_kept_up_to_a_number() -> None:
    kept: Kept[int] = Kept(2, 1 << 20)
    for key in "abac":
        kept.of(key, lambda: 1)
    assert [kept.known(key) for key in "abc"] == [1, None, 1]


def test_those_used_last_are_kept_up_to_some_bytes_of_keys_and_answers() -> None:
    kept: Kept[Held] = Kept(1_000, 1 << 20)
    for number in range(100):
        kept.of((number, "k" * 10_000), lambda: Held("x" * 90_000))
    assert sum(kept.known((number, "k" * 10_000)) is not None for number in range(100)) == 10


def test_the_newest_is_kept_however_large_it_is() -> None:
    kept: Kept[str] = Kept(10, 1_000)
    kept.of("a", lambda: "x" * 100_000)
    assert kept.known("a") is not None
    kept.of("b", lambda: "y" * 100_000)
    assert kept.known("a") is None


def test_an_error_is_not_kept() -> None:
    kept: Kept[str] = Kept(10, 1_000)
    with pytest.raises(LookupError):
        kept.of("a", _failing)
    assert kept.of("a", lambda: "made") == "made"


def _failing() -> str:
    raise LookupError


def test_a_size_is_of_all_that_a_value_leads_to_each_once() -> None:
    text = "x" * 1_000
    one = sys.getsizeof(text)
    for value in (
        (text, text),
        [text],
        {text: 1},
        frozenset({text}),
        Held(text),
        (IndexKey("p", (PathStep(text),)),),
        {1: (text,)},
    ):
        assert one < size_of(value) < 2 * one
    assert size_of(Held) == 0
