"""The nearest valid name of a property, for whoever has misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import product

from persistence.properties.known import DATA, FORM, KNOWN, RESERVED, KnownProperty, fits, known_property
from persistence.properties.lookup import ANY, Name


def unknown(name: str, prefix: str) -> str:
    """What to say of a wrong name: the nearest valid one, or that no provider can be called so."""
    given = tuple(name.removeprefix(prefix).split("."))
    if len(given) > 1 and given[1] in RESERVED and known_property((given[0], ANY, *given[2:])) is not None:
        return f"unknown property {name!r}: no provider can be called {given[1]!r}"
    return f"unknown property {name!r}; the nearest valid name is {nearest(name, prefix)!r}"


def nearest(name: str, prefix: str) -> str:
    """The valid name nearest to a wrong one, both with prefix; applications, forms and providers stay as they are."""
    given = tuple(name.removeprefix(prefix).split("."))
    candidates = [prefix + ".".join(tokens) for each in KNOWN for tokens in _candidates(each, given)]
    return difflib.get_close_matches(name, candidates, n=1, cutoff=0)[0]


def general_names(prefix: str) -> list[str]:
    """The names of all properties with ``*`` in every place that allows it."""
    return [prefix + ".".join(_general(place) for place in each.places) for each in KNOWN]


def _candidates(property_: KnownProperty, given: Name) -> Iterator[Name]:
    """The pattern with what was given in its places, once from the left and once from the right.

    The one finds what a token too few at the end meant, the other what was meant under another dialect's prefix.
    """
    places = property_.places
    missing = (ANY,) * max(0, len(places) - len(given))
    for tokens in ((*given, *missing)[: len(places)], (*missing, *given)[-len(places) :]):
        yield from product(*(_choices(place, token) for place, token in zip(places, tokens, strict=True)))


def _choices(place: str, token: str) -> Name:
    if place.startswith("<") and fits(place, token):
        return (token,)
    return (FORM, DATA, ANY) if place == "<form|data>" else (_general(place),)


def _general(place: str) -> str:
    return ANY if place.startswith("<") else place
