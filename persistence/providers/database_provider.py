"""PostgreSQL databases as providers. Apart, because their driver is installed only where it is asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from persistence.catalog import Catalog
from persistence.dialect import DIALECTS
from persistence.errors import StartupError, disk_errors
from persistence.index.protocol import RequestedRebuilds
from persistence.index.sources import ExtractionCache, Source, SourceDescription
from persistence.model.addresses import Form
from persistence.postgresql import schema
from persistence.postgresql.database import Database, DatabaseOutbox
from persistence.postgresql.database_check import maintained
from persistence.postgresql.database_index import DatabaseIndex
from persistence.postgresql.database_reports import DatabaseReports, FlatRows, naming
from persistence.postgresql.database_storage import DatabaseStorage
from persistence.postgresql.index_rows import IndexRows
from persistence.postgresql.revision_rows import sweep_all
from persistence.properties.properties import ProviderProperties
from persistence.properties.property_table import full_address
from persistence.providers.locations import trees_and_bases
from persistence.providers.opened import Place, Providers
from persistence.providers.router import Provider
from persistence.settings import Settings
from persistence.storage import files, root
from persistence.storage.storage import Storage


class Databases:
    """The engine of databases: one pool for an address. Bodies on their way in wait in a directory of this instance."""

    def __init__(self, opening: Providers) -> None:
        self._opening = opening
        self._local = local = os.path.realpath(opening.settings.local)
        for place in trees_and_bases(opening.settings, opening.properties):
            if os.path.commonpath((local, place)) in (local, place):
                raise StartupError(f"the directory of this instance, {local}, and {place} must not lie in each other")
        with disk_errors(f"directory of this instance {local}"):
            files.ensure(local)
            root.make_own(local)
        opening.written[local] = self._free_bytes

    def _free_bytes(self) -> int:
        with disk_errors(f"directory of this instance {self._local}"):
            return root.free_in(self._local)

    def provider(self, configured: ProviderProperties) -> Provider:
        opening = self._opening
        database = opening.closing.enter_context(_known(opening.settings, configured.uri))
        opening.written[str(database.address)] = database.free_bytes
        opening.pools.append(lambda: database.connections)
        opening.sweeps.append(partial(sweep_all, database))
        opened = _OpenDatabase(opening, database, self._local)
        opening.closing.enter_context(opened.index)
        return opened.provider()

    def bodies(self, configured: ProviderProperties, main: Storage) -> NoReturn:  # noqa: ARG002 - others need it
        raise StartupError(f"provider {configured.name!r} keeps attachments: a database does so for its own data alone")


class DatabasePlace(Place):
    """A database by its address."""

    def init(self) -> tuple[str, bool]:
        with _known(self.settings, self.address) as database:
            return str(database.address), schema.init(database)

    def exists(self) -> bool:
        return not self.upgrade(dry_run=True)

    def require(self) -> None:
        with _known(self.settings, self.address) as database:
            schema.require(database)

    def probe(self) -> str | None:
        with _known(self.settings, self.address) as database:
            schema.require(database)
            return database.probe()

    def upgrade(self, *, dry_run: bool) -> list[str]:
        """Bring it up to date, or with ``dry_run`` only find out how; return the names of the steps."""
        with _known(self.settings, self.address) as database:
            return schema.missing(database) if dry_run else schema.upgrade(database)


class _OpenDatabase:
    """A database whose storage tells the index of changes, and whose index reads by the storage."""

    def __init__(self, opening: Providers, database: Database, local: str) -> None:
        self._opening = opening
        self._database = database
        self._local = local
        self._extracted = ExtractionCache()
        settings = opening.settings
        self._storage = DatabaseStorage(
            database,
            local,
            listener=self,
            has_events=settings.events,
            append_only=settings.append_only,
            keeps_history=opening.keeps_history,
        )
        self._catalog = Catalog(self._storage)
        numbers = self._storage.numbers
        self._rows = IndexRows(database, numbers, self._source_of)
        self._flat = FlatRows(database, self._source_of)
        self.index = DatabaseIndex(database, numbers, self._rows, self._source_of, opening.failed)

    def provider(self) -> Provider:
        reports = DatabaseReports(self._database, self._flat, self._source_of)

        def rebuild(forms: Sequence[Form], version: int | None) -> None:
            self.index.rebuild(forms, version)
            for form in forms:
                reports.refill(form, version)

        return Provider(
            self._storage,
            self._catalog,
            self.index,
            reports,
            RequestedRebuilds(self._storage, rebuild, self.index.status),
            self._definitions,
            maintained(self._storage, self._rows),
            DatabaseOutbox(self._database) if self._opening.settings.events else None,
        )

    def changing(self, form: Form, document: str, version: int) -> None:
        self._flat.ask(form)
        self._rows.changing(form, document, version)

    def changed(self, form: Form, document: str) -> None:
        self._rows.changed(form, document)
        self._flat.changed(form, document)

    def published(self, form: Form, version: int) -> None:
        self._rows.published(form, version)

    def _source_of(self, form: Form) -> Source:
        dialect = DIALECTS[self._opening.settings.dialect]
        configured = self._opening.properties.of(form)
        flat = naming(
            dialect.flat_view_prefix, configured.longest_flat_name, prefixes_in_main=configured.has_flat_prefixes
        )
        described = SourceDescription(form, configured.data_format, form == dialect.designer, flat, "")
        return Source(described, self._storage, self._definitions(form), self._extracted)

    def _definitions(self, form: Form) -> Catalog:
        route = self._opening.properties.of(form).route
        return self._catalog if route.definition.is_service else self._opening.catalog_of(form)


def _known(settings: Settings, uri: str) -> Database:
    return Database(full_address(uri), lock_timeout=settings.lock_timeout)
