"""The objects of one bucket, their contents and those of one document: the only user of the library.

Texts of the library and of the store are never shown: they have keys, addresses and whatever a store puts into its
answers. A line of our own names the place, and the store's code of the error.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from persistence.closable import taking
from persistence.errors import BadRequestError, BusyError, DamagedError, DiskFullError, PersistenceError
from persistence.limits import AT_ONCE, KEYS_AT_ONCE, LARGEST_PIECE, LARGEST_SINGLE, MOST_PARTS, PART
from persistence.model.network_addresses import Bucket, object_endpoint
from persistence.model.sidecar import digest_text
from persistence.storage.storage import DocumentFile, DocumentFiles

if TYPE_CHECKING:
    from obstore.store import S3Config


_RETRY_AFTER = 5
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>")
_MISSING = re.compile(r"Missing (?:AccessKeyId|SecretAccessKey)")
_STATUS = re.compile(r"status code: (\d{3})")
_FULL = {"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "EntityTooLarge"}


@dataclass(frozen=True, slots=True)
class ObjectLimits:
    """Seconds to connect and for an answer, and how many calls of a process may be under way."""

    connect: float
    timeout: float
    calls: int


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object in a list: its key below the prefix, its size in bytes, and its instant, by the store's clock."""

    key: str
    size: int
    stored: datetime


class Objects:
    """The objects of a place. Keys are relative to its prefix.

    Methods raise ``BusyError`` where the store cannot be used now, and ``DiskFullError`` where it is full.
    """

    def __init__(self, place: Bucket, limits: ObjectLimits) -> None:
        """Connect to nothing yet: a process must have forked before the first call."""
        self.place = place
        self._limits = limits
        self._turns = threading.BoundedSemaphore(limits.calls)

    @cached_property
    def _store(self) -> S3Store:
        place, limits = self.place, self._limits
        config: S3Config = {"disable_bulk_delete": True}  # not every store has it
        if place.endpoint:
            config["endpoint"] = place.endpoint
        if place.region:
            config["region"] = place.region
        with self._translated("opening"):
            store = S3Store(
                place.name,
                prefix=place.prefix or None,
                config=config,
                client_options={
                    "allow_http": True,  # of an endpoint that is named so
                    "connect_timeout": timedelta(seconds=limits.connect),
                    "timeout": timedelta(seconds=limits.timeout),
                },
                retry_config={
                    "max_retries": 2,
                    "retry_timeout": timedelta(seconds=limits.timeout),
                    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
                },
            )
            for name in ("endpoint", "aws_endpoint_url_s3"):
                try:
                    object_endpoint(str(store.config.get(name) or ""))  # else the library would panic
                except BadRequestError as error:
                    raise BusyError(
                        f"the endpoint of the environment (AWS_ENDPOINT_URL) {error}", _RETRY_AFTER
                    ) from None
            return store

    def size(self, key: str) -> int | None:
        with self._calling("looking at a body"):
            try:
                size: int = obstore.head(self._store, key)["size"]
            except FileNotFoundError:
                next(obstore.list(self._store, chunk_size=1), None)  # raises without the bucket
                return None
            return size

    def read(self, key: str, start: int, end: int) -> memoryview | None:
        """Return the bytes of an object from one offset to another."""
        with self._calling("reading a body"):
            try:
                found = memoryview(obstore.get_range(self._store, key, start=start, end=end))
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None
            except BaseError as error:
                if _status_of(error) == "416":
                    raise DamagedError(f"a body in {self.place} ends before byte {start}") from None
                raise
        if len(found) != end - start:
            raise DamagedError(f"a body in {self.place} ends {end - start - len(found)} bytes early")
        return found

    def put(self, key: str, file: BinaryIO, size: int) -> None:
        """Store an object of ``size`` bytes, wholly or not at all, and never over another one.

        A large one is sent in parts. The library has no condition for that: its key has a random id, which no other
        object has.
        """
        with self._calling("storing a body"):
            try:
                if size <= LARGEST_SINGLE:
                    obstore.put(self._store, key, file.read(size), mode="create", use_multipart=False)
                else:
                    part = max(PART, -(-size // MOST_PARTS))
                    path = Path(f"/proc/self/fd/{file.fileno()}")  # which the library reads without a copy of each part
                    obstore.put(self._store, key, path, use_multipart=True, chunk_size=part, max_concurrency=AT_ONCE)
            except AlreadyExistsError:  # the answer of the first attempt was lost
                if obstore.head(self._store, key)["size"] != size:
                    raise DamagedError(f"{self.place} has another object under the key of a new body") from None

    def remove(self, keys: list[str]) -> None:
        for begin in range(0, len(keys), KEYS_AT_ONCE):
            with self._calling("removing bodies"):
                obstore.delete(self._store, keys[begin : begin + KEYS_AT_ONCE])

    def listed(self, below: str = "") -> Iterator[ListedObject]:
        """Yield the objects below the names of a key, in the order of keys; pages are asked for as they are needed."""
        with self._translated("listing bodies"):
            pages = obstore.list(self._store, below or None, chunk_size=KEYS_AT_ONCE)
        while True:
            with self._calling("listing bodies"):
                page = next(pages, None)
            if page is None:
                return
            yield from (ListedObject(each["path"], each["size"], each["last_modified"]) for each in page)

    @contextmanager
    def _calling(self, action: str) -> Iterator[None]:
        refusal = BusyError(f"{self.place}: {self._limits.calls} calls are under way already", _RETRY_AFTER)
        with taking(self._turns, refusal, timeout=self._limits.connect), self._translated(action):
            yield

    @contextmanager
    def _translated(self, action: str) -> Iterator[None]:
        try:
            yield
        except PersistenceError:
            raise
        except (BaseError, OSError) as error:
            raise self._unusable(action, error) from None

    def _unusable(self, action: str, error: Exception) -> PersistenceError:
        text, place = str(error), self.place
        code, status = _CODE.search(text), _status_of(error)
        answer = " ".join(filter(None, (status, code[1] if code else "")))
        if (code is not None and code[1] in _FULL) or status == "507":
            return DiskFullError(f"{action}: {place} is full ({answer})")
        if "NoSuchBucket" in text:
            cause = f"the bucket {place.name} does not exist"
        elif "/latest/" in text or "CredentialsError" in text or _MISSING.search(text):
            cause = "credentials are missing: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        elif isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in {"401", "403"}:
            cause = f"the store refuses the credentials, or the action ({answer})"
        elif answer:
            cause = f"the store answers {answer}"
        elif "TimedOut" in text or "kind: Timeout" in text:
            cause = f"no answer within {self._limits.timeout:g} seconds"
        else:
            cause = "the store cannot be reached, or the connection broke"
        return BusyError(f"{action} in {place}: {cause}", _RETRY_AFTER)


def _status_of(error: Exception) -> str:
    found = _STATUS.search(str(error))
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class DocumentObjects(DocumentFiles):
    """The objects of a document below ``folders``, the beginnings of keys.

    A store that keeps versions of objects keeps those of removed ones: that is for its administrators.
    """

    objects: Objects
    folders: tuple[str, ...]

    def listed(self) -> Iterator[DocumentFile]:
        """Yield all objects; each is read for its digest."""
        for each in self._objects():
            hashing = hashlib.sha256()
            for start in range(0, each.size, LARGEST_PIECE):
                hashing.update(self.objects.read(each.key, start, min(start + LARGEST_PIECE, each.size)) or b"")
            yield DocumentFile(f"{self.objects.place}/{each.key}", each.size, digest_text(hashing.hexdigest()))

    def remove(self, links: list[str]) -> None:  # noqa: ARG002 - a directory has some
        """Remove all objects. Raises ``OSError`` for one that stays without an error."""
        self.objects.remove([each.key for each in self._objects()])
        for each in self._objects():
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), f"{self.objects.place}/{each.key}")

    def _objects(self) -> Iterator[ListedObject]:
        for folder in self.folders:
            yield from self.objects.listed(folder)
