"""The bodies of requests to search, and for distinct values (spec search 1 and 3)."""

from __future__ import annotations

from collections.abc import Iterable

from persistence.forms import request_elements
from persistence.model.search import Field, SearchRequest
from persistence.model.search_elements import QUERY, SEARCHED, distinct_request, search_request
from persistence.model.users import User


def read_search(pieces: Iterable[bytes], user: User) -> SearchRequest:
    """What a user asks for in a body; what is not known in it is ignored, and so is the root's name.

    Raises:
        MalformedXmlError: it is not well-formed, or has a document type.
        BadRequestError: it asks for what there is not.
        PersistenceError: whatever ``pieces`` raises about the client.
    """
    return search_request(request_elements.read(pieces, SEARCHED), user)


def read_distinct(pieces: Iterable[bytes]) -> tuple[Field | str, ...]:
    """The controls and fields of a body, controls first.

    Raises:
        MalformedXmlError: it is not well-formed, or has a document type.
        BadRequestError: it asks for what there is not.
        PersistenceError: whatever ``pieces`` raises about the client.
    """
    return distinct_request(request_elements.read(pieces, (QUERY,)))
