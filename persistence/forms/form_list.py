"""The list of published forms as XML (spec search 4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from xml.etree import ElementTree as ET

from persistence.forms.writing import attribute, element, text
from persistence.limits import MOST_WRITTEN_LIST
from persistence.model.form_versions import PublishedVersion
from persistence.model.instants import shortest


class FormList:
    """Writes lists. What does not depend on the caller is written once for each version, and kept up to a bound."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[PublishedVersion, bytes]] = {}
        self._kept = 0

    def write(self, total: int, forms: Iterable[tuple[PublishedVersion, str]]) -> bytes:
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

    def _element(self, published: PublishedVersion) -> bytes:
        element = "".join(_children(published)).encode() + b"</form>"
        if self._kept + len(element) > MOST_WRITTEN_LIST:
            self._known.clear()
            self._kept = 0
        self._known[id(published)] = published, element
        self._kept += len(element)
        return element


def _children(published: PublishedVersion) -> Iterator[str]:
    metadata = published.metadata
    yield (
        f"<application-name>{text(published.form.app)}</application-name>"
        f"<form-name>{text(published.form.name)}</form-name>"
        f"<form-version>{published.version}</form-version>"
        f"<last-modified-time>{shortest(published.modified)}</last-modified-time>"
    )
    if published.modifier is not None:
        yield element("last-modified-by", content=text(published.modifier))
    yield f"<created>{shortest(published.created)}</created>"
    for language, title in metadata.titles.items():
        yield element("title", attribute("xml:lang", language) if language else "", text(title))
    yield f"<available>{'true' if metadata.available else 'false'}</available>"
    if metadata.permissions is not None:
        yield _verbatim(metadata.permissions)


def _verbatim(document: str) -> str:
    """A well-formed document as an element: as it is, unless it has what may only stand at a document's beginning."""
    if "<?" in document or "<!" in document:
        return ET.tostring(ET.fromstring(document), encoding="unicode")  # noqa: S314 - it was parsed when it was read
    return document
