"""Encrypted values: short texts, bound to the document and the place that they belong to, and to each other.

A value is ``enc2:``, the id of its key, a colon, and the Base64 of nonce, cipher text and tag (AES-256-GCM). Its key is
derived for the document, so that a value of another document does not decrypt; the place in the document is
authenticated with it: the names of the elements, each with its number among its siblings of that name. Values that are
``enc1:`` were authenticated with the names alone, and are read.

The seal of form data is such a value itself: the SHA-256 of all of its encrypted values in their order. So none can be
removed, replaced by plain text, or taken from another revision. Data with values that are ``enc2:`` has one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from contextlib import suppress
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from persistence.crypto.encryption_keys import KeyRing, purpose
from persistence.errors import ConfigurationError, DamagedError
from persistence.model.addresses import Form
from persistence.model.versions import Place

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
