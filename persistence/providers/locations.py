"""The locations that settings and properties name: trees, databases, buckets, directories of attachments, and keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from typing import TypeVar

import msgspec

from persistence import settings
from persistence.crypto import EncryptionKeys
from persistence.errors import ConfigurationError, StartupError
from persistence.keys import Keys
from persistence.model.addresses import Form
from persistence.model.network_addresses import SCHEME, Bucket
from persistence.model.texts import json_line
from persistence.properties import property_table
from persistence.properties.properties import Properties, ProviderProperties
from persistence.settings import Effective, Roots, Settings
from persistence.storage.reader import StoreReader

B = TypeVar("B")


def place_of(provider: ProviderProperties, roots: Roots) -> str | None:
    """Return the tree or database of a provider of forms; ``None`` where another service has them."""
    if provider.kind in property_table.DATABASES:
        return provider.uri
    if provider.kind == SCHEME:
        raise StartupError(
            f"provider {provider.name!r} keeps forms, and its uri is an object store, which keeps attachments alone:"
            " name it in base-path"
        )
    if provider.kind != property_table.TREE:
        return None
    found = roots.place(provider.datasource)
    if found is None:
        known = ", ".join(sorted(roots.named)) or "none"
        raise StartupError(
            f"provider {provider.name!r} has the datasource {provider.datasource!r}; the settings have {known}"
        )
    return found


def is_in_database(provider: ProviderProperties, roots: Roots) -> bool:
    return property_table.is_database(place_of(provider, roots) or "")


def base_of(provider: ProviderProperties) -> str | None:
    if provider.kind == SCHEME and provider.place is None:
        raise StartupError(f"provider {provider.name!r} keeps attachments: its base-path must name a bucket")
    if provider.attachments_kind != property_table.TREE:
        return None
    if not provider.base_path or "{" in provider.base_path:
        raise StartupError(
            f"provider {provider.name!r} keeps attachments: its base-path must be a directory, not"
            f" {provider.base_path!r}"
        )
    return os.path.realpath(provider.base_path)


def bases_of(properties: Properties) -> list[str]:
    return [base for each in properties.attachment_providers if (base := base_of(each)) is not None]


def buckets_of(properties: Properties) -> list[Bucket]:
    found = dict.fromkeys(each.place for each in properties.attachment_providers)
    return [place for place in found if place is not None]


def check(properties: Properties, roots: Roots) -> None:
    """Make sure that every provider of a form has a location, and that none lies within another."""
    every = (*dict.fromkeys(roots), *dict.fromkeys(bases_of(properties)))
    for outer, inner in permutations(every, 2):
        if os.path.commonpath((outer, inner)) == outer:
            raise StartupError(f"the directory {inner} lies within {outer}: each tree needs one of its own")
    places = buckets_of(properties)
    for place, below in permutations(places, 2):
        if place.holds(below):
            raise StartupError(f"{below} lies within {place}: each place needs a prefix of its own")
    for provider in properties.form_providers:
        place_of(provider, roots)
    for form in properties.attachment_forms:
        with suppress(ConfigurationError):  # it has no provider, as a request for it reports
            route = properties.of(form).route
            if route.attachments is not None and base_of(route.attachments) and is_in_database(route.data, roots):
                raise StartupError(
                    f"the data of {form} is in a database, which other machines use, too, and its attachments are in a"
                    f" directory of this one: the base-path of {route.attachments.name!r} must be s3://BUCKET/PREFIX"
                )


@dataclass(frozen=True, slots=True)
class ServedLocation:
    """A location that is served: the kind of its content, its address as it may be shown, and what names it."""

    kind: str
    address: str
    named_by: str


def served_locations(settings: Settings, properties: Properties) -> Iterator[ServedLocation]:
    roots = settings.roots
    yield ServedLocation("forms", roots.default, "data")
    for name, place in roots.named.items():
        yield ServedLocation("forms", place, f"datasource {name}")
    for provider in properties.form_providers:
        if provider.kind != property_table.TREE:
            yield ServedLocation("forms", provider.uri, f"provider {provider.name}")
    for provider in properties.attachment_providers:
        yield ServedLocation(
            "attachments", shown_location(provider, roots, is_of_forms=False), f"provider {provider.name}"
        )


def shown_location(provider: ProviderProperties, roots: Roots, *, is_of_forms: bool) -> str:
    if is_of_forms:
        return place_of(provider, roots) or provider.uri
    return str(provider.place or base_of(provider) or provider.uri)


def kept_apart(provider: ProviderProperties, at: Callable[[str], B], at_bucket: Callable[[Bucket], B]) -> B | None:
    """Return the value ``at`` the directory of a provider of attachments, or ``at_bucket``; ``None`` of a service."""
    if provider.place is not None:
        return at_bucket(provider.place)
    base = base_of(provider)
    return None if base is None else at(base)


def bodies_by_form(
    properties: Properties, at: Callable[[str], B], at_bucket: Callable[[Bucket], B]
) -> Callable[[Form], B | None]:
    """Return a function to the bodies of a form's attachments that are here; ``None`` if they are beside the data."""

    def of(form: Form) -> B | None:
        provider = properties.of(form).route.attachments
        return None if provider is None else kept_apart(provider, at, at_bucket)

    return of


def definitions_root(form: Form, root: str, properties: Properties, roots: Roots) -> str:
    """Return the root with the definitions by which the index of a tree reads a form: an index asks no service."""
    route = properties.of(form).route
    if place_of(route.data, roots) != root or is_in_database(route.definition, roots):
        return root
    return place_of(route.definition, roots) or root


def defined_elsewhere(root: str, properties: Properties, roots: Roots) -> Iterator[Form]:
    """Yield the forms whose data is in a tree, and whose definitions are in another tree."""
    for other in roots:
        if other != root and os.path.isdir(other):
            forms = StoreReader(other).forms()
            yield from (form for form in forms if definitions_root(form, root, properties, roots) == other)


def open_keys(settings: Settings) -> Keys:
    return Keys(settings.keys, tree=settings.home)


def trees_and_bases(settings: Settings, properties: Properties) -> tuple[str, ...]:
    return (*settings.roots, *bases_of(properties))


def own_directories(settings: Settings, properties: Properties) -> tuple[str, ...]:
    """Return every directory here that the service writes to; the owner of the first is the user to run as."""
    found = trees_and_bases(settings, properties)
    if not any(map(property_table.is_database, places_of(settings, properties))):
        return found
    return (settings.local, *found) if property_table.is_database(settings.data) else (*found, settings.local)


def places_of(settings: Settings, properties: Properties) -> list[str]:
    """Return the places of forms of this service, each once, trees before databases."""
    databases = (each.uri for each in properties.form_providers if each.kind in property_table.DATABASES)
    return sorted(dict.fromkeys((*settings.roots.places, *databases)), key=property_table.is_database)


def open_encryption_keys(settings: Settings, properties: Properties) -> EncryptionKeys:
    """Return the keys of encryption at rest of the settings, and the real system's passwords of the properties."""
    return EncryptionKeys(
        settings.encryption_keys,
        trees=own_directories(settings, properties),
        given=settings.encryption_key,
        passwords=properties.passwords,
    )


NOT_SHOWN = "(not shown)"


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A setting or property. ``value`` is TOML without secrets and passwords, ``plain`` the same as JSON has it.

    ``differs`` says that it was set, and not to its default, which is ``default``, as JSON has it.
    """

    name: str
    value: str
    origin: str
    meaning: str
    plain: object
    differs: bool
    default: object = None

    @property
    def comparison(self) -> str:
        """The default as TOML, if it is worth a comparison; else empty."""
        return "" if self.default is None else as_toml(self.default)


def effective_settings(effective: Effective) -> Iterator[ShownValue]:
    defaults = settings.Settings()
    for name, origin in effective.origins.items():
        value, default = getattr(effective.settings, name), getattr(defaults, name)
        plain: object = property_table.shown_address(value) if isinstance(value, str) else value
        if value and name in settings.SECRET:
            plain = NOT_SHOWN
        elif isinstance(value, dict):
            plain = {
                key: msgspec.structs.replace(each, data=property_table.shown_address(each.data))
                for key, each in value.items()
            }
        differs = origin != "default" and value != default
        usual = default if differs and not (default and name in settings.PATHS) else None
        yield ShownValue(name, _shown(plain), origin, settings.MEANINGS[name], plain, differs, usual)


def effective_properties(effective: Effective) -> Iterator[ShownValue]:
    for entry in effective.properties.entries:
        meaning = f"{entry.known.meaning}; {entry.known.effect.value}"
        plain = plain_property(entry.known, entry.value)
        origin = str(entry.origin)
        yield ShownValue(str(entry), _shown(plain), origin, meaning, plain, origin != "default")


def plain_property(known: property_table.KnownProperty, value: property_table.Value) -> property_table.Value:
    """Return a value of a property without secrets and passwords."""
    if known.kind is property_table.ValueType.SECRET and str(value).strip():
        return NOT_SHOWN
    return property_table.shown_address(value) if isinstance(value, str) else value


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
