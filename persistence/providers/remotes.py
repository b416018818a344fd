"""Other services as providers. Apart, because the HTTP client is loaded only where there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from persistence.closable import Closable
from persistence.definitions.catalog import Catalog
from persistence.definitions.summaries import SummaryFile
from persistence.dialect import DIALECTS, Dialect
from persistence.model.addresses import DESIGNER_VERSION, Form
from persistence.properties.properties import Properties, ProviderProperties
from persistence.providers.provider import Provider
from persistence.remote.client import CallLimits, Client
from persistence.remote.provider_names import ProviderNames
from persistence.remote.remote_bodies import RemoteBodies
from persistence.remote.remote_index import RemoteIndex, RemoteReindexing, RemoteTables
from persistence.remote.remote_store import RemoteStore
from persistence.storage.locks import Locks
from persistence.storage.storage import Readable
from persistence.storage.uploads import Spool


@dataclass(frozen=True, slots=True)
class Remotes(Closable):
    """Opens other services as providers, and owns the connections to them.

    ``catalog_of`` leads to the definitions that hold for the data of a form, wherever they are. ``spool`` and ``locks``
    are those of this service.
    """

    dialect: Dialect
    properties: Properties
    limits: CallLimits
    spool: Spool
    locks: Locks
    catalog_of: Callable[[Form], Catalog]
    summaries: SummaryFile
    clients: list[Client] = field(default_factory=list)

    def close(self) -> None:
        """Close the connections to all providers."""
        for client in self.clients:
            client.close()

    def provider(self, provider: ProviderProperties) -> Provider:
        """Open the provider that another service is."""
        client = self._client(provider)
        index = RemoteIndex(
            client,
            self._versions,
            lambda form: self.properties.of(form).route.definition == provider,
            is_exact=DIALECTS[provider.dialect or self.dialect.name].restricts_searches,
        )
        storage = RemoteStore(client, self.spool, self.locks)
        catalog = Catalog(storage, self.summaries)
        return Provider(provider.name, storage, catalog, index, RemoteTables(), RemoteReindexing(client))

    def bodies(self, provider: ProviderProperties, main: Readable) -> RemoteBodies:
        """Open the bodies of attachments that another service keeps; the rest of them is in the main storage."""
        return RemoteBodies(self._client(provider), self.spool, main.sidecar)

    def _client(self, provider: ProviderProperties) -> Client:
        names = ProviderNames(self.dialect, DIALECTS[provider.dialect or self.dialect.name], provider.mirrored)
        client = Client(provider.name, provider.uri, names, self.limits)
        self.clients.append(client)
        return client

    def _versions(self, form: Form) -> Iterable[int]:
        if self.dialect.is_designer(form):
            return (DESIGNER_VERSION,)
        return self.catalog_of(form).storage.versions(form)
