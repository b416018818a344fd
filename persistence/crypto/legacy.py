"""Reading content that the real system has encrypted with AES-128-GCM: vector, cipher text and tag (spec forms 4.4).

There is one tag for a whole file, at its end: so a file is read twice, once to authenticate it and once to be sent. GCM
encrypts as CTR does, which lets a range be decrypted by itself.
"""

from __future__ import annotations

from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from persistence.crypto.encryption_keys import KeyRing
from persistence.crypto.frames import PlainFile
from persistence.errors import ConfigurationError, DamagedError, disk_errors
from persistence.limits import CHUNK

_IV = 12
_TAG = 16
_BLOCK = 16


def decrypt_value(data: bytes, ring: KeyRing) -> str:
    """Return the text of a value.

    Raises:
        ConfigurationError: there is no password.
        DamagedError: no password decrypts it.
    """
    if not ring.legacy:
        raise ConfigurationError("a value in the real system's format is to be read, and there is no password for it")
    for key in ring.legacy:
        try:
            return AESGCM(key).decrypt(data[:_IV], data[_IV:], None).decode()
        except (InvalidTag, ValueError):
            continue
    raise DamagedError("a value in the real system's format was changed, or has another password")


def open_file(file: BinaryIO, size: int, ring: KeyRing) -> PlainFile | None:
    """Return the plain content of an open file of ``size`` bytes; ``None`` where the passwords do not decrypt it.

    Raises:
        DiskError: it cannot be read.
    """
    if size < _IV + _TAG:
        return None
    with disk_errors("reading an encrypted attachment"):
        return next((_LegacyFile(file, size, key) for key in ring.legacy if _is_genuine(file, size, key)), None)


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
            self._stream = self._stream_from(position)
        data = self.file.read(min(most, self.size - position))
        self._next = position + len(data)
        return self._stream.update(data)

    def _stream_from(self, position: int) -> CipherContext:
        """Begin CTR at a position; the content's first block has the number 2 (NIST SP 800-38D 7.1)."""
        block, skipped = divmod(position, _BLOCK)
        counter = self._iv + (2 + block).to_bytes(4, "big")
        stream = Cipher(algorithms.AES(self._key), modes.CTR(counter)).decryptor()
        stream.update(bytes(skipped))
        self.file.seek(_IV + position)
        return stream
