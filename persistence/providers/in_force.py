"""The effective settings and properties, as they may be shown: with value, origin, and meaning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from persistence import settings
from persistence.model.texts import json_line
from persistence.properties.property_table import KnownProperty, Value, ValueType, shown_address
from persistence.settings import Effective

NOT_SHOWN = "(not shown)"


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A setting or property. ``value`` is TOML without secrets and passwords, ``plain`` the same as JSON has it."""

    name: str
    value: str
    origin: str
    meaning: str
    plain: object


def effective_settings(effective: Effective) -> Iterator[ShownValue]:
    """Yield every setting."""
    for name, origin in effective.origins.items():
        value = getattr(effective.settings, name)
        plain: object = shown_address(value) if isinstance(value, str) else value
        if value and name in settings.SECRET:
            plain = NOT_SHOWN
        elif isinstance(value, dict):
            plain = {key: msgspec.structs.replace(each, data=shown_address(each.data)) for key, each in value.items()}
        yield ShownValue(name, _shown(plain), origin, settings.MEANINGS[name], plain)


def effective_properties(effective: Effective) -> Iterator[ShownValue]:
    """Yield every entry of the properties."""
    for entry in effective.properties.entries:
        meaning = f"{entry.known.meaning}; {entry.known.effect.value}"
        plain = plain_property(entry.known, entry.value)
        yield ShownValue(str(entry), shown_property(entry.known, entry.value), str(entry.origin), meaning, plain)


def shown_property(known: KnownProperty, value: Value) -> str:
    """Return a value of a property as TOML, without secrets and passwords."""
    return _shown(plain_property(known, value))


def plain_property(known: KnownProperty, value: Value) -> Value:
    """Return a value of a property without secrets and passwords."""
    if known.kind is ValueType.SECRET and value:
        return NOT_SHOWN
    return shown_address(value) if isinstance(value, str) else value


def as_toml(value: object) -> str:
    """Return a value, or a name with wildcards, as TOML writes it: as JSON, but for tables."""
    match msgspec.to_builtins(value):
        case dict() as table:
            pairs = [f"{as_toml(name)} = {as_toml(each)}" for name, each in table.items()]
            return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
        case list() | tuple() as items:
            return f"[{', '.join(map(as_toml, items))}]"
        case plain:
            return json_line(plain).decode()  # a terminal may print it


def _shown(plain: object) -> str:
    return NOT_SHOWN if plain == NOT_SHOWN else as_toml(plain)
