"""Places made ready before they are served: trees and databases are made, tried out, and brought up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from persistence.properties.properties import Properties
from persistence.properties.property_table import DATABASES, ENGINES
from persistence.providers import trees
from persistence.providers.locations import databases_of
from persistence.providers.provider import engine_of
from persistence.settings import Settings

if TYPE_CHECKING:
    from persistence.providers.databases import Databases


def engine_of_databases() -> type[Databases]:
    """Import the engine of databases.

    Raises:
        StartupError: a library that it needs is not installed.
    """
    return cast("type[Databases]", engine_of(ENGINES[DATABASES[0]]))


def init_places(settings: Settings, properties: Properties) -> list[tuple[str, bool]]:
    """Make every tree that is missing, and the tables of every database; return each by name, and whether it was made.

    Raises:
        StartupError: one cannot be made there, or a provider has no place.
        BusyError: a tree is being restored.
        DiskError: the disk refused.
    """
    made = trees.init_trees(settings, properties)
    return made + [init_database(settings, uri) for uri in databases_of(settings, properties)]


def init_database(settings: Settings, uri: str) -> tuple[str, bool]:
    """Make the tables of a database that has none; return its name, and whether they were made.

    Raises:
        StartupError: it cannot be had, or refuses.
    """
    return engine_of_databases().init(settings, uri)


def upgrade_database(settings: Settings, uri: str, *, dry_run: bool) -> list[str]:
    """Bring a database up to date, or with ``dry_run`` only find out how; return the names of the steps.

    Raises:
        StartupError: it cannot be had, refuses, or is of a newer version.
    """
    engine = engine_of_databases()
    return engine.steps_due(settings, uri) if dry_run else engine.upgrade(settings, uri)


def probe(settings: Settings, properties: Properties) -> str | None:
    """Try out every place; return the reason why the service cannot write into one of them for now.

    Raises:
        StartupError: one cannot be used, or a provider has no place.
        BusyError: a tree is being restored or upgraded.
        DiskError: a tree cannot be prepared.
    """
    cause = trees.probe(settings, properties)
    for uri in databases_of(settings, properties):
        found = engine_of_databases().probe(settings, uri)
        cause = cause or found
    return cause
