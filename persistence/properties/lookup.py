"""The search among stored names with wildcards: the most literal from the left wins (spec forms 5.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

ANY = "*"
"""The token of a stored name that stands for every token."""

Name = tuple[str, ...]
"""The tokens of a name. An application or a form is one token, also where its own name has dots."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A stored name, or the beginning of some, and the reason why it won, lost or did not match."""

    name: Name
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A search with its reasons: the winner, the others that match, and the branches tried in vain before it."""

    winner: Reason | None
    losers: tuple[Reason, ...]
    left: tuple[Reason, ...]


@dataclass(slots=True)
class _Branch:
    branches: dict[str, _Branch] = field(default_factory=dict)
    is_name: bool = False


class NameTree:
    """Stored names, ready to be searched."""

    def __init__(self, names: Iterable[Name]) -> None:
        self._root = _Branch()
        for name in names:
            branch = self._root
            for token in name:
                branch = branch.branches.setdefault(token, _Branch())
            branch.is_name = True

    def find(self, asked: Name) -> Name | None:
        """Return the stored name that wins for the one asked for, if any.

        A stored name without wildcards needs no rule of its own: the walk tries the literal first in every place.
        """
        return next((name for name, is_match in _walk(self._root, (), asked) if is_match), None)

    def explain(self, asked: Name) -> Explanation:
        """Return the result of the same search with its reasons."""
        ends = list(_walk(self._root, (), asked))
        matches = [name for name, is_match in ends if is_match]
        until = [is_match for _, is_match in ends].index(True) if matches else len(ends)
        left = tuple(Reason(name, _why_left(name, asked)) for name, _ in ends[:until])
        if not matches:
            return Explanation(None, (), left)
        winner, *others = matches
        losers = tuple(Reason(other, _why_lost(other, winner)) for other in others)
        return Explanation(Reason(winner, _why_won(winner, asked, others)), losers, left)

    def reachable(self, asked: Name) -> Iterator[Name]:
        """Yield the stored names that could win for a name in which ``ANY`` may stand for every token (spec forms 5.1).

        The most literal come first; after one that wins for all that is asked, none is left.
        """
        for name in _reachable(self._root, asked):
            yield name
            if all(token in (wanted, ANY) for token, wanted in zip(name, asked, strict=True)):
                return


def _reachable(branch: _Branch, rest: Name) -> Iterator[Name]:
    if not rest:
        if branch.is_name:
            yield ()
        return
    literal = sorted(branch.branches.keys() - {ANY}) if rest[0] == ANY else [rest[0]]
    for token in (*literal, ANY):
        below = branch.branches.get(token)
        if below is not None:
            yield from ((token, *name) for name in _reachable(below, rest[1:]))


def _walk(branch: _Branch, gone: Name, rest: Name) -> Iterator[tuple[Name, bool]]:
    """Yield the end of every way, the most literal from the left first: a stored name, or where nothing goes on."""
    if not rest:
        yield gone, branch.is_name
        return
    tokens = [token for token in dict.fromkeys((rest[0], ANY)) if token in branch.branches]
    if not tokens:
        yield gone, False
    for token in tokens:
        yield from _walk(branch.branches[token], (*gone, token), rest[1:])


def _why_won(winner: Name, asked: Name, others: list[Name]) -> str:
    if winner == asked:
        return "it is the name itself"
    return "it is the most literal from the left" if others else "nothing else matches"


def _why_lost(loser: Name, winner: Name) -> str:
    place, literal = next((at, one) for at, (one, other) in enumerate(zip(winner, loser, strict=True)) if one != other)
    return f"token {place + 1} is {ANY}, where the winner has {literal}"


def _why_left(branch: Name, asked: Name) -> str:
    if len(branch) == len(asked):
        return "no name ends there"
    return f"no name goes on there with {' or '.join(dict.fromkeys((asked[len(branch)], ANY)))}"
