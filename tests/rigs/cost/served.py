"""The service whose workers give free memory back, so that what is left is what they hold.

glibc keeps free blocks in the midst of its heap; a request can hide in them, and they look like a leak.
``python -m tests.rigs.cost.served serve …`` takes what ``persistence`` takes. With ``PLANTED`` in the environment it
has defects such as it once had, to show that the search finds them.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from typing import Any

from persistence.cli import main
from persistence.http import parsing

PLANTED = "TESTS_COST_PLANTED"
_EVERY = 0.5
"""Seconds; the climb waits for longer before it looks at what is left."""

_SEPARATOR = re.compile(r"\s*[,|]\s*")
"""As roles were taken apart: at each of many blanks it begins, and goes on to the last."""

_sent_path = parsing.sent_path
_clean = parsing.clean


def _trim() -> None:
    libc = ctypes.CDLL(None)
    while True:
        time.sleep(_EVERY)
        libc.malloc_trim(0)


def _with_quadratic_headers(environ: dict[str, Any]) -> str:
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            for _ in range(3):
                _SEPARATOR.split(value)
    return _sent_path(environ)


def _with_much_memory(path: str) -> str:
    """A copy for each of many steps, as where all are taken before any is used."""
    copies = [list(path) for _ in range(6_000)]
    return _clean(path) if copies else path


if __name__ == "__main__":
    os.register_at_fork(after_in_child=lambda: threading.Thread(target=_trim, daemon=True).start())
    if os.environ.get(PLANTED):
        parsing.sent_path = _with_quadratic_headers
        parsing.clean = _with_much_memory
    main()
