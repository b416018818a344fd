"""A cache is bounded in entries and in bytes of memory."""

import sys
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from persistence.bounded_cache import BoundedCache, size_of
from persistence.model.versions import IndexKey, PathStep

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Held:
    """Something with a text."""

    text: str


def held(cache: BoundedCache[T], key: Hashable) -> T | None:
    """Return a value if it is in the cache, and make none."""
    with suppress(LookupError):
        return cache.get(key, _failing)
    return None


def test_a_value_is_made_once() -> None:
    cache: BoundedCache[str] = BoundedCache(10, 10_000)
    assert cache.get("a", lambda: "first") == "first"
    assert cache.get("a", lambda: "second") == "first"
    assert held(cache, "a") == "first"
    assert held(cache, "b") is None


def test_those_used_last_are_kept_up_to_a_number() -> None:
    cache: BoundedCache[int] = BoundedCache(2, 1 << 20)
    for key in "abac":
        cache.get(key, lambda: 1)
    assert [held(cache, key) for key in "abc"] == [1, None, 1]


def test_those_used_last_are_kept_up_to_some_bytes_of_keys_and_values() -> None:
    cache: BoundedCache[Held] = BoundedCache(1_000, 1 << 20)
    for number in range(100):
        cache.get((number, "k" * 10_000), lambda: Held("x" * 90_000))
    assert sum(held(cache, (number, "k" * 10_000)) is not None for number in range(100)) == 10


def test_the_newest_is_kept_however_large_it_is() -> None:
    cache: BoundedCache[str] = BoundedCache(10, 1_000)
    cache.get("a", lambda: "x" * 100_000)
    assert held(cache, "a") is not None
    cache.get("b", lambda: "y" * 100_000)
    assert held(cache, "a") is None


def test_an_error_is_not_kept() -> None:
    cache: BoundedCache[str] = BoundedCache(10, 1_000)
    with pytest.raises(LookupError):
        cache.get("a", _failing)
    assert cache.get("a", lambda: "made") == "made"


def _failing() -> Any:
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
