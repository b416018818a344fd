"""The lines of the audit: events, the chain of digests over them, and the recovery of a file that was cut off.

A line is ``{"n":NUMBER,"at":"INSTANT",...,"prev":"DIGEST","digest":"DIGEST"}``. ``digest`` is the SHA-256 of everything
before ``,"digest"``, or its HMAC-SHA-256 by a signing key, whose id is then in ``seal``. Numbers begin with 1 and have
no gaps, also across files.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec.structs import replace

from persistence.limits import CHUNK, LONGEST_AUDIT_EVENT, LONGEST_AUDIT_LINE
from persistence.model.texts import Instant, json_line

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


BEGIN = "begin"
"""The phase of a line that is written before a change, when changes need one."""

REPAIRED, DISCARDED = "repaired", "discarded"
"""Actions of the audit itself: it closed a line that a crash had torn; it removed an old file by the settings."""


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The facts of a line; those that do not apply are left out.

    Of a request there are its ``id``, the other end of the connection (``peer``), the address that a proxy names
    (``forwarded``, which nobody has verified), the names of the API key and of a second one, the ``user`` that the
    caller names, and the ``status``. ``revision`` is the entity tag of what was read or stored. ``documents`` counts
    those of a request for many. Of a command there are its ``command``, the user of the system who runs it, ``outcome``
    and ``details``. ``begun`` is the number of the line of the phase ``BEGIN``. ``lost`` counts lines that could not be
    written before.
    """

    action: str
    phase: str = ""
    begun: int = 0
    id: str = ""
    app: str = ""
    form: str = ""
    collection: str = ""
    document: str = ""
    name: str = ""
    version: int = 0
    revision: str = ""
    documents: int | None = None
    status: int = 0
    user: str = ""
    key: str = ""
    second_key: str = ""
    peer: str = ""
    forwarded: str = ""
    token: bool = False
    command: str = ""
    system_user: str = ""
    outcome: str = ""
    details: dict[str, object] = {}
    length: int = 0
    sha256: str = ""
    file: str = ""
    last: int = 0
    lost: int = 0

    def encoded(self) -> bytes:
        """Return it as JSON on one line that is safe for a terminal. Details that are too long are left out."""
        line = json_line(self)
        return line if len(line) <= LONGEST_AUDIT_EVENT else json_line(replace(self, details={"left_out": len(line)}))


@dataclass(frozen=True, slots=True)
class Remains:
    """A file that does not end where the head says: its last line that counts, and a ``torn`` piece behind it."""

    last: Head | None
    size: int
    torn: TornPiece | None = None


@dataclass(frozen=True, slots=True)
class TornPiece:
    """Bytes of a damaged line: their length and SHA-256, both without a line break at their end (``ends_line``)."""

    length: int
    sha256: str
    ends_line: bool


def examined(file: BinaryIO, head: Head | None, seal_of: SealOf) -> Remains:
    """Examine an open file from the end of the head's line on, or all of it if it is shorter.

    Lines that follow the head count: their process was killed before it noted them. Without a head the last whole line
    counts; damage before it stays for ``verify`` to find.
    """
    size = file.seek(0, 2)
    is_known = head is not None and head.size <= size
    last = head if is_known else None
    at = end = head.size if head is not None and is_known else 0
    file.seek(at)
    for line in lines_of(file):
        at += len(line)
        found = parsed(line[:-1], seal_of) if line.endswith(b"\n") else None
        if is_known and (found is None or last is None or (found.n, found.prev) != (last.number + 1, last.digest)):
            break
        if found is not None:
            last, end = Head(found.n, found.digest, at, 0), at
    return Remains(last, size, None if end == size else piece_of(file, end, size))


def piece_of(file: BinaryIO, start: int, end: int) -> TornPiece:
    file.seek(end - 1)
    ends_line = file.read(1) == b"\n"
    left = length = end - start - ends_line
    hashing = hashlib.sha256()
    file.seek(start)
    while left and (chunk := file.read(min(CHUNK, left))):
        hashing.update(chunk)
        left -= len(chunk)
    return TornPiece(length, hashing.hexdigest(), ends_line)


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines with their line breaks; one that is too long comes in pieces, which do not parse."""
    while line := file.readline(LONGEST_AUDIT_LINE):
        yield line
