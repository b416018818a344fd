"""The small XML documents of the APIs: read a request as its root and children, write texts and elements."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_SHOWN, MOST_CHILDREN, MOST_QUERY_ELEMENTS, MOST_QUERY_NAMES
from persistence.model.texts import nearest
from persistence.xml.streaming import SEPARATOR, Streaming

LANGUAGE = "xml:lang"

_CHILD = 2
_XML = f"http://www.w3.org/XML/1998/namespace{SEPARATOR}"


@dataclass(frozen=True, slots=True)
class RequestElement:
    """An element of a request: its attributes, and its text. Those of XML itself are named as in ``xml:lang``."""

    attributes: Mapping[str, str] = field(default_factory=dict)
    text: str = ""

    def value(self, name: str) -> str:
        """Return an attribute without surrounding blanks; empty where it is absent."""
        return self.attributes.get(name, "").strip()


@dataclass(frozen=True, slots=True)
class RequestDocument:
    """A request: its root, and by name, in document order, the children with the requested names."""

    root: RequestElement
    children: Mapping[str, tuple[RequestElement, ...]]

    def all(self, name: str) -> tuple[RequestElement, ...]:
        """Return the children of a name."""
        return self.children.get(name, ())

    def first(self, name: str) -> RequestElement | None:
        """Return the first child of a name; ``None`` where there is none."""
        return next(iter(self.all(name)), None)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The attributes of the root of a kind of request, and by name its children, each with its attributes.

    Names are those of no namespace; attributes of XML itself, such as ``xml:lang``, may stand anywhere.
    """

    what: str
    root: frozenset[str]
    children: Mapping[str, frozenset[str]]

    def check(self, names: Collection[str], attributes: Iterable[str]) -> None:
        """Refuse an unknown element or attribute; ``names`` lead from the root, whose own name does not matter.

        Raises:
            BadRequestError: there is one, or an element inside a child.
        """
        _, *below = names
        if not below:
            self._check_attributes(f"a {self.what}", attributes, self.root)
        elif len(below) > 1:
            raise BadRequestError(f"<{below[0]}> of a {self.what} has text, and no element <{_shown(below[-1])}>")
        elif below[0] not in self.children:
            meant = _meant(below[0], self.children)
            raise BadRequestError(f"a {self.what} has no element <{_shown(below[0])}>{meant}")
        else:
            self._check_attributes(f"<{below[0]}> of a {self.what}", attributes, self.children[below[0]])

    @staticmethod
    def _check_attributes(what: str, attributes: Iterable[str], known: frozenset[str]) -> None:
        for name in attributes:
            if name not in known and not name.startswith(_XML):
                raise BadRequestError(f"{what} has no attribute {_shown(name)!r}{_meant(name, known)}")


def _shown(name: str) -> str:
    return name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}…"


def _meant(name: str, known: Iterable[str]) -> str:
    near = nearest(name, sorted(known))
    return "" if near is None else f"; the nearest is {near}"


def read_request(
    pieces: Iterable[bytes], names: Collection[str], vocabulary: Vocabulary | None = None
) -> RequestDocument:
    """Read the root and the children of these names, which are in no namespace; the root's name does not matter.

    Other elements and attributes are refused where they are not in the ``vocabulary``; without one, they are ignored.

    Raises:
        MalformedXmlError: the document is not well-formed, or has a document type.
        BadRequestError: it has more children of these names than anyone needs, or what is not known.
        PersistenceError: whatever ``pieces`` raises about the client.
    """
    with _RequestReader(names, vocabulary) as reader:
        reader.read(pieces)
    return RequestDocument(reader.root, {name: tuple(found) for name, found in reader.children.items()})


class TextReader(Streaming):
    """A parser that collects the text of one element after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.parser.CharacterDataHandler = self.take
        self._pieces: list[str] = []

    def take(self, text: str) -> None:
        """Add a piece of text."""
        self._pieces.append(text)

    def taken(self) -> str:
        """Return the text since the last call, and begin with none."""
        text, self._pieces = "".join(self._pieces), []
        return text


class _RequestReader(TextReader):
    """A parser that collects the root and the wanted children."""

    most_elements = MOST_QUERY_ELEMENTS
    most_names = MOST_QUERY_NAMES

    def __init__(self, names: Collection[str], vocabulary: Vocabulary | None) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._path: list[str] = []
        self.root = RequestElement()
        self.children: dict[str, list[RequestElement]] = {name: [] for name in names}
        self._count = 0
        self._attributes: dict[str, str] | None = None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Begin the root, a child, or an element inside one, of which only the text counts."""
        super().start(name, attributes)
        self._path.append(name)
        if self._vocabulary is not None:
            self._vocabulary.check(self._path, attributes)
        if self.depth == 1:
            self.root = RequestElement(_renamed(attributes))
        elif self.depth == _CHILD and name in self.children:
            self._count += 1
            if self._count > MOST_CHILDREN:
                raise BadRequestError(f"more than {MOST_CHILDREN} {', '.join(self.children)} are not accepted at once")
            self._attributes = _renamed(attributes)
            self.taken()

    def end(self, name: str) -> None:
        """Complete a child."""
        super().end(name)
        self._path.pop()
        if self.depth == 1 and self._attributes is not None:
            self.children[name].append(RequestElement(self._attributes, self.taken()))
            self._attributes = None

    def take(self, text: str) -> None:
        """Add a piece of text, if it is in a wanted child."""
        if self._attributes is not None:
            super().take(text)


def _renamed(attributes: dict[str, str]) -> dict[str, str]:
    return {name.replace(_XML, "xml:"): value for name, value in attributes.items()}


_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TO_CHANGE_IN_TEXT = re.compile("[^\t\n\x20-%'-;=?-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TO_CHANGE_IN_ATTRIBUTES = re.compile("[^ !#-%'-;=?-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_IN_TEXT = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\r", "&#13;"))
_IN_ATTRIBUTES = (*_IN_TEXT, ('"', "&quot;"), ("\t", "&#9;"), ("\n", "&#10;"))


def text(value: str) -> str:
    """Return a text between tags that a parser reads as it was, but for what XML cannot hold (XML 1.0, production 2).

    That is replaced: it can only be in a sidecar that was edited by hand.
    """
    return _replaced(value, _IN_TEXT) if _TO_CHANGE_IN_TEXT.search(value) else value


def attribute(name: str, value: str) -> str:
    """Return an attribute, with the blank before it; its value as ``text`` has it."""
    written = _replaced(value, _IN_ATTRIBUTES) if _TO_CHANGE_IN_ATTRIBUTES.search(value) else value
    return f' {name}="{written}"'


def element(name: str, attributes: str = "", content: str = "") -> str:
    """Return an element; ``attributes`` and ``content`` are written already."""
    return f"<{name}{attributes}>{content}</{name}>" if content else f"<{name}{attributes}/>"


def _replaced(value: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Replace characters one by one, ``&`` first: some four times quicker than ``str.translate``."""
    value = _NOT_IN_XML.sub("\ufffd", value)
    for character, written in pairs:
        value = value.replace(character, written)
    return value
