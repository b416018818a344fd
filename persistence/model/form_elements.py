"""The elements of a form metadata request as a query, or the reason why they are none (spec search 4.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from persistence.errors import BadRequestError
from persistence.limits import MOST_FILTERS
from persistence.model.elements import Element, Vocabulary
from persistence.model.form_query import (
    DEFAULT_LANGUAGE,
    FormField,
    FormFilter,
    FormMatch,
    FormPage,
    FormQuery,
    FormSort,
    Wanted,
)
from persistence.model.instants import parse_time
from persistence.model.texts import count, is_descending, word

LANGUAGE = "xml:lang"
LATEST = "latest"
FILTER, SORT, PAGINATION = "filter", "sort", "pagination"
_ABOUT = frozenset({"metadata", "combinator", "url"})
FORMS = Vocabulary(
    "query for forms",
    frozenset({"all-forms", "ignore-admin-permissions"}),
    {
        FILTER: _ABOUT | {"match"},
        SORT: _ABOUT | {"direction"},
        PAGINATION: frozenset({"page-number", "page-size"}),
        "remote-server": frozenset({"url", "username", "password"}),  # accepted and ignored (spec search 4.2)
    },
)
"""What a request may say where what is unknown is refused."""

_STRING = (FormMatch.EXACT, FormMatch.SUBSTRING)
_ORDERED = (FormMatch.EXACT, FormMatch.GTE, FormMatch.GT, FormMatch.LTE, FormMatch.LT)
_MATCHES: Mapping[FormField, tuple[FormMatch, ...]] = {
    FormField.APPLICATION_NAME: _STRING,
    FormField.FORM_NAME: _STRING,
    FormField.FORM_VERSION: _ORDERED,
    FormField.CREATED: _ORDERED,
    FormField.LAST_MODIFIED: _ORDERED,
    FormField.LAST_MODIFIED_BY: _STRING,
    FormField.TITLE: _STRING,
    FormField.AVAILABLE: (FormMatch.EXACT,),
    FormField.OPERATIONS: (FormMatch.EXACT, FormMatch.TOKEN),
}
_TIMES = (FormField.CREATED, FormField.LAST_MODIFIED)
_COMBINATORS: Mapping[FormField, tuple[str, ...]] = {
    **dict.fromkeys(_TIMES, ("min", "max")),
    **dict.fromkeys((FormField.AVAILABLE, FormField.OPERATIONS), ("or", "and")),
}
_LOOKED_UP = (FormField.APPLICATION_NAME, FormField.FORM_NAME, FormField.FORM_VERSION)
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def from_elements(root: Element, filters: Iterable[Element], sort: Element | None, page: Element | None) -> FormQuery:
    """The query of a request; only its first ``sort`` and ``pagination`` are to be given.

    The first exact filters of application, form and version are look-ups: exactly of that name, and of ``latest``.

    Raises:
        BadRequestError: an attribute or a text is not what the interface has.
    """
    language = root.attributes.get(LANGUAGE, DEFAULT_LANGUAGE)
    looked_up: dict[FormField, str] = {}
    made: list[FormFilter] = []
    for element in filters:
        metadata, match, text = _metadata(element), _match(element), element.text.strip()
        if match is FormMatch.EXACT and metadata in _LOOKED_UP and metadata not in looked_up:
            looked_up[metadata] = text
            if metadata is not FormField.FORM_VERSION or text == LATEST:
                continue
        made.append(_filter(metadata, match, text, element.attributes.get(LANGUAGE, language)))
        if len(made) > MOST_FILTERS:
            raise BadRequestError(f"more than {MOST_FILTERS} filters in one request are not accepted")
    return FormQuery(
        app=looked_up.get(FormField.APPLICATION_NAME),
        form=looked_up.get(FormField.FORM_NAME),
        latest_only=looked_up.get(FormField.FORM_VERSION) == LATEST,
        all_forms=root.attributes.get("all-forms") == "true",
        ignore_admin=root.attributes.get("ignore-admin-permissions") == "true",
        filters=tuple(made),
        sort=FormSort(language=language) if sort is None else _sort(sort, language),
        page=None if page is None else _page(page),
    )


def _filter(metadata: FormField, match: FormMatch, text: str, language: str) -> FormFilter:
    if match not in _MATCHES[metadata]:
        allowed = ", ".join(each.value for each in _MATCHES[metadata])
        raise BadRequestError(f"a filter of {metadata.value} has no match {match.value!r}; it has {allowed}")
    return FormFilter(metadata, match, _wanted(metadata, text), language)


def _wanted(metadata: FormField, text: str) -> Wanted:
    if metadata is FormField.FORM_VERSION:
        if not _INTEGER.fullmatch(text):
            raise BadRequestError(f"form-version must be an integer, or {LATEST} in its first exact filter: {text!r}")
        return int(text)
    if metadata in _TIMES:
        return parse_time(text, metadata.value)
    if metadata is FormField.AVAILABLE:
        if text not in ("true", "false"):
            raise BadRequestError(f"available is 'true' or 'false', not {text!r}")
        return text == "true"
    return tuple(text.split()) if metadata is FormField.OPERATIONS else text.casefold()


def _sort(element: Element, language: str) -> FormSort:
    return FormSort(
        _metadata(element), is_descending(element.value("direction")), element.attributes.get(LANGUAGE, language)
    )


def _page(element: Element) -> FormPage:
    return FormPage(
        count(element.value("page-number"), "page-number", 1),
        count(element.value("page-size"), "page-size", 10),
    )


def _metadata(element: Element) -> FormField:
    """What a filter or sort is about, of this server: there are no others (spec search 4.2, remote servers)."""
    metadata = word(FormField, element.value("metadata").lower(), "metadata")
    combinator = element.value("combinator")
    if element.value("url"):
        raise BadRequestError("there are no remote servers here, so that a filter or sort cannot have a url")
    if combinator and combinator not in _COMBINATORS.get(metadata, ()):
        raise BadRequestError(f"{metadata.value} has no combinator {combinator!r}")
    return metadata


def _match(element: Element) -> FormMatch:
    return word(FormMatch, element.value("match").lower(), "match")
