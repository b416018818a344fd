"""A tree for tests: nothing but ``init`` makes one."""

import os
from pathlib import Path

from persistence.storage import root


def initialised(path: Path | str) -> str:
    """The path of a directory, as text, in which there is a tree from now on."""
    root.init(os.path.realpath(path))
    return str(path)
