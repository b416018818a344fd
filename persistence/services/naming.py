"""Find the attachments of a document that its data names, in its bytes, without a parser, and rather too often.

A name anywhere in the data counts, plain, with character references or percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from html import unescape
from typing import BinaryIO
from urllib.parse import unquote

from persistence.errors import BadRequestError, MalformedXmlError, disk_errors
from persistence.forms.form_data import MARKER_WORD, EncryptedValueWatch
from persistence.limits import CHUNK
from persistence.model.addresses import Collection, DocumentAddress
from persistence.model.instants import Instant
from persistence.storage.managed import ManagedStorage
from persistence.xml import markup

_OVERLAP = 1 << 13
"""Bytes that are looked at twice, where one piece ends: a name has 200 bytes, and each may be written as ten."""
_DECLARED = re.compile(rb"[ \t\r\n]*+=[ \t\r\n]*+[\"']([A-Za-z0-9._-]++)")


def unnamed(
    store: ManagedStorage, main: DocumentAddress, names: set[str], stays: Callable[[Instant], bool]
) -> set[str]:
    """Return those of some attachments that no revision of the data or the draft names, of older ones if it ``stays``.

    Data with an encrypted value counts as naming all: the key may be elsewhere, or a runtime's.
    """
    left = set(names)
    for content in _contents(store, main, stays):
        with content:
            with disk_errors("reading form data"):
                left = without_named(iter(partial(content.read, CHUNK), b""), left)
            if left and _has_encrypted_values(content):
                return set()
        if not left:
            break
    return left


def _has_encrypted_values(content: BinaryIO) -> bool:
    """Return whether a content has encrypted values, or cannot be parsed."""
    with disk_errors("reading form data"):
        content.seek(0)
        if not markup.may_mention(iter(partial(content.read, CHUNK), b""), MARKER_WORD):
            return False
        content.seek(0)
        try:
            with EncryptedValueWatch() as reader:
                return reader.read(iter(partial(content.read, CHUNK), b"")).is_one
        except (BadRequestError, MalformedXmlError):
            return True


def _contents(store: ManagedStorage, main: DocumentAddress, stays: Callable[[Instant], bool]) -> Iterator[BinaryIO]:
    for collection in Collection:
        found = store.read(main.moved(collection), content=True)
        if found is not None and found.file is not None:
            yield found.file
    for instant in store.revisions(main):
        older = store.read_older(main, instant, content=True) if stays(instant) else None
        if older is not None and older.file is not None:
            yield older.file


def without_named(pieces: Iterable[bytes], names: set[str]) -> set[str]:
    """Return those of some names that a content, which comes in large pieces, does not have."""
    left, tail, encoding = set(names), b"", ""
    for read in pieces:
        encoding = encoding or _encoding(read)
        piece = tail + read
        for each in (encoding, "latin-1"):
            text = piece.decode(each, "replace")
            plain = unquote(unescape(text)) if "%" in text or "&" in text else text
            left -= {name for name in left if name in text or name in plain}
        tail = piece[-_OVERLAP:]
        if not left:
            break
    return left


def _encoding(begin: bytes) -> str:
    declaration = begin.partition(b"?>")[0] if b"<?xml" in begin[:8] else b""
    found = _DECLARED.match(declaration.partition(b"encoding")[2])
    declared = found[1].decode().lower() if found is not None else None
    return markup.codec_of(begin, declared if declared in markup.ENCODINGS else None)
