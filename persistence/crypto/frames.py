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
of another file does not decrypt, nor does any under a changed header. A file in another's place is one whose header
names another resource. Every frame can be decrypted by itself, which serves ranges.

The real system's files are read, too: AES-128-GCM with the vector before the cipher text and one tag for the whole file
at its end (spec forms 4.4). Such a file is read twice, once to authenticate it and once to be sent. GCM encrypts as CTR
does, which lets a range be decrypted by itself.
"""

from __future__ import annotations

import io
import secrets
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from persistence.crypto.encryption_keys import KeyRing, purpose
from persistence.errors import DamagedError, disk_errors
from persistence.limits import CHUNK
from persistence.model.addresses import Collection, DocumentAddress, Form

MAGIC = b"\x8eFORMENC\x01"
LONGEST_HEADER = len(MAGIC) + 1 + 255 + 32 + 2 + 65535

_FRAME = 1 << 16
_TAG = 16
_ENCRYPTED_FRAME = _FRAME + _TAG

LONGEST_BEGINNING = LONGEST_HEADER + _ENCRYPTED_FRAME
"""Bytes from the beginning of a file that surely hold its header and its first frame."""

_SALT = 32
_LENGTH = 2

_IV = 12
_BLOCK = 16


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The header of a file; ``raw`` are its bytes."""

    key_id: str
    salt: bytes
    address: DocumentAddress
    raw: bytes

    @classmethod
    def parse(cls, data: bytes) -> FileHeader | None:
        if not data.startswith(MAGIC) or len(data) == len(MAGIC):
            return None
        at = len(MAGIC) + 1
        key, at = data[at : at + data[at - 1]], at + data[at - 1]
        salt, at = data[at : at + _SALT], at + _SALT
        length, at = int.from_bytes(data[at : at + _LENGTH], "big"), at + _LENGTH
        try:
            resource = msgspec.json.decode(data[at : at + length], type=tuple[str, str, str, str, str])
            app, form, collection, document, name = resource
            address = DocumentAddress(Form(app, form), Collection(collection), document, name)
        except (msgspec.DecodeError, ValueError):
            return None
        return cls(key.decode("ascii"), salt, address, data[: at + length]) if key.isascii() else None


class _FrameCipher:
    """Encrypts and decrypts the frames of one file by number."""

    def __init__(self, header: FileHeader, ring: KeyRing) -> None:
        self._header = header
        self._cipher = AESGCM(ring.derived(header.key_id, header.salt, purpose("file") + header.raw))

    def encrypt(self, number: int, content: bytes, *, is_last: bool) -> bytes:
        return self._cipher.encrypt(_nonce(number, is_last=is_last), content, self._header.raw)

    def decrypt(self, number: int, frame: bytes, *, is_last: bool) -> bytes:
        try:
            return self._cipher.decrypt(_nonce(number, is_last=is_last), frame, self._header.raw)
        except InvalidTag as error:
            raise DamagedError(f"the encrypted {self._header.address} is not as it was written") from error


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes((is_last,))


def encrypted(chunks: Iterable[bytes], address: DocumentAddress, ring: KeyRing) -> Iterator[bytes]:
    key_id, salt, form = ring.to_write(), secrets.token_bytes(_SALT), address.form
    key = key_id.encode("ascii")
    resource = msgspec.json.encode([form.app, form.name, address.collection.value, address.document, address.name])
    raw = b"".join((MAGIC, bytes((len(key),)), key, salt, len(resource).to_bytes(_LENGTH, "big"), resource))
    header = FileHeader(key_id, salt, address, raw)
    cipher = _FrameCipher(header, ring)
    yield header.raw
    for number, (content, is_last) in enumerate(_cut(chunks, _FRAME)):
        yield cipher.encrypt(number, content, is_last=is_last)


def decrypted(chunks: Iterable[bytes], header: FileHeader, ring: KeyRing) -> Iterator[bytes]:
    """Yield the content of a file whose frames arrive in ``chunks``, without its header."""
    cipher = _FrameCipher(header, ring)
    for number, (frame, is_last) in enumerate(_cut(chunks, _ENCRYPTED_FRAME)):
        yield cipher.decrypt(number, frame, is_last=is_last)


def _cut(chunks: Iterable[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        begin = 0
        while len(buffer) - begin > size:
            yield bytes(buffer[begin : begin + size]), False
            begin += size
        del buffer[:begin]
    yield bytes(buffer), True


def may_begin(head: bytes | bytearray) -> bool:
    """Return whether a file with this beginning, however short, may be an encrypted one."""
    return bytes(head[: len(MAGIC)]) == MAGIC[: len(head)]


def authentic_header(head: bytes, ring: KeyRing) -> FileHeader | None:
    """Return the header of a file whose first frame a key of the ring decrypts; else ``None``.

    ``head`` are more than ``LONGEST_BEGINNING`` bytes from the beginning of the file, or all. The rest may be missing.
    """
    header = FileHeader.parse(head)
    if header is None or header.key_id not in ring.keys:
        return None
    first = head[len(header.raw) :][:_ENCRYPTED_FRAME]
    cipher = _FrameCipher(header, ring)
    for is_last in (False, True):
        with suppress(DamagedError):
            cipher.decrypt(0, first, is_last=is_last)
            return header
    return None


def read_header(file: BinaryIO) -> FileHeader | None:
    """Return the header of an open file; ``None`` where it has none. Raises ``OSError``."""
    file.seek(0)
    return FileHeader.parse(file.read(LONGEST_HEADER))


def open_file(file: BinaryIO, size: int, address: DocumentAddress, ring: KeyRing) -> PlainFile:
    """Return the plain content of an open file of ``size`` bytes, which must be encrypted for a resource.

    The first and last frames are decrypted at once: nothing is missing, and the beginning is intact.
    """
    with disk_errors("reading", address):
        header = read_header(file)
        if header is None:
            raise DamagedError(f"the encrypted {address} has lost its header")
        if header.address != address:
            raise DamagedError(f"the encrypted {address} is the file of another resource: {header.address}")
        return _FramedFile(file, size, header, ring)


def open_legacy_file(file: BinaryIO, size: int, ring: KeyRing) -> PlainFile | None:
    """Return the plain content of an open file of ``size`` bytes; ``None`` where the passwords do not decrypt it."""
    if size < _IV + _TAG:
        return None
    with disk_errors("reading an encrypted attachment"):
        return next((_LegacyFile(file, size, key) for key in ring.legacy if _is_genuine(file, size, key)), None)


class PlainFile(io.RawIOBase):
    """The plain content of an encrypted file, decrypted as it is read; ``size`` is in bytes. It closes ``file``.

    It has no descriptor: no server can send the file's own bytes by mistake.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__()
        self.file = file
        self.size = size
        self._at = 0

    @abstractmethod
    def _read_at(self, position: int, most: int) -> bytes: ...

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, fewer than asked for at times; none at the end."""
        wanted = self.size - self._at if size is None or size < 0 else size
        if self._at >= self.size or not wanted:
            return b""
        data = self._read_at(self._at, wanted)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("only from the beginning")
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self.file.close()
        super().close()


class _FramedFile(PlainFile):
    """Decrypts the frame of the position that is read, and keeps it for the next position."""

    def __init__(self, file: BinaryIO, size: int, header: FileHeader, ring: KeyRing) -> None:
        self._begin = len(header.raw)
        count = max(1, -((self._begin - size) // _ENCRYPTED_FRAME))  # an empty content has a frame too
        self._last = count - 1
        super().__init__(file, max(0, size - self._begin - count * _TAG))
        self._cipher = _FrameCipher(header, ring)
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
                self.file.seek(self._begin + number * _ENCRYPTED_FRAME)
            data = self.file.read(_ENCRYPTED_FRAME)
            self._file_at = number + 1
            self._kept = number, self._cipher.decrypt(number, data, is_last=number == self._last)
        return self._kept[1]


def _is_genuine(file: BinaryIO, size: int, key: bytes) -> bool:
    file.seek(size - _TAG)
    tag = file.read(_TAG)
    file.seek(0)
    decryptor = Cipher(algorithms.AES(key), modes.GCM(file.read(_IV), tag)).decryptor()
    left = size - _IV - _TAG
    while left and (piece := file.read(min(CHUNK, left))):
        decryptor.update(piece)
        left -= len(piece)
    try:
        decryptor.finalize()
    except InvalidTag:
        return False
    return left == 0


class _LegacyFile(PlainFile):
    """A file that was authenticated when it was opened."""

    def __init__(self, file: BinaryIO, size: int, key: bytes) -> None:
        super().__init__(file, size - _IV - _TAG)
        self._key = key
        file.seek(0)
        self._iv = file.read(_IV)
        self._stream: CipherContext | None = None
        self._next = 0

    def _read_at(self, position: int, most: int) -> bytes:
        if self._stream is None or position != self._next:
            block, skipped = divmod(position, _BLOCK)
            counter = self._iv + (2 + block).to_bytes(4, "big")
            self._stream = Cipher(algorithms.AES(self._key), modes.CTR(counter)).decryptor()
            self._stream.update(bytes(skipped))
            self.file.seek(_IV + position)
        data = self.file.read(min(most, self.size - position))
        self._next = position + len(data)
        return self._stream.update(data)
