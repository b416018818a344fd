"""The body of a form metadata request (spec search 4.2)."""

from __future__ import annotations

from collections.abc import Iterable

from persistence.forms import request_elements
from persistence.model import form_elements
from persistence.model.form_elements import FILTER, FORMS, PAGINATION, SORT
from persistence.model.form_query import FormQuery


def read(pieces: Iterable[bytes], *, is_strict: bool = False) -> FormQuery:
    """The query of a body; the root's name does not matter, nor, unless ``is_strict``, unknown elements and attributes.

    Raises:
        MalformedXmlError: it is not well-formed, or has a document type.
        BadRequestError: it asks for what there is not, or has what is not known.
        PersistenceError: whatever ``pieces`` raises about the client.
    """
    found = request_elements.read(pieces, (FILTER, SORT, PAGINATION), FORMS if is_strict else None)
    return form_elements.from_elements(found.root, found.all(FILTER), found.first(SORT), found.first(PAGINATION))
