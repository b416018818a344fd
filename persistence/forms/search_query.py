"""The bodies of requests to search, and for distinct values (spec search 1 and 3)."""

from __future__ import annotations

from collections.abc import Iterable

from persistence.forms import request_elements
from persistence.model.search import Field, SearchRequest
from persistence.model.search_elements import DISTINCT, QUERY, SEARCH, SEARCHED, distinct_request, search_request
from persistence.model.users import User


def read_search(pieces: Iterable[bytes], user: User, *, is_strict: bool = False) -> SearchRequest:
    """What a user asks for in a body; the root's name does not matter, nor, unless ``is_strict``, what is not known.

    Raises:
        MalformedXmlError: it is not well-formed, or has a document type.
        BadRequestError: it asks for what there is not, or has what is not known.
        PersistenceError: whatever ``pieces`` raises about the client.
    """
    return search_request(request_elements.read(pieces, SEARCHED, SEARCH if is_strict else None), user)


def read_distinct(pieces: Iterable[bytes], *, is_strict: bool = False) -> tuple[Field | str, ...]:
    """The controls and fields of a body, controls first; what is not known as in ``read_search``.

    Raises:
        MalformedXmlError: it is not well-formed, or has a document type.
        BadRequestError: it asks for what there is not, or has what is not known.
        PersistenceError: whatever ``pieces`` raises about the client.
    """
    return distinct_request(request_elements.read(pieces, (QUERY,), DISTINCT if is_strict else None))
