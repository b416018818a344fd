"""The effective properties: their entries, the search for a name, and the facts of forms and providers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

from persistence.dialect import DIALECTS
from persistence.errors import BadRequestError, ConfigurationError, StartupError
from persistence.limits import FORMS_KEPT
from persistence.model import permissions
from persistence.model.addresses import Form
from persistence.model.network_addresses import SCHEME, Bucket, is_bucket, object_endpoint, parse_bucket
from persistence.model.permissions import Permissions
from persistence.model.texts import RetentionPeriods, is_retention, retention
from persistence.model.versions import DATA_FORMATS, is_data_format
from persistence.properties.property_table import (
    ANY,
    DATA,
    ENGINES,
    FORM,
    LARGEST,
    SERVICES,
    SHIPPED,
    SHIPPED_BY_PREFIX,
    TREE,
    Address,
    Effect,
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
_ACCEPTABLE: Mapping[ValueType, Callable[[Any], object]] = {
    ValueType.INTEGER: lambda value: 1 <= value <= LARGEST,
    ValueType.MINUTES: lambda value: 0 <= value <= LARGEST,
    ValueType.PROVIDER: is_provider,
    ValueType.HISTORY: lambda value: is_retention(value, may_be_none=True),
    ValueType.RETENTION: lambda value: is_retention(value, may_be_none=False),
    ValueType.DIALECT: lambda value: value in DIALECTS,
    ValueType.FORMAT: is_data_format,
    ValueType.PERMISSIONS: lambda value: permissions.from_json(value) or True,
    ValueType.URI: lambda value: remote_address(value) is not None,
    ValueType.ENDPOINT: lambda value: object_endpoint(value) is not None,
    ValueType.DIRECTORY: lambda value: not is_bucket(value) or parse_bucket(value),
}
"""Tests of values that are not blank; those that parse a value raise ``BadRequestError`` with its fault."""
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
        return isinstance(self.value, str) and not self.value.strip()

    def __str__(self) -> str:
        return ".".join(self.name)


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
    if not _ACCEPTABLE.get(kind, lambda _: True)(value):
        raise BadRequestError(f"must be {kind.value}, not {value!r}")
    return Address(value) if kind is ValueType.URI else value  # type: ignore[return-value, arg-type]  # as compared


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
            parts.scheme in (*ENGINES, SCHEME)
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


class _Branch(dict[str, "_Branch"]):
    is_name = False


class NameTree:
    """Stored names, ready to be searched with wildcards: the most literal from the left wins (spec forms 5.1)."""

    def __init__(self, names: Iterable[Name]) -> None:
        self._root = _Branch()
        for name in names:
            branch = self._root
            for token in name:
                branch = branch.setdefault(token, _Branch())
            branch.is_name = True

    def find(self, asked: Name) -> Name | None:
        return next((name for name, is_match in _walk(self._root, (), asked) if is_match), None)

    def explain(self, asked: Name) -> Explanation:
        ends = list(_walk(self._root, (), asked))
        matches = [name for name, is_match in ends if is_match]
        until = [is_match for _, is_match in ends].index(True) if matches else len(ends)
        failed, losers = [], []
        for name, _ in ends[:until]:
            reason = "no name ends there"
            if len(name) < len(asked):
                reason = f"no name continues there with {' or '.join(dict.fromkeys((asked[len(name)], ANY)))}"
            failed.append(Reason(name, reason))
        if not matches:
            return Explanation(None, (), tuple(failed))
        winner, *others = matches
        for other in others:
            pairs = enumerate(zip(winner, other, strict=True), 1)
            place, literal = next((at, one) for at, (one, token) in pairs if one != token)
            losers.append(Reason(other, f"token {place} is {ANY}, where the winner has {literal}"))
        if winner == asked:
            reason = "it is the name itself"
        else:
            reason = "it is the most literal from the left" if others else "nothing else matches"
        return Explanation(Reason(winner, reason), tuple(losers), tuple(failed))

    def reachable(self, asked: Name) -> Iterator[Name]:
        """Yield the names that could win for one with ``ANY`` for some tokens, most literal first (spec forms 5.1)."""
        for name, is_match in _walk(self._root, (), asked, is_pattern=True):
            if is_match:
                yield name
                if all(token in (wanted, ANY) for token, wanted in zip(name, asked, strict=True)):
                    return


def _walk(branch: _Branch, gone: Name, rest: Name, *, is_pattern: bool = False) -> Iterator[tuple[Name, bool]]:
    """Yield the ends of all ways, each with whether a name ends there; in a pattern ``ANY`` is any token."""
    if not rest:
        yield gone, branch.is_name
        return
    literal = sorted(branch.keys() - {ANY}) if is_pattern and rest[0] == ANY else [rest[0]]
    tokens = [token for token in dict.fromkeys((*literal, ANY)) if token in branch]
    if not tokens:
        yield gone, False
    for token in tokens:
        yield from _walk(branch[token], (*gone, token), rest[1:], is_pattern=is_pattern)


_ATTACHMENTS = "attachments"

_MOST_OF_PROVIDERS = 256  # Values of providers that are kept: each counts for all of the provider's forms

_NOT_MIRRORED = frozenset(
    {"uri", "autosave", "active", "permissions", "flat-view", "dialect", "published-only", "search", "enforce-lease"}
    | {"endpoint", "region"}
)
"""The last six are not properties of a real runtime."""


@dataclass(frozen=True, slots=True)
class ProviderProperties:
    """A provider, which keeps forms, by its properties."""

    name: str
    uri: str = ""  # empty for a tree of this service
    datasource: str = ""  # the root of such a tree; empty for the default one
    base_path: str = ""  # where a provider of attachments keeps them, if it is not in ``place``
    is_active: bool = True
    mirrored: tuple[tuple[str, str], ...] = ()  # headers without the dialect's prefix
    dialect: str = ""  # that of another service; empty for the own one
    place: Bucket | None = None

    @property
    def kind(self) -> str:
        return self.uri.partition(":")[0] or TREE

    @property
    def attachments_kind(self) -> str:
        return self.kind if self.place is None else SCHEME

    @property
    def is_service(self) -> bool:
        return self.kind in SERVICES


@dataclass(frozen=True, slots=True)
class RouteProperties:
    """The providers of one form; ``attachments`` has the bytes of attachments of data, where they have one."""

    definition: ProviderProperties
    data: ProviderProperties
    attachments: ProviderProperties | None = None


@dataclass(frozen=True, slots=True)
class FormProperties:
    """The properties of a form; the table of properties has their meanings."""

    route: RouteProperties
    has_drafts: bool  # like permissions and the format, by the provider of its data (spec forms 5.3)
    has_permissions: bool
    has_versions: bool  # like flat views, by the provider of its definitions
    needs_publication: bool
    has_leases: bool
    enforces_leases: bool
    data_format: str  # the known format with the elements of ``data_format_name``
    data_format_name: str
    permissions: Permissions | None  # for a definition without its own (spec crud 6.3), as ``is_singleton``
    is_singleton: bool
    has_flat_views: bool
    has_flat_prefixes: bool
    longest_flat_name: int
    restricts_searches: bool
    token_validity: int  # in minutes, 0 for no tokens (spec crud 6.6)
    audits_reads: bool
    finds_encrypted: bool
    retention: RetentionPeriods
    keeps_history: bool


@dataclass(frozen=True, slots=True)
class ExplainedProperty:
    """The value of a name, ``None`` if there is none, the entry that wins, and the search with its reasons."""

    name: Name
    known: KnownProperty
    value: Value | None
    entry: PropertyEntry | None
    explanation: Explanation


class Properties:
    """All properties, built once at start. ``entries`` are the effective ones, the file's first."""

    def __init__(self, entries: tuple[PropertyEntry, ...], prefix: str) -> None:
        self.entries = entries
        self._prefix = prefix
        self._prefix_tokens = tuple(prefix.split(".")[:-1])
        self._by_name = {entry.name: entry for entry in entries}
        self._names = NameTree(self._by_name)
        self._permissions = {
            entry.name: permissions.from_json(str(entry.value))
            for entry in entries
            if entry.known.kind is ValueType.PERMISSIONS and not entry.is_blank
        }
        self.of: Callable[[Form], FormProperties] = lru_cache(FORMS_KEPT)(self._of)
        self.provider: Callable[[str], ProviderProperties] = lru_cache(_MOST_OF_PROVIDERS)(self._described)
        self._of_provider = lru_cache(_MOST_OF_PROVIDERS)(partial(self._value, "persistence"))

    @classmethod
    def load(cls, table: Mapping[str, object], prefix: str, file: str = "the configuration file") -> Properties:
        """Build from a file's table, and the shipped entries that it does not replace; ``prefix`` is the dialect's."""
        own = from_file(table, prefix, file)
        replaced = {entry.name for entry in own}
        everywhere_and_here = (*SHIPPED.items(), *SHIPPED_BY_PREFIX[prefix].items())
        shipped = [_entry(prefix + name, value, prefix, None) for name, value in everywhere_and_here]
        return cls((*own, *(entry for entry in shipped if entry.name not in replaced)), prefix)

    @property
    def without_effect(self) -> tuple[PropertyEntry, ...]:
        return tuple(entry for entry in self.entries if entry.file and entry.known.effect is not Effect.ACTS)

    @property
    def form_providers(self) -> list[ProviderProperties]:
        return self._chosen(lambda name: name[-1] != _ATTACHMENTS)

    @property
    def attachment_providers(self) -> list[ProviderProperties]:
        """The providers of attachments of data by some entry; attachments of definitions have none (forms 5.5)."""
        return self._chosen(lambda name: name[-1] == _ATTACHMENTS and name[-2] != FORM)

    @property
    def attachment_forms(self) -> list[Form]:
        """The forms, or patterns with wildcards for them, whose attachments of data have a provider by some entry."""
        entries = (each for each in self.entries if each.name[-1] == _ATTACHMENTS and each.name[-2] == DATA)
        return [Form(*each.name[-4:-2]) for each in entries if not each.is_blank]

    def _chosen(self, counts: Callable[[Name], bool]) -> list[ProviderProperties]:
        chosen = (entry for entry in self.entries if entry.known.kind is ValueType.PROVIDER and not entry.is_blank)
        return [self.provider(name) for name in dict.fromkeys(str(each.value) for each in chosen if counts(each.name))]

    @property
    def without_form(self) -> tuple[PropertyEntry, ...]:
        """The file's entries about providers that no form has: often the name of an application in their place."""
        providers = {entry.value for entry in self.entries if entry.known.kind is ValueType.PROVIDER}
        return tuple(
            entry
            for entry in self.entries
            if entry.file
            and entry.known.places[1] == "<provider>"
            and entry.name[-len(entry.known.places) :][1] not in {ANY, *providers}
        )

    @property
    def passwords(self) -> tuple[str, ...]:
        """The passwords with which the real system has encrypted, the main one first (spec forms 4.4)."""
        names = (("field-encryption", "password"), ("field-encryption", "password", "read-fallback"))
        return tuple(str(value) for name in names if (value := self._value(*name)) is not None)

    def keeps_history(self, form: Form) -> bool:
        return self.of(form).keeps_history

    def providers(self, kind: str, app: str = ANY, form: str = ANY) -> list[ProviderProperties]:
        """Return the active providers that may have ``FORM`` or ``DATA`` of a form or pattern (spec forms 5.1)."""
        names = self._names.reachable((*self._prefix_tokens, "persistence", "provider", app, form, kind))
        entries = (self._by_name[name] for name in names)
        found = dict.fromkeys(str(entry.value) for entry in entries if not entry.is_blank)
        return [provider for provider in map(self.provider, found) if provider.is_active]

    def entry(self, name: Name) -> PropertyEntry:
        return self._by_name[name]

    def explain(self, name: str) -> ExplainedProperty:
        """Explain a full name without wildcards, such as a person asks for."""
        full = tuple(name.split("."))
        if ANY in full:
            raise BadRequestError(f"{name!r} has a wildcard: ask for one application and form, or for one provider")
        tokens = full[len(self._prefix_tokens) :]
        property_ = known_property(tokens) if name.startswith(self._prefix) else None
        if property_ is None:
            raise BadRequestError(f"{unknown(name, self._prefix)} (an application or form is one token: no dot in it)")
        return self._answer(property_, tokens)

    def explain_provider(self, form: Form, kind: str, *, attachments: bool = False) -> ExplainedProperty:
        """Explain the provider of ``FORM`` or ``DATA``, or of the attachments of data; names may have dots."""
        tokens = (*_provider_of(form, kind), *((_ATTACHMENTS,) if attachments else ()))
        property_ = known_property(tokens)
        if property_ is None:
            raise BadRequestError(f"{form} cannot be the name of a form")
        return self._answer(property_, tokens)

    def _answer(self, property_: KnownProperty, tokens: Name) -> ExplainedProperty:
        full = (*self._prefix_tokens, *tokens)
        return ExplainedProperty(
            full, property_, self._value(*tokens), self._winner(*tokens), self._names.explain(full)
        )

    def _of(self, form: Form) -> FormProperties:
        data, definitions = (self._provider(form, kind) for kind in (DATA, FORM))
        attachments = self._value(*_provider_of(form, DATA), _ATTACHMENTS)
        route = RouteProperties(
            self.provider(definitions),
            self.provider(data),
            None if attachments is None else self.provider(str(attachments)),
        )
        data_format = str(self._of_provider(data, "data-format-version"))
        has_leases = self._of_provider(data, "lease") is True
        granting = self._winner("permissions", form.app, form.name)
        periods = ("history", "tombstones", "drafts", "orphans")
        values = {name: self._value("persistence", "retention", name, form.app, form.name) for name in periods}
        kept = {name: retention(str(value), may_be_none=True) for name, value in values.items()}
        if self._value("persistence", "proxy", "disable-version-history", form.app, form.name) is True:
            kept["history"] = 0
        return FormProperties(
            route=route,
            has_drafts=self._of_provider(data, "autosave") is True,
            has_permissions=self._of_provider(data, "permissions") is True,
            has_versions=self._of_provider(definitions, "versioning") is True,
            needs_publication=self._of_provider(data, "published-only") is True,
            has_leases=has_leases,
            enforces_leases=has_leases and self._of_provider(data, "enforce-lease") is True,
            data_format=data_format if data_format in DATA_FORMATS else DATA_FORMATS[-1],
            data_format_name=data_format,
            permissions=None if granting is None else self._permissions.get(granting.name),
            is_singleton=self._value("detail", "singleton", "enabled", form.app, form.name) is True,
            has_flat_views=self._of_provider(definitions, "create-flat-view") is True,
            has_flat_prefixes=self._of_provider(definitions, "flat-view", "prefixes-in-main-view-column-names") is True,
            longest_flat_name=int(self._of_provider(definitions, "flat-view", "max-identifier-length") or 0),
            restricts_searches=self._of_provider(data, "search", "restrict-to-readable") is True,
            token_validity=int(self._value("access-token", "validity", form.app, form.name) or 0),
            audits_reads=self._value("audit", "reads", form.app, form.name) is True,
            finds_encrypted=self._value("field-encryption", "searchable", form.app, form.name) is True,
            retention=RetentionPeriods(**kept),
            keeps_history=kept["history"] != 0,
        )

    def _provider(self, form: Form, kind: str) -> str:
        name = _provider_of(form, kind)
        value = self._value(*name)
        if value is None:
            raise ConfigurationError(f"no provider is configured: {self._prefix}{'.'.join(name)} is blank")
        return str(value)

    def _described(self, name: str) -> ProviderProperties:
        def text(*tokens: str) -> str:
            return str(self._of_provider(name, *tokens) or "").strip()

        base = text("base-path") or text("directory")
        return ProviderProperties(
            name=name,
            uri=remote_address(full_address(self._of_provider(name, "uri") or "")),
            dialect=text("dialect"),
            datasource=text("datasource"),
            base_path="" if is_bucket(base) else base,
            place=parse_bucket(base, object_endpoint(text("endpoint")), text("region")) if is_bucket(base) else None,
            is_active=self._of_provider(name, "active") is True,
            mirrored=mirrored(name, self.entries, self._prefix_tokens),
        )

    def _value(self, *tokens: str) -> Value | None:
        entry = self._winner(*tokens)
        if entry is not None and not entry.is_blank:
            return entry.value
        # A name of an application or form may have what no stored name can have: ``*``, or invisible characters.
        known = known_property(tuple(ANY if ANY in token or not token.isprintable() else token for token in tokens))
        return None if known is None else known.default

    def _winner(self, *tokens: str) -> PropertyEntry | None:
        winner = self._names.find((*self._prefix_tokens, *tokens))
        return None if winner is None else self._by_name[winner]


def _provider_of(form: Form, kind: str) -> Name:
    return ("persistence", "provider", form.app, form.name, kind)


def mirrored(provider: str, entries: Iterable[PropertyEntry], prefix: Name) -> tuple[tuple[str, str], ...]:
    """Return the headers that tell a provider its properties, without the dialect's prefix (spec crud 10.3)."""
    # Only properties that name the provider itself count. Where two give one header, the first does.
    start = (*prefix, "persistence", provider)
    headers: dict[str, str] = {}
    for entry in entries:
        own = entry.name[len(start) :]
        if entry.name[: len(start)] == start and own and own[0] not in _NOT_MIRRORED and not entry.is_blank:
            header = "-".join(part.lower()[:1].upper() + part.lower()[1:] for part in own[0].split("-"))
            value = entry.value
            headers.setdefault(header, str(value).lower() if isinstance(value, bool) else str(value))
    return tuple(headers.items())
