"""The export of forms and data as a ZIP archive (spec crud 8.4), streamed in bounded memory, without permissions.

Revisions that cannot be read are left out, and named in the last entry. After an error of the disk the archive has no
end, so that nobody takes it for a whole one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

import msgspec

from persistence.errors import DamagedError, NotSupportedError, PersistenceError, disk_errors
from persistence.forms.archive_metadata import write_metadata
from persistence.limits import CHUNK, MOST_EXPORT_PROBLEMS
from persistence.model.addresses import DocumentAddress
from persistence.model.archives import ERRORS_ENTRY
from persistence.model.exports import ExportQuery
from persistence.model.instants import next_after
from persistence.model.sidecar import Sidecar
from persistence.providers.router import Router
from persistence.services.codec import Codec
from persistence.services.export_source import LEFT_OUT, ExportedRevision, SelectedForm, select_forms
from persistence.services.rules import Get, Read
from persistence.services.transforms import TransformedContent, transformed
from persistence.services.zip_stream import ZipStream
from persistence.storage.stored_revision import StoredRevision

_TEXTUAL = ("text/", "application/xml", "application/json", "image/svg")
"""Beginnings of content types that are worth compressing; most attachments are compressed already."""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """An open content with its facts; if it ``is_decrypted``, it differs from the stored bytes."""

    sidecar: Sidecar
    size: int | None
    content: TransformedContent | None
    found: StoredRevision
    is_decrypted: bool

    def pieces(self) -> Iterator[bytes]:
        with disk_errors("exporting a content"):
            if self.content is not None:
                yield from self.content
                return
            count = 0
            while piece := self.found.opened.read(CHUNK):
                count += len(piece)
                yield piece
        if self.size not in (None, count):
            raise DamagedError(f"a content has {count} bytes, and not {self.size}: it was changed while it was read")

    def close(self) -> None:
        self.found.close()


@dataclass(frozen=True, slots=True)
class Exporting:
    """Exports from the providers of a router."""

    router: Router
    codec: Codec

    def begin(self, query: ExportQuery) -> Export:
        selected = select_forms(self.router, query)
        return Export(self, selected if query.document is None else [each.of_document() for each in selected], query)

    def opened(self, revision: ExportedRevision, query: ExportQuery) -> ExportedFile:
        """Open a revision, decrypted if that is asked for; then it was read once, so that it will not fail."""
        address, found = revision.address, revision.opened()
        if not query.decrypts or not isinstance(address, DocumentAddress):
            return ExportedFile(found.sidecar, Read(address, found, None).size, None, found, is_decrypted=False)
        read = self.codec.decode(Read(address, found, None), address, Get(decrypt=True))
        if read.decryption is not None:
            content = transformed(read, only_relevant=False)
            return ExportedFile(_plain(read.found.sidecar), content.size, content, read.found, is_decrypted=True)
        if read.is_decrypted:
            _check(read)
            return ExportedFile(_plain(read.found.sidecar), read.size, None, read.found, is_decrypted=True)
        return ExportedFile(read.found.sidecar, read.size, None, read.found, is_decrypted=False)


class _Hashing:
    """Pieces that are counted and hashed as they pass by; ``digest`` is as sidecars have it."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._hash = hashlib.sha256()
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._hash.update(piece)
            self.size += len(piece)
            yield piece

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


@dataclass(frozen=True, slots=True)
class _Problems:
    """Lines about revisions that are left out, each of which is reported at once."""

    report: Callable[[str], None]
    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.report(line)
        if len(self.lines) > MOST_EXPORT_PROBLEMS:
            raise NotSupportedError(f"more than {MOST_EXPORT_PROBLEMS} revisions cannot be exported: {line}")


@dataclass(frozen=True, slots=True)
class Export:
    """One export, which has not begun."""

    exporting: Exporting
    forms: list[SelectedForm]
    query: ExportQuery

    def count(self) -> int:
        """Count the versions of definitions, the documents and the drafts that will be read."""
        return sum(1 for form in self.forms for _ in form.groups())

    def archive(self, report: Callable[[str], None], done: Callable[[], None]) -> Iterator[bytes]:
        """Yield the archive in pieces; report each revision that is left out, and call ``done`` after each document."""
        problems = _Problems(report)
        with disk_errors("exporting"), ZipStream() as archive:
            for form in self.forms:
                for group in form.groups():
                    for found in group:
                        if isinstance(found, PersistenceError):
                            problems.add(str(found))
                        else:
                            yield from self._add(archive, found, problems)
                    done()
            if problems.lines:
                lines, now = "".join(f"{line}\n" for line in problems.lines).encode(), next_after(None)
                yield from archive.add(ERRORS_ENTRY, (now, now), [lines], len(lines), compresses=True)
            yield from archive.end()

    def _add(self, archive: ZipStream, revision: ExportedRevision, problems: _Problems) -> Iterator[bytes]:
        sidecar, is_decrypted, entry = revision.sidecar, False, revision.entry
        times = sidecar.modified, sidecar.created
        if not sidecar.deleted:
            try:
                file = self.exporting.opened(revision, self.query)
            except LEFT_OUT as error:
                problems.add(str(error))
                return
            with closing(file):
                pieces = _Hashing(file.pieces())
                is_textual = not file.sidecar.encrypted and (file.sidecar.content_type or "").startswith(_TEXTUAL)
                compresses = revision.address.is_main or is_textual
                yield from archive.add(entry.path, times, pieces, file.size, compresses=compresses)
            sidecar, is_decrypted = _described(file, pieces), file.is_decrypted
            if pieces.digest != sidecar.digest:
                problems.add(f"{revision.address} of {sidecar.modified} does not have the digest of its sidecar")
        metadata = write_metadata(sidecar, is_decrypted=is_decrypted)
        beside = replace(entry, is_metadata=True).path
        yield from archive.add(beside, times, [metadata], len(metadata), compresses=True)


def _described(file: ExportedFile, hashing: _Hashing) -> Sidecar:
    sidecar, found = file.sidecar, file.found
    if file.is_decrypted or sidecar.digest is None or found.is_edited:
        sidecar = msgspec.structs.replace(sidecar, size=hashing.size, digest=hashing.digest)
    if found.is_edited and not file.is_decrypted:
        sidecar = msgspec.structs.replace(sidecar, id=found.etag, tag=None, encrypted=None)
    return sidecar


def _plain(sidecar: Sidecar) -> Sidecar:
    return msgspec.structs.replace(sidecar, encrypted=None, sealed_hash=None)


def _check(read: Read) -> None:
    """Read a decrypted attachment to its end once, and go back: in the middle of an entry it would be too late."""
    file = read.found.opened
    try:
        with disk_errors(f"reading {read.address}"):
            while file.read(CHUNK):
                pass
            file.seek(0)
    except PersistenceError:
        file.close()
        raise
