"""The small XML documents of the APIs: read the children of their root as elements, write texts and elements."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_SHOWN, MOST_CHILDREN, MOST_QUERY_ELEMENTS, MOST_QUERY_NAMES
from persistence.model.texts import nearest
from persistence.xml.streaming import SEPARATOR, Streaming

_XML = f"http://www.w3.org/XML/1998/namespace{SEPARATOR}"
LANGUAGE = f"{_XML}lang"
"""The name of ``xml:lang`` in elements that were read."""

_CHILD = 2


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The attributes of the root of a kind of request, and by name its children, each with its attributes.

    Names have no namespace; attributes of XML itself, such as ``xml:lang``, may be anywhere.
    """

    request: str
    root: frozenset[str]
    children: Mapping[str, frozenset[str]]

    def check_root(self, root: ET.Element) -> None:
        """Refuse an unknown attribute of the root, whose own name does not matter."""
        _check_attributes(f"a {self.request}", root, self.root)

    def check_child(self, child: ET.Element) -> None:
        """Refuse an unknown child, an unknown attribute of a known one, or an element inside."""
        if child.tag not in self.children:
            hint = _hint(child.tag, self.children)
            raise BadRequestError(f"a {self.request} has no element <{shown_name(child.tag)}>{hint}")
        _check_attributes(f"<{child.tag}> of a {self.request}", child, self.children[child.tag])
        for inner in child:
            raise BadRequestError(
                f"<{child.tag}> of a {self.request} has text, and no element <{shown_name(inner.tag)}>"
            )


def _check_attributes(subject: str, element: ET.Element, known: frozenset[str]) -> None:
    for name in element.keys():  # noqa: SIM118 - to iterate over an element yields its children
        if name not in known and not name.startswith(_XML):
            raise BadRequestError(f"{subject} has no attribute {shown_name(name)!r}{_hint(name, known)}")


def shown_name(name: str) -> str:
    return name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}…"


def _hint(name: str, known: Iterable[str]) -> str:
    near = nearest(name, sorted(known))
    return "" if near is None else f"; the nearest is {near}"


def read_request(pieces: Iterable[bytes], names: Collection[str], vocabulary: Vocabulary | None = None) -> ET.Element:
    """Read the root, of any name, with the children of these names; what is not in the ``vocabulary`` is refused."""
    found: list[ET.Element] = []

    def take(child: ET.Element) -> None:
        if vocabulary is not None:
            vocabulary.check_root(reader.root)
            vocabulary.check_child(child)
        if child.tag in names:
            found.append(child)
        if len(found) > MOST_CHILDREN:
            raise BadRequestError(f"more than {MOST_CHILDREN} {', '.join(names)} are not accepted at once")

    with SmallReader(take) as reader:
        reader.read(pieces)
    if vocabulary is not None:
        vocabulary.check_root(reader.root)
    reader.root.extend(found)
    return reader.root


def text_in(element: ET.Element | None) -> str:
    return "" if element is None else "".join(element.itertext())


class ChildReader(Streaming):
    """A parser that calls ``take`` with each child of the root, as a whole; only one is held at a time.

    ``root`` has the attributes of the root, and no children. Names have their namespace before ``SEPARATOR``.
    """

    def __init__(self, take: Callable[[ET.Element], None]) -> None:
        super().__init__()
        self.root = ET.Element("")
        self._take = take
        self._child = ET.TreeBuilder()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        if self.depth < _CHILD:
            self.root.attrib.update(attributes)
            return
        if self.depth == _CHILD:
            self._child = ET.TreeBuilder()
            self.parser.CharacterDataHandler = self._child.data
        self._child.start(name, attributes)

    def end(self, name: str) -> None:
        super().end(name)
        if self.depth:
            self._child.end(name)
        if self.depth == _CHILD - 1:
            self.parser.CharacterDataHandler = None
            self._take(self._child.close())


def read_children(pieces: Iterable[bytes], take: Callable[[ET.Element], None]) -> ET.Element:
    """Call ``take`` with each child of the root; return the root, with its attributes only."""
    with ChildReader(take) as reader:
        return reader.read(pieces).root


class SmallReader(ChildReader):
    """A reader of requests and sidecars, which are smaller than documents."""

    most_elements = MOST_QUERY_ELEMENTS
    most_names = MOST_QUERY_NAMES


_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TO_CHANGE_IN_TEXT = re.compile("[^\t\n\x20-%'-;=?-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TO_CHANGE_IN_ATTRIBUTES = re.compile("[^ !#-%'-;=?-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_IN_TEXT = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\r", "&#13;"))
_IN_ATTRIBUTES = (*_IN_TEXT, ('"', "&quot;"), ("\t", "&#9;"), ("\n", "&#10;"))


def text(value: str) -> str:
    """Escape a text between tags. Characters that XML cannot have, from sidecars edited by hand, are replaced."""
    return _replaced(value, _IN_TEXT) if _TO_CHANGE_IN_TEXT.search(value) else value


def attribute(name: str, value: str) -> str:
    """Return an attribute, with the blank before it."""
    written = _replaced(value, _IN_ATTRIBUTES) if _TO_CHANGE_IN_ATTRIBUTES.search(value) else value
    return f' {name}="{written}"'


def element(name: str, attributes: str = "", content: str = "") -> str:
    """Return an element; ``attributes`` and ``content`` are XML."""
    return f"<{name}{attributes}>{content}</{name}>" if content else f"<{name}{attributes}/>"


def _replaced(value: str, pairs: Iterable[tuple[str, str]]) -> str:
    value = _NOT_IN_XML.sub("\ufffd", value)
    for character, written in pairs:
        value = value.replace(character, written)
    return value
