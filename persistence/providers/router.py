"""The router: which providers a form has, by the properties, and in which order lists of forms ask them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pkgutil import resolve_name
from typing import Any, Protocol

from persistence.catalog import Catalog, Definition
from persistence.crypto import EncryptionKeys
from persistence.errors import ConfigurationError, StartupError
from persistence.index.outbox import Outbox
from persistence.index.protocol import Budget, Reindexer, ReindexingState, ReindexingStatus, ReportTables, SearchIndex
from persistence.limits import FORMS_KEPT
from persistence.model.addresses import Form
from persistence.model.queries import Hits, Query, Scope
from persistence.model.versions import PublishedVersion
from persistence.properties.properties import FormProperties, Properties, ProviderProperties
from persistence.properties.property_table import ANY, DATA, FORM
from persistence.storage.attachments import SplitStorage
from persistence.storage.storage import Bodies, MaintainedDatabase, RevisionStorage, Storage


@dataclass(frozen=True, slots=True, eq=False)
class Provider:
    """A tree of this service, another service, or any other implementation of these protocols. It equals only itself.

    ``reports`` is ``None`` where the service that stores a definition makes the flat views. ``index_catalog`` gives the
    definitions by which the index reads data of a form; ``None`` where it takes those of the route. ``database`` is
    for commands that maintain it. ``outbox`` has its events, where they are recorded.
    """

    storage: Storage
    catalog: Catalog
    index: SearchIndex
    reports: ReportTables | None
    reindexer: Reindexer
    index_catalog: Callable[[Form], Catalog] | None = None
    database: MaintainedDatabase | None = None
    outbox: Outbox | None = None


class Engine(Protocol):
    """Opens the providers of one kind. One object serves all of a service, and is called once for each provider.

    It is made of ``Providers``. All of it raises ``StartupError`` where something cannot be opened.
    """

    def provider(self, configured: ProviderProperties) -> Provider:
        """Open a provider of forms."""

    def bodies(self, configured: ProviderProperties, main: Storage) -> Bodies:
        """Open a provider of attachments, apart from what ``main`` stores of them."""


_LIBRARIES = {
    "psycopg": ("postgresql", "postgresql"),
    "psycopg_pool": ("postgresql", "postgresql"),
    "obstore": ("s3", "s3"),
    "pyarrow": ("parquet", "installing"),
    "sqlalchemy": ("orbeon", "leaving-orbeons-database"),
    "pymysql": ("orbeon", "leaving-orbeons-database"),
}
"""Libraries that are installed where they are asked for, with the extra that brings them, and its page."""


def loaded(name: str) -> Any:
    """Import ``module:object``, whose module may need a library that is not installed: raises ``StartupError``."""
    try:
        return resolve_name(name)
    except ImportError as error:
        raise not_installed(error) from error


def not_installed(error: ImportError) -> Exception:
    """Return the ``StartupError`` for a library that an extra brings; for any other the error itself."""
    library = error.name or "psycopg"
    extra, page = _LIBRARIES.get(library.partition(".")[0], ("", ""))
    if not extra:
        return error
    return StartupError(
        f"this needs {library}, which is not installed: install the service with its extra [{extra}],"
        f" as docs/{page}.md says"
    )


@dataclass(frozen=True, slots=True)
class Route:
    """The way to the providers of a form, with its properties: found once per request, and passed down.

    ``definition`` has the definitions by which rules decide, ``data`` the documents, drafts and their index;
    ``storage`` the data with the attachments from wherever they are. ``index_catalog`` has the definitions by which the
    index reads data: other than ``catalog`` only where another service has those of local data, because an index asks
    no service.
    """

    form: Form
    properties: FormProperties
    definition: Provider
    data: Provider
    storage: RevisionStorage
    catalog: Catalog
    index_catalog: Catalog
    keys: EncryptionKeys | None = None  # where searches find encrypted values

    def search(self, scope: Scope, query: Query, budget: Budget | None = None) -> Hits:
        """Search the index as its ``search`` does, for the values of encrypted controls, too, where the form has it."""
        if self.keys is not None and query.controls:
            query = self.keys.ring().with_tokens(query, self.form)
        return self.data.index.search(self.form, scope, query, budget)

    def indexed(self, definition: Definition) -> Definition:
        """Return the definition by which the index reads data of a definition's version."""
        if self.index_catalog is self.catalog:
            return definition
        return self.index_catalog.of(definition.form, definition.version)


ProviderOf = Callable[[ProviderProperties], Provider]
"""Leads from what properties say of a provider to the provider, always the same one."""


@dataclass(eq=False)
class Router:
    """Finds the route of each form by the properties: ``of`` returns it."""

    properties: Properties
    of: Callable[[Form], Route]
    defining: Callable[[str | None], Iterable[Provider]]
    keeping_data: Callable[[], Iterable[Provider]]

    def __post_init__(self) -> None:
        self.of = lru_cache(FORMS_KEPT)(self.of)

    def published(self, app: str | None, name: str | None) -> Iterator[tuple[Route, Iterator[PublishedVersion]]]:
        """Return the route of every form, or of those of an application or a form name, with its undamaged versions.

        A definition in a provider counts only where rules would look for it.
        """
        for provider in dict.fromkeys(self.defining(app)):
            for form, versions in provider.catalog.forms(app, name):
                with suppress(ConfigurationError):  # it has no provider, as a request for it by name reports
                    route = self.of(form)
                    if route.definition is provider:
                        yield route, versions

    def forms(self, app: str | None = None) -> Iterator[Form]:
        """Yield every form, or each of an application, that has anything where requests for it look, each once."""
        found: set[Form] = set()
        for provider in dict.fromkeys((*self.defining(app), *self.keeping_data())):
            for form in provider.storage.forms(app):
                with suppress(ConfigurationError):
                    route = self.of(form)
                    if form not in found and provider in (route.definition, route.data):
                        found.add(form)
                        yield form

    def reindex(self, form: Form, version: int) -> None:
        self.of(form).data.reindexer.version(form, version)

    def reindex_all(self) -> None:
        for provider in dict.fromkeys(self.keeping_data()):
            provider.reindexer.all()

    def reindexing_status(self) -> ReindexingStatus:
        """Return the progress of the first provider that is rebuilding."""
        found = (provider.reindexer.status() for provider in dict.fromkeys(self.keeping_data()))
        return next((status for status in found if status.state is not ReindexingState.STOPPED), ReindexingStatus())


def by_properties(
    properties: Properties,
    provider_of: ProviderOf,
    bodies_of: Callable[[ProviderProperties, Storage], Bodies | None],
    keys: EncryptionKeys,
) -> Router:
    """Route each form as the properties say; ``bodies_of`` has the attachments that are kept apart from their data.

    Where it has none, the storage of the data is used without them.
    """

    @cache
    def attached(main: str, attachments: str) -> RevisionStorage:
        storage = provider_of(properties.provider(main)).storage
        bodies = bodies_of(properties.provider(attachments), storage)
        return storage if bodies is None else SplitStorage(storage, bodies)

    def route(form: Form) -> Route:
        configured = properties.of(form)
        chosen = configured.route
        data = provider_of(chosen.data)
        apart = chosen.attachments
        found = _route(form, configured, provider_of(chosen.definition), data, keys)
        return found if apart is None else replace(found, storage=attached(chosen.data.name, apart.name))

    return Router(
        properties,
        route,
        lambda app: map(provider_of, properties.providers(FORM, app or ANY)),
        lambda: map(provider_of, properties.providers(DATA)),
    )


def within(provider: Provider, properties: Properties, provider_of: ProviderOf, keys: EncryptionKeys | None) -> Router:
    """Route forms to one provider, by its own definitions unless the properties name others for its data."""

    def route(form: Form) -> Route:
        configured = properties.of(form)
        is_here = provider_of(configured.route.data) is provider
        definition = provider_of(configured.route.definition) if is_here else provider
        return _route(form, configured, definition, provider, keys)

    return Router(
        properties,
        route,
        lambda app: (provider, *map(provider_of, properties.providers(FORM, app or ANY))),
        lambda: (provider,),
    )


def only(provider: Provider, properties: Properties) -> Router:
    return within(provider, properties, lambda _: provider, None)


def _route(
    form: Form, configured: FormProperties, definition: Provider, data: Provider, keys: EncryptionKeys | None
) -> Route:
    index_catalog = definition.catalog if data.index_catalog is None else data.index_catalog(form)
    keys = keys if configured.finds_encrypted else None
    return Route(form, configured, definition, data, data.storage, definition.catalog, index_catalog, keys)
