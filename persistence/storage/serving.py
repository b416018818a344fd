"""Links for nginx: a name for exactly the content that was opened, so that nginx sends the one the headers describe.

The content's own path would lead to whatever a writer has put there by the time nginx opens it. Links live in a
directory per hour; making a new one removes those older than the hour before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from persistence.storage import directories, files
from persistence.storage.layout import SERVE

_HOUR = 3600


def link(root: str, file: BinaryIO, etag: str, *, now: float | None = None) -> str:
    """Link an open content and return its path relative to the root; raises ``OSError`` where links are refused."""
    hour = int((time.time() if now is None else now) // _HOUR)
    directory = f"{root}/{SERVE}/{hour}"
    try:
        directories.require(directory)
    except FileNotFoundError:
        directories.ensure(f"{root}/{SERVE}")
        if directories.make(directory):
            for old in outdated(f"{root}/{SERVE}", now=now):
                directories.remove_tree(old)
    path = f"{SERVE}/{hour}/{etag}"
    with suppress(FileExistsError):  # the same revision, served before within the hour
        files.link_descriptor(file.fileno(), f"{root}/{path}")
    return path


def outdated(directory: str, *, now: float | None = None) -> Iterator[str]:
    """The directories of hours before the last one."""
    hour = int((time.time() if now is None else now) // _HOUR)
    for name in os.listdir(directory):
        if not name.isdigit() or int(name) < hour - 1:
            yield f"{directory}/{name}"
