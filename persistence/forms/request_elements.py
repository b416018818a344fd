"""Small request documents: their root and those of its children that mean something (spec search 1.1, 3 and 4.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from persistence.errors import BadRequestError
from persistence.forms.metadata import LANGUAGE
from persistence.limits import MOST_CHILDREN, MOST_QUERY_ELEMENTS, MOST_QUERY_NAMES
from persistence.model import form_elements
from persistence.model.elements import Element, Elements, Vocabulary
from persistence.xml.streaming import SEPARATOR, Streaming

_CHILD = 2
_XML = f"http://www.w3.org/XML/1998/namespace{SEPARATOR}"


def read(pieces: Iterable[bytes], names: Collection[str], vocabulary: Vocabulary | None = None) -> Elements:
    """The children of these names, which are in no namespace; the root's name does not matter.

    Other elements and attributes are refused where they are not in the ``vocabulary``; without one, they are ignored.

    Raises:
        MalformedXmlError: the document is not well-formed, or has a document type.
        BadRequestError: it has more children of these names than anyone needs, or what is not known.
        PersistenceError: whatever ``pieces`` raises about the client.
    """
    with _Reader(names, vocabulary) as reader:
        reader.read(pieces)
    return Elements(reader.root, {name: tuple(found) for name, found in reader.children.items()})


class _Reader(Streaming):
    """Collects the root and the wanted children."""

    most_elements = MOST_QUERY_ELEMENTS
    most_names = MOST_QUERY_NAMES

    def __init__(self, names: Collection[str], vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._child = ""
        self.parser.CharacterDataHandler = self._text
        self.root = Element()
        self.children: dict[str, list[Element]] = {name: [] for name in names}
        self._count = 0
        self._attributes: dict[str, str] | None = None
        self._pieces: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """The root, a child, or something inside one, of which only the text counts."""
        super().start(name, attributes)
        if self._vocabulary is not None:
            self._check(self._vocabulary, name, attributes)
        if self.depth == 1:
            self.root = Element(_with_language(attributes))
        elif self.depth == _CHILD and name in self.children:
            self._count += 1
            if self._count > MOST_CHILDREN:
                raise BadRequestError(f"more than {MOST_CHILDREN} {', '.join(self.children)} are not accepted at once")
            self._attributes, self._pieces = _with_language(attributes), []

    def _check(self, vocabulary: Vocabulary, name: str, attributes: dict[str, str]) -> None:
        said = [key for key in attributes if not key.startswith(_XML)]
        if self.depth == 1:
            vocabulary.check_root(said)
        elif self.depth == _CHILD:
            vocabulary.check_child(name, said)
            self._child = name
        else:
            vocabulary.check_inner(self._child, name)

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
