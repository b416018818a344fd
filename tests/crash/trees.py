"""Trees of files as values: read from a real directory, and made real again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Content(NamedTuple):
    """The bytes of a file, and its modification time in nanoseconds."""

    data: bytes
    stamp: int


class Entry(NamedTuple):
    """A name in a tree: what it leads to, by number, and the content if that is a file."""

    path: str
    node: int
    content: Content | None


State = tuple[Entry, ...]
"""A whole tree, parents first; two names of one file have its number."""


def seen(root: Path, unseen: tuple[str, ...]) -> State:
    """The tree below a real root, without some names in the root itself."""
    entries = []
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        if inside.parts[0] not in unseen:
            status = path.stat()
            content = None if path.is_dir() else Content(path.read_bytes(), status.st_mtime_ns)
            entries.append(Entry(str(inside), status.st_ino, content))
    return tuple(entries)


def materialise(state: State, root: Path, unseen: tuple[str, ...]) -> None:
    """Make a root hold exactly this tree, with its hard links and modification times, besides ``unseen`` names."""
    _clear(root, unseen, but={path for path, _, content in state if content is None})
    files: dict[int, Path] = {}
    for path, node, content in state:
        target = root / path
        if content is None:
            target.mkdir(exist_ok=True)
        elif node in files:
            os.link(files[node], target)
        else:
            files[node] = target
            target.write_bytes(content.data)
            os.utime(target, ns=(content.stamp, content.stamp))


def _clear(root: Path, unseen: tuple[str, ...], *, but: set[str]) -> None:
    """Remove every file, and directories ``but`` some: one tree has most of the next one's, and they are not cheap."""
    for top in root.iterdir():
        if top.name in unseen:
            continue
        for directory, _, names in os.walk(top, topdown=False):
            for name in names:
                os.unlink(os.path.join(directory, name))
            if os.path.relpath(directory, root) not in but:
                os.rmdir(directory)
