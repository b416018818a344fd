"""The service and its commands without one of their protections, to show that a rig would notice.

``python -m tests.rigs.weakened …`` takes what ``persistence`` takes; the environment names the protection to do
without. Only this module knows of it: the service itself has no such switch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from persistence.cli import main
from persistence.errors import ConflictError, ReplacedError
from persistence.http import responses
from persistence.http.responses import BareResponse, Headers
from persistence.index.sqlite.tree_outbox import TreeOutbox
from persistence.index.sync.updater import Updater
from persistence.metrics import service as shared
from persistence.model.addresses import Address, DocumentAddress, Form
from persistence.model.sidecar import Sidecar
from persistence.model.texts import Instant, next_after
from persistence.providers.router import Route
from persistence.services import histories, purging, rules
from persistence.storage import commit, files, locks, stored_revision
from persistence.storage.commit import Committed
from persistence.storage.layout import LOCKS
from persistence.storage.locks import Locks
from persistence.storage.store import Store, Writer
from persistence.storage.stored_revision import StoredRevision
from tests.rig_service import rig

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment
    from flask import Response

_VARIABLE = "TESTS_WEAKNESS"
_ROOT = Path(__file__).parents[2]
_ByDescriptor = Callable[..., None]


def environment(weakness: str) -> dict[str, str]:
    """What lets this module, run as the service or a command, do without a protection."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    return {_VARIABLE: weakness, "PYTHONPATH": path}


def _nothing(*_: object) -> None:
    """Nothing."""


def _without(owner: object, name: str, instead: Callable[..., object] = _nothing) -> Callable[[], None]:
    """What replaces a name of a module or a class, which must be there."""
    getattr(owner, name)
    return partial(setattr, owner, name, instead)


def _forgive_fsync(times: int) -> None:
    real = files.sync

    def sync(descriptor: int) -> None:
        with suppress(OSError):
            return real(descriptor)
        return real(descriptor) if times else None

    files.sync = sync


def _leak() -> None:
    def open_(path: str, *, content: bool) -> tuple[os.stat_result, FileIO | None]:
        if not content:
            return os.stat(path), None
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return os.fstat(descriptor), FileIO(descriptor)

    stored_revision._open = open_  # noqa: SLF001 - the weakness


def _cut_short() -> None:
    send, at_once = responses._send, responses._SENT_AT_ONCE  # noqa: SLF001 - the weakness

    def shortened(environ: WSGIEnvironment, file: BinaryIO, size: int, status: int, headers: Headers) -> Response:
        if size > at_once:
            return send(environ, file, size, status, headers)
        with file:
            return BareResponse(file.read(size), status, [*headers, ("Content-Length", str(size))])

    responses._send = shortened  # noqa: SLF001 - the weakness


def _never_mind() -> None:
    real = Updater.changed

    def changed(self: Updater, form: Form, document: str) -> None:
        if self._tickets[form, document][-1] is not None:
            real(self, form, document)

    Updater._give_up = _nothing  # type: ignore[method-assign,assignment]  # noqa: SLF001 - the weakness
    Updater.changed = changed  # type: ignore[method-assign]


def _note_nothing() -> None:
    """The index is told of a change after it, and none is noted before."""

    def changed(self: Updater, form: Form, document: str) -> None:
        self._index.refresh(form, [document])

    Updater.changing = _nothing  # type: ignore[method-assign,assignment]
    Updater.changed = changed  # type: ignore[method-assign]


def _without_fsync(*, of_sidecars: bool) -> None:
    """Files of a kind are neither synced nor handed to the kernel for writing.

    That hint alone hides the missing fsync on ext4 and XFS: what is written early is usually there when the answer is.
    """

    def unless(protection: _ByDescriptor) -> _ByDescriptor:
        def weakened(descriptor: int, *part: int) -> None:
            if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".json") != of_sidecars:
                protection(descriptor, *part)

        return weakened

    files.sync = unless(files.sync)
    files.begin_writeback = unless(files.begin_writeback)


def _revert_to_what_is_left() -> None:
    """A revert brings back the first revision of an attachment that a purge has left."""
    as_of = histories._as_of  # noqa: SLF001 - without what it refuses

    def first(route: Route, address: DocumentAddress, moment: Instant) -> StoredRevision | None:
        with suppress(ConflictError):
            return as_of(route, address, moment)
        revisions = route.storage.history(address)
        return route.storage.read(address, revisions.instant(revisions.total - 1), content=False)

    histories._as_of = first  # noqa: SLF001


def _without_locks() -> None:
    """Every writer goes on at once."""
    real = Locks.holding

    def holding(self: Locks, kind: str, number: int) -> AbstractContextManager[None]:
        return nullcontext() if kind == LOCKS else real(self, kind, number)

    Locks.holding = holding  # type: ignore[method-assign,assignment]
    _without_conditions()


def _without_locks_between_processes() -> None:
    """Writers of one process queue; those of different processes do not know of each other.

    Only of the tree: by its lock, the directory of metrics of each other service is known to be in use.
    """
    assert shared.try_lock is locks.try_lock
    locks.try_lock = lambda _descriptor: True  # type: ignore[assignment]
    _without_conditions()


def _without_conditions() -> None:
    """Every writer overwrites what is there, whatever that is."""
    Committed.require = lambda _self, _over: None  # type: ignore[method-assign]
    Committed.require_before = lambda _self, _prepared: None  # type: ignore[method-assign]


def _without_fresh_reads(seconds: float) -> None:
    """Each worker goes on showing for a moment the revision that it showed last, from the history."""
    read = Store.read
    shown: dict[Address, tuple[float, Instant]] = {}

    def remembering(
        self: Store, address: Address, instant: Instant | None = None, *, content: bool
    ) -> StoredRevision | None:
        found = read(self, address, instant, content=content)
        if found is None or found.file is None or instant is not None:
            return found
        until, last = shown.get(address, (0.0, found.sidecar.modified))
        if last != found.sidecar.modified and time.monotonic() < until:
            return read(self, address, last, content=True) or found
        shown[address] = (time.monotonic() + seconds, found.sidecar.modified)
        return found

    Store.read = remembering  # type: ignore[method-assign]


def _without_conditions_of_the_database() -> None:
    """A writer takes no lock, and overwrites what is there, whatever it has decided on."""
    from persistence.postgresql import database_storage  # noqa: PLC0415 - it needs a driver, which few machines have
    from persistence.postgresql.database_storage import DatabaseWriter  # noqa: PLC0415
    from persistence.postgresql.revision_rows import DatabaseUpload  # noqa: PLC0415

    replace = DatabaseWriter._replace

    def overwrite(
        self: DatabaseWriter,
        address: Address,
        sidecar: Sidecar,
        upload: DatabaseUpload | None,
        over: StoredRevision | None,
    ) -> Sidecar:
        while True:
            try:
                return replace(self, address, sidecar, upload, over)
            except ReplacedError:
                self.lookup.sidecars.clear()
                over = self.current(address)

    lock = database_storage._LOCK  # noqa: SLF001 - the weakness
    without = lock.replace("pg_advisory_xact_lock(%s)", "%s::bigint")
    database_storage._LOCK = without  # noqa: SLF001 - the weakness
    if lock == without:
        raise RuntimeError("the lock that is to be left out is taken elsewhere")
    DatabaseWriter._replace = overwrite  # type: ignore[method-assign]


Weaknesses = dict[str, Callable[[], None]]

FORGIVEN = "an fsync that fails is forgiven"
NOT_CLEANED = "a refused write is not cleaned up"
UNHEARD = "an index that cannot be told of a change is used all the same"
CUT_SHORT = "a content that ends early is sent as it is"
UNNOTED = "the index is told only after a change"
UNRECORDED = "no intent of an event is recorded"
OF_WRITING: Weaknesses = {
    FORGIVEN: partial(_forgive_fsync, 0),
    "an fsync that fails is tried again": partial(_forgive_fsync, 1),
    NOT_CLEANED: _without(Writer, "_discard"),
    UNHEARD: _never_mind,
}
OF_READING: Weaknesses = {"a descriptor leaks when a content cannot be looked at": _leak, CUT_SHORT: _cut_short}
OF_KILLS: Weaknesses = {UNNOTED: _note_nothing, UNRECORDED: _without(TreeOutbox, "begin")}
_STRUCK: Weaknesses = {**OF_WRITING, **OF_READING, **OF_KILLS}
"""Those of services that are struck at single calls."""

CONTENT_FSYNC, DIRECTORY_FSYNC = "content-fsync", "directory-fsync"
OF_POWER_CUTS: Weaknesses = {
    CONTENT_FSYNC: partial(_without_fsync, of_sidecars=False),
    "sidecar-fsync": partial(_without_fsync, of_sidecars=True),
    DIRECTORY_FSYNC: _without(files, "sync_open"),
}
OF_CONCURRENCY: Weaknesses = {
    "no locks": _without_locks,
    "no locks between processes": _without_locks_between_processes,
    "no fresh reads": partial(_without_fresh_reads, 0.05),
}
TRUSTING = "instants of the clock"
OF_ANSWERS: Weaknesses = {
    "drafts stay": _without(Writer, "discard_draft"),
    # A write replaces the revision before it.
    "no history": _without(commit, "keep", lambda paths, _sidecar: files.open_directory(paths.directory)),
    TRUSTING: _without(rules, "next_after", lambda _previous: next_after(None)),
    "the index is not told": lambda: (_without(Updater, "changing")(), _without(Updater, "changed")()),
    # For as long as a slow machine needs to ask again.
    "no fresh reads for long": partial(_without_fresh_reads, 5.0),
}
OF_REMOVALS: Weaknesses = {
    # A purge of a deleted document looks at nothing that was stored after the deletion.
    "the tombstone alone counts": _without(purging, "newest_of", lambda store, main: store.sidecar(main)),
    "reverts to what is left": _revert_to_what_is_left,
}
UNCONDITIONAL = "condition dropped"
"""In a database."""

if __name__ == "__main__":
    _weakness = os.environ[_VARIABLE]
    if _weakness in _STRUCK:
        rig()
    _ALL = {**_STRUCK, **OF_POWER_CUTS, **OF_CONCURRENCY, **OF_ANSWERS, **OF_REMOVALS}
    {**_ALL, UNCONDITIONAL: _without_conditions_of_the_database}[_weakness]()
    main()
