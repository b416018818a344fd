"""Leases of documents: who holds one, for how long, and what is left of it (spec crud 7). No clock is read here."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import msgspec

from persistence.errors import BadRequestError, LockedError, PreconditionError
from persistence.limits import LONGEST_LEASE, LONGEST_SHOWN
from persistence.model.addresses import Form
from persistence.model.texts import short
from persistence.model.users import User

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


def holder_named(user: str, group: str) -> LeaseHolder:
    name = short(user.strip(), "user name of the lease")
    if name is None:
        raise BadRequestError("the body does not name a user: it needs lockinfo/owner/username")
    return LeaseHolder(name, short(group.strip(), "group name of the lease"))
