"""Requests to search, and for distinct values, as they are sent to another service (spec search 1.1 and 3)."""

from __future__ import annotations

from collections.abc import Iterator

from persistence.forms.writing import attribute, element, text
from persistence.model.search import DraftFilter, Drafts, Field, Query, Scope, Sort


def search_request(scope: Scope, query: Query) -> bytes:
    """A search whose answer has a detail for each of the query's ``paths``, and may have more."""
    children = [
        *_fields(query),
        *_controls(query),
        _drafts(scope.drafts),
        element("operations", attribute("any-of", " ".join(scope.any_of))),
        element("page-size", content=str(query.size)),
        element("page-number", content=str(query.offset // query.size + 1)),
    ]
    if query.text:  # the first that is about nothing in particular
        children.insert(0, element("query", content=text(query.text)))
    return element("search", content="".join(children)).encode()


def distinct_request(by: Field | str) -> bytes:
    """A request for the different values of one field or control."""
    asked = attribute("metadata", by.value) if isinstance(by, Field) else attribute("path", by)
    return element("distinct-values", content=element("query", asked)).encode()


def _fields(query: Query) -> Iterator[str]:
    for condition in query.fields:
        said = attribute("metadata", condition.field.value) + attribute("match", condition.comparison.value)
        yield element("query", said, text(condition.value))
    if isinstance(query.sort.by, Field):
        yield element("query", attribute("metadata", query.sort.by.value) + _sorted(query.sort))


def _controls(query: Query) -> Iterator[str]:
    """One for each path in their order, then one for each condition: where a query stands does not matter else."""
    sort = query.sort
    for path in dict.fromkeys(query.paths or ()):
        yield element("query", attribute("path", path) + (_sorted(sort) if path == sort.by else ""))
    for condition in query.controls:
        said = attribute("path", condition.path) + attribute("match", condition.match.value)
        yield element("query", said, text(condition.text))


def _sorted(sort: Sort) -> str:
    return attribute("sort", "desc" if sort.is_descending else "asc")


def _drafts(which: DraftFilter) -> str:
    attributes = ""
    if which.kind is Drafts.ONLY and which.for_document is not None:
        attributes = attribute("for-document-id", which.for_document)
    elif which.kind is Drafts.ONLY and which.never_saved:
        attributes = attribute("for-never-saved-document", "true")
    return element("drafts", attributes, which.kind.value)
