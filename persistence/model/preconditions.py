"""``If-Match``: whether a write may go on over what is stored now (spec crud 4.6, RFC 9110 13.1.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IfMatch:
    """The entity tags of an ``If-Match`` header; ``None`` is ``*``, which anything stored satisfies."""

    tags: frozenset[str] | None

    def holds_for(self, *current: str) -> bool:
        """Whether one of the current entity tags is among those the client expects."""
        return self.tags is None or not self.tags.isdisjoint(current)


def parse_if_match(header: str | None) -> IfMatch | None:
    """Read the header; tags may be quoted (RFC 9110) or bare (as the runtime sends them).

    A weak tag never matches, because the comparison is the strong one; it stays as it is, prefix and all.
    """
    if header is None:
        return None
    if header.strip() == "*":
        return IfMatch(None)
    return IfMatch(frozenset(_bare(header.split(","))))


def _bare(parts: Iterable[str]) -> Iterable[str]:
    for part in parts:
        tag = part.strip()
        yield tag[1:-1] if len(tag) > 1 and tag[0] == tag[-1] == '"' else tag
