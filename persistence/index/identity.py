"""Of which tree an index is: it is known to be up to date only on the same disk and since the machine started.

Copied with its tree, or after a power cut that took the last of what was written, it is compared with the tree first.
"""

from __future__ import annotations

import os


def of(root: str) -> str:
    """What names the tree and the start of the machine; raises ``OSError``."""
    status = os.stat(root)
    return f"{_boot()} {status.st_dev:x} {status.st_ino:x}"


def _boot() -> str:
    """The start of the machine, as Linux names it; empty where it does not."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
