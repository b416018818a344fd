"""The service with defects that it once had, to show that the search finds such.

``python -m tests.cost.planted serve …`` takes what ``persistence`` takes.
"""

from __future__ import annotations

import re

from persistence.cli import main
from persistence.http import paths
from persistence.model import users
from persistence.model.users import User
from persistence.store import layout

_SEPARATOR = re.compile(r"\s*[,|]\s*")
_from_headers = users.from_headers


def _with_quadratic_roles(name: str | None, group: str | None, roles: str | None) -> User:
    """As roles were taken apart: at each of many blanks the expression begins, and goes on to the last."""
    _SEPARATOR.split((roles or "").strip())
    return _from_headers(name, group, roles)


users.from_headers = _with_quadratic_roles
paths.LONGEST_NAME = layout.LONGEST_NAME = 1 << 20  # type: ignore[attr-defined]  # names were kept however long

if __name__ == "__main__":
    main()
