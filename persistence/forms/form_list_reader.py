"""The list of published forms as another service answers it (spec search 4.3)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from persistence.xml.streaming import Streaming

_FORM = 2
_PART = 3
_NAMES = ("application-name", "form-name", "form-version", "last-modified-time")


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A version in the list; ``sum`` differs where anything differs that the list says of it."""

    app: str
    name: str
    version: str
    modified: str
    sum: int


def read_form_list(pieces: Iterable[bytes]) -> list[ListedVersion]:
    """The versions in a list, in its order.

    Raises:
        MalformedXmlError: it is no well-formed XML.
        PersistenceError: whatever ``pieces`` raises.
    """
    with _Reader() as reader:
        return reader.read(pieces).versions


class _Reader(Streaming):
    def __init__(self) -> None:
        super().__init__()
        self.parser.CharacterDataHandler = self._text
        self.versions: list[ListedVersion] = []
        self._said: dict[str, str] = {}
        self._sum = 0
        self._name = ""
        self._pieces: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        if self.depth == _FORM:
            self._said, self._sum = {}, 0
            return
        if self.depth == _PART:
            self._name, self._pieces = name, []
        self._add(f"<{name} {sorted(attributes.items())}")

    def end(self, name: str) -> None:
        if self.depth == _PART and self._name in _NAMES:
            self._said.setdefault(self._name, "".join(self._pieces).strip())
        elif self.depth == _FORM:
            app, form, version, modified = (self._said.get(each, "") for each in _NAMES)
            self.versions.append(ListedVersion(app, form, version, modified, self._sum))
        super().end(name)

    def _text(self, text: str) -> None:
        self._pieces.append(text)
        self._add(text)

    def _add(self, text: str) -> None:
        self._sum = zlib.crc32(text.encode(errors="replace"), self._sum)
