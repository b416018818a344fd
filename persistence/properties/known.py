"""The table of the properties there are: name, type, meaning, and what this version does with them.

Names stand here without the dialect's prefix, and with a word in ``<>`` where every installation has its own token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from persistence.dialect import DIALECTS
from persistence.model.form_versions import DATA_FORMATS
from persistence.properties.lookup import ANY, Name

Value = bool | int | str

LARGEST = 2**31 - 1
"""The largest integer of a property: sizes and lengths, which every database can take."""

FORM, DATA = "form", "data"
"""What a provider can be chosen for: definitions, and data."""

RESERVED = frozenset({"provider", "persistence", "attachments", "proxy"})
"""Words that other properties have in the place of a provider's name (spec forms 5.2)."""

_PROVIDER_NAME = re.compile(r"[^\s.*]+")


class ValueType(Enum):
    """The type of a property's value, in the words of an error."""

    BOOLEAN = "true or false"
    INTEGER = f"an integer from 1 to {LARGEST}"
    TEXT = "a string"
    DIRECTORY = "the path of a directory"
    PROVIDER = f"the name of a provider: a string without dots, and none of {', '.join(sorted(RESERVED))}"
    FORMAT = f"one of the strings {', '.join(DATA_FORMATS)}"
    PERMISSIONS = "a string of JSON"
    DIALECT = f"one of the strings {', '.join(DIALECTS)}"
    URI = "file:, or the address of a service that begins with http://"
    SECRET = "a string, which is not shown"  # noqa: S105 - no password


class Effect(Enum):
    """What this version does with a property."""

    ACTS = "in effect"
    NONE = "without effect in this version"


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """A property, or the family of those that differ in the tokens in ``<>``.

    ``default`` holds where nothing stored matches or a string is blank; ``None`` is "not configured".
    """

    pattern: str
    kind: ValueType
    meaning: str
    default: Value | None = None
    effect: Effect = Effect.NONE

    @property
    def places(self) -> Name:
        """The tokens of the pattern."""
        return tuple(self.pattern.split("."))

    @property
    def is_of_provider(self) -> bool:
        """Whether it says something of a provider, whose name is the second token."""
        return self.places[1] == "<provider>"

    def fits(self, name: Name) -> bool:
        """Whether a name, stored or asked for and without prefix, is of this family."""
        places = self.places
        return len(places) == len(name) and all(fits(place, token) for place, token in zip(places, name, strict=True))


def fits(place: str, token: str) -> bool:
    """Whether a token of a name can stand in a place of a pattern."""
    if place == "<provider>":
        return token == ANY or is_provider(token)
    if place == "<form|data>":
        return token in (ANY, FORM, DATA)
    if place.startswith("<"):
        return token == ANY or (token.isprintable() and token != "" and ANY not in token)
    return token == place


def is_provider(name: str) -> bool:
    """Whether a provider can be called so."""
    return _PROVIDER_NAME.fullmatch(name) is not None and name not in RESERVED


def _acts(pattern: str, kind: ValueType, meaning: str, default: Value | None = None) -> KnownProperty:
    return KnownProperty(pattern, kind, meaning, default, Effect.ACTS)


def _flag(pattern: str, meaning: str, *, default: bool = False) -> KnownProperty:
    return KnownProperty(pattern, ValueType.BOOLEAN, meaning, default)


def _text(pattern: str, meaning: str) -> KnownProperty:
    return KnownProperty(pattern, ValueType.TEXT, meaning)


KNOWN: tuple[KnownProperty, ...] = (
    _acts(
        "persistence.provider.<app>.<form>.<form|data>", ValueType.PROVIDER, "provider of a form's definitions or data"
    ),
    _acts("persistence.<provider>.autosave", ValueType.BOOLEAN, "drafts can be stored", default=False),
    _acts("persistence.<provider>.permissions", ValueType.BOOLEAN, "user and group permissions hold", default=False),
    _acts("persistence.<provider>.versioning", ValueType.BOOLEAN, "definitions have versions", default=False),
    _acts(
        "persistence.<provider>.published-only",
        ValueType.BOOLEAN,
        "data is stored of published forms and versions only",
        default=False,
    ),
    _acts("persistence.<provider>.data-format-version", ValueType.FORMAT, "format of form data at rest", "4.0.0"),
    _acts(
        "persistence.<provider>.search.restrict-to-readable",
        ValueType.BOOLEAN,
        "searches find only what their user may read",
        default=False,
    ),
    _acts("permissions.<app>.<form>", ValueType.PERMISSIONS, "permissions where the definition has none of its own"),
    _acts("detail.singleton.enabled.<app>.<form>", ValueType.BOOLEAN, "the form has one document only", default=False),
    _acts("persistence.<provider>.create-flat-view", ValueType.BOOLEAN, "every form has flat views", default=False),
    _acts(
        "persistence.<provider>.flat-view.prefixes-in-main-view-column-names",
        ValueType.BOOLEAN,
        "columns of the flat view of documents are called by their whole path",
        default=False,
    ),
    _acts(
        "persistence.<provider>.flat-view.max-identifier-length",
        ValueType.INTEGER,
        "characters in the names of flat views and columns",
        default=256,
    ),
    _acts(
        "field-encryption.password", ValueType.SECRET, "password of what the real system has encrypted, for reading it"
    ),
    _acts("field-encryption.password.read-fallback", ValueType.SECRET, "the password before that one, for reading"),
    _acts(
        "persistence.provider.<app>.<form>.<form|data>.attachments",
        ValueType.PROVIDER,
        "provider of the attachments of a form's data",
    ),
    _acts("persistence.<provider>.uri", ValueType.URI, "file: for a tree here, or the address of another service"),
    _acts(
        "persistence.<provider>.dialect",
        ValueType.DIALECT,
        "names on the wire of another service; by default those here",
    ),
    _acts(
        "persistence.<provider>.active", ValueType.BOOLEAN, "the provider is asked where all of them are", default=True
    ),
    _acts("persistence.<provider>.datasource", ValueType.TEXT, "name of the root of a tree; of a database, elsewhere"),
    _acts("persistence.<provider>.base-path", ValueType.DIRECTORY, "directory of a provider of attachments"),
    _acts("persistence.<provider>.directory", ValueType.DIRECTORY, "the older name of base-path"),
    _flag("persistence.<provider>.lease", "documents can be locked with LOCK and UNLOCK"),
    _flag("persistence.<provider>.reindex", "the provider takes part in reindexing"),
    _flag("persistence.<provider>.reencrypt", "the provider takes part in encrypting anew"),
    _flag("persistence.<provider>.distinct", "distinct values can be asked for"),
    _flag("persistence.<provider>.sort", "search can sort"),
    _flag("persistence.<provider>.escape-non-ascii-characters", "form data is stored with character references"),
    KnownProperty(
        "persistence.<provider>.max-batch-size", ValueType.INTEGER, "documents in a step of encrypting anew", 1000
    ),
    _text("persistence.<provider>.s3-config", "configuration of a provider of attachments in S3"),
    _text("persistence.<provider>.xmldb-uri", "address of an XML database"),
    _text("persistence.<provider>.exist-uri", "the name of xmldb-uri in a real runtime"),
    _text("persistence.attachments.filename.<app>.<form>", "expression for the names of attachments"),
    _flag("persistence.proxy.form-definition-cache.enable", "what is known of definitions is cached", default=True),
    _flag("persistence.proxy.disable-version-history.<app>.<form>", "no older revisions are kept"),
)
"""Every property of spec crud 10.1 and 10.2 and of spec forms 5.2 and 5.3; flat views have the values of search 7.2."""

_BY_LENGTH = {
    length: tuple(each for each in KNOWN if len(each.places) == length)
    for length in {len(each.places) for each in KNOWN}
}

SHIPPED: Mapping[str, Value] = {
    "persistence.provider.*.*.*": "files",
    "persistence.*.active": True,
    "persistence.*.autosave": True,
    "persistence.*.permissions": True,
    "persistence.*.versioning": True,
    "persistence.*.data-format-version": "4.0.0",
}
"""The entries that are there before the file's; one of the file under the same name takes its place."""

SHIPPED_BY_PREFIX: Mapping[str, Mapping[str, Value]] = {
    dialect.property_prefix: {"persistence.*.search.restrict-to-readable": dialect.restricts_searches}
    for dialect in DIALECTS.values()
}
"""More such entries, which differ in the dialects."""


def known_property(name: Name) -> KnownProperty | None:
    """The property of a name without prefix, stored or asked for; ``None`` if there is no such property."""
    return next((each for each in _BY_LENGTH.get(len(name), ()) if each.fits(name)), None)
