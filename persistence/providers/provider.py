"""A provider: what keeps forms, as one unit; and the route to the providers of one form."""

from __future__ import annotations

from dataclasses import dataclass

from persistence.definitions.catalog import Catalog, Definition
from persistence.index.protocol import Reindexer, ReportTables, SearchIndex
from persistence.model.addresses import Form
from persistence.properties.properties import FormProperties
from persistence.storage.storage import Storage


@dataclass(frozen=True, slots=True)
class Provider:
    """A tree of this service, another service, or whatever else implements these protocols.

    ``storage`` keeps revisions, ``catalog`` has the snapshots of the definitions in it, ``index`` searches the data,
    ``reports`` are the flat views of the data, and ``reindexer`` rebuilds both.
    """

    name: str
    storage: Storage
    catalog: Catalog
    index: SearchIndex
    reports: ReportTables
    reindexer: Reindexer


@dataclass(frozen=True, slots=True)
class Route:
    """The way to the providers of a form, with its properties: found once per request, and passed down.

    ``definition`` has the definitions by which rules decide, ``data`` the documents, drafts and their index.
    ``storage`` is that of the data, with the attachments wherever these are, and ``catalog`` that of the definitions.
    ``index_catalog`` has those by which the index reads data. It is the same, unless another service has definitions
    of local data: an index asks no other service, so the controls of such data are not indexed.
    """

    form: Form
    properties: FormProperties
    definition: Provider
    data: Provider
    storage: Storage
    catalog: Catalog
    index_catalog: Catalog

    def indexed(self, definition: Definition) -> Definition:
        """Return the definition by which the index reads data of a definition's version."""
        if self.index_catalog is self.catalog:
            return definition
        return self.index_catalog.of(definition.form, definition.version)
