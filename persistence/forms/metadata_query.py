"""The body of a form metadata request (spec search 4.2)."""

from __future__ import annotations

from collections.abc import Iterable

from persistence.forms import request_elements
from persistence.model import form_elements
from persistence.model.form_query import FormQuery

_FILTER, _SORT, _PAGINATION = "filter", "sort", "pagination"


def read(pieces: Iterable[bytes]) -> FormQuery:
    """The query of a body; elements and attributes that are not known are ignored, and so is the root's name.

    Raises:
        MalformedXmlError: it is not well-formed, or has a document type.
        BadRequestError: it asks for what there is not.
        PersistenceError: whatever ``pieces`` raises about the client.
    """
    found = request_elements.read(pieces, (_FILTER, _SORT, _PAGINATION))
    return form_elements.from_elements(found.root, found.all(_FILTER), found.first(_SORT), found.first(_PAGINATION))
