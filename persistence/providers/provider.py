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

    ``storage`` keeps revisions, ``catalog`` has the snapshots of the definitions in it, ``index`` searches the data,
    ``reports`` are the flat views of the data, ``None`` where whoever stores a definition makes them, and ``reindexer``
    rebuilds both. ``leases`` are those of its documents. ``index_catalog`` gives the definitions by which the index
    reads data of a form, where it reads them by itself; it is ``None`` where the index takes those of the route.
    ``managed`` is the storage again, where its revisions are purged and rewritten here and not by another service.
    ``database`` is what commands maintain, if it is one.
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

    ``closing`` closes all open resources, the last first. ``catalog_of`` gives the definitions for the data of a form,
    and ``route_of`` its route, in any provider; they are not to be called before all providers are open. ``failed`` is
    called with faults.
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

    ``calls_others`` says whether its providers need to know whose request they serve (``client_request``).
    """

    calls_others: bool

    @property
    def written(self) -> Sequence[Writable]:
        """All that it has opened and that must be writable, but for trees and directories of attachments."""

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
    """Import an engine, one of ``ENGINES``. Raises as ``loaded``."""
    engine: type[Engine] = loaded(name)
    return engine


def loaded(name: str) -> Any:
    """Import ``module:object``, whose module may need a library that few need.

    Raises:
        StartupError: the library is not installed.
    """
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

    ``definition`` has the definitions by which rules decide, ``data`` the documents, drafts and their index.
    ``storage`` has the data, with the attachments from wherever they are, and ``catalog`` the definitions.
    ``index_catalog`` has those by which the index reads data. It is the same, unless another service has definitions
    of local data: an index asks no other service, and reads such data by the definitions beside it, if there are any.
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
