"""What writes leave that are not finished: because they are under way, or because they were killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from persistence.storage.layout import Place, unfinished_of


def beside(main: Place) -> Iterator[Place]:
    """The resources in the directory of one, and the older revisions there, that have any; raises ``OSError``."""
    for directory in (main.directory, main.history):
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in os.listdir(directory):
                content = unfinished_of(name)
                if content is not None:
                    yield Place(directory, content)
