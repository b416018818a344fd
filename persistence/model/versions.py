"""Versions of form definitions: as the service keeps them, and as the headers of requests name them (spec crud 5)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from sys import getsizeof

import msgspec

from persistence.errors import VersionError
from persistence.model.addresses import Form
from persistence.model.instants import Instant
from persistence.model.permissions import Permissions
from persistence.model.texts import flag

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
    """The parts of ``fr-form-metadata`` that the service acts on (spec crud 6.2, spec forms 6.2).

    ``titles`` are by language, in document order. ``permissions`` is the element as XML without namespaces: an empty
    one is not ``None``. ``encrypts`` says that it has encrypted controls (spec forms 4.1).
    """

    titles: dict[str, str] = {}
    available: bool = True
    singleton: bool | None = None
    permissions: str | None = None
    encrypts: bool = False

    @property
    def weight(self) -> int:
        titles = sum(getsizeof(text) for title in self.titles.items() for text in title)
        return titles + getsizeof(self.permissions or "")


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A version that is published, or was until it was deleted.

    ``created`` is the first PUT of its ``form.xhtml`` and ``modified`` the last. ``permissions`` are parsed from its
    metadata. ``weight`` are the bytes of the texts of the metadata in memory.
    """

    form: Form
    version: int
    created: Instant
    modified: Instant
    modifier: str | None
    metadata: FormMetadata
    permissions: Permissions | None
    deleted: bool = False
    weight: int = 0


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
    """An indexed control (spec search 2.2 to 2.4).

    ``path`` is exactly as requests send it, and ``steps`` lead from the root element of the data to the values.
    """

    path: str
    steps: tuple[PathStep, ...]


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
    """Compare the version of a request with the stored one (seed, Versioning 2)."""
    if asked is not None and asked != stored:
        raise VersionError(f"{what} has form definition version {stored}, not {asked}")


def to_read(asked: VersionRequest, latest: int | None) -> int:
    """Return the version a GET, HEAD or DELETE of a definition means (spec crud 5.1)."""
    return number_only(asked, "reading or deleting a form definition") or latest or 1


def must_leave_room(number: int, latest: int | None) -> None:
    """Refuse to publish a version by a number that leaves no room for ``next``.

    A runtime's proxy sends a number for ``next``: one more than the latest version is always allowed.
    """
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
