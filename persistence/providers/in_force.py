"""Settings and properties in force, as they may be shown: each with its value, where it came from, and its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from persistence import settings
from persistence.properties.entries import shown_address
from persistence.properties.property_table import KnownProperty, Value, ValueType
from persistence.settings import Effective

NOT_SHOWN = "(not shown)"


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A setting or property by name. ``value`` has no secret, and no password of an address."""

    name: str
    value: str
    origin: str
    meaning: str


def settings_in_force(effective: Effective) -> Iterator[ShownValue]:
    """Yield every setting, with its value as Python writes it."""
    for name, origin in effective.origins.items():
        value = getattr(effective.settings, name)
        shown = NOT_SHOWN if value and name in settings.SECRET else _setting(value)
        yield ShownValue(name, shown, origin, settings.MEANINGS[name])


def properties_in_force(effective: Effective) -> Iterator[ShownValue]:
    """Yield every entry of the properties, with its value as TOML writes it."""
    for entry in effective.properties.entries:
        meaning = f"{entry.known.meaning}; {entry.known.effect.value}"
        yield ShownValue(str(entry), shown_property(entry.known, entry.value), str(entry.origin), meaning)


def shown_property(known: KnownProperty, value: Value) -> str:
    """Return a value of a property, but no secret, and no password of an address."""
    if known.kind is ValueType.SECRET and value:
        return NOT_SHOWN
    return as_toml(shown_address(value) if isinstance(value, str) else value)


def as_toml(value: Value) -> str:
    """Return a value, or a name with wildcards, as TOML writes it."""
    return msgspec.json.encode(value).decode()


def _setting(value: object) -> str:
    """Return the value of a setting, without the passwords of addresses."""
    if isinstance(value, dict):
        return repr(
            {name: msgspec.structs.replace(each, data=shown_address(each.data)) for name, each in value.items()}
        )
    return repr(shown_address(value) if isinstance(value, str) else value)
