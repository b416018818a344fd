"""Other services as the places of forms. Apart, because what calls them is loaded only where there are any."""

from __future__ import annotations

from dataclasses import dataclass, field

from persistence.closable import Closable
from persistence.dialect import DIALECTS, Dialect
from persistence.index.extraction import ExtractionCache
from persistence.index.sources import Source
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from persistence.properties.providers import ProviderProperties
from persistence.providers.places import Place
from persistence.remote.bodies import RemoteBodies
from persistence.remote.caller import Caller
from persistence.remote.client import Client, Limits
from persistence.remote.flat import RemoteTables
from persistence.remote.names import Names
from persistence.remote.reindexing import RemoteReindexing
from persistence.remote.searching import RemoteIndex
from persistence.remote.store import RemoteStore
from persistence.storage.holding import Holding
from persistence.storage.storage import Readable


@dataclass(frozen=True, slots=True)
class Remotes(Closable):
    """What calls of other services have in common; ``seen`` has the definitions that hold for data anywhere.

    It owns the clients of what it makes.
    """

    dialect: Dialect
    properties: Properties
    limits: Limits
    holding: Holding
    seen: Readable
    clients: list[Client] = field(default_factory=list)
    definitions: ExtractionCache = field(default_factory=ExtractionCache)

    def close(self) -> None:
        """Close the connections to all providers."""
        for client in self.clients:
            client.close()

    def place(self, provider: ProviderProperties) -> Place:
        """The place that another service is."""
        caller = self._caller(provider)
        index = RemoteIndex(
            caller,
            self._source_of,
            lambda form: self.properties.of(form).route.definition == provider,
            is_exact=DIALECTS[provider.dialect or self.dialect.name].restricts_searches,
        )
        return Place(RemoteStore(caller, self.holding), index, RemoteTables(), RemoteReindexing(caller))

    def bodies(self, provider: ProviderProperties, main: Readable) -> RemoteBodies:
        """The bodies of attachments that another service keeps; the rest of them is in the main storage."""
        return RemoteBodies(self._caller(provider), self.holding, main.sidecar)

    def _caller(self, provider: ProviderProperties) -> Caller:
        names = Names(self.dialect, DIALECTS[provider.dialect or self.dialect.name], provider.mirrored)
        client = Client(provider.name, provider.uri, self.limits)
        self.clients.append(client)
        return Caller(provider.name, client, names)

    def _source_of(self, form: Form) -> Source:
        data_format = self.properties.of(form).data_format
        is_designer = self.dialect.is_designer(form)
        return Source(self.seen, form, data_format, is_designer=is_designer, cache=self.definitions)
