"""Operations: what the current user may do with a piece of data (spec crud 6.5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

CREATE, READ, UPDATE, DELETE, LIST = OPERATIONS = ("create", "read", "update", "delete", "list")
"""The names on the wire, in the order in which they are written."""

FINDING = (READ, UPDATE, DELETE)
"""Who has one of these finds a document in a search that does not say otherwise (spec search 1.1)."""


@dataclass(frozen=True, slots=True)
class Operations:
    """The allowed operations in their fixed order, or ``None`` where no permissions are defined."""

    allowed: tuple[str, ...] | None

    def allows(self, *any_of: str) -> bool:
        """Whether one of the operations is allowed."""
        return self.allowed is None or any(name in self.allowed for name in any_of)

    def __str__(self) -> str:
        return "*" if self.allowed is None else " ".join(self.allowed)


UNRESTRICTED = Operations(None)
"""No permissions are defined: everything is allowed."""


@lru_cache(256)
def in_order(names: frozenset[str]) -> Operations:
    """Exactly the named operations; a name that is none is left out."""
    return Operations(tuple(name for name in OPERATIONS if name in names))
