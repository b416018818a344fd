"""The body of a form metadata request (spec search 4.2)."""

from __future__ import annotations

from collections.abc import Iterable

from persistence.forms.metadata import LANGUAGE
from persistence.forms.streaming import Streaming
from persistence.model import form_elements
from persistence.model.form_elements import Element
from persistence.model.form_query import FormQuery

_FILTER, _SORT, _PAGINATION = "filter", "sort", "pagination"


def read(pieces: Iterable[bytes]) -> FormQuery:
    """The query of a body; elements and attributes that are not known are ignored, and so is the root's name.

    Raises:
        MalformedXmlError: it is not well-formed, or has a document type.
        BadRequestError: it asks for what there is not.
        PersistenceError: whatever ``pieces`` raises about the client.
    """
    with _Reader() as reader:
        reader.read(pieces)
    return form_elements.from_elements(
        reader.root,
        reader.children[_FILTER],
        next(iter(reader.children[_SORT]), None),
        next(iter(reader.children[_PAGINATION]), None),
    )


class _Reader(Streaming):
    """Collects the root and the children that are known."""

    def __init__(self) -> None:
        super().__init__()
        self.parser.CharacterDataHandler = self._text
        self.root = Element()
        self.children: dict[str, list[Element]] = {_FILTER: [], _SORT: [], _PAGINATION: []}
        self._attributes: dict[str, str] | None = None
        self._pieces: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """The root, a child, or something inside one, of which only the text counts."""
        super().start(name, attributes)
        if self.depth == 1:
            self.root = Element(_with_language(attributes))
        elif self.depth == 2 and name in self.children:  # noqa: PLR2004 - a child of the root
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
