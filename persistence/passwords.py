"""Passwords of administrators: how they are kept, and how one that is shown is compared.

A person chooses a password, so it can be guessed, and its digest is slow (scrypt). One comparison takes some 100 ms and
16 MB, so each process makes one at a time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from typing import Annotated

import msgspec

from persistence.errors import BadRequestError
from persistence.limits import (
    LONGEST_PASSWORD_BYTES,
    SCRYPT_BLOCK,
    SCRYPT_COST,
    SCRYPT_MEMORY,
    SCRYPT_PARALLEL,
    SHORTEST_PASSWORD,
)
from persistence.model.instants import Instant, next_after

_SALT, _DIGEST = 16, 32
_comparing = threading.Lock()


class Password(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The password of an administrator, as the file of the keys has it; ``repr`` shows the name only."""

    name: str
    salt: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
    scrypt: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    created: Instant

    def __repr__(self) -> str:
        return f"Password({self.name!r})"


def made(name: str, text: str) -> Password:
    if len(text) < SHORTEST_PASSWORD:
        raise BadRequestError(f"a password has at least {SHORTEST_PASSWORD} characters")
    if len(_bytes(text)) > LONGEST_PASSWORD_BYTES:
        raise BadRequestError(f"a password has at most {LONGEST_PASSWORD_BYTES} bytes")
    salt = secrets.token_bytes(_SALT)
    return Password(name, salt.hex(), _digest(text, salt), next_after(None))


def is_right(text: str, kept: Password | None) -> bool:
    """Return whether a text is the password that is kept; one comparison takes as long where there is none."""
    if len(_bytes(text)) > LONGEST_PASSWORD_BYTES:
        return False
    found = _digest(text, bytes(_SALT) if kept is None else bytes.fromhex(kept.salt))
    return kept is not None and hmac.compare_digest(found, kept.scrypt)


def _digest(text: str, salt: bytes) -> str:
    cost, block, parallel = SCRYPT_COST, SCRYPT_BLOCK, SCRYPT_PARALLEL
    with _comparing:
        digest = hashlib.scrypt(
            _bytes(text), salt=salt, n=cost, r=block, p=parallel, maxmem=SCRYPT_MEMORY, dklen=_DIGEST
        )
    return digest.hex()


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
