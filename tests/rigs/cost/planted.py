"""The service with defects such as it once had, to show that the search finds them.

``python -m tests.rigs.cost.planted serve …`` takes what ``persistence`` takes.
"""

from __future__ import annotations

import re
from typing import Any

from persistence.http import parsing
from tests.rigs.cost.worker import main

_SEPARATOR = re.compile(r"\s*[,|]\s*")
"""As roles were taken apart: at each of many blanks it begins, and goes on to the last."""

_sent_path = parsing.sent_path
_clean = parsing.clean


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


parsing.sent_path = _with_quadratic_headers
parsing.clean = _with_much_memory

if __name__ == "__main__":
    main()
