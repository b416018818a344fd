"""Encrypted files: a header in plain text, and the content in frames that are encrypted one by one.

::

    header   magic and version   9 bytes
             id of the key       1 byte for its length, then ASCII
             salt                32 random bytes
             resource            2 bytes for its length, then the JSON list of application, form, collection, document
                                 and file name
    frames   65,536 bytes of content each (the last one as many as are left, or none), encrypted with AES-256-GCM, and
             the tag of 16 bytes

The key of a file is derived from a key of the ring with the salt, for this header. The nonce of a frame is its number
and whether it is the last one, and the header is authenticated with each: so a frame that is changed, moved, missing or
of another file does not decrypt, nor does any under a changed header; and a file in another's place is one whose header
names another resource. Every frame can be decrypted by itself, which serves ranges.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from persistence.crypto.keyring import KeyRing, purpose
from persistence.crypto.plain_file import PlainFile
from persistence.errors import DamagedError, disk_errors
from persistence.model.addresses import Collection, DocumentAddress, Form

MAGIC = b"\x8eFORMENC\x01"
LONGEST_HEADER = len(MAGIC) + 1 + 255 + 32 + 2 + 65535

_FRAME = 1 << 16
_TAG = 16
_SEALED = _FRAME + _TAG

LONGEST_BEGINNING = LONGEST_HEADER + _SEALED
"""Bytes of a file in which its header and its first frame are."""

_SALT = 32
_LENGTH = 2


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file; ``raw`` are its bytes."""

    key_id: str
    salt: bytes
    address: DocumentAddress
    raw: bytes

    @classmethod
    def fresh(cls, key_id: str, address: DocumentAddress) -> Header:
        """That of a new file."""
        salt, resource = secrets.token_bytes(_SALT), _resource(address)
        key = key_id.encode("ascii")
        raw = b"".join((MAGIC, bytes((len(key),)), key, salt, len(resource).to_bytes(_LENGTH, "big"), resource))
        return cls(key_id, salt, address, raw)

    @classmethod
    def parse(cls, data: bytes) -> Header | None:
        """The header at the beginning of what is, or may be, such a file; ``None`` where there is none."""
        if not data.startswith(MAGIC) or len(data) == len(MAGIC):
            return None
        at = len(MAGIC) + 1
        key, at = data[at : at + data[at - 1]], at + data[at - 1]
        salt, at = data[at : at + _SALT], at + _SALT
        length, at = int.from_bytes(data[at : at + _LENGTH], "big"), at + _LENGTH
        address = _address(data[at : at + length])
        if address is None or not key.isascii():
            return None
        return cls(key.decode("ascii"), salt, address, data[: at + length])


class _Frames:
    """Encrypts and decrypts the frames of one file by number."""

    def __init__(self, header: Header, ring: KeyRing) -> None:
        self._header = header
        self._cipher = AESGCM(ring.derived(header.key_id, header.salt, purpose("file") + header.raw))

    def seal(self, number: int, content: bytes, *, is_last: bool) -> bytes:
        """A frame, encrypted."""
        return self._cipher.encrypt(_nonce(number, is_last=is_last), content, self._header.raw)

    def open(self, number: int, sealed: bytes, *, is_last: bool) -> bytes:
        """The content of a frame; raises ``DamagedError``."""
        try:
            return self._cipher.decrypt(_nonce(number, is_last=is_last), sealed, self._header.raw)
        except InvalidTag as error:
            raise DamagedError(f"the encrypted {self._header.address} is not as it was written") from error

    def is_genuine(self, number: int, sealed: bytes, *, is_last: bool) -> bool:
        """Whether a frame is as it was written."""
        try:
            self.open(number, sealed, is_last=is_last)
        except DamagedError:
            return False
        return True


def sealed(chunks: Iterable[bytes], address: DocumentAddress, ring: KeyRing) -> Iterator[bytes]:
    """The encrypted file of a content, piece by piece.

    Raises:
        ConfigurationError: there is no key that encrypts (when the first piece is asked for).
    """
    header = Header.fresh(ring.to_write(), address)
    frames = _Frames(header, ring)
    yield header.raw
    for number, (content, is_last) in enumerate(_cut(chunks, _FRAME)):
        yield frames.seal(number, content, is_last=is_last)


def opened(chunks: Iterable[bytes], header: Header, ring: KeyRing) -> Iterator[bytes]:
    """The content of a file whose frames arrive in ``chunks``, without its header.

    Raises:
        DamagedError: a frame is not as it was written, or missing.
        ConfigurationError: its key is not here.
    """
    frames = _Frames(header, ring)
    for number, (content, is_last) in enumerate(_cut(chunks, _SEALED)):
        yield frames.open(number, content, is_last=is_last)


def may_begin(head: bytes | bytearray) -> bool:
    """Whether a file of which this is the beginning, however short, may be an encrypted one."""
    return bytes(head[: len(MAGIC)]) == MAGIC[: len(head)]


def authentic(head: bytes, ring: KeyRing) -> Header | None:
    """The header of a file that was surely encrypted with a key of the ring, by its first frame; else ``None``.

    A file that was cut behind its first frame has one as well: ``opened`` tells that something is missing.

    ``head`` are more bytes than ``LONGEST_BEGINNING`` from the beginning of the file, or all that it has.
    """
    header = Header.parse(head)
    if header is None or header.key_id not in ring.keys:
        return None
    first = head[len(header.raw) :][:_SEALED]
    frames = _Frames(header, ring)
    return header if any(frames.is_genuine(0, first, is_last=is_last) for is_last in (False, True)) else None


def open_file(file: BinaryIO, size: int, address: DocumentAddress, ring: KeyRing) -> PlainFile:
    """The plain content of an open file of ``size`` bytes, which must be that of a resource.

    The last frame and the first are decrypted at once: they tell that nothing is missing, and what is to be read first
    is as it was written.

    Raises:
        DamagedError: it is not as it was written, or another resource's.
        ConfigurationError: its key is not here.
        DiskError: it cannot be read.
    """
    with disk_errors("reading", address):
        header = read_header(file)
        if header is None:
            raise DamagedError(f"the encrypted {address} has lost its header")
        if header.address != address:
            raise DamagedError(f"the encrypted {address} is the file of another resource: {header.address}")
        return _FramedFile(file, size, header, ring)


def read_header(file: BinaryIO) -> Header | None:
    """The header of an open file; ``None`` where it has none. Raises ``OSError``."""
    file.seek(0)
    return Header.parse(file.read(LONGEST_HEADER))


class _FramedFile(PlainFile):
    """Decrypts the frame of the position that is read, and keeps it for the next position."""

    def __init__(self, file: BinaryIO, size: int, header: Header, ring: KeyRing) -> None:
        self._begin = len(header.raw)
        count = max(1, -((self._begin - size) // _SEALED))  # an empty content has a frame too
        self._last = count - 1
        super().__init__(file, max(0, size - self._begin - count * _TAG))
        self._frames = _Frames(header, ring)
        self._kept = (-1, b"")
        self._file_at = -1
        self._frame(self._last)
        self._frame(0)

    def _read_at(self, position: int, most: int) -> bytes:
        number, offset = divmod(position, _FRAME)
        frame = self._frame(number)
        return frame if not offset and most >= len(frame) else frame[offset : offset + most]

    def _frame(self, number: int) -> bytes:
        if self._kept[0] != number:
            if self._file_at != number:
                self.file.seek(self._begin + number * _SEALED)
            data = self.file.read(_SEALED)
            self._file_at = number + 1
            self._kept = number, self._frames.open(number, data, is_last=number == self._last)
        return self._kept[1]


def _cut(chunks: Iterable[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """The same bytes in stretches of ``size``, each with whether it is the last, of which there is always one."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        begin = 0
        while len(buffer) - begin > size:
            yield bytes(buffer[begin : begin + size]), False
            begin += size
        del buffer[:begin]
    yield bytes(buffer), True


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes((is_last,))


def _resource(address: DocumentAddress) -> bytes:
    form, collection = address.form, address.collection.value
    return msgspec.json.encode([form.app, form.name, collection, address.document, address.name])


def _address(resource: bytes) -> DocumentAddress | None:
    try:
        app, form, collection, document, name = msgspec.json.decode(resource, type=tuple[str, str, str, str, str])
        return DocumentAddress(Form(app, form), Collection(collection), document, name)
    except (msgspec.DecodeError, ValueError):
        return None
