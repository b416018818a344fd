"""The list of published forms as XML (spec search 4.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

from persistence.model.instants import shortest
from persistence.model.published import Published

_MOST_KEPT = 64 << 20
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class FormList:
    """Writes lists. What does not depend on the caller is written once for each version, and kept: up to 64 MiB."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Published, bytes]] = {}
        self._kept = 0

    def write(self, total: int, forms: Iterable[tuple[Published, str]]) -> bytes:
        """A page of the list; ``total`` counts all pages, and each form comes with the text of its operations."""
        known = self._known
        pieces = [b'<forms search-total="%d">' % total]
        for published, operations in forms:
            kept = known.get(id(published))
            # A value that is kept is alive, so that no other can have its id.
            element = kept[1] if kept is not None else self._element(published)
            pieces += (b'<form operations="', operations.encode(), b'">', element)
        pieces.append(b"</forms>")
        return b"".join(pieces)

    def _element(self, published: Published) -> bytes:
        element = "".join(_children(published)).encode() + b"</form>"
        if self._kept + len(element) > _MOST_KEPT:
            self._known.clear()
            self._kept = 0
        self._known[id(published)] = published, element
        self._kept += len(element)
        return element


def _children(published: Published) -> Iterator[str]:
    metadata = published.metadata
    yield _element("application-name", published.form.app)
    yield _element("form-name", published.form.name)
    yield f"<form-version>{published.version}</form-version>"
    yield f"<last-modified-time>{shortest(published.modified)}</last-modified-time>"
    if published.modifier is not None:
        yield _element("last-modified-by", published.modifier)
    yield f"<created>{shortest(published.created)}</created>"
    for language, title in metadata.titles.items():
        yield _element("title", title, f" xml:lang={quoteattr(_clean(language))}" if language else "")
    yield f"<available>{'true' if metadata.available else 'false'}</available>"
    if metadata.permissions is not None:
        yield _verbatim(metadata.permissions)


def _element(name: str, text: str, attributes: str = "") -> str:
    return f"<{name}{attributes}>{escape(_clean(text))}</{name}>"


def _clean(text: str) -> str:
    """Text that XML can hold (XML 1.0, production 2): a sidecar may have been edited by hand."""
    return _NOT_IN_XML.sub("\ufffd", text)


def _verbatim(element: str) -> str:
    """A well-formed document as an element: as it is, unless it has what may only stand at a document's beginning."""
    if "<?" in element or "<!" in element:
        return ET.tostring(ET.fromstring(element), encoding="unicode")  # noqa: S314 - it was parsed when it was read
    return element
