"""The effective properties: the facts of forms and of providers, and their reasons (spec crud 10, forms 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from persistence.errors import BadRequestError, ConfigurationError
from persistence.limits import FORMS_KEPT
from persistence.model import permissions
from persistence.model.addresses import Form
from persistence.model.object_places import SCHEME, Bucket, is_bucket, object_endpoint, parse_bucket
from persistence.model.permissions import Permissions
from persistence.model.retention import RetentionPeriods, retention
from persistence.model.versions import structure_of
from persistence.properties.entries import (
    Explanation,
    NameTree,
    PropertyEntry,
    from_file,
    remote_address,
    shipped,
)
from persistence.properties.property_table import (
    ANY,
    DATA,
    FORM,
    SERVICES,
    TREE,
    Effect,
    KnownProperty,
    Name,
    Value,
    ValueType,
    default_of,
    full_address,
    known_property,
    unknown,
)

_ATTACHMENTS = "attachments"

_MOST_OF_PROVIDERS = 256
"""Values of providers that are kept: each counts for all of the provider's forms."""

_NOT_MIRRORED = frozenset(
    {"uri", "autosave", "active", "permissions", "flat-view", "dialect", "published-only", "search", "enforce-lease"}
    | {"endpoint", "region"}
)
"""The last six are not properties of a real runtime."""


@dataclass(frozen=True, slots=True)
class ProviderProperties:
    """A provider, which keeps forms, by its properties.

    Without ``uri`` it is a tree of this service whose root ``datasource`` names, empty for the default one; with one it
    is of another ``kind``, such as a service that speaks ``dialect``, empty for the own one. ``base_path`` or ``place``
    is where a provider of attachments keeps them. ``mirrored`` are headers without the dialect's prefix.
    """

    name: str
    uri: str = ""
    datasource: str = ""
    base_path: str = ""
    is_active: bool = True
    mirrored: tuple[tuple[str, str], ...] = ()
    dialect: str = ""
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
    """The properties of a form; the table of properties has their meanings.

    Drafts, permissions and the format are those of the provider of its data, versions and flat views those of the
    provider of its definitions (spec forms 5.3). ``permissions`` and ``is_singleton`` are for a definition without its
    own (spec crud 6.3, forms 5.2). ``token_validity`` is in minutes, 0 for no tokens (spec crud 6.6). ``data_format``
    is the known format with the elements of ``data_format_name``.
    """

    route: RouteProperties
    has_drafts: bool
    has_permissions: bool
    has_versions: bool
    needs_publication: bool
    has_leases: bool
    enforces_leases: bool
    data_format: str
    data_format_name: str
    permissions: Permissions | None
    is_singleton: bool
    has_flat_views: bool
    has_flat_prefixes: bool
    longest_flat_name: int
    restricts_searches: bool
    token_validity: int
    audits_reads: bool
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
        self._kept = lru_cache(FORMS_KEPT)(self._of)
        self._of_provider = lru_cache(_MOST_OF_PROVIDERS)(partial(self._value, "persistence"))
        self._named = lru_cache(_MOST_OF_PROVIDERS)(self._described)

    @classmethod
    def load(cls, table: Mapping[str, object], prefix: str, file: str = "the configuration file") -> Properties:
        """Build from a file's table, and the shipped entries that it does not replace; ``prefix`` is the dialect's."""
        own = from_file(table, prefix, file)
        replaced = {entry.name for entry in own}
        return cls((*own, *(entry for entry in shipped(prefix) if entry.name not in replaced)), prefix)

    @property
    def without_effect(self) -> tuple[PropertyEntry, ...]:
        return tuple(entry for entry in self.entries if entry.file and entry.known.effect is not Effect.ACTS)

    @property
    def form_providers(self) -> list[ProviderProperties]:
        """The providers that the definitions or the data of forms have by some entry."""
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
        return [self._named(name) for name in dict.fromkeys(str(each.value) for each in chosen if counts(each.name))]

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

    def of(self, form: Form) -> FormProperties:
        return self._kept(form)

    def keeps_history(self, form: Form) -> bool:
        return self.of(form).keeps_history

    def provider(self, name: str) -> ProviderProperties:
        return self._named(name)

    def providers(self, kind: str, app: str = ANY, form: str = ANY) -> list[ProviderProperties]:
        """Return the active providers that may have ``FORM`` or ``DATA`` of a form or pattern (spec forms 5.1)."""
        names = self._names.reachable((*self._prefix_tokens, "persistence", "provider", app, form, kind))
        entries = (self._by_name[name] for name in names)
        found = dict.fromkeys(str(entry.value) for entry in entries if not entry.is_blank)
        return [provider for provider in map(self._named, found) if provider.is_active]

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
        named = self._named
        route = RouteProperties(
            named(definitions), named(data), None if attachments is None else named(str(attachments))
        )
        data_format = str(self._of_provider(data, "data-format-version"))
        has_leases = self._of_provider(data, "lease") is True
        granting = self._winner("permissions", form.app, form.name)
        return FormProperties(
            route=route,
            has_drafts=self._of_provider(data, "autosave") is True,
            has_permissions=self._of_provider(data, "permissions") is True,
            has_versions=self._of_provider(definitions, "versioning") is True,
            needs_publication=self._of_provider(data, "published-only") is True,
            has_leases=has_leases,
            enforces_leases=has_leases and self._of_provider(data, "enforce-lease") is True,
            data_format=structure_of(data_format),
            data_format_name=data_format,
            permissions=None if granting is None else self._permissions.get(granting.name),
            is_singleton=self._value("detail", "singleton", "enabled", form.app, form.name) is True,
            has_flat_views=self._of_provider(definitions, "create-flat-view") is True,
            has_flat_prefixes=self._of_provider(definitions, "flat-view", "prefixes-in-main-view-column-names") is True,
            longest_flat_name=int(self._of_provider(definitions, "flat-view", "max-identifier-length") or 0),
            restricts_searches=self._of_provider(data, "search", "restrict-to-readable") is True,
            token_validity=int(self._value("access-token", "validity", form.app, form.name) or 0),
            audits_reads=self._value("audit", "reads", form.app, form.name) is True,
            retention=(retention := self._retention(form)),
            keeps_history=retention.history != 0,
        )

    def _retention(self, form: Form) -> RetentionPeriods:
        def seconds(name: str) -> int | None:
            value = self._value("persistence", "retention", name, form.app, form.name)
            return retention(str(value), may_be_none=True)

        is_disabled = self._value("persistence", "proxy", "disable-version-history", form.app, form.name) is True
        return RetentionPeriods(
            history=0 if is_disabled else seconds("history"),
            tombstones=seconds("tombstones"),
            drafts=seconds("drafts"),
            orphans=seconds("orphans"),
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
        return default_of(tokens)

    def _winner(self, *tokens: str) -> PropertyEntry | None:
        winner = self._names.find((*self._prefix_tokens, *tokens))
        return None if winner is None else self._by_name[winner]


def _provider_of(form: Form, kind: str) -> Name:
    return ("persistence", "provider", form.app, form.name, kind)


def mirrored(provider: str, entries: Iterable[PropertyEntry], prefix: Name) -> tuple[tuple[str, str], ...]:
    """Return the headers that tell a provider its properties, without the dialect's prefix (spec crud 10.3, forms 5.4).

    Only properties that name the provider itself count. Where two give one header, the first does.
    """
    start = (*prefix, "persistence", provider)
    headers: dict[str, str] = {}
    for entry in entries:
        own = entry.name[len(start) :]
        if entry.name[: len(start)] == start and own and own[0] not in _NOT_MIRRORED and not entry.is_blank:
            header = "-".join(part.lower()[:1].upper() + part.lower()[1:] for part in own[0].split("-"))
            value = entry.value
            headers.setdefault(header, str(value).lower() if isinstance(value, bool) else str(value))
    return tuple(headers.items())
