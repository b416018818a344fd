"""A provider: what keeps forms, as one unit; the engine that opens it; and the route to the providers of one form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Protocol, runtime_checkable

from persistence.definitions.catalog import Catalog, Definition
from persistence.errors import StartupError
from persistence.index.protocol import Reindexer, ReportTables, SearchIndex
from persistence.index.sync.updater import Failed
from persistence.model.addresses import Form
from persistence.properties.properties import FormProperties, Properties, ProviderProperties
from persistence.settings import Settings
from persistence.storage.managed import MaintainedDatabase, ManagedStorage
from persistence.storage.storage import Bodies, Leases, RevisionStorage, Storage


@dataclass(frozen=True, slots=True)
class Provider:
    """A tree of this service, another service, or any other implementation of these protocols.

    ``reports`` is ``None`` where the service that stores a definition makes the flat views. ``index_catalog`` gives the
    definitions by which the index reads data of a form; ``None`` where it takes those of the route. ``managed`` is the
    storage again, where its revisions are purged and rewritten here. ``database`` is for commands that maintain it.
    """

    storage: Storage
    catalog: Catalog
    index: SearchIndex
    reports: ReportTables | None
    reindexer: Reindexer
    leases: Leases
    index_catalog: Callable[[Form], Catalog] | None = None
    managed: ManagedStorage | None = None
    database: MaintainedDatabase | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """The service that an engine opens providers for.

    ``closing`` closes all open resources, the last first. ``catalog_of`` and ``route_of`` must not be called before all
    providers are open. ``failed`` is called with faults.
    """

    settings: Settings
    properties: Properties
    closing: ExitStack
    catalog_of: Callable[[Form], Catalog]
    route_of: Callable[[Form], Route]
    failed: Failed


class Writable(Protocol):
    """A place that must be writable: a directory, or a database."""

    @property
    def root(self) -> str:
        """Its path or name."""

    def free_bytes(self) -> int | None:
        """Return the space that the service may still use there; ``None`` where nobody knows.

        Raises:
            DiskError, BusyError: it cannot write there.
        """


@runtime_checkable
class Pooled(Protocol):
    """A place with connections that requests take turns to use."""

    def connections(self) -> tuple[int, int]:
        """Return how many this process has open, and how many it may have."""


class Engine(Protocol):
    """Opens the providers of one kind. One object serves all of a service, and is called once for each provider.

    ``calls_others``: its providers need to know whose request they serve (``client_request``).
    """

    calls_others: bool

    @property
    def written(self) -> Sequence[Writable]:
        """Places to be written, except trees and directories of attachments."""

    @property
    def sweeps(self) -> Sequence[Callable[[], object]]:
        """Work that a service does now and then, to remove what failed requests have left; it may raise."""

    def __init__(self, opening: Opening) -> None:
        """Prepare to open providers. Raises ``StartupError`` where that cannot be."""

    def provider(self, configured: ProviderProperties) -> Provider:
        """Open a provider of forms. Raises ``StartupError`` where that cannot be."""

    def bodies(self, configured: ProviderProperties, main: Storage) -> Bodies:
        """Open a provider of attachments, apart from what ``main`` stores of them."""


_LIBRARIES = {"psycopg": "postgresql", "psycopg_pool": "postgresql", "obstore": "s3"}
"""Libraries that are installed where they are asked for, and the extra that brings them."""


def engine_of(name: str) -> type[Engine]:
    """Import an engine, one of ``ENGINES``."""
    engine: type[Engine] = loaded(name)
    return engine


def loaded(name: str) -> Any:
    """Import ``module:object``, whose module may need a library that is not installed: raises ``StartupError``."""
    try:
        return resolve_name(name)
    except ImportError as error:
        extra = _LIBRARIES.get((error.name or "psycopg").partition(".")[0])
        if extra is None:
            raise
        raise StartupError(
            f"a provider needs {error.name or 'psycopg'}, which is not installed:"
            f" install the service with its extra [{extra}], as docs/{extra}.md says"
        ) from error


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

    def indexed(self, definition: Definition) -> Definition:
        """Return the definition by which the index reads data of a definition's version."""
        if self.index_catalog is self.catalog:
            return definition
        return self.index_catalog.of(definition.form, definition.version)
