"""The service with defects that it once had, to show that the search finds such.

``python -m tests.cost.planted serve …`` takes what ``persistence`` takes.
"""

from __future__ import annotations

import re

from persistence.cli import main
from persistence.http import paths
from persistence.model import users
from persistence.model.users import User

_SEPARATOR = re.compile(r"\s*[,|]\s*")
_from_headers = users.from_headers
_clean = paths.clean


def _with_quadratic_roles(name: str | None, group: str | None, roles: str | None) -> User:
    """As roles were taken apart: at each of many blanks the expression begins, and goes on to the last."""
    for _ in range(8):  # as slow as some expressions were
        _SEPARATOR.split((roles or "").strip())
    return _from_headers(name, group, roles)


def _with_much_memory(path: str) -> str:
    """A copy for each of many steps, as where all are taken before any is used."""
    copies = [list(path) for _ in range(6_000)]
    return _clean(path) if copies else path


users.from_headers = _with_quadratic_roles
paths.clean = _with_much_memory

if __name__ == "__main__":
    main()
