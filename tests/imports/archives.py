"""Archives for tests, and comparisons of trees."""

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from persistence.model.addresses import DATA_XML, FORM_XHTML, Address, Collection, DefinitionAddress, DocumentAddress
from persistence.storage.reader import StoreReader


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
