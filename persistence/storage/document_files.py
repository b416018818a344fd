"""All files of one document below a root, wherever they are: for erasing it.

The root is that of a tree, or of a directory of attachments, which has the same names. Besides its folders, the
quarantine of repairs may have files of a document, and there may be links for nginx. What is in the trash is on its way
out already.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from persistence.model.addresses import Collection, Form
from persistence.storage import directories, files
from persistence.storage.integrity import digest_of_file
from persistence.storage.layout import QUARANTINE, SERVE, TRASH, Layout
from persistence.storage.managed import DocumentFile, DocumentFiles

_PATIENCE, _PAUSE = 2.0, 0.02
"""Seconds in which a draft that somebody else discards is gone from the trash, and between two looks at it."""


@dataclass(frozen=True, slots=True)
class TreeDocumentFiles(DocumentFiles):
    """The files of a document below a root. Methods raise ``OSError``."""

    root: str
    form: Form
    document: str

    def listed(self) -> Iterator[DocumentFile]:
        """Yield all files but the links, which are other names of them."""
        for directory in (*self.folders, *self._in_quarantine()):
            yield from files_below(directory, self.root)

    def links(self) -> Iterator[str]:
        """Yield the paths of the links for nginx to files of the document."""
        known = set[tuple[int, int]]()
        for directory in (*self.folders, *self._in_quarantine()):
            known |= {_identity(path) for path in _files(directory)}
        yield from (path for path in _files(f"{self.root}/{SERVE}") if _identity(path) in known)

    def remove(self, links: list[str]) -> None:
        """Remove everything that is left: the folders, if they are, what is in the quarantine, links, and the trash.

        Raises ``OSError`` also for what stays there without an error.
        """
        for path in links:
            files.remove(path)
        for directory in (*self.folders, *self._in_quarantine()):
            if files.exists(directory):
                remove_wholly(directory)
                with suppress(FileNotFoundError):
                    directories.sync(os.path.dirname(directory))
        _empty(f"{self.root}/{TRASH}")

    @property
    def folders(self) -> tuple[str, ...]:
        """The directories of the saved document and of its draft."""
        return tuple(Layout(self.root).document(self.form, each, self.document) for each in Collection)

    def _in_quarantine(self) -> list[str]:
        top = f"{self.root}/{QUARANTINE}"
        inside = [os.path.relpath(folder, self.root) for folder in self.folders]
        inside += [f"%{each}" for each in inside]  # an application may have been renamed there
        with suppress(FileNotFoundError, NotADirectoryError):
            runs = sorted(os.listdir(top))
            return [path for run in runs for each in inside if os.path.isdir(path := f"{top}/{run}/{each}")]
        return []


def files_below(directory: str, root: str) -> Iterator[DocumentFile]:
    """Yield the files below a directory, which may be missing, with their paths below a root. Raises ``OSError``."""
    for path in _files(directory):
        yield DocumentFile(os.path.relpath(path, root), os.lstat(path).st_size, _digest(path))


def remove_wholly(path: str) -> None:
    """Remove a directory with everything in it; raise ``OSError`` where any of it stays."""
    directories.remove_tree(path)
    if files.exists(path):
        raise _staying(path)


def _empty(trash: str) -> None:
    end = time.monotonic() + _PATIENCE
    directories.empty(trash)
    left = set(_names(trash))
    while left:
        if time.monotonic() > end:
            raise _staying(f"{trash}/{min(left)}")
        time.sleep(_PAUSE)
        directories.empty(trash)
        left &= set(_names(trash))


def _staying(path: str) -> OSError:
    return OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)


def _names(directory: str) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.listdir(directory)
    return []


def _files(directory: str) -> Iterator[str]:
    if os.path.islink(directory):  # what it leads to is not removed, only the link
        yield directory
        return
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            else:
                yield entry.path


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _digest(path: str) -> str:
    try:
        return digest_of_file(path)
    except OSError:
        return ""
