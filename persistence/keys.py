"""API keys: the file that keeps their digests, and how a key that is shown is found among them.

A key is 256 random bits, written as 64 hexadecimal digits so that no shell, URL or header has to escape it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from persistence.errors import BadRequestError, ConflictError, NotFoundError
from persistence.model.instants import Instant, next_after
from persistence.storage.key_files import KeyFile

TRUSTED = "trusted"
"""Name of a caller in the log that needs no key; so no key may have it."""

_BITS = 256
_MOST = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An API key as its file has it.

    A slow digest, as for passwords, would make guessing slower; but 256 random bits cannot be guessed, and every
    request would pay for it.
    """

    name: Annotated[str, msgspec.Meta(pattern=rf"^{_NAME.pattern}\Z")]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    created: Instant


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1]
    keys: tuple[Key, ...]


_decode = msgspec.json.Decoder(_File).decode


def name_of(secret: str, keys: Iterable[Key]) -> str | None:
    """Return the name of the key that is ``secret``; ``None`` where it is not one of them.

    All are compared, each in constant time: the time that takes reveals nothing about them.
    """
    digest = _digest(secret)
    name = None
    for key in keys:
        if hmac.compare_digest(digest, key.sha256):
            name = key.name
    return name


class Keys(KeyFile[tuple[Key, ...]]):
    """The keys of one file; ``read`` returns them as they are now, none where there is no file."""

    def __init__(self, path: str, *, tree: str) -> None:
        super().__init__(path, tree=tree, what="API keys", decode=lambda data, _: _decode(data).keys, nothing=())

    def add(self, name: str) -> str:
        """Make a key and keep its digest; the key itself is in the result only.

        Raises:
            BadRequestError: the name is not 1 to 64 letters, digits or ``._@-``.
            ConflictError: there is a key of that name, or there are too many.
            BusyError: another command has been changing the keys for 10 seconds.
            StartupError: the keys or the data directory belong to another user.
        """
        if not _NAME.fullmatch(name) or name == TRUSTED:
            raise BadRequestError(f"{name!r} cannot be the name of a key: 1 to 64 letters, digits or ._@-")
        with self.changing() as keys:
            if any(key.name == name for key in keys):
                raise ConflictError(f"there is a key {name} already: remove it first, or choose another name")
            if len(keys) >= _MOST:
                raise ConflictError(f"there are {_MOST} keys already")
            secret = secrets.token_hex(_BITS // 8)
            self.write(_File(1, (*keys, Key(name, _digest(secret), next_after(None)))))
        return secret

    def remove(self, name: str) -> None:
        """Forget a key: it opens nothing from now on.

        Raises:
            NotFoundError: no key has that name.
            BusyError, StartupError: as ``add``.
        """
        with self.changing() as keys:
            left = tuple(key for key in keys if key.name != name)
            if len(left) == len(keys):
                raise NotFoundError(f"there is no key {name}")
            self.write(_File(1, left))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
