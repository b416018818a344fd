"""A provider: what keeps forms, as one unit; and the route to the providers of one form."""

from __future__ import annotations

from dataclasses import dataclass

from persistence.definitions.catalog import Catalog
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
    """

    form: Form
    properties: FormProperties
    definition: Provider
    data: Provider
    storage: Storage
    catalog: Catalog
