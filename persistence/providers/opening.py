"""What settings and properties name, opened: for commands, and for the service."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial

from persistence.crypto.encryption_keys import EncryptionKeys
from persistence.dialect import DIALECTS
from persistence.index.sync.tree_index import TreeIndex
from persistence.keys import Keys
from persistence.properties.properties import Properties, ProviderProperties
from persistence.providers.places import bases_of, bodies_by_form, check, elsewhere, everywhere, root_of
from persistence.providers.wiring import index_of, pending_in
from persistence.services.controls import Controls
from persistence.services.encryption_at_rest import EncryptionAtRest
from persistence.services.reencryption import Reencryption
from persistence.settings import Settings
from persistence.storage import owner, root
from persistence.storage.attachment_bodies import FileBodies
from persistence.storage.change_events import NOBODY, ChangeListener
from persistence.storage.integrity import HandEdits, Integrity
from persistence.storage.routed import RoutedStorage
from persistence.storage.store import Store


def open_store(settings: Settings, path: str, observer: ChangeListener = NOBODY) -> Store:
    """The store of the tree at a path; ``observer`` hears which documents are changed through it."""
    return Store(path, lock_timeout=settings.lock_timeout, observer=observer, integrity=integrity_of(settings))


def integrity_of(settings: Settings) -> Integrity:
    """How the settings want contents to be judged that are not their sidecars'."""
    verify_up_to = settings.verify_up_to if settings.verify == "digest" else 0
    return Integrity(HandEdits(settings.hand_edits), verify_up_to=verify_up_to)


def open_index(settings: Settings, properties: Properties, root: str) -> TreeIndex:
    """The index of the tree of a root, for whoever changes no documents."""
    there = elsewhere(root, properties, settings.roots, HandEdits(settings.hand_edits))
    return index_of(root, DIALECTS[settings.dialect], properties, pending_in(root), there)


def init_trees(settings: Settings, properties: Properties) -> list[tuple[str, bool]]:
    """Make every tree of the settings that is missing; returns each root, and whether it was made.

    Raises:
        StartupError: one cannot be made there, or a provider has no place.
        BusyError: one is being restored.
        DiskError: the disk refused.
    """
    check(properties, settings.roots)
    made = []
    for each in settings.roots:
        with owner.acting(each):
            made.append((each, root.init(each)))
    return made


def probe(settings: Settings, properties: Properties) -> str | None:
    """Try out every tree; returns what keeps the service from writing into one of them for now.

    Raises:
        StartupError: one cannot be used, or a provider has no place.
        BusyError: one is being restored or upgraded.
        DiskError: one cannot be prepared.
    """
    check(properties, settings.roots)
    for path in (*settings.roots, *bases_of(properties)):
        owner.identity_of(path)  # refuses what others may write to, before anything is opened there
    for base in bases_of(properties):
        FileBodies(base)
    found = []
    for each in settings.roots:
        with open_store(settings, each) as store:
            found.append(store.probe())
    return next((cause for cause in found if cause is not None), None)


def open_keys(settings: Settings) -> Keys:
    """The API keys of the settings."""
    return Keys(settings.keys, tree=settings.data)


def open_encryption_keys(settings: Settings, properties: Properties) -> EncryptionKeys:
    """The keys of encryption at rest of the settings, and the real system's passwords of the properties.

    Raises:
        StartupError: they lie in a data directory, or those of the environment are none.
    """
    return EncryptionKeys(
        settings.encryption_keys,
        trees=(*settings.roots, *bases_of(properties)),
        given=settings.encryption_key,
        passwords=properties.passwords,
    )


@contextmanager
def open_reencryption(
    settings: Settings, properties: Properties, root: str, observer: ChangeListener
) -> Iterator[Reencryption]:
    """What encrypts the tree of a root anew, for a block; ``observer`` hears of it. Definitions may be in any tree.

    Other trees and directories of attachments are opened when they are asked for: one that cannot be used keeps only
    those forms from being encrypted that need it.
    """
    check(properties, settings.roots)
    with ExitStack() as stack:

        @cache
        def opened(each: str) -> Store:
            return stack.enter_context(open_store(settings, each, observer))

        yield _reencryption(settings, properties, opened, root)


def _reencryption(
    settings: Settings, properties: Properties, opened: Callable[[str], Store], root: str
) -> Reencryption:
    dialect, roots = DIALECTS[settings.dialect], settings.roots

    def store_of(provider: ProviderProperties) -> Store:
        return opened(root_of(provider, roots))

    stored = RoutedStorage(everywhere(properties, store_of, lambda form: store_of(properties.of(form).route.data)))
    keys = open_encryption_keys(settings, properties)
    at_rest = EncryptionAtRest(stored, dialect, properties, Controls(stored), keys)
    bodies = cache(partial(FileBodies, integrity=integrity_of(settings)))
    return Reencryption(opened(os.path.realpath(root)), bodies_by_form(properties, bodies), at_rest)
