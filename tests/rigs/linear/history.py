"""What clients did and saw: the operations of a history."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    READ = "read"
    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Operation:
    """A request and its answer; times are nanoseconds of the one clock that all processes read.

    Without an ``end`` the outcome is unknown (and ``status`` is ``None``): it took effect at some time after its
    start, once, or never. ``token`` is the content, which no two PUTs share: written by a PUT, seen by a read. ``tag``
    and ``instant`` are what the answer says of that revision, or of the tombstone.
    """

    kind: Kind
    start: int
    end: int | None
    status: int | None
    token: str | None = None
    tag: str | None = None
    instant: str | None = None
    if_match: str | None = None
    if_absent: bool = False

    def __post_init__(self) -> None:
        if (self.end is None) != (self.status is None):
            raise ValueError("an outcome has an end and a status, or neither")

    def __str__(self) -> str:
        facts = {
            "status": self.status,
            "token": self.token,
            "tag": self.tag and self.tag[:8],
            "instant": self.instant,
            "if-match": self.if_match and self.if_match[:8],
            "if-absent": self.if_absent or None,
        }
        known = " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
        return f"{self.kind.value} [{self.start}, {self.end or 'unknown'}] {known}"
