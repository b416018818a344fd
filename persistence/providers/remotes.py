"""Other services as providers. Apart, because the HTTP client is loaded only where there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from persistence.closable import Closable
from persistence.definitions.catalog import Catalog
from persistence.definitions.summaries import SummaryFile
from persistence.dialect import DIALECTS, Dialect
from persistence.model.addresses import DESIGNER_VERSION, Form
from persistence.properties.properties import Properties
from persistence.properties.providers import ProviderProperties
from persistence.providers.provider import Provider
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
    """Opens other services as providers, and owns the connections to them.

    ``catalog_of`` leads to the definitions that hold for the data of a form, wherever they are. ``holding`` has the
    locks and the spool of this service.
    """

    dialect: Dialect
    properties: Properties
    limits: Limits
    holding: Holding
    catalog_of: Callable[[Form], Catalog]
    summaries: SummaryFile
    clients: list[Client] = field(default_factory=list)

    def close(self) -> None:
        """Close the connections to all providers."""
        for client in self.clients:
            client.close()

    def provider(self, said: ProviderProperties) -> Provider:
        """Open the provider that another service is."""
        caller = self._caller(said)
        storage = RemoteStore(caller, self.holding)
        index = RemoteIndex(
            caller,
            self._versions,
            lambda form: self.properties.of(form).route.definition == said,
            is_exact=DIALECTS[said.dialect or self.dialect.name].restricts_searches,
        )
        catalog = Catalog(storage, self.summaries)
        return Provider(said.name, storage, catalog, index, RemoteTables(), RemoteReindexing(caller))

    def bodies(self, said: ProviderProperties, main: Readable) -> RemoteBodies:
        """Open the bodies of attachments that another service keeps; the rest of them is in the main storage."""
        return RemoteBodies(self._caller(said), self.holding, main.sidecar)

    def _caller(self, said: ProviderProperties) -> Caller:
        names = Names(self.dialect, DIALECTS[said.dialect or self.dialect.name], said.mirrored)
        client = Client(said.name, said.uri, self.limits)
        self.clients.append(client)
        return Caller(said.name, client, names)

    def _versions(self, form: Form) -> Iterable[int]:
        if self.dialect.is_designer(form):
            return (DESIGNER_VERSION,)
        return self.catalog_of(form).storage.versions(form)
