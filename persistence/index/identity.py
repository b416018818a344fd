"""Of which tree an index is: it is known to be up to date only on the same disk and since the machine started.

After a power cut that took the last of what was written, it is compared with the tree first. One that was copied with
its tree is made anew: its files may have been copied at different moments, and the documents have other inodes.
"""

from __future__ import annotations

import os


def of(root: str) -> str:
    """What names the tree and the start of the machine; raises ``OSError``."""
    status = os.stat(root)
    return f"{_boot()} {status.st_dev:x} {status.st_ino:x}"


def is_same_place(first: str, second: str) -> bool:
    """Whether two of these name the same tree, perhaps after different starts of the machine."""
    return first.partition(" ")[2] == second.partition(" ")[2]


def _boot() -> str:
    """The start of the machine, as Linux names it; empty where it does not."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
