"""The service whose workers give free memory back, so that what is left is what they hold.

glibc keeps free blocks in the midst of its heap; a request can hide in them, and they look like a leak.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time

from persistence.cli import main

_EVERY = 0.5
"""Seconds; the climb waits for longer before it looks at what is left."""


def _trim() -> None:
    libc = ctypes.CDLL(None)
    while True:
        time.sleep(_EVERY)
        libc.malloc_trim(0)


os.register_at_fork(after_in_child=lambda: threading.Thread(target=_trim, daemon=True).start())

if __name__ == "__main__":
    main()
