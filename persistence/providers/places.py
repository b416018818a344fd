"""Places that a command names, to move forms from one to another: the directory of a tree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache

from persistence.index.sync.journal import OfflineJournal
from persistence.model.addresses import Form
from persistence.properties.properties import Properties
from persistence.providers.locations import bodies_by_form
from persistence.providers.opened import object_bodies
from persistence.providers.trees import integrity_of, open_store
from persistence.settings import Settings
from persistence.storage.arrivals import TreeArrivals
from persistence.storage.attachment_bodies import FileBodies
from persistence.storage.managed import ManagedBodies
from persistence.storage.split_attachments import SplitStorage
from persistence.storage.storage import Arrivals, Revisions, Storage


@dataclass(frozen=True, slots=True)
class Place:
    """An open storage, and its ``name``, which has no password.

    ``revisions`` returns those of a form, with the bodies of attachments wherever they are. ``keeping_writers_out``
    keeps everybody from writing for a block, and yields what raises ``BusyError`` if that holds no longer.
    """

    name: str
    storage: Storage
    revisions: Callable[[Form], Revisions]
    arrivals: Arrivals
    keeping_writers_out: Callable[[], AbstractContextManager[Callable[[], None]]]


@contextmanager
def open_place(settings: Settings, properties: Properties, location: str) -> Iterator[Place]:
    """Open a place for a block. All revisions are kept that are stored in it, whatever the properties say.

    Raises:
        StartupError: there is none, or it cannot be used.
        DiskError: it cannot be looked at.
    """
    path = os.path.realpath(location)

    @cache
    def bodies_at(base: str) -> ManagedBodies:
        return FileBodies(base, integrity_of(settings))

    bodies_of = bodies_by_form(properties, bodies_at, object_bodies(settings, properties))
    with OfflineJournal(path) as journal, open_store(settings, path, journal) as store:

        @cache
        def revisions(form: Form) -> Revisions:
            bodies = bodies_of(form)
            return store if bodies is None else SplitStorage(store, bodies)

        yield Place(path, store, revisions, TreeArrivals(path), store.keeping_writers_out)
        journal.leave()
