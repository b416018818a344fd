"""Entries: the properties of the configuration file and the shipped ones, checked once at start."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, StartupError
from persistence.model import permissions
from persistence.model.form_versions import DATA_FORMATS
from persistence.properties.known import (
    LARGEST,
    SHIPPED,
    SHIPPED_BY_PREFIX,
    KnownProperty,
    Value,
    ValueType,
    is_provider,
    known_property,
)
from persistence.properties.lookup import Name
from persistence.properties.nearest import unknown
from persistence.properties.uris import remote_address


@dataclass(frozen=True, slots=True)
class PropertyEntry:
    """A stored property; ``file`` is where it stands, ``None`` for one that the service ships."""

    name: Name
    value: Value
    known: KnownProperty
    file: str | None = None

    @property
    def origin(self) -> str:
        """Where it comes from, in the words of the settings' origins."""
        return self.file or "default"

    @property
    def is_blank(self) -> bool:
        """Whether it says "not configured" (spec forms 5.1)."""
        return isinstance(self.value, str) and not self.value.strip()

    def __str__(self) -> str:
        return ".".join(self.name)


def shipped(prefix: str) -> list[PropertyEntry]:
    """The entries that the service ships."""
    everywhere_and_here = (*SHIPPED.items(), *SHIPPED_BY_PREFIX[prefix].items())
    return [_entry(prefix + name, value, prefix, None) for name, value in everywhere_and_here]


def from_file(table: Mapping[str, object], prefix: str, file: str) -> list[PropertyEntry]:
    """The entries of a file, from names with dots and from tables within tables.

    Raises:
        StartupError: a name is unknown or given twice, or a value is not of its type.
    """
    entries: dict[Name, PropertyEntry] = {}
    for name, value in _flat(table, prefix):
        entry = _entry(name, value, prefix, file)
        if entry.name in entries:
            raise StartupError(f"{file}: {name} is given twice")
        entries[entry.name] = entry
    return list(entries.values())


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    """Names and values, tables resolved: in a loop, so that no depth of tables is too much."""
    pending = list(table.items())[::-1]
    while pending:
        name, value = pending.pop()
        # An empty table of ours is one whose lines are all commented out; any other is a mistake.
        if isinstance(value, dict) and (value or f"{name}.".startswith(prefix) or prefix.startswith(f"{name}.")):
            pending.extend([(f"{name}.{inner}", content) for inner, content in value.items()][::-1])
        else:
            yield name, value


def _entry(name: str, value: object, prefix: str, file: str | None) -> PropertyEntry:
    found = known_property(tuple(name.removeprefix(prefix).split("."))) if name.startswith(prefix) else None
    if found is None:
        raise StartupError(f"{file}: {unknown(name, prefix)}")
    try:
        return PropertyEntry(tuple(name.split(".")), _placed(_checked(found, value), found.kind, file), found, file)
    except BadRequestError as error:
        raise StartupError(f"{file}: {name}: {error}") from error


def _placed(value: Value, kind: ValueType, file: str | None) -> Value:
    """The value; the path of a directory is relative to that of the file. An expression in it is not evaluated."""
    if kind is not ValueType.DIRECTORY or not isinstance(value, str) or not value.strip() or "{" in value:
        return value
    return os.path.abspath(os.path.join(os.path.dirname(file or ""), value.strip()))


def _checked(property_: KnownProperty, value: object) -> Value:
    """The value, if it is acceptable.

    Raises:
        BadRequestError: it is not.
    """
    kind = property_.kind
    # Types are compared as they are: true is no integer here.
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
    return value  # type: ignore[return-value]  # of one of the three types, as compared


def _is_acceptable(kind: ValueType, value: object) -> bool:
    """Whether a value of the right type is one of those that there are."""
    if kind is ValueType.INTEGER:
        return isinstance(value, int) and 1 <= value <= LARGEST
    if kind is ValueType.PROVIDER:
        return is_provider(str(value))
    if kind is ValueType.DIALECT:
        return value in DIALECTS
    return kind is not ValueType.FORMAT or value in DATA_FORMATS


_UNSHOWN = (ValueType.SECRET, ValueType.URI)
"""What may have a password in it."""

_TYPES: Mapping[ValueType, type] = {ValueType.BOOLEAN: bool, ValueType.INTEGER: int}
