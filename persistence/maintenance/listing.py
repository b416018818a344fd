"""What lies in a folder, sorted by what each name means."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field

from persistence.model.instants import Instant
from persistence.storage.layout import (
    HISTORY,
    SIDECAR_SUFFIX,
    Place,
    is_file_name,
    pending_of,
    revision_of,
    unfinished_of,
)

_PREPARED = re.compile(r"\.(.+)\.json")


@dataclass(slots=True)
class Listing:
    """The file names of resources by role; ``strangers`` are paths with what is strange about them.

    ``obstacles`` are paths at which something lies that is no file, where only the service's own files may be;
    ``others`` are the names of contents of which that is true: each is strange, or an obstacle if it has a sidecar.
    """

    contents: set[str] = field(default_factory=set)
    sidecars: set[str] = field(default_factory=set)
    prepared: set[str] = field(default_factory=set)
    pending: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    has_history: bool = False
    strangers: list[tuple[str, str]] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    others: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """Every resource that has left anything here."""
        return sorted(self.contents | self.sidecars | self.prepared | set(self.pending))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing at all."""
        return not (self.names or self.has_history or self.strangers or self.obstacles or self.others)


def folder(path: str) -> Listing:
    """What lies in a folder; raises ``OSError``."""
    listing = Listing()
    with os.scandir(path) as entries:
        for entry in entries:
            _sort(entry, listing)
    return listing


def _sort(entry: os.DirEntry[str], listing: Listing) -> None:
    name = entry.name
    is_file = entry.is_file(follow_symlinks=False)
    if name == HISTORY:
        _sort_history(entry, listing)
    elif pending := pending_of(name):
        if is_file:
            listing.pending[pending[0]].append(pending[1])
        else:
            listing.obstacles.append(entry.path)
    elif match := _PREPARED.fullmatch(name):
        if is_file:
            listing.prepared.add(match[1])
        else:
            listing.obstacles.append(entry.path)
    elif name.endswith(SIDECAR_SUFFIX) and is_file_name(name.removesuffix(SIDECAR_SUFFIX)):
        listing.sidecars.add(name.removesuffix(SIDECAR_SUFFIX))
    elif is_file_name(name):
        (listing.contents if is_file else listing.others).add(name)
    else:
        listing.strangers.append((entry.path, "a name that the service does not give"))


def _sort_history(entry: os.DirEntry[str], listing: Listing) -> None:
    if entry.is_dir(follow_symlinks=False):
        listing.has_history = True
    elif entry.is_dir():
        listing.strangers.append((entry.path, "a symbolic link, which is not followed"))
    else:
        listing.obstacles.append(entry.path)


@dataclass(frozen=True, slots=True)
class Revision:
    """An older revision in a history, as its file names say: of which resource, and of when."""

    name: str
    instant: Instant
    place: Place


@dataclass(slots=True)
class History:
    """The older revisions of a folder, oldest first, by what is there of each.

    ``strangers`` and ``obstacles`` are as in ``Listing``. ``rewritten`` are the revisions, by the names of their files,
    whose rewriting was interrupted: what was to take their place is still there.
    """

    rewritten: dict[str, Place] = field(default_factory=dict)
    revisions: list[Revision] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    strangers: list[tuple[str, str]] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing at all, not even something strange."""
        return not (self.rewritten or self.revisions or self.strays or self.strangers or self.obstacles)

    def of(self, name: str) -> list[Revision]:
        """Those of one resource, newest first."""
        return [revision for revision in reversed(self.revisions) if revision.name == name]


def history(path: str) -> History:
    """What lies in the history of a folder: those that have a sidecar, and the files that have none.

    Raises:
        OSError: it cannot be listed; where there is none, it is empty.
    """
    try:
        with os.scandir(f"{path}/{HISTORY}") as entries:
            are_files = {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return History()
    found = History()
    names = sorted(are_files)
    sidecars = {name.removesuffix(SIDECAR_SUFFIX) for name in names if name.endswith(SIDECAR_SUFFIX)}
    for name in names:
        revision = revision_of(name.removesuffix(SIDECAR_SUFFIX))
        if (rewritten := _rewritten(f"{path}/{HISTORY}", name)) is not None and are_files[name]:
            found.rewritten[rewritten.name] = rewritten
        elif revision is None:
            found.strangers.append((f"{path}/{HISTORY}/{name}", "a name that the service does not give"))
        elif not are_files[name]:
            found.obstacles.append(f"{path}/{HISTORY}/{name}")
        elif name.endswith(SIDECAR_SUFFIX):
            place = Place(f"{path}/{HISTORY}", name.removesuffix(SIDECAR_SUFFIX))
            found.revisions.append(Revision(revision[1], revision[0], place))
        elif name not in sidecars:
            found.strays.append(f"{path}/{HISTORY}/{name}")
    return found


def _rewritten(directory: str, name: str) -> Place | None:
    """The older revision that a file belongs to which was to take its place; ``None`` where it is no such file."""
    content = unfinished_of(name)
    return Place(directory, content) if content is not None and revision_of(content) is not None else None
