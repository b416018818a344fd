"""The router: which providers a form has, by the properties, and in which order lists of forms ask them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache

from persistence.errors import ConfigurationError
from persistence.index.protocol import ReindexingState, ReindexingStatus
from persistence.limits import FORMS_KEPT
from persistence.model.addresses import Form
from persistence.model.versions import PublishedVersion
from persistence.properties.properties import FormProperties, Properties, ProviderProperties
from persistence.properties.property_table import ANY, DATA, FORM
from persistence.providers.provider import Provider, Route
from persistence.storage.split_attachments import SplitStorage
from persistence.storage.storage import Bodies, RevisionStorage, Storage

ProviderOf = Callable[[ProviderProperties], Provider]
"""Leads from what properties say of a provider to the provider, always the same one."""


class Router:
    """Finds the route of each form by the properties."""

    def __init__(
        self,
        properties: Properties,
        route: Callable[[Form], Route],
        defining: Callable[[str | None], Iterable[Provider]],
        keeping_data: Callable[[], Iterable[Provider]],
    ) -> None:
        self.properties = properties
        self._route = lru_cache(FORMS_KEPT)(route)
        self._defining = defining
        self._keeping_data = keeping_data

    def of(self, form: Form) -> Route:
        return self._route(form)

    def published(self, app: str | None, name: str | None) -> Iterator[tuple[Route, Iterator[PublishedVersion]]]:
        """Return the route of every form, or of those of an application or a form name, with its undamaged versions.

        A definition in a provider counts only where rules would look for it.
        """
        for provider in _distinct(self._defining(app)):
            for form, versions in provider.catalog.forms(app, name):
                with suppress(ConfigurationError):  # it has no provider, as a request for it by name reports
                    route = self.of(form)
                    if route.definition is provider:
                        yield route, versions

    def forms(self, app: str | None = None) -> Iterator[Form]:
        """Yield every form, or each of an application, that has anything where requests for it look, each once."""
        found: set[Form] = set()
        for provider in _distinct((*self._defining(app), *self._keeping_data())):
            for form in provider.storage.forms(app):
                with suppress(ConfigurationError):
                    route = self.of(form)
                    if form not in found and provider in (route.definition, route.data):
                        found.add(form)
                        yield form

    def reindex(self, form: Form, version: int) -> None:
        self.of(form).data.reindexer.version(form, version)

    def reindex_all(self) -> None:
        """Rebuild the indexes of all active providers, one after the other."""
        for provider in _distinct(self._keeping_data()):
            provider.reindexer.all()

    def reindexing_status(self) -> ReindexingStatus:
        """Return the progress of the first provider that is rebuilding."""
        found = (provider.reindexer.status() for provider in _distinct(self._keeping_data()))
        return next((status for status in found if status.state is not ReindexingState.STOPPED), ReindexingStatus())


def by_properties(
    properties: Properties, provider_of: ProviderOf, bodies_of: Callable[[ProviderProperties, Storage], Bodies | None]
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
        storage = data.storage if apart is None else attached(chosen.data.name, apart.name)
        return _route(form, configured, provider_of(chosen.definition), data, storage)

    return Router(
        properties,
        route,
        lambda app: map(provider_of, properties.providers(FORM, app or ANY)),
        lambda: map(provider_of, properties.providers(DATA)),
    )


def within(provider: Provider, properties: Properties, provider_of: ProviderOf) -> Router:
    """Route each form to one provider, as its own name on the provider API leads to it.

    Its own definitions count, unless the properties name others for its data: a caller by its own name must not find
    data without the permissions of the form.
    """

    def route(form: Form) -> Route:
        configured = properties.of(form)
        is_here = provider_of(configured.route.data) is provider
        definition = provider_of(configured.route.definition) if is_here else provider
        return _route(form, configured, definition, provider, provider.storage)

    return Router(
        properties,
        route,
        lambda app: (provider, *map(provider_of, properties.providers(FORM, app or ANY))),
        lambda: (provider,),
    )


def only(provider: Provider, properties: Properties) -> Router:
    """Route each form to one provider, which has everything."""
    return within(provider, properties, lambda _: provider)


def _route(
    form: Form, configured: FormProperties, definition: Provider, data: Provider, storage: RevisionStorage
) -> Route:
    index_catalog = definition.catalog if data.index_catalog is None else data.index_catalog(form)
    return Route(form, configured, definition, data, storage, definition.catalog, index_catalog)


def _distinct(providers: Iterable[Provider]) -> Iterable[Provider]:
    return {id(each): each for each in providers}.values()
