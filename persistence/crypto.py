"""Encryption at rest: keys, values and files in their own format, and reading the real system's (spec forms 4)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import io
import os
import re
import secrets
import stat
from abc import abstractmethod
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, BinaryIO, Literal

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from persistence.errors import ConfigurationError, ConflictError, DamagedError, NotFoundError, StartupError, disk_errors
from persistence.limits import CHUNK
from persistence.model.addresses import Collection, DocumentAddress, Form
from persistence.model.queries import ControlFilter, Query, TextMatch
from persistence.model.texts import Instant, next_after
from persistence.model.versions import Place
from persistence.storage.root import KeyFile

_KEY_BYTES = 32
_TOKEN_BYTES = 16
_MOST = 100
_OTHERS = 0o077
_ID = r"[0-9a-z]{1,16}"
_DIGITS = r"[0-9a-f]{64}"
_GIVEN = re.compile(rf"({_ID}):({_DIGITS})", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys in use by id: ``writing`` encrypts, ``legacy`` read the real system's format. ``repr`` hides keys."""

    writing: str | None
    keys: Mapping[str, bytes]
    legacy: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return f"KeyRing(writing={self.writing!r}, keys={sorted(self.keys)!r})"

    def to_write(self) -> str:
        if self.writing is None:
            raise ConfigurationError(
                "this must be encrypted, and no encryption key exists: make one with persistence encryption-key new"
            )
        return self.writing

    def derived(self, key_id: str, salt: bytes | None, info: bytes) -> bytes:
        """Derive a key for one purpose by HKDF-SHA-256 (RFC 5869)."""
        secret = self.keys.get(key_id)
        if secret is None:
            raise ConfigurationError(f"this was encrypted with the key {key_id}, which is missing here")
        return HKDF(SHA256(), _KEY_BYTES, salt, info).derive(secret)

    def token(self, key_id: str, form: Form, control: str, text: str) -> str:
        """Return what stands for a value of an encrypted control in the index: equal for equal values of the form."""
        key = self.derived(key_id, None, purpose("token", form.app, form.name, control))
        digest = hmac.digest(key, text.encode(errors="surrogatepass"), "sha256")[:_TOKEN_BYTES]
        return f"{key_id}:{digest.hex()}"

    def with_tokens(self, query: Query, form: Form) -> Query:
        """Return a query whose exact conditions on controls find encrypted values, too, by any of the keys."""

        def with_own(each: ControlFilter) -> ControlFilter:
            if each.match is not TextMatch.EXACT:
                return each
            control = each.path.rpartition("/")[2]
            own = (self.token(key_id, form, control, each.text) for key_id in self.keys)
            return replace(each, tokens=(*each.tokens, *own))

        return replace(query, controls=tuple(map(with_own, query.controls)))


class EncryptionKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key as the file has it; ``secret`` are 64 hex digits, and ``repr`` does not show them."""

    id: Annotated[str, msgspec.Meta(pattern=rf"^{_ID}\Z")]
    secret: Annotated[str, msgspec.Meta(pattern=rf"^{_DIGITS}\Z")]
    created: Instant

    def __repr__(self) -> str:
        return f"EncryptionKey({self.id!r})"


class KeyList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys, oldest first; the last one encrypts, and the others only decrypt."""

    format: Literal[1]
    keys: tuple[EncryptionKey, ...]


_decode = msgspec.json.Decoder(KeyList).decode


class EncryptionKeys:
    """The keys of a file, or instead of it those ``given`` (``ID:HEX``), of which the first encrypts."""

    # The file must be outside of ``trees``: a copy of a tree must not hold its keys. The user of the first tree must be
    # able to read it. ``passwords`` are the real system's, the main one first.
    def __init__(
        self, path: str, *, trees: Iterable[str], given: Iterable[str] = (), passwords: Iterable[str] = ()
    ) -> None:
        own, roots = os.path.realpath(path), [os.path.realpath(tree) for tree in trees]
        if any(os.path.commonpath((own, root)) == root for root in roots):
            raise StartupError(f"the encryption keys {path} must not lie in a data directory, which they protect")
        self._legacy = legacy_keys(passwords)
        self._given = self._ring_of(_parsed(given))
        self._path, self._tree = path, roots[0]
        self._file = self._at(path)

    def ring(self) -> KeyRing:
        """Return the keys in use. Costs one ``stat`` unless the file has changed."""
        return self._given if self._given.keys else self._file.read()[1]

    def list(self) -> tuple[EncryptionKey, ...]:
        """Return the keys of the file, oldest first."""
        return self._file.read()[0].keys

    @property
    def are_given(self) -> bool:
        """Return whether the keys come from outside, so that the file is ignored."""
        return bool(self._given.keys)

    def new(self) -> str:
        """Make a key, which encrypts from now on, and return its id; the others stay for reading."""
        if self.are_given:
            raise ConflictError("the encryption keys are given in the environment: put a new one first there")
        with self._file.changing() as (known, _):
            if len(known.keys) >= _MOST:
                raise ConflictError(f"there are {_MOST} encryption keys already")
            taken = {key.id for key in known.keys}
            free = next(each for each in iter(lambda: secrets.token_hex(4), "") if each not in taken)
            key = EncryptionKey(free, secrets.token_hex(_KEY_BYTES), next_after(None))
            self._file.write(KeyList(1, (*known.keys, key)))
        return free

    def retire(self, key_id: str) -> str:
        """Move a key from the ring to a file of its own, which older backups may need, and return its path."""
        with self._file.changing() as (known, _):
            self.require_retirable(key_id)
            base, extension = os.path.splitext(self._path)
            path = f"{base}.retired-{key_id}{extension}"
            (retired,) = (each for each in known.keys if each.id == key_id)
            self._at(path).write(KeyList(1, (retired,)))  # first: it is nowhere else
            self._file.write(KeyList(1, tuple(each for each in known.keys if each.id != key_id)))
        return path

    def require_retirable(self, key_id: str) -> None:
        """Check that a key is in the file, and that another one encrypts."""
        if self.are_given:
            raise ConflictError("the encryption keys are given in the environment: leave the key out there")
        if key_id not in (ring := self.ring()).keys:
            raise NotFoundError(f"there is no encryption key {key_id}")
        if key_id == ring.writing:
            raise ConflictError(f"{key_id} encrypts: make another key first with persistence encryption-key new")

    def _at(self, path: str) -> KeyFile[tuple[KeyList, KeyRing]]:
        nothing = KeyList(1, ()), self._ring_of(())
        return KeyFile(path, tree=self._tree, what="encryption keys", decode=self._read, nothing=nothing)

    def _read(self, data: bytes, status: os.stat_result) -> tuple[KeyList, KeyRing]:
        if stat.S_IMODE(status.st_mode) & _OTHERS:
            raise ConfigurationError(f"the encryption keys in {self._file.name} can be read by other users: chmod 600")
        known = _decode(data)
        if len({key.id for key in known.keys}) < len(known.keys):
            raise ValueError("two keys have the same id")
        return known, self._ring_of((key.id, key.secret) for key in reversed(known.keys))

    def _ring_of(self, keys: Iterable[tuple[str, str]]) -> KeyRing:
        by_id = {key_id: bytes.fromhex(secret) for key_id, secret in keys}
        return KeyRing(next(iter(by_id), None), by_id, self._legacy)


def purpose(name: str, *parts: str) -> bytes:
    """Encode the purpose of a derived key; different purposes have different codes."""
    return msgspec.json.encode([name, *parts])


def legacy_keys(passwords: Iterable[str]) -> tuple[bytes, ...]:
    """Derive the keys of the real system's passwords; blank ones count as none (spec forms 4.4)."""
    return tuple(hashlib.sha256(each.encode()).digest()[:16] for each in passwords if each.strip())


def _parsed(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Split texts into ids and secrets; a text that is wrong is not repeated, because it may be nearly a key."""
    pairs: list[tuple[str, str]] = []
    for number, text in enumerate(texts, 1):
        match = _GIVEN.fullmatch(text.strip())
        if match is None or match[1] in dict(pairs):
            raise StartupError(
                f"encryption_key: key {number} is not an id of its own (a to z, 0 to 9), a colon and 64 hex digits"
            )
        pairs.append((match[1], match[2]))
    return pairs


# Encrypted values: short texts, bound to the document and the place that they belong to, and to each other.
#
# A value is ``enc2:``, the id of its key, a colon, and the Base64 of nonce, cipher text and tag (AES-256-GCM). Its
# key is derived for the document, so that a value of another document does not decrypt; the place in the document is
# authenticated with it: the names of the elements, each with its number among its siblings of that name. Values that
# are ``enc1:`` were authenticated with the names alone, and are read.
#
# The seal of form data is such a value itself: the SHA-256 of all of its encrypted values in their order. So none can
# be removed, replaced by plain text, or taken from another revision. Data with values that are ``enc2:`` has one.


_PREFIX, _OLD_PREFIX = "enc2:", "enc1:"
_NONCE = 12
_BETWEEN = "\x1f"
_OF_SEAL: Place = (("", 1), ("values", 1))
"""The place of a seal; no element has it."""


class ValueCipher:
    """Encrypts and decrypts the values of one document; ``place`` leads to a value in it."""

    def __init__(self, ring: KeyRing, form: Form, document: str) -> None:
        self._ring = ring
        self.writing = ring.writing
        self._form = form
        self._document = document
        self._cipher = lru_cache(8)(
            lambda key_id: AESGCM(ring.derived(key_id, None, purpose("value", form.app, form.name, document)))
        )

    def encrypt(self, text: str, place: Place) -> str:
        key_id = self._ring.to_write()
        nonce = secrets.token_bytes(_NONCE)
        data = nonce + self._cipher(key_id).encrypt(nonce, text.encode(), _aad(place))
        return f"{_PREFIX}{key_id}:{base64.b64encode(data).decode()}"

    def decrypt(self, value: str, place: Place) -> str:
        """Return the text of an encrypted value, in this format or the real system's."""
        key_id, data = _parts(value)
        if key_id is None:
            if not self._ring.legacy:
                raise ConfigurationError("no password is configured for a value in the real system's format")
            for key in self._ring.legacy:
                with suppress(InvalidTag, ValueError):
                    return AESGCM(key).decrypt(data[:_NONCE], data[_NONCE:], None).decode()
            raise DamagedError("a value in the real system's format was changed, or has another password")
        bound = _aad(place) if is_bound(value) else _BETWEEN.join(name for name, _ in place).encode()
        try:
            return self._cipher(key_id).decrypt(data[:_NONCE], data[_NONCE:], bound).decode()
        except (InvalidTag, ValueError) as error:
            raise self.damage("an encrypted value") from error

    def token(self, text: str, control: str) -> str:
        return self._ring.token(self._ring.to_write(), self._form, control, text)

    def is_current(self, value: str, token: str | None = None) -> bool:
        """Return whether a value, and its token, if any, are made with the key that encrypts now, as they are now."""
        try:
            is_bound_now = is_bound(value) and _parts(value)[0] == self.writing
        except DamagedError:
            return False
        return is_bound_now and (token is None or token.partition(":")[0] == self.writing)

    def damage(self, what: str) -> DamagedError:
        return DamagedError(f"{what} of {self._form} {self._document} is not as it was written")


class DataCipher:
    """Encrypts or decrypts the values of one content of form data, all in their order, and seals or verifies them.

    Values at the paths ``with_token``, names from below the root element, have tokens.
    """

    def __init__(self, cipher: ValueCipher, with_token: Container[tuple[str, ...]] = ()) -> None:
        self._cipher = cipher
        self._with_token = with_token
        self._digest = hashlib.sha256()
        self._needs_seal = False
        self.count = 0

    def encrypt(self, text: str, place: Place) -> tuple[str, str | None]:
        path = tuple(name for name, _ in place)
        token = self._cipher.token(text, path[-1]) if path in self._with_token else None
        return self._noted(self._cipher.encrypt(text, place)), token

    def decrypt(self, value: str, place: Place) -> str:
        return self._cipher.decrypt(self._noted(value), place)

    def seal(self) -> str:
        return self._cipher.encrypt(self._digest.hexdigest(), _OF_SEAL)

    def verify(self, seal: str | None) -> None:
        """Compare the values with their seal, when all are decrypted."""
        if seal is None and not self._needs_seal:  # older values, or none
            return
        text = self._cipher.decrypt(seal, _OF_SEAL) if seal is not None and is_bound(seal) else ""
        if not hmac.compare_digest(text, self._digest.hexdigest()):
            raise self._cipher.damage("the set of encrypted values")

    def _noted(self, value: str) -> str:
        text = value.strip()
        self.count += 1
        self._needs_seal |= is_bound(text)
        self._digest.update(f"{text}\n".encode())
        return value


def key_of(value: str) -> str | None:
    """Return the id of the key of an encrypted value; ``None`` for another format, or damage."""
    try:
        return _parts(value)[0]
    except DamagedError:
        return None


def _parts(value: str) -> tuple[str | None, bytes]:
    key_id, text = None, value.strip()
    if text.startswith((_PREFIX, _OLD_PREFIX)):
        _, key_id, text = (*text.split(":", 2), "")[:3]
    try:
        return key_id, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DamagedError("an encrypted value is neither in this service's format nor in the real system's") from error


def is_bound(value: str) -> bool:
    """Return whether a value is bound to its place among its siblings, and to the other values by a seal."""
    return value.strip().startswith(_PREFIX)


def _aad(place: Place) -> bytes:
    return _BETWEEN.join(f"{name}[{number}]" for name, number in place).encode()


# Encrypted files: a header in plain text, and the content in frames that are encrypted one by one.
#
# ::
#
#     header   magic and version   9 bytes
#              id of the key       1 byte for its length, then ASCII
#              salt                32 random bytes
#              resource            2 bytes for its length, then the JSON list of application, form, collection, document
#                                  and file name
#     frames   65,536 bytes of content each (the last one as many as are left, or none), encrypted with AES-256-GCM, and
#              the tag of 16 bytes
#
# The key of a file is derived from a key of the ring with the salt, for this header. The nonce of a frame is its number
# and whether it is the last one, and the header is authenticated with each: so a frame that is changed, moved, missing
# or of another file does not decrypt, nor does any under a changed header. A file in another's place is one whose
# header names another resource. Every frame can be decrypted by itself, which serves ranges.
#
# The real system's files are read, too: AES-128-GCM with the vector before the cipher text and one tag for the whole
# file at its end (spec forms 4.4). Such a file is read twice, once to authenticate it and once to be sent. GCM encrypts
# as CTR does, which lets a range be decrypted by itself.


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
    """Return the header of a file whose first frame a key of the ring decrypts; else ``None``."""
    # ``head`` are more than ``LONGEST_BEGINNING`` bytes from the beginning of the file, or all. The rest may be
    # missing.
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
    """Return the plain content of an open file of ``size`` bytes, which must be encrypted for a resource."""
    # The first and last frames are decrypted at once: nothing is missing, and the beginning is intact.
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
    """The plain content of an encrypted file, decrypted as it is read; ``size`` is in bytes. It closes ``file``."""

    # It has no descriptor: no server can send the file's own bytes by mistake.
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
