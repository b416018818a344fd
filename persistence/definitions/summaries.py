"""The summaries of published versions in one file, which workers leave for those that start.

An entry of the file counts only while the files of its definition have its fingerprint. So the file may be lost, be
old, or be written by several workers at once. Each writes all that it knows; what another has added meanwhile is read
from the definitions again.
"""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from persistence.definitions.contents import parse_permissions
from persistence.errors import BadRequestError
from persistence.limits import LARGEST_CATALOG_FILE
from persistence.model.addresses import Form
from persistence.model.instants import Instant
from persistence.model.versions import FormMetadata, PublishedVersion
from persistence.storage import files, nofollow
from persistence.storage.stored_revision import Fingerprint

_HEADER = b"persistence forms 1\n"
"""Begins the file. The number is the version of the format and of the extracted facts: other files are ignored.
"""

_SUM = 4
_FACTS = ("created", "modified", "modifier", "metadata", "deleted")
"""The fields of a summary, in memory and in the file."""


class StoredSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The summary of a version with the fingerprint it had; the facts are as in ``PublishedVersion``."""

    number: int
    fingerprint: Fingerprint
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


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[StoredForm]).decode


class FormsFile:
    """A file of summaries, which is replaced as a whole."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writing = threading.Lock()  # the temporary file has the name of the process

    def read(self) -> list[StoredForm]:
        """Return all summaries; none where the file does not exist, or its checksum is wrong."""
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


def summaries_in(file: FormsFile) -> Iterator[tuple[Fingerprint, PublishedVersion]]:
    """Yield the summaries of a file, each with the fingerprint it had; without those that cannot be understood."""
    for stored in file.read():
        form = Form(stored.app, stored.name)
        for each in stored.versions:
            with suppress(BadRequestError):
                facts = {name: getattr(each, name) for name in _FACTS}
                permissions = parse_permissions(each.metadata)
                weight = each.metadata.weight
                yield (
                    each.fingerprint,
                    PublishedVersion(form, each.number, permissions=permissions, weight=weight, **facts),
                )


def stored_forms(summaries: Iterable[tuple[Fingerprint, PublishedVersion | None]]) -> list[StoredForm]:
    """Return summaries with their fingerprints as in a file; unpublished versions are left out."""
    forms: dict[Form, list[StoredSummary]] = defaultdict(list)
    for fingerprint, each in summaries:
        if each is not None:
            facts = {name: getattr(each, name) for name in _FACTS}
            forms[each.form].append(StoredSummary(number=each.version, fingerprint=fingerprint, **facts))
    return [StoredForm(form.app, form.name, versions) for form, versions in forms.items()]


def _checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(_SUM, "big")
