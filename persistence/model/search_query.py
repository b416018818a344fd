"""Searches of the documents of a form, and of published forms: queries and answers as values (spec search 1, 3, 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from persistence.model.permissions import FINDING, NOBODY, OwnerSets, User
from persistence.model.sidecar import DocumentFacts


class TextMatch(Enum):
    """The comparison of a control query, with its name in requests."""

    SUBSTRING = "substring"
    TOKEN = "token"  # noqa: S105 - a word of the interface
    EXACT = "exact"


class Field(Enum):
    """A property of a document beside its content, with its name in requests."""

    CREATED = "created"
    LAST_MODIFIED = "last-modified"
    CREATED_BY = "created-by"
    LAST_MODIFIED_BY = "last-modified-by"
    WORKFLOW_STAGE = "workflow-stage"


class Comparison(Enum):
    """The comparison of a field, with its name in requests: times have the last two, texts the first."""

    EXACT = "exact"
    GTE = "gte"
    LT = "lt"


class Drafts(Enum):
    """The part that drafts have in a search, with its name in requests."""

    INCLUDE = "include"
    EXCLUDE = "exclude"
    ONLY = "only"


@dataclass(frozen=True, slots=True)
class ControlFilter:
    """A condition on the values of an indexed control: one of them matches ``text``, which is not empty."""

    path: str
    match: TextMatch
    text: str


@dataclass(frozen=True, slots=True)
class FieldFilter:
    """A condition on a field; ``value`` is an ``Instant`` where the field is a time."""

    field: Field
    comparison: Comparison
    value: str


@dataclass(frozen=True, slots=True)
class Sort:
    """An order of documents by a field or by a control's path; those saved last come first among equals."""

    by: Field | str = Field.LAST_MODIFIED
    is_descending: bool = True


@dataclass(frozen=True, slots=True)
class DraftFilter:
    """A condition on drafts; ``for_document`` and ``never_saved`` narrow down ``ONLY`` (search 1.5)."""

    kind: Drafts = Drafts.INCLUDE
    for_document: str | None = None
    never_saved: bool = False


@dataclass(frozen=True, slots=True)
class VisibleOwners:
    """Owners whose documents are seen, by version; with ``is_by_saved`` the owner of a document also owns its draft."""

    of_version: Callable[[int], OwnerSets]
    is_by_saved: bool = False


EVERYTHING = VisibleOwners(lambda _: frozenset())
"""All documents of all versions."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The documents that are searched: of some versions of a form, or of all, as far as they are ``seen``.

    For an index that decides itself: the user has one of the operations ``any_of`` on each found document.
    """

    versions: tuple[int, ...] | None = None
    drafts: DraftFilter = DraftFilter()
    seen: VisibleOwners = EVERYTHING
    any_of: tuple[str, ...] = FINDING

    @property
    def is_empty(self) -> bool:
        """Return whether no document of any version is visible, which is known without a search."""
        return self.versions is not None and all(NOBODY in self.seen.of_version(each) for each in self.versions)


@dataclass(frozen=True, slots=True)
class Query:
    """The conditions, all of which must hold, the order, and the requested part of the list.

    ``text`` is searched in the whole text of a document. ``paths`` are the controls whose values are returned; ``None``
    is all. Without ``needs_total`` an index may stop to count once it has the page.
    """

    text: str = ""
    controls: tuple[ControlFilter, ...] = ()
    fields: tuple[FieldFilter, ...] = ()
    sort: Sort = Sort()
    offset: int = 0
    size: int = 10
    paths: tuple[str, ...] | None = None
    needs_total: bool = True


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A request to search.

    ``paths`` are the controls whose values are requested, in that order; with ``all_indexed`` they are all of the
    index, and ``query`` is still to be cut down to them. A user with one of the operations ``any_of`` finds a document.
    """

    query: Query = Query()
    paths: tuple[str, ...] = ()
    drafts: DraftFilter = DraftFilter()
    any_of: tuple[str, ...] = FINDING
    all_indexed: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """A found document; ``values`` are the values of its indexed controls in document order, without empty ones.

    The version among the ``facts`` is 0 where it is not known. Of a draft, ``saved_owner`` is the owner of the saved
    document.
    """

    document: str
    is_draft: bool
    facts: DocumentFacts
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    saved_owner: User | None = None


@dataclass(frozen=True, slots=True)
class Hits:
    """The number of matches, and the requested page; with ``has_more`` a page follows, and ``total`` is a maximum."""

    total: int = 0
    page: tuple[Hit, ...] = ()
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A document in the answer of another service: its attributes as they are, and the text at each path."""

    attributes: dict[str, str]
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundDocuments:
    """The answer of another service to a search; ``total`` is as it is there, empty where it is not."""

    total: str
    documents: list[FoundDocument]


DEFAULT_LANGUAGE = "en"


class FormField(Enum):
    """A property that forms are filtered and sorted by, with its name in requests."""

    APPLICATION_NAME = "application-name"
    FORM_NAME = "form-name"
    FORM_VERSION = "form-version"
    CREATED = "created"
    LAST_MODIFIED = "last-modified"
    LAST_MODIFIED_BY = "last-modified-by"
    TITLE = "title"
    AVAILABLE = "available"
    OPERATIONS = "operations"


class FormMatch(Enum):
    """The comparison of a filter, with its name in requests."""

    EXACT = "exact"
    SUBSTRING = "substring"
    TOKEN = "token"  # noqa: S105 - a word of the interface
    GTE = "gte"
    GT = "gt"
    LTE = "lte"
    LT = "lt"


Wanted = str | int | bool | datetime | tuple[str, ...]
"""Texts are case-folded; times are aware; a tuple holds the words of ``operations``."""


@dataclass(frozen=True, slots=True)
class FormFilter:
    """A condition on a form; ``wanted`` has the type of the field. An empty ``language`` stands for the first title."""

    metadata: FormField
    match: FormMatch
    wanted: Wanted
    language: str = DEFAULT_LANGUAGE


@dataclass(frozen=True, slots=True)
class FormSort:
    """An order of forms; ``language`` as in ``FormFilter``."""

    metadata: FormField = FormField.LAST_MODIFIED
    is_descending: bool = True
    language: str = DEFAULT_LANGUAGE


@dataclass(frozen=True, slots=True)
class FormPage:
    """A part of the list: the first page has number 1, and each has ``size`` forms."""

    number: int = 1
    size: int = 10


@dataclass(frozen=True, slots=True)
class FormQuery:
    """A request for form metadata.

    ``app`` and ``form`` look up names exactly as they are; ``latest_only`` keeps the highest version of each form
    before all other conditions (spec search 4.4), and is ``None`` where a GET does not say. ``all_forms`` lists hidden
    forms, too, and ``ignore_admin`` hides from administrators versions that are hidden from others.
    """

    app: str | None = None
    form: str | None = None
    latest_only: bool | None = False
    all_forms: bool = False
    ignore_admin: bool = False
    filters: tuple[FormFilter, ...] = ()
    sort: FormSort = FormSort()
    page: FormPage | None = None


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A version in the list of another service; ``sum`` is a checksum of its whole entry."""

    app: str
    name: str
    version: str
    modified: str
    sum: int
