"""The summaries of published versions: kept in memory by fingerprint, and in one file for workers that start.

An entry of the file counts only while the files of its definition have its fingerprint. So the file may be lost, be
old, or be written by several workers at once. Each writes all that it knows; what another has added meanwhile is read
from the definitions again.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Protocol

import msgspec

from persistence.definitions.contents import parse_permissions
from persistence.errors import BadRequestError
from persistence.limits import LARGEST_CATALOG_FILE, MOST_CATALOG, PERMISSION_COSTS, VERSIONS_KEPT
from persistence.model.addresses import Form
from persistence.model.form_versions import FormMetadata, PublishedVersion
from persistence.model.instants import Instant
from persistence.storage import files, nofollow
from persistence.storage.stored_revision import Fingerprint

_HEADER = b"persistence forms 1\n"
"""Begins the file. The number is that of the format and of what is read from definitions: files of others are ignored.
"""

_SUM = 4
_FEW_FRESH = 20
"""The file is written when more than one in so many of the summaries are not in it."""


class StoredSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The summary of a version with the fingerprint it had; the facts are those of ``PublishedVersion``."""

    number: int
    mark: Fingerprint
    created: Instant
    modified: Instant
    modifier: str | None
    metadata: FormMetadata
    deleted: bool


class StoredForm(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The summaries of one form."""

    app: str
    name: str
    versions: list[StoredSummary]


class SummaryFile(Protocol):
    """A file in which workers leave summaries for each other. Methods raise nothing."""

    def read(self) -> list[StoredForm]:
        """Return all summaries; none where they cannot be read."""

    def write(self, forms: Iterable[StoredForm]) -> None:
        """Replace all summaries, if they can be written."""


class _NoFile:
    def read(self) -> list[StoredForm]:
        return []

    def write(self, forms: Iterable[StoredForm]) -> None:
        pass


NO_FILE: SummaryFile = _NoFile()
"""For whoever only looks at a tree, and where the summaries are too large for a file."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[StoredForm]).decode


class FormsFile:
    """A file of summaries, which is replaced as a whole."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writing = threading.Lock()  # the temporary file has the name of the process

    def read(self) -> list[StoredForm]:
        """Return all summaries; none where there is no such file, or its checksum is wrong."""
        with suppress(OSError, msgspec.DecodeError):
            with open(nofollow.open_to_read(self._path), "rb") as file:
                data = file.read(LARGEST_CATALOG_FILE + 1)
            begin = len(_HEADER) + _SUM
            if data.startswith(_HEADER) and data[len(_HEADER) : begin] == _checksum(data[begin:]):
                return _decode(memoryview(data)[begin:])
        return []

    def write(self, forms: Iterable[StoredForm]) -> None:
        """Replace the file; where that fails, the old one stays."""
        body = _encode(list(forms))
        if len(body) < LARGEST_CATALOG_FILE - len(_HEADER) - _SUM:
            with suppress(OSError), self._writing:
                files.write_durably(self._path, _HEADER + _checksum(body) + body)


class Summaries:
    """The summaries of one storage, each with the fingerprint of the files it was read from; for all threads."""

    def __init__(self, file: SummaryFile) -> None:
        self._file = file
        self._is_loaded = False
        self._fresh = 0
        self._filing = threading.Lock()
        self._known: dict[Form, dict[int, tuple[Fingerprint, PublishedVersion | None]]] = {}
        self._entries = 0
        self._weight = 0
        self._weighed: set[int] = set()

    def of(self, form: Form) -> Mapping[int, tuple[Fingerprint, PublishedVersion | None]]:
        """Return the fingerprints and summaries of a form's versions by their numbers."""
        return self._known.get(form, {})

    def add(self, form: Form, number: int, mark: Fingerprint, published: PublishedVersion | None) -> None:
        """Keep a summary that was just read."""
        self._keep(form, number, mark, published)
        self._fresh += 1

    def load(self) -> None:
        """Take what other workers have left in the file, once."""
        with self._filing:
            if self._is_loaded:
                return
            self._is_loaded = True
            for stored in self._file.read():
                form = Form(stored.app, stored.name)
                known = self._known.get(form, {})
                for version in stored.versions:
                    if version.number not in known:
                        with suppress(BadRequestError):
                            self._keep(form, version.number, version.mark, _published(form, version))

    def save(self) -> None:
        """Write the file for other workers, where enough has changed."""
        known = self._known
        if self._fresh * _FEW_FRESH <= self._entries or not self._filing.acquire(blocking=False):
            return
        try:
            self._fresh = 0
            self._file.write(StoredForm(form.app, form.name, _stored(of)) for form, of in tuple(known.items()))
        finally:
            self._filing.release()

    def _keep(self, form: Form, number: int, mark: Fingerprint, published: PublishedVersion | None) -> None:
        replaced = self._known.get(form, {}).get(number)
        self._entries += replaced is None
        self._weight += 0 if published is None else self._weigh(published)
        self._weight -= replaced[1].weight if replaced is not None and replaced[1] is not None else 0
        if self._entries > VERSIONS_KEPT or self._weight > MOST_CATALOG:
            self._known = {}
            self._weighed = set()
            self._entries = self._weight = 0
            self._file = NO_FILE  # what does not fit would be written again and again
        self._known.setdefault(form, {})[number] = mark, published

    def _weigh(self, published: PublishedVersion) -> int:
        """Return the bytes of memory of a summary; permissions count for the first of those that share them."""
        shared, text = id(published.permissions), published.metadata.permissions
        if text is None or shared in self._weighed:
            return published.weight
        self._weighed.add(shared)
        return published.weight + PERMISSION_COSTS * text.count("<")


def _published(form: Form, stored: StoredSummary) -> PublishedVersion:
    return PublishedVersion(
        form=form,
        version=stored.number,
        created=stored.created,
        modified=stored.modified,
        modifier=stored.modifier,
        metadata=stored.metadata,
        permissions=parse_permissions(stored.metadata),
        deleted=stored.deleted,
        weight=stored.metadata.weight,
    )


def _stored(known: Mapping[int, tuple[Fingerprint, PublishedVersion | None]]) -> list[StoredSummary]:
    return [
        StoredSummary(
            number=number,
            mark=mark,
            created=published.created,
            modified=published.modified,
            modifier=published.modifier,
            metadata=published.metadata,
            deleted=published.deleted,
        )
        for number, (mark, published) in tuple(known.items())
        if published is not None
    ]


def _checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(_SUM, "big")
