"""Restoring a backup into empty directories: every file is compared with its digest on the way."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from io import FileIO
from typing import BinaryIO

from persistence.errors import DamagedError, StartupError, disk_errors
from persistence.maintenance import manifest, sums
from persistence.maintenance.backup import complete
from persistence.maintenance.copies import chunks
from persistence.maintenance.manifest import Manifest
from persistence.maintenance.sums import SUMS
from persistence.maintenance.targets import Target, target
from persistence.storage import digests, directories, files, nofollow, owner
from persistence.storage.layout import LAYOUT, QUARANTINE
from persistence.storage.owner import Identity


@dataclass(slots=True)
class Restored:
    """How many files and bytes were restored, and how many were there already from an interrupted restore."""

    files: int = 0
    bytes: int = 0
    known: int = 0


@dataclass(frozen=True, slots=True)
class Chosen:
    """The path of a backup, and what it holds."""

    path: str
    manifest: Manifest


def chosen(source: str) -> Chosen:
    """The backup that a path means: itself, or the newest complete one in it.

    Raises:
        StartupError: there is none, or it is of a newer format.
        DiskError: it cannot be read.
    """
    path = os.path.realpath(source)
    reader = owner.identity_of(path, trusting=True)
    with owner.being(reader), disk_errors(f"backup {source}"):
        if os.path.lexists(f"{path}/{SUMS}"):
            return Chosen(path, manifest.read(path))
        found = complete(path) if os.path.isdir(path) else []
        if not found:
            raise StartupError(
                f"{path} is no backup and holds none (no {SUMS}): copy a tree back with cp -a or rsync -a, "
                "then 'persistence check --repair'"
            )
        return Chosen(found[-1], manifest.read(found[-1]))


class _NotInBackupError(DamagedError):
    """Something else than a file of the backup has a name that its list has."""


class Restore:
    """One restore of parts of a backup into directories, which must be empty, or hold this restore, interrupted.

    ``roots`` say where the parts go, by their names; other parts are left out. ``own`` are the files of the backup's
    own that are wanted, by their paths in it: where they go, and with which mode. Such a file is never overwritten.
    """

    def __init__(self, backup: Chosen, roots: Mapping[str, str], own: Mapping[str, tuple[str, int]]) -> None:
        """Open the parts. Raises ``StartupError`` where one is not a tree, and ``DiskError``."""
        self.count = Restored()
        self.source = backup.path
        self._manifest = backup.manifest
        self._own = own
        # Root reads the backup as its owner, and writes as that of the directory: neither leads it anywhere else.
        self._reader = owner.identity_of(self.source, trusting=True)
        writers = {name: owner.identity_of(root) for name, root in roots.items()}
        with owner.being(self._reader), disk_errors(f"backup {self.source}"):
            pairs = [
                (target(part, roots[part.name], self.source), writers[part.name])
                for part in backup.manifest.parts
                if part.name in roots and not part.missing
            ]
        self._targets = [each for each, _ in pairs]
        self._writers = {each.root: identity for each, identity in pairs}

    def total(self) -> int:
        """How many files there are to restore; raises ``OSError``."""
        with owner.being(self._reader):
            return sums.count(self.source)

    def run(self) -> Iterator[str | None]:
        """Restore: ``None`` for a file that is done, a line for one that is missing or not what it was.

        Such a file goes to the quarantine, so that nothing is served that is known to be wrong. The directories are
        marked one after the other before anything is restored, and the marks removed in the same order when all is
        there. So where the last one is marked, those without a mark are whole.

        Raises:
            StartupError: a directory holds something, or a file of the backup's own is there already.
            BusyError: a service uses a tree.
            DamagedError: the list of digests cannot be read.
            DiskFullError, DiskError: the disk refused; restoring again goes on from there.
        """
        roots = [each.root for each in self._targets]
        to = roots[0] if len(roots) == 1 else f"{len(roots)} directories"
        with disk_errors(f"restoring {self.source} to {to}"), ExitStack() as stack:
            with owner.being(self._reader):
                file = stack.enter_context(sums.opened(self.source))
            for _ in sums.read(file):  # all of it can be read: known before anything is changed
                pass
            due = self._due()
            for each in due:
                with self._writing(each):
                    each.prepare()
            for each in due:
                with self._writing(each):
                    stack.enter_context(each.alone())
                    each.check()  # again, as nobody else can change it now
            for each in due:
                with self._writing(each):
                    each.begin()
            file.seek(0)
            with ExitStack() as synced:
                for each in due:
                    with self._writing(each):
                        synced.enter_context(files.synced(each.root))
                yield from self._fill(file, due)
            for each in due:
                with self._writing(each):
                    each.finish()

    def _writing(self, to: Target) -> AbstractContextManager[None]:
        """Work as the user to whom a directory belongs, for a block."""
        return owner.being(self._writers[to.root])

    def _opened(self, path: str) -> FileIO:
        """A file of the backup, open; raises ``OSError``.

        Raises:
            _NotInBackupError: it is no regular file, or below a link.
        """
        with owner.being(self._reader):
            try:
                return FileIO(nofollow.open_file(f"{self.source}/{path}"))
            except OSError as error:
                if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ENXIO}:
                    raise _NotInBackupError("a link, or no regular file, in the backup") from error
                raise

    def _due(self) -> list[Target]:
        """The targets that are not whole yet; nothing is changed."""
        due = self._targets
        if due and self._is_half(due[-1]):
            due = [each for each in due if self._is_half(each)]
        for each in due:
            with self._writing(each):
                each.check()
        for path, (there, _) in self._own.items():
            try:
                with self._opened(path) as file:
                    digest = digests.of_open(file)
            except FileNotFoundError:
                raise StartupError(f"{self.source} has no {os.path.basename(path)}") from None
            with owner.being(self._owner_of(there)):
                if files.exists(there) and digests.of_file(there) != digest:
                    raise StartupError(f"{there} is there already, and is never overwritten: move it away first")
        return due

    def _is_half(self, each: Target) -> bool:
        with self._writing(each):
            return each.is_half()

    def _owner_of(self, path: str) -> Identity:
        """As whom to write a file of the backup's own: as the owner of its directory, or else of the first tree."""
        root = next(iter(self._writers), os.path.dirname(path))
        return owner.identity_for(path, root)

    def _fill(self, listed: BinaryIO, due: list[Target]) -> Iterator[str | None]:
        for digest, path in sums.read(listed):
            if path in self._own:
                yield from self._restore_own(path, digest)
            for each in due:
                inside = each.part.inside(path)
                if inside is not None and not (each.part.kind == "tree" and inside == LAYOUT):
                    with self._writing(each):
                        said = list(self._one(each, path, inside, digest))
                    yield from said
            yield None
        yield from self._unlisted(due)

    def _unlisted(self, due: list[Target]) -> Iterator[str]:
        """What lies in the backup and is not in its list, which may have lost its end."""
        for directory, _, names in owner.each_as(self._reader, os.walk(self.source)):
            for name in names:
                path = os.path.relpath(f"{directory}/{name}", self.source)
                for each in due:
                    inside = each.part.inside(path)
                    is_own = path == SUMS or (each.part.kind == "tree" and inside == LAYOUT)
                    if inside is None or is_own:
                        continue
                    with self._writing(each):
                        is_there = any(os.path.lexists(f"{base}/{inside}") for base in (each.root, each.quarantine))
                    if not is_there:
                        yield f"{path}: not in {SUMS}, and not restored"

    def _restore_own(self, path: str, digest: str) -> Iterator[str]:
        there, mode = self._own[path]
        with owner.being(self._owner_of(there)):
            yield from self._write_own(path, digest, there, mode)

    def _write_own(self, path: str, digest: str, there: str, mode: int) -> Iterator[str]:
        if files.exists(there):
            return  # it is the same
        with self._opened(path) as file:
            data = files.read_small(file.fileno())
        if hashlib.sha256(data).hexdigest() != digest:
            yield f"{path}: not what it was when it was saved; it is not restored"
            return
        directories.ensure(os.path.dirname(there))
        files.write_durably(there, data, mode)
        self.count.files += 1

    def _one(self, to: Target, path: str, inside: str, digest: str) -> Iterator[str]:
        """Restore a file, whose path in the backup is ``path``, and in the part ``inside``."""
        target = f"{to.root}/{inside}"
        if inside.startswith("."):
            yield f"{path}: no application begins with a dot; it is not restored"
            return
        if _is_there(target, digest):
            self.count.known += 1
            return
        files.remove(target)  # half of it, from a restore that was interrupted
        directories.make_all(os.path.dirname(target))
        hashing = hashlib.sha256()
        try:
            with self._opened(path) as file:
                status = os.fstat(file.fileno())
                files.write_new(target, chunks(file, path, hashing.update), status.st_mtime_ns)
        except FileNotFoundError:
            yield f"{path}: missing from the backup"
            return
        except _NotInBackupError as error:
            yield f"{path}: {error}; it is not restored"
            return
        except DamagedError as error:
            files.move_away(target, f"{to.quarantine}/{inside}")
            yield f"{error}; what there is of it is in {QUARANTINE}"
            return
        if hashing.hexdigest() != digest:
            files.move_away(target, f"{to.quarantine}/{inside}")
            yield f"{path}: not what it was when it was saved; it is in {QUARANTINE}"
            return
        self.count.files += 1
        self.count.bytes += status.st_size


def _is_there(path: str, digest: str) -> bool:
    """Whether a file is there with the digest, itself and not through a link; raises ``OSError``."""
    try:
        return digests.of_file(path) == digests.text(digest)
    except FileNotFoundError:
        return False
