"""Entries: the properties of the configuration file and the shipped ones, checked once at start; and their search."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, StartupError
from persistence.model import permissions
from persistence.model.object_places import is_bucket, object_endpoint, parse_bucket
from persistence.model.retention import is_retention
from persistence.model.versions import is_data_format
from persistence.properties.property_table import (
    ANY,
    ENGINES,
    LARGEST,
    SHIPPED,
    SHIPPED_BY_PREFIX,
    TREE,
    Address,
    KnownProperty,
    Name,
    Value,
    ValueType,
    full_address,
    is_database,
    is_provider,
    known_property,
    unknown,
)

_TYPES: Mapping[ValueType, type] = {ValueType.BOOLEAN: bool, ValueType.INTEGER: int, ValueType.MINUTES: int}
_UNSHOWN = (ValueType.SECRET, ValueType.URI, ValueType.ENDPOINT, ValueType.DIRECTORY)
"""The types of values that may contain a password."""

_TREE = f"{TREE}:"


@dataclass(frozen=True, slots=True)
class PropertyEntry:
    """A stored property; ``file`` is where it stands, ``None`` for one that the service ships."""

    name: Name
    value: Value
    known: KnownProperty
    file: str | None = None

    @property
    def origin(self) -> str:
        return self.file or "default"

    @property
    def is_blank(self) -> bool:
        """Return whether it stands for "not configured" (spec forms 5.1)."""
        return isinstance(self.value, str) and not self.value.strip()

    def __str__(self) -> str:
        return ".".join(self.name)


def shipped(prefix: str) -> list[PropertyEntry]:
    everywhere_and_here = (*SHIPPED.items(), *SHIPPED_BY_PREFIX[prefix].items())
    return [_entry(prefix + name, value, prefix, None) for name, value in everywhere_and_here]


def from_file(table: Mapping[str, object], prefix: str, file: str) -> list[PropertyEntry]:
    """Read the entries of a file, from names with dots and from tables within tables."""
    entries: dict[Name, PropertyEntry] = {}
    for name, value in _flat(table, prefix):
        entry = _entry(name, value, prefix, file)
        if entry.name in entries:
            raise StartupError(f"{file}: {name} is given twice")
        entries[entry.name] = entry
    return list(entries.values())


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    """Yield names and values, tables resolved: in a loop, so that no depth of tables is too much."""
    stack = list(table.items())[::-1]
    while stack:
        name, value = stack.pop()
        # An empty table of ours is one whose lines are all commented out; any other is a mistake.
        if isinstance(value, dict) and (value or f"{name}.".startswith(prefix) or prefix.startswith(f"{name}.")):
            stack.extend([(f"{name}.{inner}", content) for inner, content in value.items()][::-1])
        else:
            yield name, value


def _entry(name: str, value: object, prefix: str, file: str | None) -> PropertyEntry:
    known = known_property(tuple(name.removeprefix(prefix).split("."))) if name.startswith(prefix) else None
    if known is None:
        raise StartupError(f"{file}: {unknown(name, prefix)}")
    try:
        checked = _checked(known.kind, value)
    except BadRequestError as error:
        raise StartupError(f"{file}: {name}: {error}") from error
    if known.kind is ValueType.DIRECTORY and isinstance(checked, str) and checked.strip() and "{" not in checked:
        checked = checked.strip()
        if not is_bucket(checked):
            checked = os.path.abspath(os.path.join(os.path.dirname(file or ""), checked))
    return PropertyEntry(tuple(name.split(".")), checked, known, file)


def _checked(kind: ValueType, value: object) -> Value:
    # Types are compared exactly: true is not an integer here.
    if type(value) is not _TYPES.get(kind, str):
        raise BadRequestError(f"must be {kind.value}" + ("" if kind in _UNSHOWN else f", not {value!r}"))
    if isinstance(value, str) and not value.strip():
        return value
    if not _is_acceptable(kind, value):
        raise BadRequestError(f"must be {kind.value}, not {value!r}")
    if kind is ValueType.PERMISSIONS:
        permissions.from_json(str(value))
    if kind is ValueType.URI:
        remote_address(str(value))
    if kind is ValueType.ENDPOINT:
        object_endpoint(str(value))
    if kind is ValueType.DIRECTORY and is_bucket(str(value)):
        parse_bucket(str(value))
    return Address(value) if kind is ValueType.URI else value  # type: ignore[return-value, arg-type]  # as compared


def _is_acceptable(kind: ValueType, value: object) -> bool:
    if kind is ValueType.INTEGER:
        return isinstance(value, int) and 1 <= value <= LARGEST
    if kind is ValueType.MINUTES:
        return isinstance(value, int) and 0 <= value <= LARGEST
    if kind is ValueType.PROVIDER:
        return is_provider(str(value))
    if kind in (ValueType.HISTORY, ValueType.RETENTION):
        return is_retention(str(value), may_be_none=kind is ValueType.HISTORY)
    if kind is ValueType.DIALECT:
        return value in DIALECTS
    return kind is not ValueType.FORMAT or is_data_format(str(value))


def remote_address(uri: str) -> str | Address:
    """Read the property ``uri``: the address of another service without a slash at its end, empty for a tree."""
    given = full_address(uri).strip()
    # In a text that is not an address, any part may be a password.
    instead = "" if "@" in given else f", not {given!r}"
    if given in ("", _TREE):
        return ""
    if given.startswith(_TREE):
        raise BadRequestError(f"{_TREE} stands alone: the property datasource names the root of a tree{instead}")
    if is_database(given) and given.isprintable():
        return Address(given)  # which its driver reads
    try:
        parts = urlsplit(given)
        is_address = (
            parts.scheme in ENGINES
            and bool(parts.hostname)
            and given.isprintable()
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment:
        raise BadRequestError(
            f"must be {_TREE}, or the address of a service that begins with http:// or of a database with"
            f" postgresql://{instead}"
        )
    return Address(given.rstrip("/"))


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
    failed: tuple[Reason, ...]


@dataclass(slots=True)
class _Branch:
    branches: dict[str, _Branch] = field(default_factory=dict)
    is_name: bool = False


class NameTree:
    """Stored names, ready to be searched with wildcards: the most literal from the left wins (spec forms 5.1)."""

    def __init__(self, names: Iterable[Name]) -> None:
        self._root = _Branch()
        for name in names:
            branch = self._root
            for token in name:
                branch = branch.branches.setdefault(token, _Branch())
            branch.is_name = True

    def find(self, asked: Name) -> Name | None:
        """Return the stored name that wins for the one asked for, if any."""
        return next((name for name, is_match in _walk(self._root, (), asked) if is_match), None)

    def explain(self, asked: Name) -> Explanation:
        """Return the result of the same search with its reasons."""
        ends = list(_walk(self._root, (), asked))
        matches = [name for name, is_match in ends if is_match]
        until = [is_match for _, is_match in ends].index(True) if matches else len(ends)
        failed = tuple(Reason(name, _why_failed(name, asked)) for name, _ in ends[:until])
        if not matches:
            return Explanation(None, (), failed)
        winner, *others = matches
        losers = tuple(Reason(other, _why_lost(other, winner)) for other in others)
        if winner == asked:
            reason = "it is the name itself"
        else:
            reason = "it is the most literal from the left" if others else "nothing else matches"
        return Explanation(Reason(winner, reason), losers, failed)

    def reachable(self, asked: Name) -> Iterator[Name]:
        """Yield the names that could win for one with ``ANY`` for some tokens, most literal first (spec forms 5.1)."""
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
    if not rest:
        yield gone, branch.is_name
        return
    tokens = [token for token in dict.fromkeys((rest[0], ANY)) if token in branch.branches]
    if not tokens:
        yield gone, False
    for token in tokens:
        yield from _walk(branch.branches[token], (*gone, token), rest[1:])


def _why_lost(loser: Name, winner: Name) -> str:
    place, literal = next((at, one) for at, (one, other) in enumerate(zip(winner, loser, strict=True)) if one != other)
    return f"token {place + 1} is {ANY}, where the winner has {literal}"


def _why_failed(branch: Name, asked: Name) -> str:
    if len(branch) == len(asked):
        return "no name ends there"
    return f"no name continues there with {' or '.join(dict.fromkeys((asked[len(branch)], ANY)))}"
