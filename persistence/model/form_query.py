"""Queries for published forms: filters, order and page (spec search 4)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

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
    """A condition on a form; ``wanted`` has the type of the field, and ``language`` is for titles.

    An empty language stands for the first title, and so does one without a title.
    """

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
    before all other conditions (spec search 4.4). ``all_forms`` lists hidden forms, too, and ``ignore_admin`` hides
    from administrators versions that are hidden from others.
    """

    app: str | None = None
    form: str | None = None
    latest_only: bool = False
    all_forms: bool = False
    ignore_admin: bool = False
    filters: tuple[FormFilter, ...] = ()
    sort: FormSort = FormSort()
    page: FormPage | None = None


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A version in the list of another service; ``sum`` differs where anything differs that the list says of it."""

    app: str
    name: str
    version: str
    modified: str
    sum: int
