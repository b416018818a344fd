"""What another service answers to a search, and to a request for distinct values (spec search 1.6 and 3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from persistence.xml.streaming import Streaming

_ROOT, _ITEM, _VALUE = 1, 2, 3
_DETAIL = 4


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A document in an answer: its attributes as they are there, and the text of the detail of each path."""

    attributes: dict[str, str]
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundDocuments:
    """``total`` is as it is there, empty where it is not."""

    total: str
    documents: list[FoundDocument]


def read_found(pieces: Iterable[bytes]) -> FoundDocuments:
    """The answer of a search.

    Raises:
        MalformedXmlError: it is no well-formed XML.
        PersistenceError: whatever ``pieces`` raises.
    """
    with _Found() as reader:
        reader.read(pieces)
        return FoundDocuments(reader.root.get("search-total", ""), reader.documents)


def read_values(pieces: Iterable[bytes]) -> list[str]:
    """The values in an answer, of whatever was asked for; raises as ``read_found`` does."""
    with _Values() as reader:
        return reader.read(pieces).values


class _Texts(Streaming):
    """Collects the text of one element after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.parser.CharacterDataHandler = self._text
        self._pieces: list[str] = []

    def taken(self) -> str:
        """The text since the last time."""
        text, self._pieces = "".join(self._pieces), []
        return text

    def _text(self, text: str) -> None:
        self._pieces.append(text)


class _Found(_Texts):
    def __init__(self) -> None:
        super().__init__()
        self.root: dict[str, str] = {}
        self.documents: list[FoundDocument] = []
        self._path = ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        if self.depth == _ROOT:
            self.root = attributes
        elif self.depth == _ITEM:
            self.documents.append(FoundDocument(attributes))
        elif self.depth == _DETAIL:
            self._path = attributes.get("path", "")
            self.taken()

    def end(self, name: str) -> None:
        if self.depth == _DETAIL:
            self.documents[-1].details.setdefault(self._path, self.taken())
        super().end(name)


class _Values(_Texts):
    def __init__(self) -> None:
        super().__init__()
        self.values: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        if self.depth == _VALUE:
            self.taken()

    def end(self, name: str) -> None:
        if self.depth == _VALUE:
            self.values.append(self.taken())
        super().end(name)
