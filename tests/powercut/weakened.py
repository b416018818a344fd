"""The service with one protection taken away, which the environment names: ``WITHOUT=content-fsync``.

``python -m tests.powercut.weakened serve ...`` is ``persistence serve ...`` in everything else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from persistence.cli import main
from persistence.storage import files

VARIABLE = "WITHOUT"
_ByDescriptor = Callable[..., None]


def without_content_fsync() -> None:
    """Contents are neither synced nor handed to the kernel for writing.

    That hint alone hides the missing fsync on ext4 and XFS: what is written early is usually there when the answer is.
    """
    files.sync = _unless(_is_content, files.sync)
    files.begin_writeback = _unless(_is_content, files.begin_writeback)


def without_sidecar_fsync() -> None:
    """Sidecars, likewise."""
    files.sync = _unless(_is_sidecar, files.sync)
    files.begin_writeback = _unless(_is_sidecar, files.begin_writeback)


def without_directory_fsync() -> None:
    """Names are not synced."""
    files.sync_open = lambda _descriptor: None


DEFECTS: Mapping[str, Callable[[], None]] = {
    "content-fsync": without_content_fsync,
    "sidecar-fsync": without_sidecar_fsync,
    "directory-fsync": without_directory_fsync,
}


def _unless(is_meant: Callable[[str], bool], protection: _ByDescriptor) -> _ByDescriptor:
    def weakened(descriptor: int, *part: int) -> None:
        if not is_meant(os.readlink(f"/proc/self/fd/{descriptor}")):
            protection(descriptor, *part)

    return weakened


def _is_sidecar(path: str) -> bool:
    return path.endswith(".json")


def _is_content(path: str) -> bool:
    return not _is_sidecar(path)


if __name__ == "__main__":
    DEFECTS[os.environ[VARIABLE]]()
    main()
