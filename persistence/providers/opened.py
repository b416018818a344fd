"""All providers that settings and properties name, opened together and closed together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, cast

import msgspec

from persistence.closable import Closable, PeriodicThread
from persistence.definitions.catalog import Catalog
from persistence.dialect import DIALECTS
from persistence.errors import BusyError, DiskError, StartupError
from persistence.index.protocol import ReportTables
from persistence.index.sync.journal import OfflineJournal
from persistence.index.sync.updater import Failed
from persistence.limits import MOVED_AT_ONCE, SWEEP_EVERY
from persistence.model import network_addresses
from persistence.model.addresses import PUBLIC_PREFIX, Form
from persistence.model.network_addresses import Bucket, RemoteTarget, ServerUrl
from persistence.properties.properties import Properties, ProviderProperties
from persistence.properties.property_table import DATABASES, ENGINES, is_database
from persistence.providers import tree_provider
from persistence.providers.locations import base_of, bodies_by_form, check, database_of, databases_of, located, root_of
from persistence.providers.router import (
    Engine,
    Opening,
    Pooled,
    Provider,
    Route,
    Router,
    Writable,
    by_properties,
    engine_of,
    loaded,
    within,
)
from persistence.providers.tree_provider import (
    Tree,
    Trees,
    catalogs,
    integrity_of,
    open_index,
    open_store,
    provider_of_tree,
)
from persistence.settings import Settings
from persistence.storage.attachments import BodiesReader, FileBodies, SplitStorage
from persistence.storage.commit import Upload
from persistence.storage.storage import (
    NOBODY,
    Arrivals,
    Bodies,
    BodiesOf,
    ChangeListener,
    KeepsHistory,
    MaintainedDatabase,
    ManagedBodies,
    ManagedStorage,
    Revisions,
    Storage,
)
from persistence.storage.store import TreeArrivals
from persistence.storage.stored_revision import Integrity, StoredRevision

if TYPE_CHECKING:
    from persistence.providers.database_provider import Databases
    from persistence.remote.publisher import RemotePublisher
    from persistence.s3.object_bodies import ObjectBodies


def engine_of_databases() -> type[Databases]:
    return cast("type[Databases]", engine_of(ENGINES[DATABASES[0]]))


def init_places(settings: Settings, properties: Properties) -> list[tuple[str, bool]]:
    """Make every missing tree, and the tables of every database; return each by name, and whether it was made."""
    made = tree_provider.init_trees(settings, properties)
    return made + [init_database(settings, uri) for uri in databases_of(settings, properties)]


def init_database(settings: Settings, uri: str) -> tuple[str, bool]:
    """Make the tables of an empty database; return its name, and whether they were made."""
    return engine_of_databases().init(settings, uri)


def upgrade_database(settings: Settings, uri: str, *, dry_run: bool) -> list[str]:
    """Bring a database up to date, or with ``dry_run`` only find out how; return the names of the steps."""
    engine = engine_of_databases()
    return engine.steps_due(settings, uri) if dry_run else engine.upgrade(settings, uri)


def probe(settings: Settings, properties: Properties) -> str | None:
    """Return the reason why the service cannot write into one of its places for now."""
    cause = tree_provider.probe(settings, properties)
    for uri in databases_of(settings, properties):
        found = engine_of_databases().probe(settings, uri)
        cause = cause or found
    return cause


_OPEN_BODIES = "persistence.providers.bucket_provider:open_bodies"


def bucket_bodies(settings: Settings, keeps_history: KeepsHistory) -> Callable[[Bucket], ObjectBodies]:
    """Return a function to the bodies in a bucket, always the same ones; it loads the library for them."""
    return cache(lambda bucket: loaded(_OPEN_BODIES)(settings, keeps_history, bucket))


def with_calls_of_a_move(settings: Settings) -> Settings:
    """Return the settings with as many calls at a time as a move makes, so that none of its documents is refused."""
    return msgspec.structs.replace(settings, remote_calls=max(settings.remote_calls, MOVED_AT_ONCE))


def readable_bodies(
    settings: Settings, properties: Properties, integrity: Integrity
) -> Callable[[Form], BodiesReader | ObjectBodies | None]:
    """Return a function from a form to the bodies of its attachments, for commands that only read."""

    def in_directory(base: str) -> BodiesReader | ObjectBodies:
        return BodiesReader(base, integrity)

    return bodies_by_form(properties, in_directory, bucket_bodies(settings, properties.keeps_history))


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """The free bytes of a place; ``None`` where they are unknown, and then ``fault`` may say why."""

    place: str
    free: int | None
    fault: str = ""


class Providers(Closable):
    """The providers of a service. It owns all trees, indexes, threads and connections behind them.

    ``router`` goes by the properties. ``places`` are the providers of all places of the settings, ``trees`` the local
    trees among them. ``calls_others``: a provider needs to know whose request it serves.
    """

    def __init__(self, settings: Settings, properties: Properties, failed: Failed) -> None:
        """Open everything, and try nothing out: a worker that starts on a full disk must be able to read."""
        check(properties, settings.roots)
        self._settings = settings
        self._properties = properties
        self._objects = bucket_bodies(settings, properties.keeps_history)
        self._opened = ExitStack()
        try:
            self._open(Opening(settings, properties, self._opened, self._catalog_of, self._route_of, failed))
        except BaseException:
            self._opened.close()
            raise

    def _open(self, opening: Opening) -> None:
        properties, roots = opening.properties, opening.settings.roots
        self._local = Trees(opening)
        self.trees: Mapping[str, Tree] = self._local.by_root
        located_at = {each: located(each, roots) for each in properties.form_providers}
        databases = {place: ProviderProperties(place, place) for place in roots.places if is_database(place)}
        kinds = {each.kind for each in (*located_at.values(), *databases.values())}
        kinds |= {each.attachments_kind for each in properties.attachment_providers}
        by_name = {name: self._engine(name, opening) for name in {ENGINES[kind] for kind in kinds}}
        self._engines = {kind: by_name[ENGINES[kind]] for kind in kinds}
        self.calls_others = any(engine.calls_others for engine in by_name.values())
        self._of = {each: self._engines[there.kind].provider(there) for each, there in located_at.items()}
        self.places: Mapping[str, Provider] = {
            **{root: tree.provider for root, tree in self.trees.items()},
            **{place: self._engines[there.kind].provider(there) for place, there in databases.items()},
        }
        self.router = by_properties(properties, self._of.__getitem__, self._bodies_of)
        sweeps = [sweep for engine in dict.fromkeys(self._engines.values()) for sweep in engine.sweeps]
        if sweeps:
            opening.closing.enter_context(PeriodicThread(SWEEP_EVERY, sweeps, partial(opening.failed, None)))

    def close(self) -> None:
        """End the threads after their current work, and close everything, the trees last."""
        self._opened.close()

    @property
    def managed(self) -> list[tuple[Provider, ManagedStorage]]:
        """Return the providers whose revisions are managed here, each once, with their storages."""
        providers = {id(each): each for each in (*self.places.values(), *self._of.values())}
        return [(each, each.managed) for each in providers.values() if each.managed is not None]

    def within(self, place: str) -> Router:
        return within(self.places[place], self._properties, self._of.__getitem__)

    @property
    def written(self) -> list[Writable]:
        places: list[Writable] = [tree.store for tree in self.trees.values()]
        places += self._local.bodies_at.values()
        places += (place for engine in dict.fromkeys(self._engines.values()) for place in engine.written)
        return places

    def shortage(self) -> str | None:
        """Return the reason why the service cannot write somewhere, or soon will not."""
        for space in self.free_space():
            if space.fault:
                return space.fault
            if space.free is not None and space.free < self._settings.min_free:
                return f"{space.free} bytes are free in {space.place}; the floor is {self._settings.min_free}"
        return None

    def free_space(self) -> Iterator[FreeSpace]:
        for place in self.written:
            try:
                yield FreeSpace(place.root, place.free_bytes())
            except (BusyError, DiskError) as error:
                yield FreeSpace(place.root, None, str(error))

    def connections(self) -> tuple[int, int]:
        """Return how many connections to databases this process has open, and how many it may have."""
        pools = [place.connections() for place in self.written if isinstance(place, Pooled)]
        return sum(is_open for is_open, _ in pools), sum(most for _, most in pools)

    def serving_link(self, found: StoredRevision) -> str:
        """Return a path below the default tree under which nginx may read an open content for an hour."""
        default = self.trees.get(self._settings.roots.default)
        if default is None:
            raise DiskError("no data directory is served")
        return default.store.serving_link(found)

    def spooled(self) -> Upload:
        """Begin to receive something that need not become a content."""
        default = self.trees.get(self._settings.roots.default)
        return Upload(os.path.realpath(self._settings.home)) if default is None else default.store.spooled()

    @property
    def bodies_by_form(self) -> BodiesOf:
        return bodies_by_form(self._properties, self._local.bodies_at.__getitem__, self._objects)

    def _engine(self, name: str, opening: Opening) -> Engine:
        engine = engine_of(name)
        return self._local if engine is Trees else engine(opening)

    def _bodies_of(self, configured: ProviderProperties, main: Storage) -> Bodies:
        return self._engines[configured.attachments_kind].bodies(configured, main)

    def _route_of(self, form: Form) -> Route:
        return self.router.of(form)

    def _catalog_of(self, form: Form) -> Catalog:
        return self._of[self._properties.of(form).route.definition].catalog


class OfflineProviders(Closable):
    """The local providers and databases, for commands: each is opened when it is asked for.

    ``listener`` hears of changes in trees. A provider that cannot be used concerns only the forms that need it.
    """

    def __init__(self, settings: Settings, properties: Properties, listener: ChangeListener) -> None:
        check(properties, settings.roots)
        self._settings = settings
        self._properties = properties
        self._listener = listener
        self._opened = ExitStack()
        self.tree = cache(self._open)
        self._databases = cache(self._engine)
        self._database = cache(self._open_database)
        self._catalog_at = catalogs(integrity_of(settings))
        self._bodies = cache(
            partial(FileBodies, integrity=integrity_of(settings), keeps_history=properties.keeps_history)
        )
        self._objects = bucket_bodies(settings, properties.keeps_history)
        self.router = by_properties(properties, self._provider, self._bodies_of)

    def close(self) -> None:
        self._opened.close()

    @property
    def bodies_by_form(self) -> BodiesOf:
        return bodies_by_form(self._properties, self._bodies, self._objects)

    def at(self, place: str) -> Provider:
        """Return the provider of a place of the settings, or of the address of a database."""
        if not is_database(place):
            return self.tree(place).provider
        return self._database(place)

    def _open_database(self, address: str) -> Provider:
        engine_of_databases().require(self._settings, address)
        return self._databases().provider(ProviderProperties(address, address))

    def _provider(self, configured: ProviderProperties) -> Provider:
        """Return a provider; the default one stands for others, because no command calls a service."""
        roots = self._settings.roots
        return self.at(database_of(configured, roots) or root_of(configured, roots) or roots.default)

    def _engine(self) -> Engine:
        opening = Opening(
            self._settings, self._properties, self._opened, self._catalog_of, self._route_of, lambda *_: None
        )
        return engine_of(ENGINES[DATABASES[0]])(opening)

    def _catalog_of(self, form: Form) -> Catalog:
        return self._provider(self._properties.of(form).route.definition).catalog

    def _route_of(self, form: Form) -> Route:
        return self.router.of(form)

    def _bodies_of(self, configured: ProviderProperties, _: Storage) -> Bodies | None:
        if configured.place is not None:
            return self._objects(configured.place)
        base = base_of(configured)
        return None if base is None else self._bodies(base)

    def _open(self, root: str) -> Tree:
        settings = self._settings
        store = self._opened.enter_context(open_store(settings, root, self._listener, self._properties.keeps_history))
        index = open_index(settings, self._properties, root, self._catalog_at)
        self._opened.enter_context(index)
        return Tree(store, provider_of_tree(store, index, self._catalog_at(store.root)), index)


@dataclass(frozen=True, slots=True)
class Place:
    """An open storage, and its ``name``, which has no password.

    ``revisions`` returns those of a form, with attachments from where the properties lead. ``keeping_writers_out``
    yields a function that raises ``BusyError`` if writers are not kept out any more. ``reports`` are flat views. A
    database also has ``database``, and ``catalog_of``, the definitions of a form's data.
    """

    name: str
    storage: ManagedStorage
    revisions: Callable[[Form], Revisions]
    arrivals: Arrivals
    keeping_writers_out: Callable[[], AbstractContextManager[Callable[[], None]]]
    reports: ReportTables | None = None
    database: MaintainedDatabase | None = None
    catalog_of: Callable[[Form], Catalog] | None = None


@contextmanager
def open_place(settings: Settings, properties: Properties, location: str) -> Iterator[Place]:
    """Open a place for a block. It keeps all revisions that are stored in it, whatever the properties say."""
    with (
        _database(settings, properties, location)
        if is_database(location)
        else _tree(settings, properties, os.path.realpath(location)) as place
    ):
        yield place


@contextmanager
def _tree(settings: Settings, properties: Properties, path: str) -> Iterator[Place]:
    with (
        OfflineJournal(path) as journal,
        open_store(settings, path, journal) as store,
        open_index(settings, properties, path) as index,
    ):
        revisions = _with_bodies(settings, properties, store)
        yield Place(path, store, revisions, TreeArrivals(path), store.keeping_writers_out, index.flat)
        journal.leave()


@contextmanager
def _database(settings: Settings, properties: Properties, uri: str) -> Iterator[Place]:
    if uri not in databases_of(settings, properties):  # its index goes by its own definitions, as it will when served
        settings = msgspec.structs.replace(settings, data=uri)
    with OfflineProviders(settings, properties, NOBODY) as providers:
        provider = providers.at(uri)
        database = provider.database
        if database is None:
            raise StartupError("a database of another service cannot be moved")
        revisions = _with_bodies(settings, properties, database.storage)
        yield Place(
            database.name,
            database.storage,
            revisions,
            database.arrivals,
            database.keeping_writers_out,
            provider.reports,
            database,
            provider.index_catalog,
        )


def bucket_of(properties: Properties, form: Form) -> Bucket | None:
    """Return the bucket of a form's attachments."""
    attachments = properties.of(form).route.attachments
    return None if attachments is None else attachments.place


def _with_bodies(settings: Settings, properties: Properties, storage: Storage) -> Callable[[Form], Revisions]:
    @cache
    def bodies_at(base: str) -> ManagedBodies:
        return FileBodies(base, integrity_of(settings))

    bodies_of = bodies_by_form(
        properties, bodies_at, bucket_bodies(with_calls_of_a_move(settings), properties.keeps_history)
    )

    @cache
    def revisions(form: Form) -> Revisions:
        bodies = bodies_of(form)
        return storage if bodies is None else SplitStorage(storage, bodies)

    return revisions


class PublicationServers:
    """Calls the servers that the setting ``publish_to`` allows. They speak the dialect of this service."""

    def __init__(self, settings: Settings) -> None:
        self._allowed = tuple(map(network_addresses.parse_server_url, settings.publish_to))
        self._settings = settings

    def require_allowed(self, url: str) -> ServerUrl:
        """Read the address of a server that may be published to."""
        return network_addresses.require_allowed(url, self._allowed)

    @contextmanager
    def publisher(
        self, target: RemoteTarget, form: Form, *, user: str | None, source: str | None, flat_view: bool
    ) -> Iterator[RemotePublisher]:
        """Call a server for a block; ``user`` is named to it as the one who publishes, and no other header is sent.

        Redirects are not followed, and no proxy of the environment is used. ``source`` and ``flat_view``: see
        ``RemotePublisher``.
        """
        # Loads the HTTP client, which other services do not need.
        from persistence.remote.publisher import RemotePublisher  # noqa: PLC0415
        from persistence.remote.remote_calls import Client, NothingForwarded  # noqa: PLC0415
        from persistence.wire.connection import CallPolicy, Connection  # noqa: PLC0415

        dialect = DIALECTS[self._settings.dialect]
        names = NothingForwarded(dialect, dialect)
        fields = [] if user is None else [names.field("Username", user)]
        if target.authorization is not None:
            fields.append(("Authorization", target.authorization.encode("ascii")))
        policy = CallPolicy(self._settings.remote_connect, self._settings.remote_timeout)
        with Connection(f"{target.server}{PUBLIC_PREFIX}", policy, is_provider=True) as connection:
            client = Client("", names, connection)
            yield RemotePublisher(client, form, tuple(fields), source, flat_view, target.is_forced)
