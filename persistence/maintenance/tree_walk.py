"""The tree as maintenance walks it: folders, the files in them and their roles, and the service's own files."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from enum import Enum

from persistence import crypto
from persistence.errors import BadRequestError, DamagedError, StartupError
from persistence.model.addresses import (
    DATA_XML,
    FORM_XHTML,
    Address,
    Collection,
    DefinitionAddress,
    DocumentAddress,
    Form,
)
from persistence.model.sidecar import LARGEST_VERSION, Sidecar, shows_stamp
from persistence.model.texts import Instant
from persistence.storage import commit, document_leases, files, owner, root, stored_revision
from persistence.storage.findings import Finding, FindingKind
from persistence.storage.layout import (
    ARRIVED_DRAFTS,
    ARRIVING,
    BODIES,
    CHECKED,
    EVENTS,
    FOLDER_DEPTH,
    HISTORY,
    INDEX,
    LAYOUT,
    LEASE,
    LEASES,
    LOCKS,
    NEEDED,
    OTHERS,
    OWN_DIRECTORIES,
    PAGES,
    QUARANTINE,
    RESTORED,
    SERVE,
    SIDECAR_SUFFIX,
    SPOOL,
    TRASH,
    FilePaths,
    Layout,
    is_escaped,
    is_file_name,
    is_unfinished_own,
    next_content_of,
    revision_of,
    unescape,
    unfinished_of,
)
from persistence.storage.locks import Locks, stripe
from persistence.storage.storage import NOBODY, ChangeEvents, ChangeListener
from persistence.storage.store import outdated_links
from persistence.storage.stored_revision import digest_of_file

_BESIDE = (LAYOUT, ARRIVED_DRAFTS, ARRIVING, BODIES, CHECKED, EVENTS, PAGES, RESTORED)
OWN = {*_BESIDE, *(path.partition("/")[0] for path in OWN_DIRECTORIES)}
"""The names in a root that are the service's own."""

_OF_GIT = ".git"  # Begins the names that git uses; no application's name begins with a dot
_DEFINITIONS = "form"
_COLLECTIONS = {_DEFINITIONS: None, **{collection.value: collection for collection in Collection}}
_FIRST = {_DEFINITIONS: 0, Collection.DRAFT.value: 1}
FORM_DEPTH = 2  # The number of names that lead to a form

Parts = Sequence[tuple[str, ...]]
"""Parts of a place, each as the names that lead to it: ``((),)`` is all of it."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory of resources: a document, a draft, or a version of a definition; ``path`` is absolute."""

    path: str
    form: Form
    collection: Collection | None
    name: str

    def address(self, name: str) -> Address:
        if self.collection is None:
            return DefinitionAddress(self.form, int(self.name), unescape(name))
        return DocumentAddress(self.form, self.collection, self.name, unescape(name))

    def paths(self, name: str) -> FilePaths:
        return FilePaths(self.path, name)

    @property
    def main(self) -> str:
        """The file name of the definition or the data; the other resources are its attachments."""
        return FORM_XHTML if self.collection is None else DATA_XML

    @property
    def scope(self) -> tuple[str, ...]:
        return self.address(self.main).scope

    @property
    def keeps_history(self) -> bool:
        return self.collection is not Collection.DRAFT


class FolderTree:
    """The folders of one root, and their locks; ``listener`` hears of documents that are changed under a lock."""

    def __init__(self, root: str, *, lock_timeout: float, listener: ChangeListener = NOBODY) -> None:
        self.root = os.path.realpath(root)
        self.layout = Layout(self.root)
        self._is_own = os.path.isdir(self.root) and owner.of(self.root) == os.geteuid()
        self._locks = Locks(self.root, lock_timeout, create=self._is_own)
        self._listener = listener

    @contextmanager
    def locked(self, folder: Folder) -> Iterator[ChangeEvents]:
        """Keep writers out of a folder for a block. Nobody writes in a tree that lacks the lock file."""
        change = ChangeEvents(self._listener)
        lock = self.layout.own(LOCKS if self._is_own else f"{LOCKS}/{stripe(folder.scope):02x}")
        has_locks = files.exists(lock) and not os.path.islink(lock)
        try:
            with self._locks.holding(LOCKS, stripe(folder.scope)) if has_locks else nullcontext():
                yield change
        finally:
            change.ends()

    def inside(self, path: str) -> str:
        """Return a path relative to the root, as people read it."""
        return os.path.relpath(path, self.root)

    def parts(self, path: str) -> tuple[str, ...]:
        """Return the names between the root and a path, which is relative to the root or to the current directory."""
        for candidate in (os.path.join(self.root, path), os.path.abspath(path)):
            relative = os.path.relpath(candidate, self.root)
            is_inside = relative.split(os.sep)[0] != os.pardir
            may_be_deleted = relative.count(os.sep) >= FOLDER_DEPTH and os.path.isdir(os.path.dirname(candidate))
            if is_inside and (os.path.lexists(candidate) or may_be_deleted):
                return () if relative == os.curdir else tuple(relative.split(os.sep))
        raise BadRequestError(f"{path} is not in the data directory")

    def walk(self, only: tuple[str, ...] = ()) -> Iterator[Folder | Finding]:
        """Yield every folder below some names, and a finding for what is on the way and not the service's."""
        return self._below(self.root, (), only)

    def count(self, parts: Parts = ((),)) -> int:
        return sum(isinstance(item, Folder) for only in parts for item in self.walk(only))

    def folder_in(self, collection: Collection, folder: Folder) -> Folder:
        return Folder(self.layout.document(folder.form, collection, folder.name), folder.form, collection, folder.name)

    def _below(self, path: str, names: tuple[str, ...], only: tuple[str, ...]) -> Iterator[Folder | Finding]:
        # Definitions first, then drafts, then data: adopted data gets the version of the definitions that are there,
        # and a draft that is saved meanwhile is met in one of the collections, and not missed in both.
        entries = self._directories(path, only[:1])
        is_definition = names[2:] == (_DEFINITIONS,)
        if len(names) == FORM_DEPTH:
            entries = iter(sorted(entries, key=lambda entry: _FIRST.get(os.path.basename(entry.path), len(_FIRST))))
        for entry in entries:
            name = os.path.basename(entry.path)
            if isinstance(entry, Finding):
                is_other_link = entry.kind is FindingKind.LINK and is_definition and not is_version(name)
                yield FindingKind.FOREIGN.at(entry.path, entry.what) if is_other_link else entry
            elif len(names) == FORM_DEPTH and name not in _COLLECTIONS:
                yield FindingKind.FOREIGN.at(entry.path, "no collection of a form has this name")
            elif is_definition and not is_version(name):
                yield FindingKind.FOREIGN.at(entry.path, "not the number of a version")
            elif len(names) + 1 < FOLDER_DEPTH:
                yield from self._below(entry.path, (*names, name), only[1:])
            else:
                app, form, collection = names
                yield Folder(entry.path, Form(unescape(app), unescape(form)), _COLLECTIONS[collection], unescape(name))

    def _directories(self, path: str, only: tuple[str, ...]) -> Iterator[os.DirEntry[str] | Finding]:
        try:
            entries = os.scandir(path)
        except FileNotFoundError:
            return
        except PermissionError:
            yield FindingKind.NO_ACCESS.at(path, "the service may not use it; what is in it was not looked at")
            return
        except OSError as error:
            yield FindingKind.UNREADABLE.at(path, str(error.strerror))
            return
        with entries:
            for entry in entries:
                if (only and entry.name != only[0]) or (path == self.root and _is_own(entry)):
                    continue
                if entry.is_symlink() and is_escaped(entry.name):
                    yield FindingKind.LINK.at(entry.path, "a symbolic link; the service does not follow it")
                elif not entry.is_dir(follow_symlinks=False):
                    yield FindingKind.FOREIGN.at(entry.path, "a file where only directories are")
                elif not is_escaped(entry.name):
                    yield FindingKind.FOREIGN.at(entry.path, "a name that the service does not give")
                else:
                    yield entry


def is_version(name: str) -> bool:
    return name.isascii() and name.isdigit() and not name.startswith("0") and int(name) <= LARGEST_VERSION


def _is_own(entry: os.DirEntry[str]) -> bool:
    if entry.name in OWN or entry.name in OTHERS or entry.name.startswith(_OF_GIT):
        return True
    return is_unfinished_own(entry.name) and not entry.is_dir(follow_symlinks=False)


_NEXT_SIDECAR = re.compile(r"\.(.+)\.json")
_STRANGE_NAME = "a name that the service does not give"
_FOR_OTHERS = 0o007
_OWN_FILE = 0o600
_OWN_DIRECTORY = 0o700


@dataclass(slots=True)
class FolderListing:
    """The file names of resources by role; ``strangers`` are foreign paths, each with the reason."""

    # ``obstacles`` are paths that only the service's own files may have, and where something else than a file lies.
    # ``others`` are names that a content may have, where something else than a file lies: an obstacle if there is a
    # sidecar, else foreign. ``next_contents`` has the content ids by name.
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
        return sorted(self.contents | self.sidecars | self.next_sidecars | set(self.next_contents))

    @property
    def is_empty(self) -> bool:
        return not (self.names or self.has_history or self.strangers or self.obstacles or self.others)

    def add(self, entry: os.DirEntry[str]) -> None:
        name, is_file = entry.name, entry.is_file(follow_symlinks=False)
        if name == HISTORY and entry.is_dir():
            self.has_history = not entry.is_symlink()
            if entry.is_symlink():
                self.strangers.append((entry.path, "a symbolic link, which is not followed"))
        elif name == HISTORY:
            self.obstacles.append(entry.path)
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


def list_folder(path: str) -> FolderListing:
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
    """The older revisions of a folder, oldest first; ``strays`` are contents without a sidecar."""

    # ``strangers`` and ``obstacles`` are as in ``FolderListing``. ``rewritten`` are the revisions, by their file names,
    # of which a rewrite was interrupted: the file that was to replace theirs is still there.
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
        header = crypto.read_header(file)
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
    """Checks owners and permissions below a root; everything must belong to ``user``, by default the root's owner."""

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
    needed = files.DIRECTORY_MODE if stat.S_ISDIR(status.st_mode) else files.FILE_MODE
    files.set_mode(path, (stat.S_IMODE(status.st_mode) & ~_FOR_OTHERS) | (needed & 0o700))


def require_tree(tree: FolderTree) -> None:
    """Check that this is a tree of the service at all, before anything in it is changed."""
    if any(os.path.lexists(tree.layout.own(name)) for name in (LAYOUT, LOCKS)):
        return
    for item in tree.walk() if os.path.isdir(tree.root) else ():
        if isinstance(item, Folder):
            for name in list_folder(item.path).sidecars:
                with suppress(DamagedError, OSError):
                    if stored_revision.read_sidecar(item.paths(name)) is not None:
                        return
    raise root.missing(tree.root)


def check_format(layout: Layout) -> Iterator[Finding]:
    """Find fault with ``layout.json``."""
    path = layout.own(LAYOUT)
    try:
        found = root.read_layout(path)
    except StartupError as error:
        yield FindingKind.LAYOUT.at(path, str(error).partition("cannot be read: ")[2])
        return
    if found is None:
        yield FindingKind.LAYOUT.at(path, "it is missing: is this the right directory, and its disk mounted?")
    else:
        root.check_layout(path, found)


def missing(layout: Layout) -> Iterator[Finding]:
    """Find the service's own directories and lock files that are missing, for example after ``git clean``."""
    for path in map(layout.own, NEEDED):
        if not os.path.lexists(path):
            what = "it was removed, or not copied; the service makes it when it needs it"
            yield FindingKind.OWN_MISSING.at(path, what)


def obstacles(layout: Layout) -> Iterator[Finding]:
    """Find links, pipes and the like with the names of the service's own files or directories."""
    wrong = list[str]()
    # The quarantine comes first, because the others are moved there.
    kinds = dict.fromkeys((QUARANTINE, *OWN_DIRECTORIES, PAGES), stat.S_ISDIR)
    kinds |= dict.fromkeys((*root.LOCK_FILES, LEASE, CHECKED), stat.S_ISREG)
    for name, is_right in kinds.items():
        each = layout.own(name)
        if any(each.startswith(f"{above}/") for above in wrong):
            continue
        with suppress(FileNotFoundError, NotADirectoryError):
            if not is_right(os.lstat(each).st_mode):
                wrong.append(each)
    tops = (top for top in map(layout.own, (INDEX, LEASES, PAGES)) if top not in wrong)
    for each in (*wrong, *(special for top in tops for special in _special_files(top))):
        yield FindingKind.NOT_A_FILE.at(each, "a link, a pipe or a device, where the service has a file or a directory")


def _special_files(path: str) -> Iterator[str]:
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _special_files(entry.path)
            elif not entry.is_file(follow_symlinks=False):
                yield entry.path


def strays(layout: Layout) -> Iterator[Finding]:
    """Find the temporary files of killed workers, and leases that cannot be read. Raises ``OSError``."""
    for stray in _strays(layout):
        yield FindingKind.STRAY_OWN.at(stray, "left by a worker that was killed")
    for path, found in document_leases.listed(layout.root):
        if isinstance(found, DamagedError):
            yield FindingKind.LEASE_UNREADABLE.at(path, "it does not say who has leased a document: LOCK is refused")


def _strays(layout: Layout) -> Iterator[str]:
    with os.scandir(layout.root) as entries:
        unfinished = (each for each in entries if is_unfinished_own(each.name))
        yield from (each.path for each in unfinished if each.is_file(follow_symlinks=False) and _is_old(each))
    with suppress(FileNotFoundError):
        yield from commit.abandoned(_directory(layout, SPOOL))
    with suppress(FileNotFoundError), os.scandir(_directory(layout, TRASH)) as entries:
        yield from (entry.path for entry in entries if _is_old(entry))
    yield from (entry.path for entry in document_leases.unfinished(layout.root) if _is_old(entry))
    with suppress(FileNotFoundError):
        yield from outdated_links(_directory(layout, SERVE))


def _directory(layout: Layout, name: str) -> str:
    path = layout.own(name)
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise FileNotFoundError(path)
    return path


def _is_old(entry: os.DirEntry[str]) -> bool:
    try:
        return time.time() - entry.stat(follow_symlinks=False).st_ctime > commit.ABANDONED_AFTER
    except FileNotFoundError:
        return False
