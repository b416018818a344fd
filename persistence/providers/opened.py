"""The places of settings and properties, what is opened of them, and all providers, which are closed together."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import msgspec

from persistence.catalog import Catalog
from persistence.closable import Closable, PeriodicThread, closed_after_error
from persistence.dialect import DIALECTS
from persistence.errors import BusyError, DiskError, StartupError, disk_errors
from persistence.forms.flat_tables import FlatNaming
from persistence.index.outbox import Outbox
from persistence.index.protocol import RequestedRebuilds
from persistence.index.sources import ExtractionCache, Source, SourceDescription
from persistence.index.sqlite.tree_outbox import TreeOutbox
from persistence.index.sync.rebuild import FlatViews
from persistence.index.sync.staleness import Journal, OfflineJournal
from persistence.index.sync.updater import Failed, TreeIndex, Updater
from persistence.limits import MOVED_AT_ONCE, SWEEP_EVERY
from persistence.model import network_addresses
from persistence.model.addresses import PUBLIC_PREFIX, Form
from persistence.model.network_addresses import Bucket, RemoteTarget, ServerUrl
from persistence.properties.properties import Properties, ProviderProperties
from persistence.properties.property_table import DATABASES, ENGINES, TREE, is_database
from persistence.providers import locations
from persistence.providers.router import Engine, Provider, Router, by_properties, loaded, within
from persistence.providers.webhooks import require_targets
from persistence.s3.body_references import settle_notes
from persistence.settings import Settings
from persistence.storage import owner, root
from persistence.storage.attachments import BodiesReader, FileBodies, SplitStorage
from persistence.storage.commit import Upload
from persistence.storage.layout import JOURNAL, LAYOUT, Layout
from persistence.storage.reader import StoreReader
from persistence.storage.storage import (
    NOBODY,
    Bodies,
    BodiesOf,
    ChangeListener,
    KeepsHistory,
    Revisions,
    Storage,
    keeps_all,
)
from persistence.storage.store import Store
from persistence.storage.stored_revision import HandEdits, Integrity, StoredRevision

if TYPE_CHECKING:
    from persistence.providers.database_provider import DatabasePlace
    from persistence.remote.remote_calls import RemotePublisher
    from persistence.s3.object_bodies import ObjectBodies


CatalogAt = Callable[[str], Catalog]
"""Leads from a root to the catalog of the definitions in its tree, always the same one."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A served tree."""

    store: Store
    provider: Provider
    index: TreeIndex


@dataclass(frozen=True, slots=True)
class Place:
    """A tree, or in its subclass a database, by its address, before it is opened."""

    settings: Settings
    address: str

    def init(self) -> tuple[str, bool]:
        """Make a missing tree, or the tables of an empty database; return its name, and whether it was made."""
        return self.address, root.init(self.address)

    def exists(self) -> bool:
        """Return whether it was made; the tables of a database are those of this version."""
        return os.path.lexists(Layout(self.address).own(LAYOUT))

    def probe(self) -> str | None:
        """Return the reason why nothing can be written there for now. Raises ``StartupError`` if it does not exist."""
        with open_store(self.settings, self.address) as store:
            return store.probe()


def open_tree(opening: Providers, path: str) -> Tree:
    settings, properties = opening.settings, opening.properties
    enter, listener_at = opening.closing.enter_context, opening.listener_at

    def index_catalog(form: Form) -> Catalog:
        return opening.catalog_at(locations.definitions_root(form, path, properties, settings.roots))

    index = open_index(settings, properties, path, opening.catalog_at)
    listener = index.updater(opening.failed) if listener_at is None else listener_at(path)
    store = enter(open_store(settings, path, listener, opening.keeps_history))
    opening.written[store.root] = store.free_bytes
    enter(index)
    if isinstance(listener, Updater):
        enter(listener).start()
    return Tree(store, provider_of_tree(store, index, opening.catalog_at(path), index_catalog), index)


def catalogs(integrity: Integrity) -> CatalogAt:
    lock = threading.Lock()  # two threads that ask first would make two of them
    made = cache(lambda root: Catalog(StoreReader(root, integrity)))

    def catalog_at(root: str) -> Catalog:
        with lock:
            return made(root)

    return catalog_at


def open_index(settings: Settings, properties: Properties, path: str, catalog_at: CatalogAt | None = None) -> TreeIndex:
    path, roots = os.path.realpath(path), settings.roots
    dialect, hand_edits = DIALECTS[settings.dialect], HandEdits(settings.hand_edits)
    extracted, integrity = ExtractionCache(), Integrity(hand_edits)
    definitions_at = catalog_at or catalogs(integrity)

    def source_of(form: Form) -> Source:
        configured, definitions = properties.of(form), locations.definitions_root(form, path, properties, roots)
        naming = FlatNaming(dialect.flat_view_prefix, configured.longest_flat_name, configured.has_flat_prefixes)
        described = SourceDescription(
            form, configured.data_format, form == dialect.designer, naming, definitions, hand_edits
        )
        return Source(described, StoreReader(path, integrity), definitions_at(definitions), extracted)

    flat = FlatViews(path, source_of, partial(locations.defined_elsewhere, path, properties, roots))
    return TreeIndex(path, Journal(Layout(path).own(JOURNAL)), source_of, flat)


def provider_of_tree(
    store: Store, index: TreeIndex, catalog: Catalog, index_catalog: Callable[[Form], Catalog] | None = None
) -> Provider:
    """Return the provider that a tree is; ``index`` must hear of its changes."""
    rebuilds = RequestedRebuilds(store, index.rebuild, index.status)
    outbox = store.recorder if isinstance(store.recorder, TreeOutbox) else None
    return Provider(store, catalog, index, index.flat, rebuilds, index_catalog, outbox=outbox)


def open_store(
    settings: Settings, path: str, listener: ChangeListener = NOBODY, keeps_history: KeepsHistory = keeps_all
) -> Store:
    """Open the store of a tree; ``listener`` hears which documents are changed through it."""
    return Store(
        path,
        lock_timeout=settings.lock_timeout,
        listener=listener,
        integrity=integrity_of(settings),
        keeps_history=keeps_history,
        recorder=TreeOutbox(path) if settings.events else None,
        append_only=settings.append_only,
    )


def integrity_of(settings: Settings) -> Integrity:
    verify_up_to = settings.verify_up_to if settings.verify == "digest" else 0
    return Integrity(HandEdits(settings.hand_edits), verify_up_to=verify_up_to)


_OBJECTS = "persistence.s3.object_bodies"  # Its library is loaded only where there are buckets


def place_at(settings: Settings, address: str) -> Place:
    """Return a place that is still to be opened. Raises ``StartupError`` if the driver of a database is missing."""
    return database_at(settings, address) if is_database(address) else Place(settings, address)


def database_at(settings: Settings, address: str) -> DatabasePlace:
    found: DatabasePlace = loaded("persistence.providers.database_provider:DatabasePlace")(settings, address)
    return found


def init_places(settings: Settings, properties: Properties) -> list[tuple[str, bool]]:
    locations.check(properties, settings.roots)
    return [place_at(settings, each).init() for each in locations.places_of(settings, properties)]


def probe(settings: Settings, properties: Properties) -> str | None:
    """Return the reason why the service cannot write into one of its places for now."""
    locations.check(properties, settings.roots)
    require_targets(settings)
    for base in locations.bases_of(properties):
        FileBodies(base)
    if locations.buckets_of(properties):
        loaded(_OBJECTS)  # says what to install; the store itself is asked by workers alone, after the fork
    causes = [place_at(settings, each).probe() for each in locations.places_of(settings, properties)]
    return next(filter(None, causes), None)


def bucket_bodies(settings: Settings, keeps_history: KeepsHistory) -> Callable[[Bucket], ObjectBodies]:
    """Return a function to the bodies in a bucket, always the same ones; it loads the library for them."""

    @cache
    def bodies_at(bucket: Bucket) -> ObjectBodies:
        module = loaded(_OBJECTS)
        limits = module.ObjectLimits(settings.remote_connect, settings.remote_timeout, settings.remote_calls)
        bodies: ObjectBodies = module.ObjectBodies(module.Objects(bucket, limits), settings.home, keeps_history)
        return bodies

    return bodies_at


def with_calls_of_a_move(settings: Settings) -> Settings:
    """Return the settings with as many calls at a time as a move makes, so that none of its documents is refused."""
    return msgspec.structs.replace(settings, remote_calls=max(settings.remote_calls, MOVED_AT_ONCE))


def readable_bodies(
    settings: Settings, properties: Properties, integrity: Integrity
) -> Callable[[Form], BodiesReader | ObjectBodies | None]:
    """Return a function from a form to the bodies of its attachments, for commands that only read."""
    at = partial(BodiesReader, integrity=integrity)
    return locations.bodies_by_form(properties, at, bucket_bodies(settings, properties.keeps_history))


def unheard(_root: str) -> ChangeListener:
    """Return who hears of the changes in a tree for a command that makes none: nobody."""
    return NOBODY


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """The free bytes of a place; ``None`` where they are unknown, and then ``fault`` may say why."""

    place: str
    free: int | None
    fault: str = ""


class Providers(Closable):
    """All providers of settings and properties. It owns all trees, indexes, threads and connections behind them.

    ``router`` goes by the properties. A service has everything open from the beginning: ``places`` are the providers of
    all places of the settings, ``trees`` the local trees among them. ``calls_others``: a provider needs to know whose
    request it serves.

    A command has ``listener_at``, which returns who hears of the changes in the tree of a root, and each provider is
    opened when it is asked for: one that cannot be used concerns only the forms that need it. ``keeps_history`` is in
    place of what the properties say.

    Engines get it, too: ``closing`` closes what they open, the last first, and ``failed`` is called with faults. They
    add to ``written`` functions to the free bytes of places to be written, by their names: ``None`` is unknown, and
    ``DiskError`` and ``BusyError`` say why one cannot be written. They add to ``pools`` functions to how many
    connections this process has open and may have, and to ``sweeps`` work that a service does now and then, to remove
    what failed requests have left; it may raise. ``catalog_of`` and ``data_of`` must not be called before all providers
    are open.
    """

    def __init__(
        self,
        settings: Settings,
        properties: Properties,
        failed: Failed = lambda *_: None,
        *,
        listener_at: Callable[[str], ChangeListener] | None = None,
        keeps_history: KeepsHistory | None = None,
    ) -> None:
        """Try nothing out: a worker that starts on a full disk must be able to read."""
        locations.check(properties, settings.roots)
        self.settings = settings
        self.properties = properties
        self.closing = ExitStack()
        self.failed = failed
        self.listener_at = listener_at
        self.keeps_history = keeps_history or properties.keeps_history
        self.written: dict[str, Callable[[], int | None]] = {}
        self.pools: list[Callable[[], tuple[int, int]]] = []
        self.sweeps: list[Callable[[], object]] = []
        integrity = integrity_of(settings)
        self.catalog_at = catalogs(integrity)
        self._bodies_at = bucket_bodies(settings, self.keeps_history)
        self._files_at = cache(partial(FileBodies, integrity=integrity, keeps_history=self.keeps_history))
        self._engines: dict[str, Engine] = {}
        self.tree_at = cache(partial(open_tree, self))
        self._of = cache(self._open)
        self._at: dict[str, Provider] = {}  # not a cache: its keys would tell an address from one with its password
        self._keys = locations.open_encryption_keys(settings, properties)
        self.router = by_properties(properties, self._of, self._bodies_of, self._keys)
        if listener_at is None:
            with closed_after_error(self.closing):
                self._open_all()

    def _open_all(self) -> None:
        roots, properties = self.settings.roots, self.properties
        self.trees: Mapping[str, Tree] = {path: self.tree_at(path) for path in roots}
        for bodies in map(self._files_at, locations.bases_of(properties)):
            self.written[bodies.root] = bodies.free_bytes
        for bucket in locations.buckets_of(properties):
            self.sweeps.append(partial(settle_notes, self._bodies_at(bucket), self.data_of))
        for configured in properties.attachment_providers:
            if configured.attachments_kind != TREE and configured.place is None:
                self._engine(configured.kind)
        for configured in properties.form_providers:
            self._of(configured)
        self.places: Mapping[str, Provider] = {place: self.at(place) for place in (*roots, *roots.databases)}
        every = (*properties.form_providers, *properties.attachment_providers)
        self.calls_others = any(each.is_service for each in every)
        if self.sweeps:
            self.closing.enter_context(PeriodicThread("sweeps", SWEEP_EVERY, self.sweeps, partial(self.failed, None)))

    def catalog_of(self, form: Form) -> Catalog:
        return self._of(self.properties.of(form).route.definition).catalog

    def data_of(self, form: Form) -> Storage:
        return self.router.of(form).data.storage

    def close(self) -> None:
        """End the threads after their current work, and close everything, the trees last."""
        self.closing.close()

    @property
    def local(self) -> list[Provider]:
        """Return the providers whose revisions this service manages, each once."""
        every = dict.fromkeys((*self.places.values(), *map(self._of, self.properties.form_providers)))
        return [each for each in every if not each.storage.is_remote]

    @property
    def outboxes(self) -> dict[str, Outbox]:
        """Return the events of the places of the settings, by the names of their datasources."""
        roots = self.settings.roots
        named = {"": roots.default, **roots.named}
        found = ((name, self.places[place].outbox) for name, place in named.items())
        return {name: outbox for name, outbox in found if outbox is not None}

    def within(self, place: str) -> Router:
        return within(self.places[place], self.properties, self._of, self._keys)

    def shortage(self) -> str | None:
        """Return the reason why the service cannot write somewhere, or soon will not."""
        for space in self.free_space():
            if space.fault:
                return space.fault
            if space.free is not None and space.free < self.settings.min_free:
                return f"{space.free} bytes are free in {space.place}; the floor is {self.settings.min_free}"
        return None

    def free_space(self) -> Iterator[FreeSpace]:
        for place, free_bytes in self.written.items():
            try:
                yield FreeSpace(place, free_bytes())
            except (BusyError, DiskError) as error:
                yield FreeSpace(place, None, str(error))

    def connections(self) -> tuple[int, int]:
        pools = [pool() for pool in self.pools]
        return sum(is_open for is_open, _ in pools), sum(most for _, most in pools)

    def serving_link(self, found: StoredRevision) -> str:
        """Return a path below the default tree under which nginx may read an open content for an hour."""
        default = self.trees.get(self.settings.roots.default)
        if default is None:
            raise DiskError("no data directory is served")
        return default.store.serving_link(found)

    def spooled(self) -> Upload:
        """Begin to receive something that need not become a content."""
        default = self.trees.get(self.settings.roots.default)
        return Upload(os.path.realpath(self.settings.home)) if default is None else default.store.upload()

    @property
    def bodies_by_form(self) -> BodiesOf:
        return locations.bodies_by_form(self.properties, self._files_at, self._bodies_at)

    def _engine(self, kind: str) -> Engine:
        name = ENGINES[kind]
        if name not in self._engines:
            self._engines[name] = loaded(name)(self)
        return self._engines[name]

    def _open(self, configured: ProviderProperties) -> Provider:
        place = locations.place_of(configured, self.settings.roots)
        if place is None and self.listener_at is None:
            return self._engine(configured.kind).provider(configured)
        # The default tree stands for another service: no command calls one.
        return self.at(place or self.settings.roots.default)

    def at(self, place: str) -> Provider:
        """Return the provider of a place of the settings, or of a database by its address."""
        if not is_database(place):
            return self.tree_at(place).provider
        if place not in self._at:
            if self.listener_at is not None:
                database_at(self.settings, place).require()
            self._at[place] = self._engine(DATABASES[0]).provider(ProviderProperties(place, place))
        return self._at[place]

    def _bodies_of(self, configured: ProviderProperties, main: Storage) -> Bodies | None:
        here: Bodies | None = locations.kept_apart(configured, self._files_at, self._bodies_at)
        if here is not None or self.listener_at is not None:
            return here
        return self._engine(configured.kind).bodies(configured, main)


@dataclass(frozen=True, slots=True)
class OpenedPlace:
    """A place that a command works on, and the providers of all forms."""

    name: str
    providers: Providers
    provider: Provider

    @property
    def storage(self) -> Storage:
        return self.provider.storage

    def revisions(self, form: Form) -> Revisions:
        """Return the storage of a form with its attachments from wherever they are."""
        bodies = self.providers.bodies_by_form(form)
        return self.storage if bodies is None else SplitStorage(self.storage, bodies)


@contextmanager
def managing(
    settings: Settings, properties: Properties, place: str, keeps_history: KeepsHistory | None = None
) -> Iterator[OpenedPlace]:
    """Open a place for a block that may change it; changes of a tree are noted for its index."""
    if is_database(place):
        with Providers(settings, properties, listener_at=unheard, keeps_history=keeps_history) as providers:
            provider = providers.at(place)
            database = provider.database
            if database is None:
                raise StartupError("a database of another service cannot be managed")
            yield OpenedPlace(database.name, providers, provider)
        return
    path = os.path.realpath(place)
    with disk_errors(f"data directory {path}"):
        if not os.path.lexists(path):
            raise root.missing(path)
        owner.require(path)
    with (
        OfflineJournal(path) as journal,
        Providers(settings, properties, listener_at=lambda _: journal, keeps_history=keeps_history) as providers,
    ):
        yield OpenedPlace(path, providers, providers.tree_at(path).provider)
        journal.leave()


@contextmanager
def moving(settings: Settings, properties: Properties, place: str) -> Iterator[OpenedPlace]:
    """Open a place for a block. It keeps all revisions that are stored in it, whatever the properties say."""
    settings = with_calls_of_a_move(settings)
    if is_database(place) and place not in locations.places_of(settings, properties):
        # Its index goes by its own definitions, as when served.
        settings = msgspec.structs.replace(settings, data=place)
    with managing(settings, properties, place, keeps_all) as opened:
        yield opened


def bucket_of(properties: Properties, form: Form) -> Bucket | None:
    attachments = properties.of(form).route.attachments
    return None if attachments is None else attachments.place


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
        """Call a server for a block in the name of ``user``, without headers of the client, redirects and proxies."""
        # Loads the HTTP client, which other services do not need.
        from persistence.remote.remote_calls import Client, ProviderNames, RemotePublisher  # noqa: PLC0415
        from persistence.wire import CallPolicy, Connection  # noqa: PLC0415

        dialect = DIALECTS[self._settings.dialect]
        names = ProviderNames(dialect, dialect, is_provider=False)
        fields = [] if user is None else [names.field("Username", user)]
        if target.authorization is not None:
            fields.append(("Authorization", target.authorization.encode("ascii")))
        policy = CallPolicy(self._settings.remote_connect, self._settings.remote_timeout)
        with Connection(f"{target.server}{PUBLIC_PREFIX}", policy, is_provider=True) as connection:
            client = Client("", names, connection)
            yield RemotePublisher(client, form, tuple(fields), source, flat_view, target.is_forced)
