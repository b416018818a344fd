"""The leases of documents in one tree (spec crud 7); not the lease that a machine has of the whole tree (``locks``).

Each leased document has a small file in ``.leases``, named by a digest of its id, since an id alone is what a lease is
of. It is replaced by a rename and durable before it is acknowledged, so a crash or a power cut leaves the lease before
or the lease after. All reading, checking and writing is done while a lock is held that all processes of the tree share.

Two clocks judge a lease, because a wall clock can be set: ``model.leases`` has the rule. A lease from before a restart
is measured again by the first request that looks at it.
"""

from __future__ import annotations

import os
import time
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import msgspec

from persistence.errors import BusyError, DamagedError, NotFoundError, disk_errors
from persistence.limits import MOST_LEASES_BESIDE_NEW_IDS, MOST_LEASES_OF_A_DIRECTORY
from persistence.model.addresses import DocumentAddress
from persistence.model.permissions import User
from persistence.model.versions import DocumentLease, LeaseHolder, Moment
from persistence.storage import files
from persistence.storage.layout import LEASE_LOCKS, LEASES, UNFINISHED_LEASE, Layout
from persistence.storage.locks import Locks, Machine, stripe
from persistence.storage.storage import Leases

_SWEPT = 4
"""Leases beside a new one that are removed if they have expired: so about a quarter of all have expired at a time."""


def moment() -> Moment:
    """Return the instant now. The clock of the kernel's run counts while the machine sleeps, too."""
    return Moment(Machine.this().boot, time.clock_gettime(time.CLOCK_BOOTTIME), time.time())


class DocumentLeases(Leases):
    """The leases below one root. ``ready`` raises where nothing may be written there."""

    def __init__(self, root: str, locks: Locks, ready: Callable[[], None], now: Callable[[], Moment] = moment) -> None:
        self._layout = Layout(root)
        self._locks = locks
        self._ready = ready
        self._now = now

    def lock(
        self,
        address: DocumentAddress,
        holder: LeaseHolder,
        seconds: int,
        *,
        is_stored: bool = True,
        is_by_form: bool = False,
    ) -> None:
        path = self._path(address)
        with self._alone(path, "leasing", address):
            now = self._now()
            held = self._living(path, now)
            own = address.form if is_by_form else None
            if held is not None and held.is_in_the_way(holder, own, is_stored=is_stored):
                raise held.refusal(now)
            form = str(address.form) if held is None or is_by_form else held.form
            lease = DocumentLease.beginning(address.document, form, holder, seconds, now)
            if held is None:
                files.ensure(os.path.dirname(path))
                self._evict_expired(path, now, MOST_LEASES_OF_A_DIRECTORY if is_stored else MOST_LEASES_BESIDE_NEW_IDS)
            try:
                _write(path, lease)
            except FileNotFoundError:  # a check has tidied up in that moment
                files.ensure(os.path.dirname(path))
                _write(path, lease)

    def unlock(self, address: DocumentAddress, holder: LeaseHolder, *, is_by_form: bool = False) -> None:
        path = self._path(address)
        with self._alone(path, "giving back the lease of", address):
            now = self._now()
            held = self._living(path, now)
            if held is not None and held.is_in_the_way(holder, address.form if is_by_form else None):
                raise held.refusal(now)
            _remove(path)

    def require(self, address: DocumentAddress, user: User) -> None:
        path, now = self._path(address), self._now()
        with disk_errors("reading the lease of", address):
            held = _read(path)
            if held is not None and not held.is_of(now):
                with self._locked(path):
                    held = self._living(path, now)
            _require(held, user, address, now)

    @contextmanager
    def protecting(self, address: DocumentAddress, user: User) -> Iterator[None]:
        path = self._path(address)
        with self._locked(path):
            now = self._now()
            with disk_errors("reading the lease of", address):
                _require(self._living(path, now), user, address, now)
            yield

    def broken(self, document: str, user: str | None = None) -> DocumentLease:
        path = self._layout.lease(document)
        with self._alone(path, "breaking the lease of", document):
            try:
                held = self._living(path, self._now())
            except DamagedError:  # it is in the way of everybody
                held = DocumentLease(document, "unknown", None, 0, "", 0.0, 0.0)
            if held is not None:
                held.require_of(user)
            _remove(path)
        if held is None:
            raise NotFoundError(f"nobody has leased the document {document}")
        return held

    def listed(self) -> Iterator[DocumentLease | DamagedError]:
        with disk_errors("listing the leases"):
            yield from (each for _, each in listed(self._layout.root))

    def _path(self, address: DocumentAddress) -> str:
        self._layout.paths(address)  # which refuses names that no document can have
        return self._layout.lease(address.document)

    def _locked(self, path: str) -> AbstractContextManager[None]:
        """Hold the lock of a directory of leases, so that what lies in it is nobody's work of now."""
        return self._locks.holding(LEASE_LOCKS, stripe((os.path.basename(os.path.dirname(path)),)))

    @contextmanager
    def _alone(self, path: str, doing: str, what: object) -> Iterator[None]:
        with disk_errors(doing, what):
            self._ready()
            with self._locked(path):
                yield

    def _living(self, path: str, now: Moment) -> DocumentLease | None:
        held = _read(path)
        if held is None or not held.remaining(now):
            return None
        if now.boot and not held.is_of(now):
            held = held.measured_from(now)
            with suppress(OSError):  # a disk that is full keeps nobody from being refused
                _write(path, held)
        return held

    def _evict_expired(self, path: str, now: Moment, most: int) -> None:
        # Each new lease looks at several at random, so fewer are expired than live, on average.
        directory, own = os.path.split(path)
        names = sorted(os.listdir(directory))
        at = bisect(names, own)
        gone = 0
        for name in (names[at:] + names[:at])[:_SWEPT]:
            each = f"{directory}/{name}"
            with suppress(OSError, DamagedError):  # the next one may be removed all the same
                if name.endswith(UNFINISHED_LEASE) or ((held := _read(each)) and not held.remaining(now)):
                    gone += files.remove(each)
        if len(names) - gone >= most:
            raise BusyError("too many documents are leased at the moment", retry_after=60)


def _require(held: DocumentLease | None, user: User, address: DocumentAddress, now: Moment) -> None:
    if held is not None and held.remaining(now) and held.keeps_out(user, address.form):
        raise held.refusal(now)


def _read(path: str) -> DocumentLease | None:
    try:
        return msgspec.json.decode(files.read_file(path), type=DocumentLease)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DamagedError(
            f"the lease {os.path.basename(path)} cannot be read: 'persistence check --repair' removes it"
        ) from error


def _write(path: str, lease: DocumentLease) -> None:
    fresh = f"{path}{UNFINISHED_LEASE}"
    try:
        with files.written(fresh, msgspec.json.encode(lease) + b"\n") as descriptor:
            files.sync(descriptor)
        files.rename(fresh, path)
    except BaseException:
        files.remove_quietly(fresh)
        raise
    files.sync_directory(os.path.dirname(path))


def _remove(path: str) -> None:
    if files.remove(path):
        files.sync_directory(os.path.dirname(path))


def listed(root: str) -> Iterator[tuple[str, DocumentLease | DamagedError]]:
    """Yield the path of every file of a lease in a tree, expired ones too, with what it says. Raises ``OSError``."""
    for entry in _files(root):
        found: DocumentLease | DamagedError | None = None
        try:
            found = None if entry.name.endswith(UNFINISHED_LEASE) else _read(entry.path)
        except DamagedError as error:
            found = error
        if found is not None:
            yield entry.path, found


def unfinished(root: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files that were to become leases, when their writer was killed. Raises ``OSError``."""
    return (entry for entry in _files(root) if entry.name.endswith(UNFINISHED_LEASE))


def _files(root: str) -> Iterator[os.DirEntry[str]]:
    for directory in _entries(Layout(root).own(LEASES)):
        yield from (entry for entry in _entries(directory.path) if entry.is_file(follow_symlinks=False))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        files.require(directory)
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
