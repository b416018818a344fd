"""Archives, imports, exports and moves in the process of a test, and comparisons of trees."""

import io
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from persistence.catalog import Catalog
from persistence.crypto import EncryptionKeys
from persistence.dialect import DIALECTS
from persistence.model.addresses import DATA_XML, FORM_XHTML, Address, Collection, DefinitionAddress, DocumentAddress
from persistence.model.queries import ExportQuery, parse_pattern
from persistence.properties.properties import Properties
from persistence.providers.opened import OpenedPlace, moving, open_index, provider_of_tree
from persistence.providers.router import only
from persistence.services.codec import AS_STORED, EncryptionAtRest, EncryptionCodec
from persistence.services.exporting import Export
from persistence.services.import_plans import ImportSource, OnConflict
from persistence.services.import_sources import open_source
from persistence.services.importing import Importer, ImportOptions
from persistence.services.moves import Move, MoveSource, MoveTarget
from persistence.services.transfers import TransferOutcome
from persistence.settings import Settings
from persistence.storage.reader import StoreReader
from persistence.storage.storage import MaintainedDatabase
from persistence.storage.store import Store
from tests.initialised import initialised
from tests.opened import opened


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A ZIP file of these entries."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return held.getvalue()


def addresses(store: StoreReader) -> Iterator[Address]:
    """The addresses of all files of a tree."""
    for form in store.forms():
        for version in store.versions(form):
            main = DefinitionAddress(form, version, FORM_XHTML)
            yield from (DefinitionAddress(form, version, name) for name in store.names(main))
        for collection in Collection:
            for document in store.documents(form, collection):
                data = DocumentAddress(form, collection, document, DATA_XML)
                yield from (data.moved(collection, name) for name in store.names(data))


def tree(root: Path | str) -> dict[str, tuple[bytes, int]]:
    """All files of a tree, but those of the service's own: the content, and of contents the time."""
    found = {}
    for folder, folders, names in os.walk(root):
        if folder == str(root):
            folders[:] = [each for each in folders if not each.startswith(".")]
            continue
        for name in names:
            path = Path(folder, name)
            time = 0 if name.endswith(".json") else path.stat().st_mtime_ns
            found[str(path.relative_to(root))] = path.read_bytes(), time
    return found


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


@contextmanager
def _opened(place: Path | MaintainedDatabase) -> Iterator[MaintainedDatabase | OpenedPlace]:
    if isinstance(place, MaintainedDatabase):
        yield place
        return
    with moving(Settings(data=str(place)), Properties.load({}, "svc."), str(place)) as opened:
        yield opened


def moved(
    there: Path | MaintainedDatabase,
    here: Path | MaintainedDatabase,
    match: str = "",
    meanwhile: Callable[[], None] = lambda: None,
) -> list[TransferOutcome]:
    """Move as the command does; ``meanwhile`` is called between the passes. Return the outcomes of the last."""
    if isinstance(here, Path) and not here.exists():
        initialised(here)
    with _opened(there) as origin, _opened(here) as target:
        source = MoveSource(origin.name, origin.storage, lambda _: origin.storage)
        move = Move(source, MoveTarget(target.storage), (parse_pattern(match),))
        for _ in move.first():
            continue
        meanwhile()
        with origin.storage.keeping_writers_out() as require:
            last = list(move.last())
            require()
            if not any(each.cause for each in last):
                move.end()
        return last
