"""Small request documents: their root and those of its children that mean something (spec search 1.1, 3 and 4.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from persistence.errors import BadRequestError
from persistence.forms.metadata import LANGUAGE
from persistence.model import form_elements
from persistence.model.elements import Element, Elements
from persistence.xml.streaming import Streaming

MOST_CHILDREN = 200
"""Each may be work for every document or form there is."""

_CHILD = 2


def read(pieces: Iterable[bytes], names: Collection[str]) -> Elements:
    """The children of these names, which are in no namespace; others are ignored, and so is the root's name.

    Raises:
        MalformedXmlError: the document is not well-formed, or has a document type.
        BadRequestError: it has more children of these names than anyone needs.
        PersistenceError: whatever ``pieces`` raises about the client.
    """
    with _Reader(names) as reader:
        reader.read(pieces)
    return Elements(reader.root, {name: tuple(found) for name, found in reader.children.items()})


class _Reader(Streaming):
    """Collects the root and the wanted children."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__()
        self.parser.CharacterDataHandler = self._text
        self.root = Element()
        self.children: dict[str, list[Element]] = {name: [] for name in names}
        self._count = 0
        self._attributes: dict[str, str] | None = None
        self._pieces: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """The root, a child, or something inside one, of which only the text counts."""
        super().start(name, attributes)
        if self.depth == 1:
            self.root = Element(_with_language(attributes))
        elif self.depth == _CHILD and name in self.children:
            self._count += 1
            if self._count > MOST_CHILDREN:
                raise BadRequestError(f"more than {MOST_CHILDREN} {', '.join(self.children)} are not accepted at once")
            self._attributes, self._pieces = _with_language(attributes), []

    def end(self, name: str) -> None:
        """A child is complete."""
        super().end(name)
        if self.depth == 1 and self._attributes is not None:
            self.children[name].append(Element(self._attributes, "".join(self._pieces)))
            self._attributes = None

    def _text(self, text: str) -> None:
        if self._attributes is not None:
            self._pieces.append(text)


def _with_language(attributes: dict[str, str]) -> dict[str, str]:
    """The attributes, with the one name that is in a namespace as it is written."""
    return {form_elements.LANGUAGE if name == LANGUAGE else name: value for name, value in attributes.items()}
