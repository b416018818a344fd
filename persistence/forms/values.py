"""Values in a document that streams by: those at many paths at once, and all other text (spec search 2.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from persistence.forms.form_data import is_value_encrypted
from persistence.limits import (
    DEEPEST,
    LONGEST_WORD,
    LONGEST_XML_NAME,
    MOST_ATTRIBUTES,
    MOST_ELEMENTS,
    MOST_HELD,
    MOST_NESTED_TEXT,
    MOST_REST,
    MOST_VALUES,
)
from persistence.model.versions import IndexKey, PathStep
from persistence.xml.streaming import SEPARATOR, Streaming, past_limits

T = TypeVar("T")

_MOST_KEPT = 10_000


class PathState(Generic[T]):
    """A state of the matcher, at an element: ``found`` are the values of the paths that lead here.

    ``following`` are the states of the elements inside, by name; ``None`` where more than the name counts (``chosen``).
    """

    __slots__ = ("_chosen", "_identities", "_inside", "following", "found")

    def __init__(self, nodes: tuple[_Node[T], ...]) -> None:
        self.found = tuple(found for node in nodes for found in node.found)
        self._inside: dict[str, list[tuple[str | None, _Node[T]]]] = {}
        for node in nodes:
            for step, child in node.inside.items():
                self._inside.setdefault(_name(step), []).append((step.id, child))
        self._identities = frozenset(identity for each in self._inside.values() for identity, _ in each)
        is_plain = "" not in self._inside and self._identities <= {None}
        self.following: dict[str, PathState[T]] | None = {} if is_plain else None
        self._chosen: dict[tuple[str | None, str | None], PathState[T]] = {}

    def entered(self, name: str, attributes: Mapping[str, str]) -> PathState[T]:
        """Return the state of an element inside."""
        return self.chosen(name, attributes) if self.following is None else self.following.get(name, OFF_PATH)

    def chosen(self, name: str, attributes: Mapping[str, str]) -> PathState[T]:
        """Return the state of an element inside by its name and id."""
        identity = attributes.get("id")
        key = (name if name in self._inside else None, identity if identity in self._identities else None)
        place = self._chosen.get(key)
        if place is None:
            steps = (*self._inside.get("", ()), *self._inside.get(name, ()))
            place = _place(child for wanted, child in steps if wanted in {None, identity})
            if len(self._chosen) < _MOST_KEPT:
                self._chosen[key] = place
        return place

    def branch(self) -> Iterator[PathState[T]]:
        if self.following is not None:
            for name, inside in self._inside.items():
                place = PathState(tuple(child for _, child in inside))
                self.following[name] = place
                yield place


OFF_PATH: PathState[Any] = PathState(())
"""The state of elements that are on no path."""


class _Node(Generic[T]):
    __slots__ = ("found", "inside")

    def __init__(self) -> None:
        self.found: list[T] = []
        self.inside: dict[PathStep, _Node[T]] = {}


def path_matcher(paths: Iterable[tuple[tuple[PathStep, ...], T]]) -> PathState[T]:
    """Return the state around the root element, for paths of steps below it, each with its value."""
    top: _Node[T] = _Node()
    for steps, found in paths:
        if len(steps) < DEEPEST and not any(SEPARATOR in step.name for step in steps):
            node = top
            for step in (PathStep(""), *steps):
                node = node.inside.setdefault(step, _Node())
            node.found.append(found)
    return _place([top])


def _place(nodes: Iterable[_Node[T]]) -> PathState[T]:
    first = PathState(tuple(nodes))
    waiting = [first]
    while waiting:
        waiting += waiting.pop().branch()
    return first


def _name(step: PathStep) -> str:
    return f"{step.namespace}{SEPARATOR}{step.name}" if step.namespace else step.name


NODE_END = "\x1f"
"""Between text nodes: a character that XML does not have."""


_DATA_URI = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)(?:;[\w.=+-]+)*,", re.ASCII)
_WORD = re.compile(r"[!-~]+")
_ENCODED = re.compile(r"[\w+/=-]+", re.ASCII)
_KILOBYTE = 1000


def file_type(value: str) -> str | None:
    """Return the media type of a value that is a file, as ``data:`` URI or base64; ``file`` if unknown."""
    text = value.strip()
    found = _DATA_URI.match(text)
    if found is not None and (";" in found[0] or _WORD.fullmatch(text)):
        return found["type"]
    return "file" if len(text) > LONGEST_WORD and _WORD.fullmatch(text) else None


def readable(value: str) -> str:
    """Return a value for a reader; the content of a file becomes its type and size, such as ``[image/png, 12 KB]``."""
    content = file_type(value)
    if content is None:
        return value
    size = (len(value) - value.find(",") - 1) * 3 // 4  # of base64, which has four characters for three bytes
    return f"[{content}, {-(-size // _KILOBYTE)} KB]"


def _searched(text: str) -> str:
    if not text.strip() or file_type(text) is not None:
        return ""
    if len(text) <= LONGEST_WORD or max(map(len, text.split())) <= LONGEST_WORD:
        return text
    return _ENCODED.sub(lambda word: "" if len(word[0]) > LONGEST_WORD else word[0], text)


@dataclass(frozen=True, slots=True)
class ExtractedText:
    """The values and other text of a document, without encrypted values and contents of files.

    ``values`` are the values of the elements of each key, by its path, in document order, without empty ones. ``rest``
    are the other text nodes that are not blank, with ``NODE_END`` between, those in elements with elements included.
    """

    values: Mapping[str, tuple[str, ...]]
    rest: str


class ValueReader:
    """A reader of the values of keys in documents."""

    def __init__(self, keys: Iterable[IndexKey]) -> None:
        self.start = path_matcher((key.steps, key.path) for key in keys if key.steps)

    def read(self, pieces: Iterable[bytes]) -> ExtractedText:
        with TextExtraction(self) as extraction:
            return extraction.read(pieces).extracted()


class TextExtraction(Streaming):
    """A parser that collects text.

    It reads every document that is written, so its handlers are closures that call nothing, and text goes directly into
    a list, in which ``NODE_END`` stands for every tag.
    """

    def __init__(self, reader: ValueReader) -> None:
        super().__init__()
        self._parts: list[str] = []
        self._opened: list[int] = []
        self._leaves: list[tuple[int, int]] = []
        self._values: dict[str, list[str]] = {}
        self._nested = 0
        self._rest: list[str] = []
        self._room = MOST_REST
        self._left = MOST_VALUES
        self._held = 0
        self._text: Callable[[str], None] | None = self._parts.append
        self._set_handlers(reader.start)

    def _set_handlers(self, place: PathState[str]) -> None:
        parts, opened, close = self._parts, self._opened, self._close
        places: list[PathState[str]] = []
        elements = encrypted_at = 0

        def start(name: str, attributes: dict[str, str]) -> None:
            nonlocal place, elements, encrypted_at
            places.append(place)
            elements += 1
            if len(places) > DEEPEST or elements > MOST_ELEMENTS or len(name) > LONGEST_XML_NAME:
                raise past_limits(name, attributes, len(places), MOST_ELEMENTS)
            following = place.following
            place = place.chosen(name, attributes) if following is None else following.get(name, OFF_PATH)
            parts.append(NODE_END)
            if place.found:
                opened.append(len(parts))
            if attributes:
                if len(attributes) > MOST_ATTRIBUTES:
                    raise past_limits(name, attributes, len(places), MOST_ELEMENTS)
                if not encrypted_at and is_value_encrypted(attributes):
                    encrypted_at = len(places)
                    self.parser.CharacterDataHandler = None

        def end(_name: str) -> None:
            nonlocal place, encrypted_at
            if place.found:
                close(place.found)
            if encrypted_at == len(places):
                encrypted_at = 0
                self.parser.CharacterDataHandler = self._text
            parts.append(NODE_END)
            place = places.pop()

        self.parser.buffer_text = True
        self.parser.StartElementHandler = start
        self.parser.EndElementHandler = end
        self.parser.CharacterDataHandler = self._text

    def stop_extracting(self) -> None:
        """Discard all values, and only check the rest of the document."""
        self._text = self.parser.CharacterDataHandler = None
        self._room = self._left = 0
        self._rest.clear()
        self._values.clear()

    def _close(self, paths: tuple[str, ...]) -> None:
        """Take the value of an element that ends; its text belongs to the rest only if there are elements inside."""
        parts, at = self._parts, self._opened.pop()
        inside = parts[at:]
        value = ""
        if NODE_END not in inside:
            self._leaves.append((at, len(parts)))
            value = "".join(inside)
        elif self._nested <= MOST_NESTED_TEXT:
            value = "".join(inside).replace(NODE_END, "")
            self._nested += len(value)
        if value and self._left > 0 and file_type(value) is None:
            self._left -= len(value) * len(paths)
            for path in paths:
                self._values.setdefault(path, []).append(value)
        if not self._opened:
            self._held = 0
            self.parser.CharacterDataHandler = self._text
            for first, after in self._leaves:
                parts[first:after] = [""] * (after - first)
            self._leaves.clear()

    def extracted(self) -> ExtractedText:
        """Return the values and the other text of the whole document."""
        return ExtractedText(
            {path: tuple(values) for path, values in self._values.items()}, NODE_END.join(self._rest)[:MOST_REST]
        )

    def _parse(self, piece: bytes, *, is_final: bool) -> None:
        super()._parse(piece, is_final=is_final)
        if not self._opened:
            self._settle()
            return
        self._held += len(piece)
        if self._held > MOST_HELD:
            del self._parts[self._opened[0] :]
            self.parser.CharacterDataHandler = None

    def _settle(self) -> None:
        parts = self._parts
        if NODE_END not in parts:
            return
        ended = len(parts) - parts[::-1].index(NODE_END)
        if self._room > 0:
            texts = list(filter(None, map(_searched, "".join(parts[:ended]).split(NODE_END))))
            self._rest += texts
            self._room -= sum(map(len, texts)) + len(texts)
        del parts[:ended]
