"""Removing revisions without a trace, in steps of which a crash leaves what recovery finishes or discards.

A revision is removed by the rename of its sidecar to the name of a next one: for readers it is gone then. What is left
looks like a write that was interrupted before its commit, which the next writer, purge or repair discards:

1. rename the content to the name under which the sidecar finds it, too: before the commit, recovery undoes that
2. rename the sidecar to that of a next revision: it leads to the content, and no revision is there any more
3. remove the content, then the sidecar

Each step is durable before the next. Many revisions of one directory go through them together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from persistence.model.sidecar import Sidecar
from persistence.storage import commit, directories, files
from persistence.storage.layout import SERVE, FilePaths, Layout


def remove(revisions: Sequence[FilePaths]) -> list[Sidecar]:
    """Remove revisions that lie in one directory, under the lock of their document; return their sidecars.

    Those that are gone already are left out.
    """
    found = [(paths, sidecar) for paths in revisions if (sidecar := commit.recover(paths).sidecar) is not None]
    if not found:
        return []
    directory = found[0][0].directory
    hide(directory, [(paths, sidecar.id) for paths, sidecar in found if not sidecar.deleted])
    for paths, _ in found:
        files.rename(paths.sidecar, paths.next_sidecar)
    directories.sync(directory)
    for paths, sidecar in found:
        files.remove(paths.next_content(sidecar.id))
    directories.sync(directory)
    for paths, _ in found:
        files.remove(paths.next_sidecar)
    directories.sync(directory)
    return [sidecar for _, sidecar in found]


def hide(directory: str, contents: Sequence[tuple[FilePaths, str]]) -> None:
    """Give contents the names that they have until they are committed, with their ids: only sidecars lead there."""
    hidden = False
    for paths, content_id in contents:
        with suppress(FileNotFoundError):
            files.rename(paths.content, paths.next_content(content_id))
            hidden = True
    if hidden:
        directories.sync(directory)


def unlink_serving(layout: Layout, tags: Sequence[str]) -> None:
    """Remove the links through which another process may read contents with some tags or ids, for nginx."""
    for hour in _names(layout.own(SERVE)):
        for tag in tags:
            with suppress(OSError):
                files.remove(f"{layout.own(SERVE)}/{hour}/{tag}")


def freed(path: str) -> int:
    """Return the bytes that the removal of a file frees; a file with another name frees nothing. Raises ``OSError``."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return 0
    return status.st_size if status.st_nlink == 1 else 0


def freed_below(path: str) -> int:
    """Return the bytes that the removal of a directory frees: of files all of whose names are in it."""
    names, sizes = dict[int, int](), dict[int, tuple[int, int]]()
    for status in _files(path):
        names[status.st_ino] = names.get(status.st_ino, 0) + 1
        sizes[status.st_ino] = status.st_nlink, status.st_size
    return sum(size for inode, (links, size) in sizes.items() if names[inode] >= links)


def _files(path: str) -> Iterator[os.stat_result]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            else:
                yield entry.stat(follow_symlinks=False)


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
