"""Other services as the places of forms. Apart, because what calls them is loaded only where there are any."""

from __future__ import annotations

from dataclasses import dataclass, field

from persistence.closable import Closable
from persistence.dialect import DIALECTS, Dialect
from persistence.index.extraction import ExtractionCache
from persistence.index.sources import Source
from persistence.model.addresses import Form
from persistence.properties.properties import Properties, ProviderProperties
from persistence.providers.places import Place
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
    """What calls of other services have in common; ``seen`` has the definitions that hold for data anywhere.

    It owns the clients of what it makes.
    """

    dialect: Dialect
    properties: Properties
    limits: CallLimits
    spool: Spool
    locks: Locks
    seen: Readable
    clients: list[Client] = field(default_factory=list)
    definitions: ExtractionCache = field(default_factory=ExtractionCache)

    def close(self) -> None:
        """Close the connections to all providers."""
        for client in self.clients:
            client.close()

    def place(self, provider: ProviderProperties) -> Place:
        """The place that another service is."""
        client = self._client(provider)
        index = RemoteIndex(
            client,
            self._source_of,
            lambda form: self.properties.of(form).route.definition == provider,
            is_exact=DIALECTS[provider.dialect or self.dialect.name].restricts_searches,
        )
        return Place(RemoteStore(client, self.spool, self.locks), index, RemoteTables(), RemoteReindexing(client))

    def bodies(self, provider: ProviderProperties, main: Readable) -> RemoteBodies:
        """The bodies of attachments that another service keeps; the rest of them is in the main storage."""
        return RemoteBodies(self._client(provider), self.spool, main.sidecar)

    def _client(self, provider: ProviderProperties) -> Client:
        names = ProviderNames(self.dialect, DIALECTS[provider.dialect or self.dialect.name], provider.mirrored)
        client = Client(provider.name, provider.uri, names, self.limits)
        self.clients.append(client)
        return client

    def _source_of(self, form: Form) -> Source:
        data_format = self.properties.of(form).data_format
        is_designer = self.dialect.is_designer(form)
        return Source(self.seen, form, data_format, is_designer=is_designer, cache=self.definitions)
