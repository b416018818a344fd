"""Operations: what the current user may do with a piece of data (spec crud 6.5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operations:
    """The allowed operations in their fixed order, or ``None`` where no permissions are defined."""

    allowed: tuple[str, ...] | None

    def __str__(self) -> str:
        return "*" if self.allowed is None else " ".join(self.allowed)


UNRESTRICTED = Operations(None)
"""No permissions are defined: everything is allowed."""
