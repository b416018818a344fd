"""Restoring a backup into a tree or another storage: every file is compared with its digest on the way.

The directories are empty at first, and marked as incomplete until all is there. Those that are whole are marked as such
until the databases that are restored with them are whole, too.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from io import FileIO
from typing import BinaryIO, cast

from persistence.errors import DamagedError, StartupError, disk_errors
from persistence.maintenance import backup_files
from persistence.maintenance.backup import complete
from persistence.maintenance.backup_files import SECRET_MODE, SUMS, BackupPart, Manifest, chunks
from persistence.maintenance.tree_walk import OWN
from persistence.model.addresses import Form
from persistence.model.sidecar import HashedPieces, digest_of, digest_text, fresh_id
from persistence.model.texts import next_after
from persistence.services.moves import Move, MoveSource, MoveTarget
from persistence.services.transfers import MoveReport, TransferResult
from persistence.storage import files, owner, root
from persistence.storage.attachments import BodiesReader, SplitStorage
from persistence.storage.layout import (
    EVENTS,
    INDEX,
    LAYOUT,
    QUARANTINE,
    RESTORED,
    SERVICE,
    SPOOL,
    TRASH,
    Layout,
    file_name,
)
from persistence.storage.locks import LockFile
from persistence.storage.reader import StoreReader
from persistence.storage.root import FORMAT, LayoutFile
from persistence.storage.storage import Bodies, Revisions, Storage
from persistence.storage.stored_revision import HandEdits, Integrity, digest_of_file, digest_of_open

_RESTORING = ".restoring"
_OF_THE_FILE_SYSTEM = "lost+found"
_UNFINISHED = re.compile(r"(?:\.restoring|layout\.json)\.[0-9]+")
"""Names of markers whose writer had its power cut before they got their own."""

_NOT_OPENED = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ENXIO}


@dataclass(frozen=True, slots=True)
class ChosenBackup:
    """The path of a backup, and its manifest."""

    path: str
    manifest: Manifest


def choose(source: str) -> ChosenBackup:
    """Return the backup at a path, or the newest complete one in it."""
    path = os.path.realpath(source)
    with disk_errors(f"backup {source}"):
        if os.path.lexists(f"{path}/{SUMS}"):
            return ChosenBackup(path, backup_files.read(path))
        found = complete(path) if os.path.isdir(path) else []
        if not found:
            os.stat(path)
            raise StartupError(
                f"{path} is not a backup, and has none in it (no {SUMS}): copy a tree back with cp -a or rsync -a, "
                "then 'persistence check --repair'"
            )
        return ChosenBackup(found[-1], backup_files.read(found[-1]))


class Restore:
    """Restores parts of a backup into ``roots``, by name; ``extra`` files of no part never replace another file."""

    # It counts ``files`` and ``bytes`` that were restored, and ``known`` files that an interrupted restore had left.

    def __init__(self, backup: ChosenBackup, roots: Mapping[str, str], extra: Mapping[str, str]) -> None:
        self.files = self.bytes = self.known = 0
        self.source = backup.path
        self._extra = extra
        for path in roots.values():
            owner.require_closed(path)
        with disk_errors(f"backup {self.source}"):
            self._targets = [
                (_Tree if part.kind == "tree" else _Target)(part, roots[part.name], self.source)
                for part in backup.manifest.parts
                if part.name in roots and not part.missing
            ]

    def total(self) -> int:
        return backup_files.count(self.source)

    def run(self) -> Iterator[str | None]:
        """Restore: yield ``None`` for a file that is done, and a line for one that is missing or damaged."""
        # The directories are marked one after the other before anything is restored, and `end` removes the markers in
        # the same order. So if the last one is marked, those without a marker are complete.
        to = self._targets[0].root if len(self._targets) == 1 else f"{len(self._targets)} directories"
        with disk_errors(f"restoring {self.source} to {to}"), ExitStack() as stack:
            file = stack.enter_context(backup_files.open_sums(self.source))
            for _ in backup_files.listed(file):  # the whole list can be read: known before anything is changed
                pass
            due = self._due()
            for each in due:
                each.prepare()
            for each in due:
                stack.enter_context(each.locked())
            for each in due:
                each.check()  # again, as nobody else can change it now
            for each in due:
                each.begin()
            file.seek(0)
            with ExitStack() as synced:
                for each in due:
                    synced.enter_context(files.synced(each.root))
                yield from self._fill(file, due)
            for each in due:
                each.finish()

    def is_begun(self) -> bool:
        """Return whether an earlier call was interrupted after it had marked a directory. Raises ``DiskError``."""
        with disk_errors(f"restoring {self.source}"):
            return any(each.is_half() or each.is_whole() for each in self._targets)

    def end(self) -> None:
        """Remove the markers: everything else is restored, too. Raises ``DiskError``."""
        with disk_errors(f"restoring {self.source}"):
            for each in self._targets:
                each.end()

    def _opened(self, path: str) -> FileIO:
        try:
            return FileIO(files.open_file(f"{self.source}/{path}"))
        except OSError as error:
            if error.errno in _NOT_OPENED:
                raise DamagedError("a link, or no regular file, in the backup") from error
            raise

    def _due(self) -> list[_Target]:
        states = [(each.is_half(), each.is_whole()) for each in self._targets]
        due = self._targets
        if states and any(states[-1]):
            due = [each for each, (is_half, _) in zip(self._targets, states, strict=True) if is_half]
        for each in due:
            each.check()
        for path, there in self._extra.items():
            try:
                with self._opened(path) as file:
                    digest = digest_of_open(file)
            except FileNotFoundError:
                raise StartupError(f"{self.source} has no {os.path.basename(path)}") from None
            if files.exists(there) and digest_of_file(there) != digest:
                raise StartupError(f"{there} is there already, and is never overwritten: move it away first")
        return due

    def _fill(self, sums: BinaryIO, due: list[_Target]) -> Iterator[str | None]:
        for digest, path in backup_files.listed(sums):
            if there := self._extra.get(path):
                yield from self._restore_extra(path, digest, there)
            for each in due:
                if (inside := each.inside(path)) is not None:
                    problem = self._restore(each, path, inside, digest)
                    if problem:
                        yield problem
            yield None
        yield from self._unlisted(due)

    def _unlisted(self, due: list[_Target]) -> Iterator[str]:
        """Yield a line for each file in the backup that is not in its list, which may have lost its end."""
        for directory, _, names in os.walk(self.source):
            for name in names:
                path = os.path.relpath(f"{directory}/{name}", self.source)
                for each in due:
                    if path == SUMS or (inside := each.inside(path)) is None:
                        continue
                    is_there = any(os.path.lexists(f"{base}/{inside}") for base in (each.root, each.quarantine))
                    if not is_there:
                        yield f"{path}: not in {SUMS}, and not restored"

    def _restore_extra(self, path: str, digest: str, there: str) -> Iterator[str]:
        if files.exists(there):
            return  # the same one, as ``_due`` has found out
        with self._opened(path) as file:
            data = files.read_small(file.fileno())
        if digest_of([data]) != digest_text(digest):
            yield f"{path}: not what it was when it was saved; it is not restored"
            return
        files.ensure(os.path.dirname(there))
        files.write_durably(there, data, SECRET_MODE)
        self.files += 1

    def _restore(self, to: _Target, path: str, inside: str, digest: str) -> str | None:
        target = f"{to.root}/{inside}"
        if inside.startswith("."):
            return f"{path}: no application begins with a dot; it is not restored"
        if files.exists(target) and digest_of_file(target) == digest_text(digest) and self._has_time(path, target):
            self.known += 1
            return None
        files.remove(target)  # half of it, from a restore that was interrupted
        files.make_all(os.path.dirname(target))
        try:
            file = self._opened(path)
        except FileNotFoundError:
            return f"{path}: missing from the backup"
        except DamagedError as error:
            return f"{path}: {error}; it is not restored"
        problem = f"{path}: not what it was when it was saved; it is in {QUARANTINE}"
        with file:
            status, pieces = os.fstat(file.fileno()), HashedPieces(chunks(file, path))
            try:
                files.write_new(target, pieces, status.st_mtime_ns)
            except DamagedError as error:
                problem = f"{error}; what there is of it is in {QUARANTINE}"
            else:
                if pieces.digest == digest_text(digest):
                    self.files += 1
                    self.bytes += status.st_size
                    return None
        files.move_away(target, f"{to.quarantine}/{inside}")
        return problem

    def _has_time(self, path: str, target: str) -> bool:
        try:
            with self._opened(path) as file:
                return os.fstat(file.fileno()).st_mtime_ns == os.stat(target).st_mtime_ns
        except (DamagedError, FileNotFoundError):
            return True


class _Target:
    """The directory that attachments are restored to, with a file of its own as marker."""

    own = frozenset({SPOOL, TRASH, QUARANTINE})  # The names that an empty directory may have

    def __init__(self, part: BackupPart, path: str, backup: str) -> None:
        self.root = os.path.realpath(path)
        self._part = part
        self._backup = backup
        self._layout = Layout(self.root)
        self.quarantine = f"{self._layout.own(QUARANTINE)}/{file_name(next_after(None))}"

    def inside(self, path: str) -> str | None:
        return self._part.inside(path)

    def restoring(self) -> str | None:
        try:
            return os.fsdecode(files.read_file(self._layout.own(_RESTORING))) or None
        except FileNotFoundError:
            return None

    def is_half(self) -> bool:
        return self.restoring() == self._backup

    def is_whole(self) -> bool:
        try:
            named = os.fsdecode(files.read_file(self._layout.own(RESTORED)))
            return named == self._backup and not self.is_half()
        except FileNotFoundError:
            return False

    def check(self) -> None:
        if not os.path.isdir(self.root):
            return
        restoring = self.restoring()
        if restoring and restoring != self._backup:
            raise StartupError(f"{self.root} holds half of {restoring}: restore that again, or empty it")
        names = set(os.listdir(self.root)) - {_OF_THE_FILE_SYSTEM} - self.own
        if not restoring and not all(map(_UNFINISHED.fullmatch, names)):
            raise StartupError(f"{self.root} {'is not empty' if restoring is None else 'holds a tree already'}")

    def prepare(self) -> None:
        files.ensure(self.root)

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()

    def begin(self) -> None:
        files.write_durably(self._layout.own(_RESTORING), os.fsencode(self._backup))

    def finish(self) -> None:
        files.write_durably(self._layout.own(RESTORED), os.fsencode(self._backup))
        files.remove(self._layout.own(_RESTORING))
        files.sync_directory(self.root)

    def end(self) -> None:
        if files.remove(self._layout.own(RESTORED)):
            files.sync_directory(self.root)


class _Tree(_Target):
    """The root of a tree, in which ``layout.json`` is the marker."""

    own = frozenset(OWN - {EVENTS})  # events of another tree are not those of this one

    def __init__(self, part: BackupPart, path: str, backup: str) -> None:
        super().__init__(part, path, backup)
        saved = f"{backup}/{part.path(LAYOUT)}"
        layout = root.read_layout(saved)
        if layout is None:
            raise StartupError(f"{os.path.dirname(saved)} has no {LAYOUT}")
        if layout.format > FORMAT:
            root.check_layout(saved, layout)
        self._saved = layout
        self._file = self._layout.own(LAYOUT)

    def inside(self, path: str) -> str | None:
        inside = super().inside(path)
        return None if inside == LAYOUT else inside  # which ``begin`` and ``finish`` write

    def is_whole(self) -> bool:
        return root.read_layout(self._file) is not None and super().is_whole()

    def restoring(self) -> str | None:
        there = root.read_layout(self._file)
        return None if there is None else there.restoring

    def prepare(self) -> None:
        super().prepare()
        owner.require(self.root)
        root.make_own(self.root)

    def locked(self) -> AbstractContextManager[None]:
        busy = "the data directory is in use: stop the service first"
        return LockFile(self._layout.own(SERVICE)).exclusive(busy)

    def begin(self) -> None:
        trash = self._layout.own(TRASH)
        files.rename(self._layout.own(INDEX), f"{trash}/{fresh_id()}")  # of a tree that was here before
        files.empty(trash)
        root.make_own(self.root)
        root.write_layout(self._file, LayoutFile(max(self._saved.format, FORMAT), restoring=self._backup))

    def finish(self) -> None:
        files.write_durably(self._layout.own(RESTORED), os.fsencode(self._backup))
        root.write_layout(self._file, self._saved)


BasesOf = Callable[[Form], BodiesReader | None]
"""Returns the directory in a backup that has the bodies of a form's attachments, if they have one of their own."""


# Restoring a tree in a backup into a storage of another kind: all files are compared with their digests first.
#
# Then all that can be read is moved there. Like a restore into a directory, it goes on when it is called again.


def source_in(backup: ChosenBackup, part: BackupPart, bodies_of: BasesOf) -> MoveSource:
    """Return the tree ``part`` of a backup, to be read."""
    path = f"{backup.path}/{part.directory}".rstrip("/")
    reader = StoreReader(path, Integrity(HandEdits.NONE))

    def revisions(form: Form) -> Revisions:
        bodies = bodies_of(form)
        if bodies is None:
            return reader
        return SplitStorage(cast("Storage", reader), cast("Bodies", bodies))  # of both, only reading is asked

    return MoveSource(path, reader, revisions)


@dataclass(slots=True)
class StorageRestore:
    """Restores the tree ``part`` of a backup, which is the ``source``, into a storage."""

    backup: ChosenBackup
    part: BackupPart
    source: MoveSource
    target: MoveTarget
    report: MoveReport = field(default_factory=MoveReport)

    def run(self) -> Iterator[str | None]:
        """Restore: yield ``None`` for a file or document that is done, and a line for a problem."""
        self.require_empty()
        yield from backup_files.verify(self.backup.path, self.part)
        move = Move(self.source, self.target)
        for outcome in move.first():
            if outcome.result in (TransferResult.MOVED, TransferResult.THERE):
                self.report.add(outcome)
            yield None
        for outcome in move.last():  # looks again at what was refused, and removes what an earlier call has left
            if outcome.result is not TransferResult.THERE:
                self.report.add(outcome)
            if outcome.cause:
                yield f"{outcome.name}: not restored: {outcome.cause}"
        yield from move.views()
        if not self.report.refused:
            move.end()

    def is_whole(self) -> bool:
        """Return whether the storage has forms, and none of this restore is on its way."""
        forms = self.target.storage.forms()
        return not self.target.storage.arrivals.begun(self.source.name) and next(iter(forms), None) is not None

    def require_empty(self) -> None:
        """Check that the storage has no forms but those that an earlier call has begun to restore."""
        begun = self.target.storage.arrivals.begun(self.source.name)
        for form in self.target.storage.forms():
            if form not in begun:
                raise StartupError(f"the destination is not empty: it has the form {form}")
