"""The keys of encryption at rest in use: one encrypts, all decrypt; and what is derived from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from persistence.errors import ConfigurationError

KEY_BYTES = 32
_LEGACY_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class KeyRing:
    """``keys`` by their ids; that of the id ``writing`` encrypts. ``legacy`` are for reading the real system's format.

    Both are never shown: neither in a log nor by ``repr``.
    """

    writing: str | None
    keys: Mapping[str, bytes]
    legacy: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return f"KeyRing(writing={self.writing!r}, keys={sorted(self.keys)!r})"

    def to_write(self) -> str:
        """The id of the key that encrypts.

        Raises:
            ConfigurationError: there is none: what must be encrypted must not be written.
        """
        if self.writing is None:
            raise ConfigurationError(
                "there is no encryption key, and this must be encrypted: make one with persistence key new"
            )
        return self.writing

    def derived(self, key_id: str, salt: bytes | None, info: bytes) -> bytes:
        """A key for one purpose, made of a key by HKDF-SHA-256 (RFC 5869).

        Raises:
            ConfigurationError: there is no key of that id here.
        """
        secret = self.keys.get(key_id)
        if secret is None:
            raise ConfigurationError(f"this was encrypted with the key {key_id}, which is not among those here")
        return HKDF(SHA256(), KEY_BYTES, salt, info).derive(secret)


def purpose(name: str, *parts: str) -> bytes:
    """What a derived key is for, with no two purposes alike."""
    return msgspec.json.encode([name, *parts])


def legacy_keys(passwords: Iterable[str]) -> tuple[bytes, ...]:
    """The keys that the real system derives from its passwords; blank ones count as none (spec forms 4.4)."""
    return tuple(hashlib.sha256(each.encode()).digest()[:_LEGACY_KEY_BYTES] for each in passwords if each.strip())
