"""Archives for tests: of a tree with all that it has, and comparisons of trees."""

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from persistence.forms.archive_metadata import write_metadata
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    ArchiveEntry,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    entry_of,
)
from persistence.storage.reader import StoreReader
from persistence.storage.stored_revision import StoredRevision


def archive_of(root: Path | str) -> bytes:
    """Every revision in a tree, as a ZIP file."""
    return zipped(dict(entries(StoreReader(str(root)))))


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A ZIP file of these entries."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return held.getvalue()


def entries(store: StoreReader) -> Iterator[tuple[str, bytes]]:
    """The entries of a tree."""
    for address in addresses(store):
        current = store.read(address, content=True)
        assert current is not None
        yield from _entry(address, current, is_current=True)
        for instant in store.revisions(address):
            older = store.read_revision(address, instant, content=True)
            assert older is not None
            yield from _entry(address, older, is_current=False)


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


def _entry(address: Address, found: StoredRevision, *, is_current: bool) -> Iterator[tuple[str, bytes]]:
    sidecar = found.sidecar
    entry = entry_of(address, sidecar.version, sidecar.modified, is_current=is_current)
    if found.file is not None:
        with found.file:
            yield entry.path, found.file.read()
    beside = ArchiveEntry(entry.address, entry.version, entry.instant, is_metadata=True)
    yield beside.path, write_metadata(sidecar)


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
