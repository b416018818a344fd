"""Encrypted values: short texts, bound to the document and the place that they belong to.

A value is ``enc1:``, the id of its key, a colon, and the Base64 of nonce, cipher text and tag (AES-256-GCM). Its key is
derived for the document, so that a value of another document does not decrypt; the place in the document is
authenticated with it.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from persistence.crypto.encryption_keys import KeyRing, purpose
from persistence.errors import ConfigurationError, DamagedError
from persistence.model.addresses import Form

_PREFIX = "enc1:"
_NONCE = 12
_BETWEEN = "\x1f"


class ValueCipher:
    """Encrypts and decrypts the values of one document; ``place`` are the names that lead to a value in it."""

    def __init__(self, ring: KeyRing, form: Form, document: str) -> None:
        self._ring = ring
        self._form = form
        self._document = document
        self._cipher = lru_cache(8)(self._derived)

    @property
    def writing(self) -> str | None:
        """The id of the key that encrypts, ``None`` where there is none."""
        return self._ring.writing

    def encrypt(self, text: str, place: tuple[str, ...]) -> str:
        """Return the encrypted value of a text.

        Raises:
            ConfigurationError: there is no key that encrypts.
        """
        key_id = self._ring.to_write()
        nonce = secrets.token_bytes(_NONCE)
        data = nonce + self._cipher(key_id).encrypt(nonce, text.encode(), _aad(place))
        return f"{_PREFIX}{key_id}:{base64.b64encode(data).decode()}"

    def decrypt(self, value: str, place: tuple[str, ...]) -> str:
        """Return the text of an encrypted value, in this format or the real system's.

        Raises:
            ConfigurationError: its key is not here.
            DamagedError: it is no such value, or one of another document or place, or was changed.
        """
        key_id, data = _parts(value)
        if key_id is None:
            return _legacy_text(data, self._ring)
        try:
            return self._cipher(key_id).decrypt(data[:_NONCE], data[_NONCE:], _aad(place)).decode()
        except (InvalidTag, ValueError) as error:
            whose = f"{self._form} {self._document}"
            raise DamagedError(f"an encrypted value of {whose} is not as it was written") from error

    def is_current(self, value: str) -> bool:
        """Return whether a value is encrypted with the key that encrypts now."""
        try:
            return _parts(value)[0] == self._ring.writing
        except DamagedError:
            return False

    def _derived(self, key_id: str) -> AESGCM:
        info = purpose("value", self._form.app, self._form.name, self._document)
        return AESGCM(self._ring.derived(key_id, None, info))


def key_of(value: str) -> str | None:
    """Return the id of the key of an encrypted value; ``None`` of one in another format, or damaged."""
    try:
        return _parts(value)[0]
    except DamagedError:
        return None


def _parts(value: str) -> tuple[str | None, bytes]:
    """Return the id of the key, ``None`` for the real system's format, and the bytes."""
    key_id, text = None, value.strip()
    if text.startswith(_PREFIX):
        key_id, _, text = text.removeprefix(_PREFIX).partition(":")
    try:
        return key_id, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DamagedError("an encrypted value is neither in this service's format nor in the real system's") from error


def _aad(place: tuple[str, ...]) -> bytes:
    return _BETWEEN.join(place).encode()


def _legacy_text(data: bytes, ring: KeyRing) -> str:
    """Return the text of a value.

    Raises:
        ConfigurationError: there is no password.
        DamagedError: no password decrypts it.
    """
    if not ring.legacy:
        raise ConfigurationError("a value in the real system's format is to be read, and there is no password for it")
    for key in ring.legacy:
        try:
            return AESGCM(key).decrypt(data[:_NONCE], data[_NONCE:], None).decode()
        except (InvalidTag, ValueError):
            continue
    raise DamagedError("a value in the real system's format was changed, or has another password")
