"""Versions of form definitions as headers name them (spec crud 5), and conditions of writes: tags, times, leases."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from sys import getsizeof

import msgspec

from persistence.errors import BadRequestError, LockedError, PreconditionError, VersionError
from persistence.limits import LONGEST_LEASE, LONGEST_SHOWN
from persistence.model.addresses import Form
from persistence.model.permissions import Permissions, User
from persistence.model.texts import Instant, OrderedType, flag

HIGHEST = 999_999_999  # The highest version that a request can name

HIGHEST_NAMED = 999_000_000
"""The highest version that can be published by its number, unless it follows the latest: the rest is for ``next``."""

_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


V4_0_0 = "4.0.0"  # Only sections and repeats are elements; a repeated grid is one element for each iteration

V4_8_0 = "4.8.0"  # A repeated grid is one element with its iterations inside

V2019_1_0 = "2019.1.0"  # A plain grid is an element as well. Also known as the edge format.

DATA_FORMATS = (V4_0_0, V4_8_0, V2019_1_0)
"""The data formats of form data and of the data inside a definition, oldest first (spec forms 1.2)."""

_DATA_FORMAT = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){2}", re.ASCII)


def is_data_format(text: str) -> bool:
    """Return whether a text names a data format: one of those known here, or a later one (spec runtime 8)."""
    if text in DATA_FORMATS:
        return True
    later = _DATA_FORMAT.fullmatch(text) is not None and tuple(map(int, text.split(".")))
    return later is not False and later > (2019, 1, 0)


class FormMetadata(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The parts of ``fr-form-metadata`` that the service acts on (spec crud 6.2, spec forms 6.2)."""

    titles: dict[str, str] = {}  # by language, in document order
    available: bool = True
    singleton: bool | None = None
    permissions: str | None = None  # the element as XML without namespaces; an empty one is not ``None``
    encrypts: bool = False  # it has encrypted controls (spec forms 4.1)

    @property
    def weight(self) -> int:
        titles = sum(getsizeof(text) for title in self.titles.items() for text in title)
        return titles + getsizeof(self.permissions or "")


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A version that is published, or was until it was deleted."""

    form: Form
    version: int
    created: Instant  # the first PUT of its ``form.xhtml``
    modified: Instant  # the last
    modifier: str | None
    metadata: FormMetadata
    permissions: Permissions | None  # parsed from its metadata
    deleted: bool = False
    weight: int = 0  # bytes of the texts of the metadata in memory


Place = tuple[tuple[str, int], ...]
"""Leads to an element of form data from below the root: local names, each with its number among those of the name."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """An element on the way to a value: local name (empty for any), namespace and, if one is given, ``id``."""

    name: str
    namespace: str = ""
    id: str | None = None


@dataclass(frozen=True, slots=True)
class IndexKey:
    """An indexed control (spec search 2.2 to 2.4)."""

    path: str  # exactly as requests send it
    steps: tuple[PathStep, ...]  # from the root element of the data to the values
    type: OrderedType | None = None  # of values that have an order


@dataclass(frozen=True, slots=True)
class ForDocument:
    """A document whose form version is requested, in ``data`` or in ``draft`` (spec crud 3)."""

    document: str
    is_draft: bool


@dataclass(frozen=True, slots=True)
class VersionRequest:
    """The version headers of a request: nothing, ``next``, a number, or for a document, which wins (spec crud 3)."""

    number: int | None = None
    wants_next: bool = False
    for_document: ForDocument | None = None


ABSENT = VersionRequest()


def parse(version: str | None, document: str | None, is_draft: str | None) -> VersionRequest:
    if version is None and document is None:
        return ABSENT
    if document is not None:
        draft = flag(is_draft, "the for-document draft flag") is True
        return VersionRequest(for_document=ForDocument(document, is_draft=draft))
    text = (version or "").strip()
    return VersionRequest(wants_next=True) if text == "next" else VersionRequest(number=_number(text, " or 'next'"))


class Searched(Enum):
    """The versions that a search covers where it names none (spec search 1.4)."""

    LATEST = "latest"
    ALL = "all"


def parse_searched(version: str | None) -> int | Searched:
    if version is None:
        return Searched.LATEST
    text = version.strip()
    return Searched.ALL if text == Searched.ALL.value else _number(text, " or 'all'")


def parse_reindexed(version: str | None) -> int:
    """Read the version header of a request to reindex, which must be there (spec search 5)."""
    text = (version or "").strip()
    if not text:
        raise VersionError("the form definition version must be sent: one version is reindexed at a time")
    return _number(text, "")


def _number(text: str, or_what: str) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else 0
    if number < 1:
        raise VersionError(f"the form definition version must be a positive integer{or_what}, not {text!r}")
    return number


def number_only(asked: VersionRequest, what: str) -> int | None:
    """Return the number asked for, where ``next`` and for-document have no meaning."""
    if asked.for_document is not None:
        raise VersionError(f"a for-document header has no meaning for {what}")
    if asked.wants_next:
        raise VersionError(f"version 'next' has no meaning for {what}")
    return asked.number


def must_be_sent(number: int | None, what: object) -> int:
    """Return the number in a request that comes from a proxy, which always knows it (spec crud 11)."""
    if number is None:
        raise VersionError(f"the form definition version of {what} must be sent, as a number")
    return number


def only_first(asked: VersionRequest) -> VersionRequest:
    """Restrict a request to version 1, where a form has one version only (spec crud 5.5)."""
    if asked.wants_next or asked.number not in (None, 1):
        raise VersionError("versioning is switched off for this form: there is only version 1")
    return asked if asked.for_document is not None else VersionRequest(number=1)


def must_equal(asked: int | None, stored: int, what: object) -> None:
    if asked is not None and asked != stored:
        raise VersionError(f"{what} has form definition version {stored}, not {asked}")


def to_read(asked: VersionRequest, latest: int | None) -> int:
    """Return the version a GET, HEAD or DELETE of a definition means (spec crud 5.1)."""
    return number_only(asked, "reading or deleting a form definition") or latest or 1


def must_leave_room(number: int, latest: int | None) -> None:
    """Refuse to publish a version by a number that leaves no room for ``next``."""
    # A runtime's proxy sends a number for ``next``: one more than the latest version is always allowed.
    if number > max(HIGHEST_NAMED, (latest or 0) + 1):
        raise VersionError(
            f"version {number} would leave no room for 'next', and can be reached by it only:"
            f" name a version up to {HIGHEST_NAMED}"
        )


def must_be_possible(number: int, what: object) -> int:
    if number > HIGHEST:
        raise VersionError(f"{what} has form definition version {number}, and no version is higher than {HIGHEST}")
    return number


def to_publish(asked: VersionRequest, latest: int | None) -> int:
    """Return the version a PUT of a definition means: gaps are allowed, numbers are reused (spec crud 5.1)."""
    if asked.for_document is not None:
        raise VersionError("a for-document header has no meaning for publishing a form definition")
    if asked.wants_next:
        if latest == HIGHEST:
            raise VersionError(f"there is no version after {HIGHEST}")
        return (latest or 0) + 1
    return asked.number or latest or 1


@dataclass(frozen=True, slots=True)
class Tags:
    """The entity tags of a header; ``None`` is ``*``, which every stored content matches."""

    tags: frozenset[str] | None

    def match(self, *current: str) -> bool:
        return self.tags is None or not self.tags.isdisjoint(current)


@dataclass(frozen=True, slots=True)
class Precondition:
    """A condition on what is stored: one of the ``expected`` tags, none of the ``excluded``, and its time."""

    # With ``must_exist`` nothing that is stored matches no ``expected`` tag; without it, as in the real system,
    # ``expected`` does not count then (spec crud 4.6).
    expected: Tags | None = None
    excluded: Tags | None = None
    unmodified_since: datetime | None = None  # counts only without ``expected`` (RFC 9110 13.2.2)
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
    """Read one header; tags may be quoted (RFC 9110) or bare (as the runtime sends them)."""
    # A weak tag never matches, because the comparison is the strong one; it stays as it is, prefix and all.
    if header is None:
        return None
    if header.strip() == "*":
        return Tags(None)
    tags = map(str.strip, header.split(","))
    return Tags(frozenset(tag[1:-1] if len(tag) > 1 and tag[0] == tag[-1] == '"' else tag for tag in tags))


_TIMEOUT = re.compile(r"Second-([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant by both clocks, in seconds."""

    boot: str  # the run of the kernel that ``ticks`` belongs to; empty where it has no name
    ticks: float  # since the start of the kernel
    wall: float  # since 1970


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The user that a LOCK or UNLOCK names in its body; the group is kept, and decides nothing."""

    user: str
    group: str | None = None


class DocumentLease(msgspec.Struct, frozen=True):
    """The right of a user to a document, for ``seconds`` since the moment that the other fields name."""

    document: str
    user: str
    group: str | None
    seconds: int
    boot: str
    ticks: float
    wall: float
    form: str = ""  # by which it was taken; empty in one that an earlier version wrote

    @classmethod
    def beginning(cls, document: str, form: str, holder: LeaseHolder, seconds: int, now: Moment) -> DocumentLease:
        return cls(document, holder.user, holder.group, seconds, now.boot, now.ticks, now.wall, form)

    def keeps_out(self, user: User, form: Form) -> bool:
        """Return whether it keeps a user from writing to the document. A lease by another form does not."""
        # A user who may create documents of another form could otherwise block this document, by its id.
        return self.user != user.name and not self.is_elsewhere(form)

    def is_elsewhere(self, form: Form) -> bool:
        """Return whether it was taken by another form, which has documents of its own."""
        return self.form not in ("", str(form))

    def is_in_the_way(self, holder: LeaseHolder, form: Form | None, *, is_stored: bool = False) -> bool:
        """Return whether it keeps somebody from leasing the document, or from giving the lease back."""
        # If ``form`` is given, a lease by another form does so unless the document ``is_stored`` in this one.
        if form is not None and self.is_elsewhere(form):
            return not is_stored
        return self.user != holder.user

    def is_of(self, now: Moment) -> bool:
        """Return whether it was taken, or last looked at, since the kernel started."""
        return self.boot == now.boot

    def remaining(self, now: Moment) -> int:
        """Return the whole seconds that are left, rounded up; 0 where it has expired."""
        # Within one run of the kernel the clock that nobody can set decides; after a restart, the wall clock.
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
