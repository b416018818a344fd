"""Restoring a backup into empty directories: every file is compared with its digest on the way."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from io import FileIO
from typing import BinaryIO

from persistence.errors import DamagedError, StartupError, disk_errors
from persistence.maintenance import manifest
from persistence.maintenance.backup import complete
from persistence.maintenance.backup_files import chunks
from persistence.maintenance.manifest import SUMS, Manifest
from persistence.maintenance.restore_targets import RestoreTarget, target_of
from persistence.storage import digests, directories, files, nofollow, owner
from persistence.storage.layout import LAYOUT, QUARANTINE
from persistence.storage.owner import Identity


@dataclass(slots=True)
class RestoreCount:
    """How many files and bytes were restored, and how many files an interrupted restore had left."""

    files: int = 0
    bytes: int = 0
    known: int = 0


@dataclass(frozen=True, slots=True)
class ChosenBackup:
    """The path of a backup, and its manifest."""

    path: str
    manifest: Manifest


def choose(source: str) -> ChosenBackup:
    """Return the backup at a path, or the newest complete one in it.

    Raises:
        StartupError: there is none, or it has a newer format.
        DiskError: it cannot be read.
    """
    path = os.path.realpath(source)
    with owner.being(owner.identity_of(path, trusting=True)), disk_errors(f"backup {source}"):
        if os.path.lexists(f"{path}/{SUMS}"):
            return ChosenBackup(path, manifest.read(path))
        found = complete(path) if os.path.isdir(path) else []
        if not found:
            raise StartupError(
                f"{path} is no backup and holds none (no {SUMS}): copy a tree back with cp -a or rsync -a, "
                "then 'persistence check --repair'"
            )
        return ChosenBackup(found[-1], manifest.read(found[-1]))


class _NotInBackupError(DamagedError):
    """A file of a backup that is no regular file, or is reached through a link."""


class Restore:
    """Restores the parts of a backup into ``roots``, directories by the names of the parts.

    ``extra`` are files of the backup that belong to no part, each with its path outside and its mode. They never
    replace another file.
    """

    def __init__(self, backup: ChosenBackup, roots: Mapping[str, str], extra: Mapping[str, tuple[str, int]]) -> None:
        """Open the parts. Raises ``StartupError`` if one is not a tree, and ``DiskError``."""
        self.count = RestoreCount()
        self.source = backup.path
        self._extra = extra
        # Root reads the backup as its owner, and writes as that of the directory: neither leads it anywhere else.
        self._reader = owner.identity_of(self.source, trusting=True)
        writers = {name: owner.identity_of(root) for name, root in roots.items()}
        with owner.being(self._reader), disk_errors(f"backup {self.source}"):
            pairs = [
                (target_of(part, roots[part.name], self.source), writers[part.name])
                for part in backup.manifest.parts
                if part.name in roots and not part.missing
            ]
        self._targets = [each for each, _ in pairs]
        self._writers = {each.root: identity for each, identity in pairs}

    def total(self) -> int:
        """Count the files of the backup. Raises ``OSError``."""
        with owner.being(self._reader):
            return manifest.count(self.source)

    def run(self) -> Iterator[str | None]:
        """Restore: yield ``None`` for a file that is done, and a line for one that is missing or damaged.

        A damaged file goes to the quarantine, so that it is not served. The directories are marked one after the other
        before anything is restored, and the marks are removed in the same order at the end. So if the last one is
        marked, those without a mark are complete.

        Raises:
            StartupError: a directory is not empty, or a file of ``extra`` is there already.
            BusyError: a service uses a tree.
            DamagedError: the list of digests cannot be read.
            DiskFullError, DiskError: the disk refused; restoring again goes on from there.
        """
        roots = [each.root for each in self._targets]
        to = roots[0] if len(roots) == 1 else f"{len(roots)} directories"
        with disk_errors(f"restoring {self.source} to {to}"), ExitStack() as stack:
            with owner.being(self._reader):
                file = stack.enter_context(manifest.open_sums(self.source))
            for _ in manifest.listed(file):  # the whole list can be read: known before anything is changed
                pass
            due = self._due()
            self._at_each(due, lambda each: each.prepare())
            self._at_each(due, lambda each: stack.enter_context(each.locked()))
            self._at_each(due, lambda each: each.check())  # again, as nobody else can change it now
            self._at_each(due, lambda each: each.begin())
            file.seek(0)
            with ExitStack() as synced:
                self._at_each(due, lambda each: synced.enter_context(files.synced(each.root)))
                yield from self._fill(file, due)
            self._at_each(due, lambda each: each.finish())

    def _at_each(self, due: list[RestoreTarget], act: Callable[[RestoreTarget], object]) -> None:
        for each in due:
            with self._writing(each):
                act(each)

    def _writing(self, to: RestoreTarget) -> AbstractContextManager[None]:
        """Work as the user to whom a directory belongs, for a block."""
        return owner.being(self._writers[to.root])

    def _opened(self, path: str) -> FileIO:
        """Open a file of the backup.

        Raises:
            _NotInBackupError: it is no regular file, or below a link.
            OSError: it cannot be opened.
        """
        with owner.being(self._reader):
            try:
                return FileIO(nofollow.open_file(f"{self.source}/{path}"))
            except OSError as error:
                if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ENXIO}:
                    raise _NotInBackupError("a link, or no regular file, in the backup") from error
                raise

    def _due(self) -> list[RestoreTarget]:
        """Return the targets that are not complete yet; nothing is changed."""
        due = self._targets
        if due and self._is_half(due[-1]):
            due = [each for each in due if self._is_half(each)]
        self._at_each(due, lambda each: each.check())
        for path, (there, _) in self._extra.items():
            try:
                with self._opened(path) as file:
                    digest = digests.of_open(file)
            except FileNotFoundError:
                raise StartupError(f"{self.source} has no {os.path.basename(path)}") from None
            with owner.being(self._owner_of(there)):
                if files.exists(there) and digests.of_file(there) != digest:
                    raise StartupError(f"{there} is there already, and is never overwritten: move it away first")
        return due

    def _is_half(self, each: RestoreTarget) -> bool:
        with self._writing(each):
            return each.is_half()

    def _owner_of(self, path: str) -> Identity:
        """Return the identity that writes a file of ``extra``: its directory's owner, else that of the first tree."""
        root = next(iter(self._writers), os.path.dirname(path))
        return owner.identity_for(path, root)

    def _fill(self, listed: BinaryIO, due: list[RestoreTarget]) -> Iterator[str | None]:
        for digest, path in manifest.listed(listed):
            if path in self._extra:
                there, mode = self._extra[path]
                with owner.being(self._owner_of(there)):
                    problems = list(self._restore_extra(path, digest, there, mode))
                yield from problems
            for each in due:
                inside = each.part.inside(path)
                if inside is not None and not _is_layout(each, inside):
                    with self._writing(each):
                        problems = list(self._restore(each, path, inside, digest))
                    yield from problems
            yield None
        yield from self._unlisted(due)

    def _unlisted(self, due: list[RestoreTarget]) -> Iterator[str]:
        """Yield a line for each file in the backup that is not in its list, which may have lost its end."""
        for directory, _, names in owner.each_as(self._reader, os.walk(self.source)):
            for name in names:
                path = os.path.relpath(f"{directory}/{name}", self.source)
                for each in due:
                    inside = each.part.inside(path)
                    if inside is None or path == SUMS or _is_layout(each, inside):
                        continue
                    with self._writing(each):
                        is_there = any(os.path.lexists(f"{base}/{inside}") for base in (each.root, each.quarantine))
                    if not is_there:
                        yield f"{path}: not in {SUMS}, and not restored"

    def _restore_extra(self, path: str, digest: str, there: str, mode: int) -> Iterator[str]:
        if files.exists(there):
            return  # the same one, as ``_due`` has found out
        with self._opened(path) as file:
            data = nofollow.read_small(file.fileno())
        if hashlib.sha256(data).hexdigest() != digest:
            yield f"{path}: not what it was when it was saved; it is not restored"
            return
        directories.ensure(os.path.dirname(there))
        files.write_durably(there, data, mode)
        self.count.files += 1

    def _restore(self, to: RestoreTarget, path: str, inside: str, digest: str) -> Iterator[str]:
        """Restore a file; ``path`` is its path in the backup, ``inside`` that in the part."""
        target = f"{to.root}/{inside}"
        if inside.startswith("."):
            yield f"{path}: no application begins with a dot; it is not restored"
            return
        if _has_digest(target, digest):
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
        except _NotInBackupError as error:
            yield f"{path}: {error}; it is not restored"
        except DamagedError as error:
            files.move_away(target, f"{to.quarantine}/{inside}")
            yield f"{error}; what there is of it is in {QUARANTINE}"
        else:
            if hashing.hexdigest() != digest:
                files.move_away(target, f"{to.quarantine}/{inside}")
                yield f"{path}: not what it was when it was saved; it is in {QUARANTINE}"
                return
            self.count.files += 1
            self.count.bytes += status.st_size


def _is_layout(to: RestoreTarget, inside: str) -> bool:
    """Return whether a path is that of ``layout.json``, which the target itself writes."""
    return to.part.kind == "tree" and inside == LAYOUT


def _has_digest(path: str, digest: str) -> bool:
    """Return whether there is a file with the digest, and no link to one. Raises ``OSError``."""
    try:
        return digests.of_file(path) == digests.text(digest)
    except FileNotFoundError:
        return False
