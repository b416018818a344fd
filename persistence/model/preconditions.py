"""``If-Match`` and ``If-None-Match`` of writes (spec crud 4.6, RFC 9110 13.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tags:
    """The entity tags of a header; ``None`` is ``*``, which every stored content matches."""

    tags: frozenset[str] | None

    def match(self, *current: str) -> bool:
        """Return whether one of the current entity tags is among these."""
        return self.tags is None or not self.tags.isdisjoint(current)

    @property
    def has_weak(self) -> bool:
        """Return whether one of them is a weak tag, which none matches."""
        return self.tags is not None and any(tag.startswith("W/") for tag in self.tags)


@dataclass(frozen=True, slots=True)
class Precondition:
    """A condition on the stored entity tags: one of ``expected``, and none of ``excluded``."""

    expected: Tags | None = None
    excluded: Tags | None = None

    def holds_for(self, *current: str) -> bool:
        """Return whether a write may go on over something stored that has these entity tags."""
        is_expected = self.expected is None or self.expected.match(*current)
        return is_expected and (self.excluded is None or not self.excluded.match(*current))


NO_PRECONDITION = Precondition()


def parse(if_match: str | None, if_none_match: str | None) -> Precondition:
    """Read both headers of a write; ``If-None-Match: *`` means "only if there is nothing yet"."""
    if if_match is None and if_none_match is None:
        return NO_PRECONDITION
    return Precondition(parse_tags(if_match), parse_tags(if_none_match))


def parse_tags(header: str | None) -> Tags | None:
    """Read one header; tags may be quoted (RFC 9110) or bare (as the runtime sends them).

    A weak tag never matches, because the comparison is the strong one; it stays as it is, prefix and all.
    """
    if header is None:
        return None
    if header.strip() == "*":
        return Tags(None)
    return Tags(frozenset(_bare(header.split(","))))


def _bare(parts: Iterable[str]) -> Iterable[str]:
    for part in parts:
        tag = part.strip()
        yield tag[1:-1] if len(tag) > 1 and tag[0] == tag[-1] == '"' else tag
