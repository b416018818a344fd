"""Storages that a command opens by name, to move forms from one to another: a tree, or a database."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache

import msgspec

from persistence.definitions.catalog import Catalog
from persistence.errors import StartupError
from persistence.index.protocol import ReportTables
from persistence.index.sync.journal import OfflineJournal
from persistence.model.addresses import Form
from persistence.model.object_places import Bucket
from persistence.properties.properties import Properties
from persistence.properties.property_table import is_database
from persistence.providers.locations import bodies_by_form, databases_of
from persistence.providers.opened import OfflineProviders, bucket_bodies, with_calls_of_a_move
from persistence.providers.trees import integrity_of, open_index, open_store
from persistence.settings import Settings
from persistence.storage.arrivals import TreeArrivals
from persistence.storage.attachment_bodies import FileBodies
from persistence.storage.managed import MaintainedDatabase, ManagedBodies, ManagedStorage
from persistence.storage.split_attachments import SplitStorage
from persistence.storage.storage import NOBODY, Arrivals, Revisions, Storage


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
