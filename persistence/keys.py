"""API keys: the file that keeps their digests, and how a key that is shown is found among them.

A key is 256 random bits, written as 64 hexadecimal digits so that no shell, URL or header has to escape it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import msgspec

from persistence.errors import BadRequestError, ConflictError, DamagedError, NotFoundError, disk_errors
from persistence.model.instants import Instant, next_after
from persistence.store import files, locks, owner

TRUSTED = "trusted"
"""What the log calls a caller that needs no key; so no key may be called that."""

_BITS = 256
_MODE = 0o600
_MOST = 1000
_PATIENCE = 10.0
_SETTLED = 2_000_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of a key.

    A slow digest, as for passwords, would make guessing dearer; nobody guesses 256 random bits, and every request would
    pay for it.
    """

    name: Annotated[str, msgspec.Meta(pattern=rf"^{_NAME.pattern}\Z")]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    created: Instant


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1]
    keys: tuple[Key, ...]


_decode = msgspec.json.Decoder(_File).decode


def name_of(secret: str, keys: Iterable[Key]) -> str | None:
    """The name of the key that is ``secret``; ``None`` where it is none of them.

    All are compared, each in constant time: how long that takes tells nothing about any of them.
    """
    digest = _digest(secret)
    name = None
    for key in keys:
        if hmac.compare_digest(digest, key.sha256):
            name = key.name
    return name


class Keys:
    """The keys of one file. ``tree`` is the data directory, whose user must be able to read it.

    Every method raises ``DiskError`` for what the operating system refuses, and ``DamagedError`` for a file that is not
    as ``add`` and ``remove`` write it: a file in doubt is never taken for one without keys.
    """

    def __init__(self, path: str, *, tree: str) -> None:
        self._path = os.path.abspath(path)
        self._tree = os.path.abspath(tree)
        self._seen: tuple[object, tuple[Key, ...]] = (None, ())

    def read(self) -> tuple[Key, ...]:
        """The keys as they are now; none where there is no file. Costs one ``stat`` unless the file has changed."""
        with disk_errors("reading the API keys"):
            try:
                version = _version(os.stat(self._path))
            except FileNotFoundError:
                if os.path.islink(self._path):
                    raise DamagedError(f"the API keys {self._path} are a link that leads nowhere") from None
                return ()
            known, keys = self._seen
            return keys if version == known else self._load()

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
        with self._changing() as keys:
            if any(key.name == name for key in keys):
                raise ConflictError(f"there is a key {name} already: remove it first, or choose another name")
            if len(keys) >= _MOST:
                raise ConflictError(f"there are {_MOST} keys already")
            secret = secrets.token_hex(_BITS // 8)
            self._write((*keys, Key(name, _digest(secret), next_after(None))))
        return secret

    def remove(self, name: str) -> None:
        """Forget a key: it opens nothing from now on.

        Raises:
            NotFoundError: there is no key of that name.
            BusyError, StartupError: as ``add``.
        """
        with self._changing() as keys:
            left = tuple(key for key in keys if key.name != name)
            if len(left) == len(keys):
                raise NotFoundError(f"there is no key {name}")
            self._write(left)

    @contextmanager
    def _changing(self) -> Iterator[tuple[Key, ...]]:
        """The keys as they are, with the right to replace them for a block."""
        with disk_errors("changing the API keys"):
            self._require_owner()
            files.ensure_directory(os.path.dirname(self._path))
            lock = f"{self._path}.lock"
            files.ensure_file(lock)
            with locks.alone(lock, "another command is changing the API keys", timeout=_PATIENCE):
                yield self._load()

    def _require_owner(self) -> None:
        """A file that root makes would be closed to the service, and so would the one that replaces the service's."""
        if files.exists(self._path):
            owner.require_user(self._path, os.stat(self._path).st_uid)
        elif files.exists(self._tree):
            owner.require(self._tree)

    def _load(self) -> tuple[Key, ...]:
        try:
            descriptor = files.open_to_read(self._path)
        except FileNotFoundError:
            return ()
        try:
            status = os.fstat(descriptor)
            keys = _decode(files.read_small(descriptor)).keys
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise DamagedError(f"the API keys in {os.path.basename(self._path)} cannot be read: {error}") from error
        finally:
            os.close(descriptor)
        # The clock of a file system ticks in milliseconds: a file that has just changed may change again unseen.
        if time.time_ns() - status.st_ctime_ns > _SETTLED:
            self._seen = (_version(status), keys)
        return keys

    def _write(self, keys: tuple[Key, ...]) -> None:
        text = msgspec.json.format(msgspec.json.encode(_File(1, keys)), indent=2)
        files.write_durably(self._path, text + b"\n", _MODE)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
