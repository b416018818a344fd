"""Answers of searches and distinct values as XML, in pieces (spec search 1.6 and 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from persistence.forms.writing import attribute, element, text
from persistence.model.permissions import Operations
from persistence.model.search import Field, Hit, Hits

_BETWEEN_VALUES = ", "


def documents(hits: Hits, paths: Sequence[str], operations_of: Callable[[Hit], Operations]) -> Iterator[bytes]:
    """The answer of a search, with the values at ``paths`` in that order, a piece for each of them.

    The same path may be there often, so that the whole can be much more than what was found.
    """
    total = attribute("search-total", str(hits.total))
    if not hits.page:
        yield element("documents", total).encode()
        return
    yield f"<documents{total}>".encode()
    for hit in hits.page:
        attributes = "".join(_attributes(hit, operations_of(hit)))
        if not paths:
            yield element("document", attributes, element("details")).encode()
            continue
        yield f"<document{attributes}><details>".encode()
        for path in paths:
            values = _BETWEEN_VALUES.join(hit.values.get(path, ()))
            yield element("detail", attribute("path", path), text(values)).encode()
        yield b"</details></document>"
    yield b"</documents>"


def distinct_values(found: Iterable[tuple[Field | str, Iterable[str]]]) -> Iterator[bytes]:
    """The answer of distinct values: of each control or field those that there are, a piece for each of them."""
    is_empty = True
    for by, values in found:
        if is_empty:
            yield b"<distinct-values>"
            is_empty = False
        asked = attribute("metadata", by.value) if isinstance(by, Field) else attribute("path", by)
        yield f"<query{asked}>".encode()
        for value in values:
            yield element("value", content=text(value)).encode()
        yield b"</query>"
    yield b"<distinct-values/>" if is_empty else b"</distinct-values>"


def _attributes(hit: Hit, operations: Operations) -> Iterator[str]:
    """In the order of the specification's example; what is not known is left out."""
    yield attribute("created", hit.created)
    yield attribute("last-modified", hit.modified)
    known = {
        "created-by": hit.creator,
        "created-by-groupname": hit.group,
        "last-modified-by": hit.modifier,
        "workflow-stage": hit.stage,
    }
    for name, value in known.items():
        if value is not None:
            yield attribute(name, value)
    yield attribute("name", hit.document)
    yield attribute("draft", "true" if hit.is_draft else "false")
    yield attribute("operations", str(operations))
