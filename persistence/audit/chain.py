"""The chain of digests: each line has the digest of the line before it and its own, which covers both.

A line is ``{"n":NUMBER,"at":"INSTANT",...,"prev":"DIGEST","digest":"DIGEST"}``. ``digest`` is the SHA-256 of everything
before ``,"digest"``, or its HMAC-SHA-256 by a signing key, whose id is then in ``seal``. Numbers begin with 1 and have
no gaps, also across files.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from persistence.model.instants import Instant

_PURPOSE = b"audit"
_TAIL = b',"digest":"'
_DIGITS = 64
_TAIL_LENGTH = len(_TAIL) + _DIGITS + len('"}')
_RECORD_LENGTH = 160
ORIGIN = "0" * _DIGITS
"""The digest before the first line."""


@dataclass(frozen=True, slots=True)
class Seal:
    """How lines are digested: keyed by a signing key if there is an id, else plainly."""

    key_id: str = ""
    key: bytes = b""

    @classmethod
    def by(cls, key_id: str, secret: bytes) -> Seal:
        """Return the seal of a signing key. Its secret signs access tokens, so a key is derived from it."""
        return cls(key_id, hmac.digest(secret, _PURPOSE, "sha256"))

    def digest(self, text: bytes) -> str:
        return (hmac.digest(self.key, text, "sha256") if self.key_id else hashlib.sha256(text).digest()).hex()


UNSEALED = Seal()
SealOf = Callable[[str], Seal | None]
"""Finds the seal of a signing key by its id; ``None`` if the key is gone."""


class Head(NamedTuple):
    """The last line: its number and digest; the bytes of the file that it ends, and when that began (epoch seconds)."""

    number: int
    digest: str
    size: int
    began: int

    def record(self) -> bytes:
        """Return its record in the lock file, which has a fixed length."""
        return f"{self.number} {self.digest} {self.size} {self.began} ".ljust(_RECORD_LENGTH).encode()


START = Head(0, ORIGIN, 0, 0)
"""The head before the first line."""


def head_of(record: bytes) -> Head | None:
    """Read a record; ``None`` if it is empty or damaged."""
    parts = record.split()
    if len(parts) != len(Head._fields) or len(parts[1]) != _DIGITS:
        return None
    try:
        return Head(int(parts[0]), parts[1].decode("ascii"), int(parts[2]), int(parts[3]))
    except ValueError:
        return None


class ChainedLine(msgspec.Struct, frozen=True):
    """The fields of a line that the chain needs."""

    n: int
    at: str
    prev: str
    digest: str
    action: str
    seal: str = ""
    phase: str = ""
    begun: int = 0
    length: int = 0
    sha256: str = ""
    last: int = 0
    lost: int = 0


_decode = msgspec.json.Decoder(ChainedLine).decode


def chained(event: bytes, head: Head, at: Instant, seal: Seal) -> tuple[bytes, str]:
    """Return the line of an event that follows ``head``, with its line break, and its digest."""
    sealed = f',"seal":"{seal.key_id}"' if seal.key_id else ""
    text = b"".join(
        (f'{{"n":{head.number + 1},"at":"{at}",'.encode(), event[1:-1], f',"prev":"{head.digest}"{sealed}'.encode())
    )
    digest = seal.digest(text)
    return b"".join((text, _TAIL, digest.encode(), b'"}\n')), digest


def parsed(line: bytes, seal_of: SealOf) -> ChainedLine | None:
    """Read a line without its line break; ``None`` if it is damaged, or its digest differs.

    If its signing key is missing, the digest is not compared: ``verify`` reports such lines.
    """
    if line[-_TAIL_LENGTH : -_TAIL_LENGTH + len(_TAIL)] != _TAIL:
        return None
    try:
        found = _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    seal = seal_of(found.seal) if found.seal else UNSEALED
    if seal is not None and not hmac.compare_digest(seal.digest(line[:-_TAIL_LENGTH]), found.digest):
        return None
    return found
