"""The keys of encryption at rest, kept in a file or given from outside, and the values that they encrypt."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from persistence.errors import ConfigurationError, ConflictError, DamagedError, NotFoundError, StartupError
from persistence.model.addresses import Form
from persistence.model.texts import Instant, next_after
from persistence.model.versions import Place
from persistence.storage.root import KeyFile

_KEY_BYTES = 32
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
    """The keys of a file, or instead of it those ``given`` (``ID:HEX``), of which the first encrypts.

    The file must be outside of ``trees``: a copy of a tree must not hold its keys. The user of the first tree must be
    able to read it. ``passwords`` are the real system's, the main one first.
    """

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

    def is_current(self, value: str) -> bool:
        """Return whether a value is encrypted with the key that encrypts now, in the format of now."""
        try:
            return is_bound(value) and _parts(value)[0] == self._ring.writing
        except DamagedError:
            return False

    def damage(self, what: str) -> DamagedError:
        return DamagedError(f"{what} of {self._form} {self._document} is not as it was written")


class DataCipher:
    """Encrypts or decrypts the values of one content of form data, all in their order, and seals or verifies them."""

    def __init__(self, cipher: ValueCipher) -> None:
        self._cipher = cipher
        self._digest = hashlib.sha256()
        self._needs_seal = False
        self.count = 0

    def encrypt(self, text: str, place: Place) -> str:
        return self._noted(self._cipher.encrypt(text, place))

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
