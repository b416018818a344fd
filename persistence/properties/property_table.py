"""The table of known properties: name, type, meaning and effect.

Names are without the dialect's prefix, and have a word in ``<>`` where every installation has its own token.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any, Self
from urllib.parse import unquote

from persistence.dialect import DIALECTS
from persistence.errors import StartupError
from persistence.model.texts import FOREVER
from persistence.model.versions import DATA_FORMATS

ANY = "*"  # The token of a stored name that stands for every token

Name = tuple[str, ...]  # The tokens of a name. An application or a form is one token, also where its own name has dots.

Value = bool | int | str

LARGEST = 2**31 - 1  # The largest integer of a property, which every database can store

FORM, DATA = "form", "data"  # The two kinds of content of a provider: definitions, and data

TREE = "file"
SERVICES = ("http", "https")
DATABASES = ("postgresql", "postgres")  # The schemes of the addresses of other services, and of databases

ENGINES = {
    **dict.fromkeys(SERVICES, "persistence.providers.remote_provider:Remotes"),
    **dict.fromkeys(DATABASES, "persistence.providers.database_provider:Databases"),
}
"""The ``Engine`` of each scheme of the property ``uri`` but that of trees, imported where a provider needs it."""

RESERVED = frozenset({"provider", "persistence", "attachments", "proxy", "retention"})
"""Words that other properties have in the place of a provider's name (spec forms 5.2)."""

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PROVIDER_NAME = re.compile(r"[^\s.*]+")


class ValueType(Enum):
    """The type of a property's value, in the words of an error."""

    BOOLEAN = "true or false"
    INTEGER = f"an integer from 1 to {LARGEST}"
    MINUTES = f"an integer from 0 to {LARGEST}"
    TEXT = "a string"
    DIRECTORY = "the path of a directory, or s3://BUCKET/PREFIX"
    ENDPOINT = "the address of a store that speaks S3, such as https://s3.example.org"
    PROVIDER = f"the name of a provider: a string without dots, and none of {', '.join(sorted(RESERVED))}"
    FORMAT = f"one of the strings {', '.join(DATA_FORMATS)}, or a later one such as 2021.1.0"
    PERMISSIONS = "a string of JSON"
    HISTORY = "one of the strings none and forever, or a time span such as 30d or 2y"
    RETENTION = "the string forever, or a time span such as 30d or 2y"
    DIALECT = f"one of the strings {', '.join(DIALECTS)}"
    URI = "file:, or the address of a service that begins with http://, or of a database with postgresql://"
    SECRET = "a string, which is not shown"  # noqa: S105 - no password


class Effect(Enum):
    """The effect of a property in this version."""

    ACTS = "in effect"
    NONE = "without effect in this version"


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """A property, or the family of those that differ in the tokens in ``<>``."""

    pattern: str
    kind: ValueType
    meaning: str
    default: Value | None = None  # where nothing stored matches or a string is blank; ``None`` is "not configured"
    effect: Effect = Effect.ACTS

    @property
    def places(self) -> Name:
        return tuple(self.pattern.split("."))

    def fits(self, name: Name) -> bool:
        """Return whether a name, stored or asked for and without prefix, is of this family."""
        places = self.places
        return len(places) == len(name) and all(_fits(place, token) for place, token in zip(places, name, strict=True))


def _fits(place: str, token: str) -> bool:
    if place == "<provider>":
        return token == ANY or is_provider(token)
    if place == "<form|data>":
        return token in (ANY, FORM, DATA)
    if place.startswith("<"):
        return token == ANY or (token.isprintable() and token != "" and ANY not in token)
    return token == place


def _general(place: str) -> str:
    return ANY if place.startswith("<") else place


def is_database(place: str) -> bool:
    return place.partition("://")[0] in DATABASES


_OF_SCHEMES = "abcdefghijklmnopqrstuvwxyz0123456789+.-"
_USER = re.compile(r"//(?:[^/?#@]*@)+")
_SECRETS = ("password", "sslpassword", "passfile", "scram_client_key", "scram_server_key", "oauth_client_secret")
"""Parameters of the address of a database that are not shown."""


class Address(str):
    """The address of a database or another service: its text is masked, and ``full``, which is compared, is not."""

    __slots__ = ("full",)
    full: str

    def __new__(cls, text: str) -> Self:
        own = super().__new__(cls, shown_address(text))
        own.full = full_address(text)
        return own

    def __eq__(self, other: object) -> bool:
        return bool(self.full == full_address(other))

    def __hash__(self) -> int:
        return hash(self.full)


def full_address(text: Any) -> Any:
    """Return an address with its passwords, to connect, or any other value as it is."""
    return text.full if isinstance(text, Address) else text


def shown_address(uri: str) -> str:
    """Return an address as it may be shown: a database's with stars for its passwords, any other without user."""
    # Text before it, such as the name of an option, stays as it is.
    start, mark, rest = uri.partition("://")
    before = start.rstrip(_OF_SCHEMES)
    scheme = start[len(before) :]
    if not mark or scheme not in DATABASES:
        return str(_USER.sub("//", uri))
    authority, at, place = rest.rpartition("@")  # the last one: a password may have one that should be escaped
    user, _, password = authority.partition(":")
    if "/" in user or "?" in authority:  # the @ may be in a parameter: ambiguous
        return f"{before}{scheme}://***"
    base, asked, query = place.partition("?")
    parameters = [parameter.partition("=") for parameter in query.split("&")]
    shown = "&".join(
        f"{name}=***" if equals and unquote(name) in _SECRETS else name + equals + value
        for name, equals, value in parameters
    )
    return f"{before}{scheme}://{user}{':***' if password else ''}{at}{base}{asked}{shown}"


def resolved_place(place: str) -> str:
    """Return the place of forms: the ``Address`` of a database, or the path of a directory, absolute."""
    if is_database(place):
        return Address(place)
    if _ADDRESS.match(place):
        raise StartupError("forms are in a directory, or in a database whose address begins with postgresql://")
    return os.path.realpath(place)


def is_provider(name: str) -> bool:
    return _PROVIDER_NAME.fullmatch(name) is not None and name not in RESERVED


def _provider(name: str, kind: ValueType, meaning: str, default: Value | None = None) -> KnownProperty:
    return KnownProperty(f"persistence.<provider>.{name}", kind, meaning, default)


def _unused(pattern: str, kind: ValueType, meaning: str, default: Value | None = None) -> KnownProperty:
    return KnownProperty(f"persistence.{pattern}", kind, meaning, default, Effect.NONE)


def _retention(name: str, kind: ValueType, meaning: str) -> KnownProperty:
    return KnownProperty(f"persistence.retention.{name}.<app>.<form>", kind, meaning, FOREVER)


_BOOLEAN, _TEXT, _SECRET = ValueType.BOOLEAN, ValueType.TEXT, ValueType.SECRET
_OF_FORM = "persistence.provider.<app>.<form>.<form|data>"

KNOWN: tuple[KnownProperty, ...] = (
    KnownProperty(_OF_FORM, ValueType.PROVIDER, "provider of a form's definitions or data"),
    _provider("autosave", _BOOLEAN, "drafts can be stored", default=False),
    _provider("permissions", _BOOLEAN, "user and group permissions hold", default=False),
    _provider("versioning", _BOOLEAN, "definitions have versions", default=False),
    _provider("published-only", _BOOLEAN, "data is stored of published forms and versions only", default=False),
    _provider("lease", _BOOLEAN, "documents can be leased with LOCK and UNLOCK", default=False),
    _provider("enforce-lease", _BOOLEAN, "only the holder of a lease may write to the document", default=False),
    _provider("data-format-version", ValueType.FORMAT, "format of form data at rest", "4.0.0"),
    _provider("search.restrict-to-readable", _BOOLEAN, "searches find only what their user may read", default=False),
    KnownProperty(
        "permissions.<app>.<form>", ValueType.PERMISSIONS, "permissions where the definition has none of its own"
    ),
    KnownProperty(
        "access-token.validity.<app>.<form>", ValueType.MINUTES, "minutes for which access tokens are valid at most", 0
    ),
    KnownProperty("audit.reads.<app>.<form>", _BOOLEAN, "reading data of the form is in the audit", default=False),
    KnownProperty(
        "access-token.password",
        _SECRET,
        "password of the real system's access tokens; those here are signed by keys of their own",
        effect=Effect.NONE,
    ),
    _retention("history", ValueType.HISTORY, "how long older revisions are kept; with none, a save keeps none"),
    _retention("tombstones", ValueType.RETENTION, "how long deleted documents are kept, with all their history"),
    _retention("drafts", ValueType.RETENTION, "how long drafts are kept"),
    _retention("orphans", ValueType.RETENTION, "how long attachments are kept that no data names"),
    KnownProperty("detail.singleton.enabled.<app>.<form>", _BOOLEAN, "the form has one document only", default=False),
    _provider("create-flat-view", _BOOLEAN, "every form has flat views", default=False),
    _provider(
        "flat-view.prefixes-in-main-view-column-names",
        _BOOLEAN,
        "columns of the flat view of documents are called by their whole path",
        default=False,
    ),
    _provider(
        "flat-view.max-identifier-length", ValueType.INTEGER, "characters in the names of flat views and columns", 256
    ),
    KnownProperty(
        "field-encryption.password", _SECRET, "password of what the real system has encrypted, for reading it"
    ),
    KnownProperty(
        "field-encryption.searchable.<app>.<form>",
        _BOOLEAN,
        "searches find documents by whole values of encrypted controls",
        default=False,
    ),
    KnownProperty("field-encryption.password.read-fallback", _SECRET, "the password before that one, for reading"),
    KnownProperty(f"{_OF_FORM}.attachments", ValueType.PROVIDER, "provider of the attachments of a form's data"),
    _provider("uri", ValueType.URI, "file: for a tree here, or the address of another service, or of a database"),
    _provider("dialect", ValueType.DIALECT, "names on the wire of another service; by default those here"),
    _provider("active", _BOOLEAN, "the provider is asked where all of them are", default=True),
    _provider("datasource", _TEXT, "name of a datasource of the settings: the root of a tree, or a database"),
    _provider("base-path", ValueType.DIRECTORY, "directory of a provider of attachments, or s3://BUCKET/PREFIX"),
    _provider("endpoint", ValueType.ENDPOINT, "address of the store that speaks S3; without it, AWS_ENDPOINT_URL"),
    _provider("region", _TEXT, "region of the bucket; without it, AWS_REGION"),
    _provider("directory", ValueType.DIRECTORY, "the older name of base-path"),
    _unused("<provider>.reindex", _BOOLEAN, "the provider takes part in reindexing", default=False),
    _unused("<provider>.reencrypt", _BOOLEAN, "the provider takes part in re-encryption", default=False),
    _unused("<provider>.distinct", _BOOLEAN, "distinct values can be asked for", default=False),
    _unused("<provider>.sort", _BOOLEAN, "search can sort", default=False),
    _unused(
        "<provider>.escape-non-ascii-characters",
        _BOOLEAN,
        "form data is stored with character references",
        default=False,
    ),
    _unused("<provider>.max-batch-size", ValueType.INTEGER, "documents in a step of re-encryption", 1000),
    _unused("<provider>.s3-config", _TEXT, "configuration of a provider of attachments in S3"),
    _unused("<provider>.xmldb-uri", _TEXT, "address of an XML database"),
    _unused("<provider>.exist-uri", _TEXT, "the name of xmldb-uri in a real runtime"),
    _unused("attachments.filename.<app>.<form>", _TEXT, "expression for the names of attachments"),
    _unused("proxy.form-definition-cache.enable", _BOOLEAN, "what is known of definitions is cached", default=True),
    KnownProperty(
        "persistence.proxy.disable-version-history.<app>.<form>",
        _BOOLEAN,
        "no older revisions are kept, as by the retention none of the history",
        default=False,
    ),
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
    "persistence.*.lease": True,
    "persistence.*.data-format-version": "4.0.0",
}
"""Entries that one of the file under the same name replaces."""

SHIPPED_BY_PREFIX: Mapping[str, Mapping[str, Value]] = {
    dialect.property_prefix: {"persistence.*.search.restrict-to-readable": dialect.restricts_searches}
    for dialect in DIALECTS.values()
}
"""More such entries, which depend on the dialect."""


def known_property(name: Name) -> KnownProperty | None:
    return next((each for each in _BY_LENGTH.get(len(name), ()) if each.fits(name)), None)


def general_names(prefix: str) -> list[str]:
    return [prefix + ".".join(map(_general, each.places)) for each in KNOWN]


def unknown(name: str, prefix: str) -> str:
    """Return the error for a wrong name, with the nearest valid one that has its applications, forms and providers."""
    given = tuple(name.removeprefix(prefix).split("."))
    if len(given) > 1 and given[1] in RESERVED and known_property((given[0], ANY, *given[2:])) is not None:
        return f"unknown property {name!r}: no provider can be called {given[1]!r}"
    candidates = [prefix + ".".join(tokens) for each in KNOWN for tokens in _candidates(each, given)]
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0)[0]
    return f"unknown property {name!r}; the nearest valid name is {near!r}"


def _candidates(property_: KnownProperty, given: Name) -> Iterator[Name]:
    """Fill the tokens of a wrong name into the places of a pattern, once from the left and once from the right."""
    # The first finds the property if a token is missing at the end, the second if the prefix is another dialect's.

    def choices(place: str, token: str) -> Name:
        if place.startswith("<") and _fits(place, token):
            return (token,)
        return (FORM, DATA, ANY) if place == "<form|data>" else (_general(place),)

    places = property_.places
    missing = (ANY,) * max(0, len(places) - len(given))
    for tokens in ((*given, *missing)[: len(places)], (*missing, *given)[-len(places) :]):
        yield from product(*map(choices, places, tokens))
