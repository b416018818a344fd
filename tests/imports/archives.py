"""Archives for tests, and comparisons of trees."""

import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A ZIP file of these entries."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return held.getvalue()


def tree(root: Path | str) -> dict[str, tuple[bytes, int]]:
    """All files of a tree, but those of the service's own: the content, and of contents the time."""
    found = {}
    for folder, folders, names in os.walk(root):
        if folder == str(root):
            folders[:] = [each for each in folders if not each.startswith(".")]
            continue
        for name in names:
            path = Path(folder, name)
            time = 0 if name.endswith(".json") else path.stat().st_mtime_ns
            found[str(path.relative_to(root))] = path.read_bytes(), time
    return found
