"""Trees and databases before they are served: made, tried out, and brought up to date."""

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
    return cast("type[Databases]", engine_of(ENGINES[DATABASES[0]]))


def init_places(settings: Settings, properties: Properties) -> list[tuple[str, bool]]:
    """Make every missing tree, and the tables of every database; return each by name, and whether it was made."""
    made = trees.init_trees(settings, properties)
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
    cause = trees.probe(settings, properties)
    for uri in databases_of(settings, properties):
        found = engine_of_databases().probe(settings, uri)
        cause = cause or found
    return cause
