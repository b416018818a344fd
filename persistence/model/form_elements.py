"""The elements of a form metadata request as a query, or the reason why they are none (spec search 4.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from persistence.errors import BadRequestError
from persistence.limits import MOST_FILTERS
from persistence.model.elements import Element, Vocabulary, count, is_descending, word
from persistence.model.form_query import DEFAULT_LANGUAGE, Filter, FormQuery, Match, Metadata, Page, Sort, Wanted
from persistence.model.instants import parse_time

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

_STRING = (Match.EXACT, Match.SUBSTRING)
_ORDERED = (Match.EXACT, Match.GTE, Match.GT, Match.LTE, Match.LT)
_MATCHES: Mapping[Metadata, tuple[Match, ...]] = {
    Metadata.APPLICATION_NAME: _STRING,
    Metadata.FORM_NAME: _STRING,
    Metadata.FORM_VERSION: _ORDERED,
    Metadata.CREATED: _ORDERED,
    Metadata.LAST_MODIFIED: _ORDERED,
    Metadata.LAST_MODIFIED_BY: _STRING,
    Metadata.TITLE: _STRING,
    Metadata.AVAILABLE: (Match.EXACT,),
    Metadata.OPERATIONS: (Match.EXACT, Match.TOKEN),
}
_TIMES = (Metadata.CREATED, Metadata.LAST_MODIFIED)
_COMBINATORS: Mapping[Metadata, tuple[str, ...]] = {
    **dict.fromkeys(_TIMES, ("min", "max")),
    **dict.fromkeys((Metadata.AVAILABLE, Metadata.OPERATIONS), ("or", "and")),
}
_LOOKED_UP = (Metadata.APPLICATION_NAME, Metadata.FORM_NAME, Metadata.FORM_VERSION)
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def from_elements(root: Element, filters: Iterable[Element], sort: Element | None, page: Element | None) -> FormQuery:
    """The query of a request; only its first ``sort`` and ``pagination`` are to be given.

    The first exact filters of application, form and version are look-ups: exactly of that name, and of ``latest``.

    Raises:
        BadRequestError: an attribute or a text is not what the interface has.
    """
    language = root.attributes.get(LANGUAGE, DEFAULT_LANGUAGE)
    looked_up: dict[Metadata, str] = {}
    made: list[Filter] = []
    for element in filters:
        metadata, match, text = _metadata(element), _match(element), element.text.strip()
        if match is Match.EXACT and metadata in _LOOKED_UP and metadata not in looked_up:
            looked_up[metadata] = text
            if metadata is not Metadata.FORM_VERSION or text == LATEST:
                continue
        made.append(_filter(metadata, match, text, element.attributes.get(LANGUAGE, language)))
        if len(made) > MOST_FILTERS:
            raise BadRequestError(f"more than {MOST_FILTERS} filters in one request are not accepted")
    return FormQuery(
        app=looked_up.get(Metadata.APPLICATION_NAME),
        form=looked_up.get(Metadata.FORM_NAME),
        latest_only=looked_up.get(Metadata.FORM_VERSION) == LATEST,
        all_forms=root.attributes.get("all-forms") == "true",
        ignore_admin=root.attributes.get("ignore-admin-permissions") == "true",
        filters=tuple(made),
        sort=Sort(language=language) if sort is None else _sort(sort, language),
        page=None if page is None else _page(page),
    )


def _filter(metadata: Metadata, match: Match, text: str, language: str) -> Filter:
    if match not in _MATCHES[metadata]:
        allowed = ", ".join(each.value for each in _MATCHES[metadata])
        raise BadRequestError(f"a filter of {metadata.value} has no match {match.value!r}; it has {allowed}")
    return Filter(metadata, match, _wanted(metadata, text), language)


def _wanted(metadata: Metadata, text: str) -> Wanted:
    if metadata is Metadata.FORM_VERSION:
        if not _INTEGER.fullmatch(text):
            raise BadRequestError(f"form-version must be an integer, or {LATEST} in its first exact filter: {text!r}")
        return int(text)
    if metadata in _TIMES:
        return parse_time(text, metadata.value)
    if metadata is Metadata.AVAILABLE:
        if text not in ("true", "false"):
            raise BadRequestError(f"available is 'true' or 'false', not {text!r}")
        return text == "true"
    return tuple(text.split()) if metadata is Metadata.OPERATIONS else text.casefold()


def _sort(element: Element, language: str) -> Sort:
    return Sort(
        _metadata(element), is_descending(element.value("direction")), element.attributes.get(LANGUAGE, language)
    )


def _page(element: Element) -> Page:
    return Page(
        count(element.value("page-number"), "page-number", 1),
        count(element.value("page-size"), "page-size", 10),
    )


def _metadata(element: Element) -> Metadata:
    """What a filter or sort is about, of this server: there are no others (spec search 4.2, remote servers)."""
    metadata = word(Metadata, element.value("metadata").lower(), "metadata")
    combinator = element.value("combinator")
    if element.value("url"):
        raise BadRequestError("there are no remote servers here, so that a filter or sort cannot have a url")
    if combinator and combinator not in _COMBINATORS.get(metadata, ()):
        raise BadRequestError(f"{metadata.value} has no combinator {combinator!r}")
    return metadata


def _match(element: Element) -> Match:
    return word(Match, element.value("match").lower(), "match")
