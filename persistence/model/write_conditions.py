"""Conditions of writes: entity tags and times (spec crud 4.6, RFC 9110 13.1), and leases (spec crud 7)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime

import msgspec

from persistence.errors import BadRequestError, LockedError, PreconditionError
from persistence.limits import LONGEST_LEASE, LONGEST_SHOWN
from persistence.model.addresses import Form
from persistence.model.permissions import User


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


def parse_precondition(
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


_TIMEOUT = re.compile(r"Second-([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant by both clocks, in seconds: ``ticks`` since the start of the kernel, ``wall`` since 1970.

    ``boot`` names the run of the kernel that ``ticks`` belongs to; empty where it has no name.
    """

    boot: str
    ticks: float
    wall: float


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The user that a LOCK or UNLOCK names in its body; the group is kept, and decides nothing."""

    user: str
    group: str | None = None


class DocumentLease(msgspec.Struct, frozen=True):
    """The right of a user to a document, for ``seconds`` since the moment that the other fields name.

    ``form`` is that by which it was taken; empty in one that an earlier version wrote.
    """

    document: str
    user: str
    group: str | None
    seconds: int
    boot: str
    ticks: float
    wall: float
    form: str = ""

    @classmethod
    def beginning(cls, document: str, form: str, holder: LeaseHolder, seconds: int, now: Moment) -> DocumentLease:
        return cls(document, holder.user, holder.group, seconds, now.boot, now.ticks, now.wall, form)

    def keeps_out(self, user: User, form: Form) -> bool:
        """Return whether it keeps a user from writing to the document. A lease by another form does not.

        A user who may create documents of another form could otherwise block this document, by its id.
        """
        return self.user != user.name and not self.is_elsewhere(form)

    def is_elsewhere(self, form: Form) -> bool:
        """Return whether it was taken by another form, which has documents of its own."""
        return self.form not in ("", str(form))

    def is_in_the_way(self, holder: LeaseHolder, form: Form | None, *, is_stored: bool = False) -> bool:
        """Return whether it keeps somebody from leasing the document, or from giving the lease back.

        If ``form`` is given, a lease by another form does so unless the document ``is_stored`` in this one.
        """
        if form is not None and self.is_elsewhere(form):
            return not is_stored
        return self.user != holder.user

    def is_of(self, now: Moment) -> bool:
        """Return whether it was taken, or last looked at, since the kernel started."""
        return self.boot == now.boot

    def remaining(self, now: Moment) -> int:
        """Return the whole seconds that are left, rounded up; 0 where it has expired.

        Within one run of the kernel the clock that nobody can set decides; after a restart, the wall clock.
        """
        passed = now.ticks - self.ticks if self.boot and self.is_of(now) else now.wall - self.wall
        return max(0, math.ceil(self.seconds - max(0.0, passed)))

    def measured_from(self, now: Moment) -> DocumentLease:
        """Return the rest of the lease as one that begins now, so that a wrong wall clock counts once."""
        return msgspec.structs.replace(self, seconds=self.remaining(now), boot=now.boot, ticks=now.ticks, wall=now.wall)

    def require_of(self, user: str | None) -> None:
        """Refuse a user, if one is given, who does not hold it: a renewal keeps the holder."""
        if user is not None and user != self.user:
            raise PreconditionError(f"{self.user} has leased the document {self.document} now")

    def refusal(self, now: Moment) -> LockedError:
        left = self.remaining(now)
        unit = "second" if left == 1 else "seconds"
        text = f"{self.user} has leased the document {self.document} for {left} more {unit}"
        return LockedError(text, user=self.user, group=self.group, seconds=left)


def parse_timeout(header: str | None) -> int:
    """Read the header ``Timeout`` of a LOCK: seconds."""
    sent = (header or "").strip()
    if not sent:
        raise BadRequestError("a LOCK needs the header Timeout, such as Second-600")
    if sent.lower() == "infinite":
        raise BadRequestError(
            f"a lease cannot be endless: Timeout is at most Second-{LONGEST_LEASE}, and can be renewed"
        )
    found = _TIMEOUT.fullmatch(sent)
    if found is None:
        raise BadRequestError(f"Timeout must be such as Second-600, not {sent[:LONGEST_SHOWN]!r}")
    seconds = int(found[1])
    if not 1 <= seconds <= LONGEST_LEASE:
        raise BadRequestError(f"Timeout must be from Second-1 to Second-{LONGEST_LEASE}, not {sent}")
    return seconds


def parse_remaining(header: str | None) -> int | None:
    """Read the header ``Timeout`` of another service's 423; ``None`` where it is missing or invalid."""
    found = _TIMEOUT.fullmatch((header or "").strip())
    return None if found is None else int(found[1])
