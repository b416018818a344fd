"""Opening the source of an import: its first bytes show its kind, or the content type of a request."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import BinaryIO

from persistence.errors import BadRequestError, disk_errors
from persistence.limits import LARGEST_DIRECTORY, LARGEST_SENT_DIRECTORY
from persistence.services.imports.entries import FilesSource
from persistence.services.imports.folder_files import FolderFiles
from persistence.services.imports.json_lines import JsonLines
from persistence.services.imports.revisions import ImportSource
from persistence.services.imports.zip_files import ZipFiles

_ZIP_BEGINS = (b"PK\x03\x04", b"PK\x05\x06")
_ZIP_TYPES = frozenset({"application/zip", "application/x-zip-compressed"})
_JSON_TYPES = frozenset({"application/jsonl", "application/x-ndjson", "application/json-lines"})


def open_source(path: str, file: BinaryIO | None, *, largest: int) -> ImportSource:
    """Open a folder, or with ``file`` an open archive or JSON lines; ``largest`` are the bytes of a content."""
    if file is None:
        return FilesSource(FolderFiles(path, largest=largest))
    with disk_errors(f"reading {path}"):
        begin = file.read(4).removeprefix(BOM_UTF8).lstrip()
        file.seek(0)
    if begin in _ZIP_BEGINS:
        return FilesSource(ZipFiles(file, LARGEST_DIRECTORY, largest=largest))
    if begin[:1] in {b"{", b"[", b""}:
        return JsonLines(file)
    raise BadRequestError("it is not a ZIP file or JSON lines")


def is_importable(content_type: str | None) -> bool:
    """Return whether the content type of a request is that of an archive or of JSON lines."""
    return _kind(content_type) in _ZIP_TYPES | _JSON_TYPES


def sent_source(file: BinaryIO, content_type: str | None, *, largest: int) -> ImportSource:
    """Open the body of a request, which was spooled."""
    if _kind(content_type) in _ZIP_TYPES:
        return FilesSource(ZipFiles(file, LARGEST_SENT_DIRECTORY, largest=largest))
    return JsonLines(file)


def _kind(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()
