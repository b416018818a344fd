"""Providers: where the definitions, the data and the attachments of a form are kept (spec crud 10, forms 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from persistence.properties.entries import PropertyEntry
from persistence.properties.known import Value
from persistence.properties.lookup import Name
from persistence.properties.uris import without_user

_NOT_MIRRORED = frozenset(
    {"uri", "autosave", "active", "permissions", "flat-view", "dialect", "published-only", "search"}
)
"""The last three are no properties of a real runtime's: the others are as there."""


@dataclass(frozen=True, slots=True)
class ProviderProperties:
    """What keeps forms, by its properties.

    Without ``uri`` it is a tree of this service, and ``datasource`` names its root, empty for the default one; with
    one it is another service, which speaks ``dialect``, empty for that spoken here. ``base_path`` is the directory of a
    provider of attachments, empty where there is none. An inactive one is not asked where all of them are. ``mirrored``
    are headers without the dialect's prefix.
    """

    name: str
    uri: str = ""
    datasource: str = ""
    base_path: str = ""
    is_active: bool = True
    mirrored: tuple[tuple[str, str], ...] = ()
    dialect: str = ""

    @property
    def is_remote(self) -> bool:
        """Whether another service keeps what it has."""
        return bool(self.uri)

    @property
    def address(self) -> str:
        """The uri without the user and password that it may have, to be shown."""
        return without_user(self.uri)


@dataclass(frozen=True, slots=True)
class RouteProperties:
    """The providers of one form; ``attachments`` is that of the bytes of attachments of data, where they have one."""

    definition: ProviderProperties
    data: ProviderProperties
    attachments: ProviderProperties | None = None


def mirrored(provider: str, entries: Iterable[PropertyEntry], prefix: Name) -> tuple[tuple[str, str], ...]:
    """The headers that tell a provider its own properties, without the dialect's prefix (spec crud 10.3, forms 5.4).

    Only properties that name the provider itself count. Where two give one header, the first does.
    """
    start = (*prefix, "persistence", provider)
    headers: dict[str, str] = {}
    for entry in entries:
        own = entry.name[len(start) :]
        if entry.name[: len(start)] == start and own and own[0] not in _NOT_MIRRORED and not entry.is_blank:
            headers.setdefault(_header(own[0]), _text(entry.value))
    return tuple(headers.items())


def _header(token: str) -> str:
    return "-".join(part.lower()[:1].upper() + part.lower()[1:] for part in token.split("-"))


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
