"""Whether the service's user may use what is in the tree, and nobody else may."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from persistence.maintenance.findings import Finding, Kind
from persistence.maintenance.listing import History
from persistence.maintenance.tree import Folder
from persistence.storage import directories, files, owner
from persistence.storage.layout import HISTORY

_FOR_OTHERS = 0o007
_OWN_FILE = 0o600
_OWN_DIRECTORY = 0o700


class Access:
    """Looks at owners and permissions below a root. Methods raise ``OSError``; what has gone has nothing to say.

    ``user`` is the number of the user to whom everything must belong; without it, it is that of the root.
    """

    def __init__(self, root: str, user: int | None = None) -> None:
        self._user = owner.of(root) if user is None else user
        self._is_open = bool(os.stat(root).st_mode & stat.S_IXOTH)

    def to_directory(self, path: str) -> Iterator[Finding]:
        """What is to say about a directory."""
        return self._to(path, _OWN_DIRECTORY)

    def to_file(self, path: str) -> Iterator[Finding]:
        """What is to say about a file."""
        return self._to(path, _OWN_FILE)

    def to_history(self, folder: Folder, history: History) -> Iterator[Finding]:
        """What is to say about a history and the files of its revisions."""
        if history.revisions:
            yield from self.to_directory(f"{folder.path}/{HISTORY}")
        for revision in history.revisions:
            for path in (revision.place.sidecar, revision.place.content):
                yield from self.to_file(path)

    def _to(self, path: str, needed: int) -> Iterator[Finding]:
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            return
        if status.st_uid != self._user:
            what = f"it belongs to {owner.name(status.st_uid)}, the data directory to {owner.name(self._user)}"
            yield Finding(Kind.WRONG_OWNER, path, what)
        elif mode & needed != needed:
            yield Finding(Kind.NO_ACCESS, path, f"its permissions are {mode:o}: the service may not use it")
        elif self._is_open and mode & _FOR_OTHERS:
            yield Finding(Kind.OPEN_ACCESS, path, f"its permissions are {mode:o}: every user of the machine may use it")


def without_repetitions(folder: Folder, findings: Iterator[Finding]) -> list[Finding]:
    """Where the folder itself belongs to somebody else, so does everything in it: that is said once."""
    found = list(findings)
    if not any(finding.kind is Kind.WRONG_OWNER and finding.path == folder.path for finding in found):
        return found
    return [finding for finding in found if finding.kind is not Kind.WRONG_OWNER or finding.path == folder.path]


def give(path: str) -> None:
    """Let the service use a file or directory, and nobody else; raises ``OSError``."""
    status = os.lstat(path)
    needed = directories.DIRECTORY_MODE if stat.S_ISDIR(status.st_mode) else files.FILE_MODE
    files.set_mode(path, (stat.S_IMODE(status.st_mode) & ~_FOR_OTHERS) | (needed & 0o700))
