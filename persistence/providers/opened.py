"""All providers that settings and properties name, opened together and closed together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING

from persistence.closable import Closable
from persistence.definitions.catalog import Catalog
from persistence.definitions.summaries import SummaryFile
from persistence.dialect import DIALECTS
from persistence.index.sync.updater import Failed
from persistence.model.addresses import Form
from persistence.properties.properties import Properties, ProviderProperties
from persistence.providers.provider import Provider
from persistence.providers.router import Router, by_properties, within
from persistence.providers.trees import (
    Tree,
    base_of,
    bases_of,
    bodies_by_form,
    catalogs,
    check,
    integrity_of,
    open_index,
    open_store,
    provider_of_tree,
    root_of,
    serving,
    summary_file,
)
from persistence.settings import Settings
from persistence.storage.attachment_bodies import FileBodies
from persistence.storage.locks import Locks
from persistence.storage.rewriting import BodiesOf
from persistence.storage.root import make_own
from persistence.storage.storage import Bodies, ChangeListener, Storage
from persistence.storage.store import Store
from persistence.storage.uploads import Spool

if TYPE_CHECKING:
    from persistence.providers.remotes import Remotes


class Providers(Closable):
    """The providers of a service. It owns all trees, indexes, threads and connections behind them.

    ``router`` goes by the properties. ``trees`` are the local ones by their roots, ``bodies`` the directories with
    attachments that are kept apart. ``calls_others`` says whether a provider is another service.
    """

    def __init__(self, settings: Settings, properties: Properties, failed: Failed) -> None:
        """Open everything; try nothing out: a worker that starts on a full disk must be able to read.

        Raises:
            StartupError: a tree cannot be used, or a provider has no directory.
        """
        check(properties, settings.roots)
        self._settings = settings
        self._properties = properties
        self._opened = ExitStack()
        self._remote: dict[str, Provider] = {}
        try:
            self._open(failed)
        except BaseException:
            self._opened.close()
            raise

    def _open(self, failed: Failed) -> None:
        settings, properties = self._settings, self._properties
        summaries = summary_file(settings.roots.default)
        catalog_at = catalogs(integrity_of(settings), summaries)
        self.trees: Mapping[str, Tree] = {
            root: self._opened.enter_context(serving(settings, properties, root, failed, catalog_at))
            for root in settings.roots
        }
        self.bodies = {base: FileBodies(base, integrity_of(settings)) for base in bases_of(properties)}
        every = (*properties.form_providers, *properties.attachment_providers)
        self._remotes = self._open_remotes(summaries) if any(each.is_remote for each in every) else None
        for each in properties.form_providers:
            if each.is_remote and self._remotes is not None:
                self._remote[each.name] = self._remotes.provider(each)
        self.calls_others = bool(self._remote)
        self.router = by_properties(properties, self.of, self._bodies_of)

    def close(self) -> None:
        """End the threads after what they are at, and close everything; the trees are released last."""
        self._opened.close()

    def of(self, said: ProviderProperties) -> Provider:
        """Return the provider that properties describe, always the same one."""
        return self._remote[said.name] if said.is_remote else self.trees[self.root_of(said)].provider

    def root_of(self, said: ProviderProperties) -> str:
        """Return the root of the tree of a local provider."""
        return root_of(said, self._settings.roots)

    def within(self, root: str) -> Router:
        """Return the router of the provider face for one tree."""
        return within(self.trees[root].provider, self._properties, self.of)

    @property
    def written(self) -> tuple[Store | FileBodies, ...]:
        """Return whatever must be writable."""
        return (*(tree.store for tree in self.trees.values()), *self.bodies.values())

    @property
    def bodies_by_form(self) -> BodiesOf:
        """Return the function from a form to its directory of attachments."""
        return bodies_by_form(self._properties, self.bodies.__getitem__)

    def _bodies_of(self, said: ProviderProperties, main: Storage) -> Bodies:
        if said.is_remote and self._remotes is not None:
            return self._remotes.bodies(said, main)
        return self.bodies[base_of(said)]

    def _open_remotes(self, summaries: SummaryFile) -> Remotes:
        from persistence.providers.remotes import Remotes  # noqa: PLC0415 - a tenth of the start, for those who need it
        from persistence.remote.client import CallLimits  # noqa: PLC0415 - the same

        settings, properties = self._settings, self._properties

        def catalog_of(form: Form) -> Catalog:
            return self.of(properties.of(form).route.definition).catalog

        limits = CallLimits(settings.remote_connect, settings.remote_timeout, settings.remote_calls)
        root = os.path.realpath(settings.roots.default)
        locks = Locks(root, settings.lock_timeout, missing=partial(make_own, root))
        dialect = DIALECTS[settings.dialect]
        return self._opened.enter_context(
            Remotes(dialect, properties, limits, Spool(root), locks, catalog_of, summaries)
        )


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
        self._bodies = cache(partial(FileBodies, integrity=integrity_of(settings)))
        self.router = by_properties(
            properties,
            lambda said: self.tree(root_of(said, settings.roots)).provider,
            lambda said, _: None if said.is_remote else self._bodies(base_of(said)),  # no command calls a service
        )

    def close(self) -> None:
        """Close every tree that was opened."""
        self._opened.close()

    @property
    def bodies_by_form(self) -> BodiesOf:
        """Return the function from a form to its directory of attachments."""
        return bodies_by_form(self._properties, self._bodies)

    def _open(self, root: str) -> Tree:
        settings, properties = self._settings, self._properties
        store = self._opened.enter_context(open_store(settings, root, self._listener))
        index = self._opened.enter_context(open_index(settings, properties, root, self._catalog_at))
        catalog = self._catalog_at(store.root)
        return Tree(store, provider_of_tree(store, index, catalog))
