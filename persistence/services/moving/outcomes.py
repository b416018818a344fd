"""The outcomes of a move: for each document and version of a definition, and as a whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

_KINDS = {True: "definitions", False: "documents"}
_MEBIBYTE = 1 << 20


class MoveResult(Enum):
    """The result for a document or a version of a definition; ``CHANGING`` ones are left to the last pass."""

    MOVED = "moved"
    THERE = "there"
    REMOVED = "removed"
    CHANGING = "changing"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """The outcome for ``name``: ``revisions`` were copied, with ``size`` bytes of contents."""

    name: str
    result: MoveResult
    is_definition: bool = False
    revisions: int = 0
    size: int = 0
    cause: str = ""


@dataclass(slots=True)
class MoveReport:
    """Counts the outcomes of one pass."""

    counts: Counter[tuple[bool, MoveResult]] = field(default_factory=Counter)
    revisions: int = 0
    size: int = 0

    def add(self, outcome: MoveOutcome) -> None:
        self.counts[outcome.is_definition, outcome.result] += 1
        self.revisions += outcome.revisions
        self.size += outcome.size

    @property
    def refused(self) -> int:
        """The number of refused documents and versions."""
        return sum(count for (_, result), count in self.counts.items() if result is MoveResult.REFUSED)

    def facts(self) -> dict[str, object]:
        """Return the counts for programs; ``bytes`` are those of contents."""
        counts = {
            kind: {result.value: self.counts[is_definition, result] for result in MoveResult}
            for is_definition, kind in _KINDS.items()
        }
        return {**counts, "revisions": self.revisions, "bytes": self.size}

    def line(self, *, is_dry: bool = False) -> str:
        """Return the counts for people."""
        parts = []
        for is_definition, kind in _KINDS.items():
            own = {result: self.counts[is_definition, result] for result in MoveResult}
            text = f"{own[MoveResult.MOVED]} {kind} {'to be moved' if is_dry else 'moved'}"
            text += f", {own[MoveResult.THERE]} there already"
            for result in (MoveResult.REMOVED, MoveResult.CHANGING, MoveResult.REFUSED):
                text += f", {own[result]} {result.value}" if own[result] else ""
            parts.append(text)
        return f"{'; '.join(parts)}; {self.revisions} revisions, {self.size / _MEBIBYTE:.1f} MiB"
