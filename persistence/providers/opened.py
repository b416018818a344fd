"""All providers that settings and properties name, opened together and closed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING

from persistence.closable import Closable
from persistence.definitions.catalog import Catalog
from persistence.index.sync.updater import Failed
from persistence.model.addresses import Form
from persistence.model.object_places import SCHEME, ObjectPlace
from persistence.properties.properties import Properties, ProviderProperties
from persistence.properties.property_table import ENGINES
from persistence.providers.locations import base_of, bodies_by_form, check, root_of
from persistence.providers.provider import Engine, Opening, Provider, Route, engine_of, loaded
from persistence.providers.router import Router, by_properties, within
from persistence.providers.trees import (
    Tree,
    Trees,
    catalogs,
    integrity_of,
    keeps_history_of,
    open_index,
    open_store,
    provider_of_tree,
)
from persistence.settings import Settings
from persistence.storage.attachment_bodies import BodiesReader, FileBodies
from persistence.storage.integrity import Integrity
from persistence.storage.managed import BodiesOf, ManagedStorage
from persistence.storage.storage import Bodies, ChangeListener, Storage
from persistence.storage.store import Store

if TYPE_CHECKING:  # it imports a library that need not be installed
    from persistence.s3.bodies import ObjectBodies

_OPEN_BODIES = "persistence.providers.object_stores:open_bodies"


def object_bodies(settings: Settings, properties: Properties) -> Callable[[ObjectPlace], ObjectBodies]:
    """Return a function to the bodies at a place in an object store, always the same ones.

    It raises ``StartupError`` where the library for it is not installed.
    """
    return cache(lambda place: loaded(_OPEN_BODIES, SCHEME)(settings, properties, place))


def readable_bodies(
    settings: Settings, properties: Properties, integrity: Integrity
) -> Callable[[Form], BodiesReader | ObjectBodies | None]:
    """Return a function from a form to the bodies of its attachments, for commands that only read them."""

    def in_directory(base: str) -> BodiesReader | ObjectBodies:
        return BodiesReader(base, integrity)

    return bodies_by_form(properties, in_directory, object_bodies(settings, properties))


class Providers(Closable):
    """The providers of a service. It owns all trees, indexes, threads and connections behind them.

    ``router`` goes by the properties, and ``trees`` are the local trees by their roots. ``calls_others`` says whether a
    provider needs to know whose request it serves.
    """

    def __init__(self, settings: Settings, properties: Properties, failed: Failed) -> None:
        """Open everything; try nothing out: a worker that starts on a full disk must be able to read.

        Raises:
            StartupError: a tree cannot be used, or a provider has no directory.
        """
        check(properties, settings.roots)
        self._settings = settings
        self._properties = properties
        self._objects = object_bodies(settings, properties)
        self._opened = ExitStack()
        try:
            self._open(Opening(settings, properties, self._opened, self._catalog_of, self._route_of, failed))
        except BaseException:
            self._opened.close()
            raise

    def _open(self, opening: Opening) -> None:
        properties = opening.properties
        self._local = Trees(opening)
        self.trees: Mapping[str, Tree] = self._local.by_root
        kinds = {each.kind for each in properties.form_providers}
        kinds |= {each.attachments_kind for each in properties.attachment_providers}
        by_name = {ENGINES[kind]: kind for kind in kinds}
        opened = {name: self._engine(kind, opening) for name, kind in by_name.items()}
        self._engines = {kind: opened[ENGINES[kind]] for kind in kinds}
        self.calls_others = any(engine.calls_others for engine in opened.values())
        self._of = {each: self._engines[each.kind].provider(each) for each in properties.form_providers}
        self.router = by_properties(properties, self._of.__getitem__, self._bodies_of)

    def close(self) -> None:
        """End the threads after their current work, and close everything; the trees are released last."""
        self._opened.close()

    @property
    def managed(self) -> list[tuple[Provider, ManagedStorage]]:
        """Return the providers whose revisions are managed here, each once, with their storages."""
        providers = {id(each): each for each in (*(tree.provider for tree in self.trees.values()), *self._of.values())}
        return [(each, each.managed) for each in providers.values() if each.managed is not None]

    def within(self, root: str) -> Router:
        """Return the router of the provider face for one tree."""
        return within(self.trees[root].provider, self._properties, self._of.__getitem__)

    @property
    def written(self) -> tuple[Store | FileBodies, ...]:
        """Return everything that must be writable."""
        return (*(tree.store for tree in self.trees.values()), *self._local.bodies_at.values())

    @property
    def bodies_by_form(self) -> BodiesOf:
        """Return the function from a form to its directory of attachments."""
        return bodies_by_form(self._properties, self._local.bodies_at.__getitem__, self._objects)

    def _engine(self, kind: str, opening: Opening) -> Engine:
        engine = engine_of(kind)
        return self._local if engine is Trees else engine(opening)

    def _bodies_of(self, configured: ProviderProperties, main: Storage) -> Bodies:
        return self._engines[configured.attachments_kind].bodies(configured, main)

    def _route_of(self, form: Form) -> Route:
        return self.router.of(form)

    def _catalog_of(self, form: Form) -> Catalog:
        return self._of[self._properties.of(form).route.definition].catalog


class OfflineProviders(Closable):
    """The local providers, for commands: each is opened when it is asked for, and ``listener`` hears of changes.

    A tree or directory of attachments that cannot be used keeps only those forms from being handled that need it.
    """

    def __init__(self, settings: Settings, properties: Properties, listener: ChangeListener) -> None:
        """Raise ``StartupError`` where a provider has no directory."""
        check(properties, settings.roots)
        self._settings = settings
        self._properties = properties
        self._listener = listener
        self._opened = ExitStack()
        self.tree = cache(self._open)
        self._catalog_at = catalogs(integrity_of(settings))
        self._bodies = cache(
            partial(FileBodies, integrity=integrity_of(settings), keeps_history=keeps_history_of(properties))
        )
        self._objects = object_bodies(settings, properties)
        self.router = by_properties(properties, self._provider, self._bodies_of)

    def close(self) -> None:
        """Close every tree that was opened."""
        self._opened.close()

    @property
    def bodies_by_form(self) -> BodiesOf:
        """Return the function from a form to its directory of attachments."""
        return bodies_by_form(self._properties, self._bodies, self._objects)

    def _provider(self, configured: ProviderProperties) -> Provider:
        """Return a provider; the default tree stands for others, because no command calls a service."""
        roots = self._settings.roots
        return self.tree(root_of(configured, roots) or roots.default).provider

    def _bodies_of(self, configured: ProviderProperties, _: Storage) -> Bodies | None:
        if configured.place is not None:
            return self._objects(configured.place)
        base = base_of(configured)
        return None if base is None else self._bodies(base)

    def _open(self, root: str) -> Tree:
        settings = self._settings
        store = self._opened.enter_context(
            open_store(settings, root, self._listener, keeps_history_of(self._properties))
        )
        index = open_index(settings, self._properties, root, self._catalog_at)
        self._opened.enter_context(index)
        return Tree(store, provider_of_tree(store, index, self._catalog_at(store.root)))
