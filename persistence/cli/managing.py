"""Trees and databases, opened by a command; the index of a tree hears of changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from persistence.cli.options import ChosenTree
from persistence.errors import NotSupportedError, disk_errors
from persistence.index.sync.journal import OfflineJournal
from persistence.maintenance.reports import TreeReader
from persistence.providers.opened import OfflineProviders
from persistence.providers.provider import Provider
from persistence.storage import owner
from persistence.storage.managed import ManagedStorage
from persistence.storage.reader import StoreReader
from persistence.storage.storage import NOBODY


@dataclass(frozen=True, slots=True)
class Managed:
    """An open place: its storage, its provider, and the providers of all forms.

    After the last change ``leave`` leaves the journal for the index to others.
    """

    providers: OfflineProviders
    provider: Provider
    storage: ManagedStorage
    leave: Callable[[], None]


@contextmanager
def managing(tree: ChosenTree) -> Iterator[Managed]:
    """Open a place for a block that changes it; changes of a tree are noted for its index."""
    if tree.is_database:
        with OfflineProviders(tree.settings, tree.properties, NOBODY) as providers:
            yield _opened(providers, tree.place, lambda: None)
        return
    root = StoreReader(tree.root).root
    with disk_errors(f"data directory {root}"):
        owner.require(root)
    with OfflineJournal(root) as journal, OfflineProviders(tree.settings, tree.properties, journal) as providers:
        yield _opened(providers, root, journal.leave)


@contextmanager
def reading(tree: ChosenTree) -> Iterator[TreeReader]:
    """Open a place for reports, for a block; nothing is changed."""
    if not tree.is_database:
        yield tree.reader()
        return
    with managing(tree) as place:
        yield reader_of(tree, place)


def reader_of(tree: ChosenTree, place: Managed) -> TreeReader:
    """Return a reader of an open database for reports."""
    router = place.providers.router
    return TreeReader(place.storage, None, tree.properties, lambda form: router.of(form).catalog)


def _opened(providers: OfflineProviders, place: str, leave: Callable[[], None]) -> Managed:
    provider = providers.at(place)
    if provider.managed is None:
        raise NotSupportedError(f"another service manages {place}")
    return Managed(providers, provider, provider.managed, leave)
