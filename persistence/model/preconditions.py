"""``If-Match``, ``If-None-Match`` and ``If-Unmodified-Since`` of writes (spec crud 4.6, RFC 9110 13.1)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Tags:
    """The entity tags of a header; ``None`` is ``*``, which every stored content matches."""

    tags: frozenset[str] | None

    def match(self, *current: str) -> bool:
        return self.tags is None or not self.tags.isdisjoint(current)


@dataclass(frozen=True, slots=True)
class Precondition:
    """A condition on what is stored: one of the ``expected`` tags, none of the ``excluded``, and its time.

    ``unmodified_since`` counts only without ``expected`` (RFC 9110 13.2.2). With ``must_exist`` nothing that is stored
    matches no ``expected`` tag; without it, as in the real system, ``expected`` does not count then (spec crud 4.6).
    """

    expected: Tags | None = None
    excluded: Tags | None = None
    unmodified_since: datetime | None = None
    must_exist: bool = False


NO_PRECONDITION = Precondition()


def parse(
    if_match: str | None,
    if_none_match: str | None,
    unmodified_since: datetime | None = None,
    *,
    must_exist: bool = False,
) -> Precondition:
    """Read the headers of a write; ``If-None-Match: *`` means "only if nothing is stored yet"."""
    if if_match is None and if_none_match is None and unmodified_since is None:
        return NO_PRECONDITION
    return Precondition(parse_tags(if_match), parse_tags(if_none_match), unmodified_since, must_exist)


def parse_tags(header: str | None) -> Tags | None:
    """Read one header; tags may be quoted (RFC 9110) or bare (as the runtime sends them).

    A weak tag never matches, because the comparison is the strong one; it stays as it is, prefix and all.
    """
    if header is None:
        return None
    if header.strip() == "*":
        return Tags(None)
    tags = map(str.strip, header.split(","))
    return Tags(frozenset(tag[1:-1] if len(tag) > 1 and tag[0] == tag[-1] == '"' else tag for tag in tags))
