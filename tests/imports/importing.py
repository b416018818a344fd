"""Imports and exports in the process of a test: a source in one tree, with what becomes of it."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from persistence.catalog import Catalog
from persistence.crypto import EncryptionKeys
from persistence.dialect import DIALECTS
from persistence.model.queries import ExportQuery
from persistence.properties.properties import Properties
from persistence.providers.opened import open_index, provider_of_tree
from persistence.providers.router import only
from persistence.services.codec import AS_STORED, EncryptionAtRest, EncryptionCodec
from persistence.services.exporting import Export
from persistence.services.import_plans import ImportSource, OnConflict
from persistence.services.import_sources import open_source
from persistence.services.importing import Importer, ImportOptions
from persistence.services.transfers import TransferOutcome
from persistence.settings import Settings
from persistence.storage.store import Store
from tests.imports.archives import zipped
from tests.opened import opened

LARGEST = 1 << 20


def importer(
    store: Store, dialect: str = "svc", properties: Mapping[str, object] | None = None, keys: str = ""
) -> Importer:
    """An importer into one tree, as the command has it; ``keys`` is the path of a file of encryption keys."""
    of_dialect = DIALECTS[dialect]
    own = Properties.load(dict(properties or {}), of_dialect.property_prefix)
    index = opened(open_index(Settings(data=store.root), own, store.root))
    router = only(provider_of_tree(store, index, Catalog(store)), own)
    encryption = EncryptionKeys(keys or f"{Path(store.root).parent}/none.json", trees=(store.root,))
    codec = EncryptionCodec(EncryptionAtRest(router, of_dialect, encryption))
    return Importer(router, codec, LARGEST, LARGEST, begins_indexes=False)


def run(
    into: Importer, source: ImportSource, *, is_dry: bool = False, on_conflict: OnConflict = OnConflict.REFUSE
) -> list[TransferOutcome]:
    """Import a source."""
    return list(into.run(source, ImportOptions(is_dry, on_conflict)))


def zip_source(files: Mapping[str, bytes]) -> ImportSource:
    """A ZIP file of these entries as a source."""
    return open_source("x.zip", io.BytesIO(zipped(files)), largest=LARGEST)


def lines_source(text: bytes) -> ImportSource:
    """JSON lines as a source."""
    return open_source("x.jsonl", io.BytesIO(text), largest=LARGEST)


def results(outcomes: list[TransferOutcome]) -> list[tuple[str, str]]:
    """Names and results."""
    return [(each.name, each.result.value) for each in outcomes]


def export_of(store: Store, **query: Any) -> bytes:
    """An archive of what a query selects in a tree."""
    return b"".join(Export(importer(store).router, AS_STORED, ExportQuery(**query)).archive(print, lambda: None))
