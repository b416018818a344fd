"""Other services as providers. Apart, because the HTTP client is loaded only where there are any."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial

from persistence.catalog import Catalog
from persistence.dialect import DIALECTS
from persistence.model.addresses import DESIGNER_VERSION, Form
from persistence.properties.properties import ProviderProperties
from persistence.properties.property_table import full_address
from persistence.providers.opened import Providers
from persistence.providers.router import Provider
from persistence.remote.remote_calls import Client, ProviderNames, RemoteIndex, RemoteReindexing
from persistence.remote.remote_store import RemoteBodies, RemoteStore
from persistence.storage.locks import Locks
from persistence.storage.root import make_own
from persistence.storage.storage import Readable
from persistence.wire import CallPolicy, Connection


class Remotes:
    """The engine of other services, which share connections by address. Bodies and locks are in the home directory."""

    def __init__(self, opening: Providers) -> None:
        settings = opening.settings
        self._root = root = os.path.realpath(settings.home)
        self._opening = opening
        self._dialect = DIALECTS[settings.dialect]
        self._policy = CallPolicy(settings.remote_connect, settings.remote_timeout)
        self._calls = settings.remote_calls
        self._locks = Locks(root, settings.lock_timeout, missing=partial(make_own, root))
        self._connections: dict[str, Connection] = {}

    def provider(self, configured: ProviderProperties) -> Provider:
        client, properties, dialect = self._client(configured), self._opening.properties, self._dialect

        def versions_of(form: Form) -> Iterable[int]:
            catalog_of = self._opening.catalog_of
            return (DESIGNER_VERSION,) if form == dialect.designer else catalog_of(form).storage.versions(form)

        index = RemoteIndex(
            client,
            versions_of,
            lambda form: properties.of(form).route.definition == configured,
            is_exact=client.names.theirs.restricts_searches,
        )
        storage = RemoteStore(client, self._root, self._locks)
        return Provider(storage, Catalog(storage), index, None, RemoteReindexing(client))

    def bodies(self, configured: ProviderProperties, main: Readable) -> RemoteBodies:
        return RemoteBodies(self._client(configured), self._root, main.sidecar)

    def _client(self, configured: ProviderProperties) -> Client:
        names = ProviderNames(self._dialect, DIALECTS[configured.dialect or self._dialect.name], configured.mirrored)
        if configured.uri not in self._connections:
            connection = Connection(full_address(configured.uri), self._policy, calls=self._calls, is_provider=True)
            self._connections[configured.uri] = self._opening.closing.enter_context(connection)
        return Client(configured.name, names, self._connections[configured.uri])
