"""The service with defects that it once had, to show that the search finds such.

``python -m tests.cost.planted serve …`` takes what ``persistence`` takes.
"""

from __future__ import annotations

import re

from persistence.cli import main
from persistence.index import finding
from persistence.index.budget import Budget
from persistence.limits import LARGEST_FOUND
from persistence.model import users
from persistence.model.users import User

_SEPARATOR = re.compile(r"\s*[,|]\s*")
_from_headers = users.from_headers
_held: list[bytes] = []


def _with_quadratic_roles(name: str | None, group: str | None, roles: str | None) -> User:
    """As ``Svc-Roles`` was taken apart: the expression begins at every blank, and goes on to the last."""
    _SEPARATOR.split((roles or "").strip())
    return _from_headers(name, group, roles)


class _Unlimited(Budget):
    """A budget as there was none: a page holds all of its documents, however many are asked for."""

    def restart(self) -> None:
        _held.append(bytes(LARGEST_FOUND))
        super().restart()


users.from_headers = _with_quadratic_roles
finding.Budget = _Unlimited  # type: ignore[misc]

if __name__ == "__main__":
    main()
