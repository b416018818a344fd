"""What the faces call: trees, other services and encryption, wired as settings and properties say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from persistence.closable import Closable
from persistence.dialect import DIALECTS
from persistence.errors import NotSupportedError
from persistence.index.forms import FORGETFUL
from persistence.index.sync.updater import Failed, Updater
from persistence.model.addresses import Form
from persistence.properties.properties import Properties, ProviderProperties
from persistence.providers.opening import integrity_of, open_encryption_keys, open_store
from persistence.providers.places import (
    Place,
    PlaceOf,
    base_of,
    bases_of,
    bodies_by_form,
    check,
    elsewhere,
    everywhere,
    root_of,
    with_attachments,
)
from persistence.providers.wiring import Wiring, index_of, memory_of, pending_in, place_of_tree
from persistence.services.controls import Controls
from persistence.services.encryption_at_rest import EncryptionAtRest
from persistence.services.encryption_codec import EncryptionCodec
from persistence.services.reencryption import Reencryption
from persistence.services.reencryption_jobs import ReencryptionJob, ReencryptionJobs
from persistence.services.services import Services
from persistence.settings import Settings
from persistence.storage.attachment_bodies import FileBodies
from persistence.storage.integrity import HandEdits
from persistence.storage.locks import Locks
from persistence.storage.root import make_own
from persistence.storage.routed import RoutedStorage, RoutedView
from persistence.storage.storage import Bodies, Storage
from persistence.storage.store import Store
from persistence.storage.uploads import Spool

if TYPE_CHECKING:
    from persistence.providers.remotes import Remotes


@dataclass(frozen=True, slots=True)
class Reports:
    """Who hears of what goes wrong behind a request: an index given up, a form that could not be encrypted anew."""

    given_up: Failed
    not_reencrypted: Callable[[Form, str], None]


@dataclass(frozen=True, slots=True)
class Backend(Closable):
    """What requests are answered by. It owns all trees, indexes, threads and connections behind them.

    ``public`` goes by the properties. ``default`` and ``named`` have one tree each: the default one, and those of the
    datasources. ``store`` is the default tree's, and ``written`` is whatever must be writable. ``calls_others`` says
    whether a provider is another service. ``opened`` is all that was opened, in that order.
    """

    public: Services
    default: Services
    named: Mapping[str, Services]
    reencrypts: ReencryptionJobs
    store: Store
    written: tuple[Store | FileBodies, ...]
    calls_others: bool
    opened: ExitStack

    def close(self) -> None:
        """End the threads after what they are at, and close everything; the tree is let go of last."""
        self.opened.close()


def backend_of(settings: Settings, properties: Properties, reports: Reports) -> Backend:
    """Open and wire everything; nothing is tried out: a worker that starts on a full disk must be able to read.

    Raises:
        StartupError: a tree cannot be used, a provider has no place, or keys lie where they must not.
    """
    check(properties, settings.roots)
    opened = ExitStack()
    try:
        return _wired(settings, properties, reports, opened)
    except BaseException:
        opened.close()
        raise


def _wired(settings: Settings, properties: Properties, reports: Reports, opened: ExitStack) -> Backend:
    dialect, roots = DIALECTS[settings.dialect], settings.roots
    wiring = Wiring(dialect, properties, settings.admin)
    trees = {root: opened.enter_context(_tree(settings, properties, root, reports.given_up)) for root in roots}
    places = {root: tree.place for root, tree in trees.items()}

    def place_of(provider: ProviderProperties) -> Place:
        return remotes[provider.name] if provider.is_remote else places[root_of(provider, roots)]

    @cache
    def calling() -> Remotes:
        return opened.enter_context(_calling(settings, properties, place_of))

    if any(each.is_remote for each in (*properties.form_providers, *properties.attachment_providers)):
        calling()
    remotes = {each.name: calling().place(each) for each in properties.form_providers if each.is_remote}

    bodies = {base: FileBodies(base, integrity_of(settings)) for base in bases_of(properties)}

    def bodies_of(provider: ProviderProperties, main: Storage) -> Bodies:
        return calling().bodies(provider, main) if provider.is_remote else bodies[base_of(provider)]

    data_of = with_attachments(properties, place_of, bodies_of)
    memory = memory_of(roots.default)
    own = {
        root: wiring.of_provider(place, place_of, FORGETFUL if roots.named else memory)
        for root, place in places.items()
    }
    keys = open_encryption_keys(settings, properties)
    stored = RoutedStorage(everywhere(properties, lambda provider: place_of(provider).storage, data_of))
    at_rest = EncryptionAtRest(stored, dialect, properties, Controls(stored), keys)
    public = wiring.of_all(place_of, stored, EncryptionCodec(at_rest), memory)

    def job_of(form: Form, version: int | None) -> ReencryptionJob:
        provider = properties.of(form).route.data
        if provider.is_remote:
            raise NotSupportedError(f"the data of {form} is with another service, where nothing is encrypted anew")
        root = root_of(provider, roots)

        def reindex(form: Form) -> None:
            for number in stored.versions(form):
                trees[root].place.reindexing.version(form, number)

        reencryption = Reencryption(trees[root].store, bodies_by_form(properties, bodies.__getitem__), at_rest)
        return ReencryptionJob(reencryption, root, form, version, reindex)

    reencrypts = ReencryptionJobs(tuple(roots), job_of, reports.not_reencrypted)
    return Backend(
        public=public,
        default=own[roots.default],
        named={name: own[root] for name, root in roots.named.items()},
        reencrypts=opened.enter_context(reencrypts),
        store=trees[roots.default].store,
        written=(*(tree.store for tree in trees.values()), *bodies.values()),
        calls_others=bool(remotes),
        opened=opened,
    )


def _calling(settings: Settings, properties: Properties, place_of: PlaceOf) -> Remotes:
    """What calls of other services have in common; their locks and spool are in the default tree."""
    from persistence.providers.remotes import Remotes  # noqa: PLC0415 - the same
    from persistence.remote.client import CallLimits  # noqa: PLC0415 - a tenth of the start, for those who need it

    def of_data(form: Form) -> Storage:
        return place_of(properties.of(form).route.data).storage

    seen = RoutedView(everywhere(properties, lambda provider: place_of(provider).storage, of_data))
    limits = CallLimits(settings.remote_connect, settings.remote_timeout, settings.remote_calls)
    root = os.path.realpath(settings.roots.default)
    locks = Locks(root, settings.lock_timeout, missing=partial(make_own, root))
    return Remotes(DIALECTS[settings.dialect], properties, limits, Spool(root), locks, seen)


@dataclass(frozen=True, slots=True)
class _Tree:
    store: Store
    place: Place


@contextmanager
def _tree(settings: Settings, properties: Properties, root: str, given_up: Failed) -> Iterator[_Tree]:
    """A tree that is served for a block: what changes in it is taken in. At the end it is let go of last."""
    dialect, pending = DIALECTS[settings.dialect], pending_in(root)
    there = elsewhere(root, properties, settings.roots, HandEdits(settings.hand_edits))
    index = index_of(root, dialect, properties, pending, there)
    indexer = Updater(index, pending, given_up)
    with open_store(settings, root, indexer) as store, index, indexer:
        indexer.start()
        yield _Tree(store, place_of_tree(store, index, dialect, properties))
