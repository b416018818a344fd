"""The files of a folder: their roles, owners and permissions, and how contents compare with sidecars."""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from persistence.crypto import frames
from persistence.errors import DamagedError
from persistence.maintenance.findings import Finding, FindingKind
from persistence.maintenance.tree import Folder
from persistence.model.addresses import Address, DocumentAddress
from persistence.model.instants import Instant
from persistence.model.sidecar import Sidecar, shows_stamp
from persistence.storage import directories, files, owner, stored_revision
from persistence.storage.integrity import digest_of_file
from persistence.storage.layout import (
    HISTORY,
    SIDECAR_SUFFIX,
    FilePaths,
    is_file_name,
    next_content_of,
    revision_of,
    unfinished_of,
)

_NEXT_SIDECAR = re.compile(r"\.(.+)\.json")
_STRANGE_NAME = "a name that the service does not give"
_FOR_OTHERS = 0o007
_OWN_FILE = 0o600
_OWN_DIRECTORY = 0o700


@dataclass(slots=True)
class FolderListing:
    """The file names of resources by role; ``strangers`` are foreign paths, each with the reason.

    ``obstacles`` are paths that only the service's own files may have, and where something else than a file lies.
    ``others`` are names that a content may have, where something else than a file lies: an obstacle if there is a
    sidecar, else foreign. ``next_contents`` has the content ids by name.
    """

    contents: set[str] = field(default_factory=set)
    sidecars: set[str] = field(default_factory=set)
    next_sidecars: set[str] = field(default_factory=set)
    next_contents: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    has_history: bool = False
    strangers: list[tuple[str, str]] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    others: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """The names of all resources that have left any file."""
        return sorted(self.contents | self.sidecars | self.next_sidecars | set(self.next_contents))

    @property
    def is_empty(self) -> bool:
        return not (self.names or self.has_history or self.strangers or self.obstacles or self.others)

    def add(self, entry: os.DirEntry[str]) -> None:
        name, is_file = entry.name, entry.is_file(follow_symlinks=False)
        if name == HISTORY:
            self._add_history(entry)
        elif (content := next_content_of(name)) and is_file:
            self.next_contents[content[0]].append(content[1])
        elif (sidecar := _NEXT_SIDECAR.fullmatch(name)) and is_file:
            self.next_sidecars.add(sidecar[1])
        elif content or sidecar:
            self.obstacles.append(entry.path)
        elif name.endswith(SIDECAR_SUFFIX) and is_file_name(name.removesuffix(SIDECAR_SUFFIX)):
            self.sidecars.add(name.removesuffix(SIDECAR_SUFFIX))
        elif is_file_name(name):
            (self.contents if is_file else self.others).add(name)
        else:
            self.strangers.append((entry.path, _STRANGE_NAME))

    def _add_history(self, entry: os.DirEntry[str]) -> None:
        if entry.is_dir(follow_symlinks=False):
            self.has_history = True
        elif entry.is_dir():
            self.strangers.append((entry.path, "a symbolic link, which is not followed"))
        else:
            self.obstacles.append(entry.path)


def list_folder(path: str) -> FolderListing:
    """List a folder. Raises ``OSError``."""
    listing = FolderListing()
    with os.scandir(path) as entries:
        for entry in entries:
            listing.add(entry)
    return listing


@dataclass(frozen=True, slots=True)
class OlderRevision:
    """An older revision, by its file name: the file name of the resource, and the instant."""

    name: str
    instant: Instant
    place: FilePaths


@dataclass(slots=True)
class History:
    """The older revisions of a folder, oldest first; ``strays`` are contents without a sidecar.

    ``strangers`` and ``obstacles`` are as in ``FolderListing``. ``rewritten`` are the revisions, by their file names,
    of which a rewrite was interrupted: the file that was to replace theirs is still there.
    """

    rewritten: dict[str, FilePaths] = field(default_factory=dict)
    revisions: list[OlderRevision] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    strangers: list[tuple[str, str]] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.rewritten or self.revisions or self.strays or self.strangers or self.obstacles)

    def of(self, name: str) -> list[OlderRevision]:
        """Return the revisions of one resource, newest first."""
        return [revision for revision in reversed(self.revisions) if revision.name == name]


def list_history(path: str) -> History:
    """List the history of a folder; a missing one is empty. Raises ``OSError``."""
    directory = FilePaths(path, "").history
    try:
        with os.scandir(directory) as entries:
            are_files = {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return History()
    found = History()
    for name in sorted(are_files):
        place = FilePaths(directory, name.removesuffix(SIDECAR_SUFFIX))
        revision, rewritten = revision_of(place.name), unfinished_of(name)
        if rewritten is not None and revision_of(rewritten) is not None and are_files[name]:
            found.rewritten[rewritten] = FilePaths(directory, rewritten)
        elif revision is None:
            found.strangers.append((f"{directory}/{name}", _STRANGE_NAME))
        elif not are_files[name]:
            found.obstacles.append(f"{directory}/{name}")
        elif name.endswith(SIDECAR_SUFFIX):
            found.revisions.append(OlderRevision(revision[1], revision[0], place))
        elif f"{name}{SIDECAR_SUFFIX}" not in are_files:
            found.strays.append(f"{directory}/{name}")
    return found


class ContentMatch(Enum):
    """How a content compares with a sidecar."""

    SAME = "same"
    TIMES_LOST = "the content is right, its modification time is not"
    ROTTEN = "size and time are right, the digest is not"
    OTHER = "another content"
    ABSENT = "no content"


def compare(place: FilePaths, sidecar: Sidecar, *, deep: bool) -> ContentMatch:
    """Compare by size and time as readers do; by digest if ``deep``, or if size and time leave a doubt."""
    try:
        status = os.lstat(place.content)
        if not stat.S_ISREG(status.st_mode):
            return ContentMatch.ABSENT
        if status.st_size != sidecar.size:
            return ContentMatch.OTHER
        if shows_stamp(status.st_mtime_ns, sidecar):
            return ContentMatch.SAME if not deep or _has_digest(place, sidecar) else ContentMatch.ROTTEN
        return ContentMatch.TIMES_LOST if _has_digest(place, sidecar) else ContentMatch.OTHER
    except FileNotFoundError:
        return ContentMatch.ABSENT


def is_whole(place: FilePaths, sidecar: Sidecar) -> bool:
    """Read the content and return whether it has the digest of the sidecar; a tombstone needs no content."""
    return sidecar.deleted or compare(place, sidecar, deep=True) in {ContentMatch.SAME, ContentMatch.TIMES_LOST}


def bears(place: FilePaths, sidecar: Sidecar) -> bool:
    """Return whether the content has the stamp and the size of a revision."""
    try:
        status = os.lstat(place.content)
    except FileNotFoundError:
        return False
    is_it = stat.S_ISREG(status.st_mode) and not sidecar.deleted and status.st_size == sidecar.size
    return is_it and shows_stamp(status.st_mtime_ns, sidecar)


def _has_digest(place: FilePaths, sidecar: Sidecar) -> bool:
    return sidecar.digest is not None and digest_of_file(place.content) == sidecar.digest


def is_encrypted_for(address: Address, path: str) -> bool:
    """Return whether a file is an attachment that the service encrypted for an address; this needs no key."""
    if not isinstance(address, DocumentAddress) or address.is_main:
        return False
    with open(path, "rb") as file:
        header = frames.read_header(file)
    return header is not None and header.address == address


def readable(history: History, name: str) -> Iterator[tuple[OlderRevision, Sidecar]]:
    """Yield the older revisions of a resource whose sidecars can be read, newest first."""
    for revision in history.of(name):
        try:
            sidecar = stored_revision.read_sidecar(revision.place)
        except (DamagedError, OSError):
            continue
        if sidecar is not None:
            yield revision, sidecar


def newest_whole(history: History, name: str, *, living: bool) -> tuple[OlderRevision, Sidecar] | None:
    """Return the newest older revision of a resource that is whole by its digest; no tombstone if ``living``."""
    for revision, sidecar in readable(history, name):
        if not (living and sidecar.deleted) and is_whole(revision.place, sidecar):
            return revision, sidecar
    return None


class AccessCheck:
    """Checks owners and permissions below a root; a path that is gone has no fault. Methods raise ``OSError``.

    Everything must belong to ``user``, by number; by default to the owner of the root.
    """

    def __init__(self, root: str, user: int | None = None) -> None:
        self._user = owner.of(root) if user is None else user
        self._is_open = bool(os.stat(root).st_mode & stat.S_IXOTH)

    def directory(self, path: str) -> Iterator[Finding]:
        return self._check(path, _OWN_DIRECTORY)

    def file(self, path: str) -> Iterator[Finding]:
        return self._check(path, _OWN_FILE)

    def history(self, folder: Folder, history: History) -> Iterator[Finding]:
        """Find fault with the history of a folder, and with the files of its revisions."""
        if history.revisions:
            yield from self.directory(folder.paths("").history)
        for revision in history.revisions:
            for path in (revision.place.sidecar, revision.place.content):
                yield from self.file(path)

    def _check(self, path: str, needed: int) -> Iterator[Finding]:
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            return
        if status.st_uid != self._user:
            what = f"it belongs to {owner.name(status.st_uid)}, the data directory to {owner.name(self._user)}"
            yield FindingKind.WRONG_OWNER.at(path, what)
        elif mode & needed != needed:
            yield FindingKind.NO_ACCESS.at(path, f"its permissions are {mode:o}: the service may not use it")
        elif self._is_open and mode & _FOR_OTHERS:
            what = f"its permissions are {mode:o}: every user of the machine may use it"
            yield FindingKind.OPEN_ACCESS.at(path, what)


def without_repetitions(folder: Folder, findings: Iterator[Finding]) -> list[Finding]:
    """Report the wrong owner of a folder only once, and not for every file in it."""
    found = list(findings)
    if not any(finding.kind is FindingKind.WRONG_OWNER and finding.path == folder.path for finding in found):
        return found
    return [each for each in found if each.kind is not FindingKind.WRONG_OWNER or each.path == folder.path]


def give_access(path: str) -> None:
    """Let the service use a file or directory, and no other user. Raises ``OSError``."""
    status = os.lstat(path)
    needed = directories.DIRECTORY_MODE if stat.S_ISDIR(status.st_mode) else files.FILE_MODE
    files.set_mode(path, (stat.S_IMODE(status.st_mode) & ~_FOR_OTHERS) | (needed & 0o700))
