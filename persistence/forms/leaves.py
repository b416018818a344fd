"""Leaves: the elements without elements inside, one after the other, while a document streams by and is changed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from persistence.forms.editing import StartTag, StreamEditor
from persistence.forms.form_data import FR_NAMESPACE, OLD_MARKER
from persistence.forms.matching import PathState, off_path, path_matcher
from persistence.model.form_versions import PathStep
from persistence.xml.streaming import SEPARATOR

_WANTED, _VALUE = "wanted", "value"


@dataclass(slots=True)
class OpenElement:
    """An element that has begun, and has no elements inside so far.

    ``at`` is the byte of its start tag. ``tag`` is that tag without dropped attributes; ``None`` where there are none.
    ``prefix`` is for the form runner's attributes, ``None`` where none is declared. ``is_wanted`` says that the element
    is at one of the paths, or inside, and ``is_value`` that it is so of the values. ``most`` is the number of
    characters of its text that are of interest.
    """

    at: int
    attributes: Mapping[str, str]
    tag: StartTag | None
    prefix: str | None
    is_wanted: bool
    is_value: bool
    most: int


class LeafEditor(StreamEditor):
    """A parser that follows ``paths`` and ``values`` (names from below the root element), and handles leaves.

    Most elements of large documents have neither attributes nor text: they are skipped.

    ``dropped`` are marks of encryption to be removed: names of attributes in the form runner's namespace. The old mark,
    which is in none, is removed with them.
    """

    dropped: tuple[str, ...] = ()

    def __init__(self, paths: Iterable[tuple[str, ...]] = (), values: Iterable[tuple[str, ...]] = ()) -> None:
        super().__init__(FR_NAMESPACE)
        self.parser.buffer_text = True
        self.parser.CharacterDataHandler = self._text
        self.path: list[str] = []
        """The local names of the elements that have begun, the root element first."""
        self._marks = frozenset(f"{FR_NAMESPACE}{SEPARATOR}{name}" for name in self.dropped)
        kinds = ((path, kind) for kind, found in ((_WANTED, paths), (_VALUE, values)) for path in found)
        self._place: PathState[str] = path_matcher((tuple(map(PathStep, path)), kind) for path, kind in kinds)
        self._places: list[PathState[str]] = []
        self._lost: PathState[str] = off_path()
        self._wanted_from = self._value_from = 0
        self._at: int | None = None
        self._begun: OpenElement | None = None
        self._texts: list[str] = []
        self._size = 0

    @abstractmethod
    def looks_at(self, attributes: Mapping[str, str], *, is_wanted: bool) -> int:
        """Return how many characters of the text of an element that begins are of interest, or 0."""

    @abstractmethod
    def leaf(self, begun: OpenElement, text: str, end: int) -> None:
        """Handle an element with attributes or text, and no elements inside.

        ``end`` is the byte of its end tag, or of its only tag.
        """

    @abstractmethod
    def long(self, begun: OpenElement) -> None:
        """Handle an element that is longer than ``looks_at`` wanted, or than is held in memory."""

    def branch(self, begun: OpenElement, text: str) -> None:
        """Handle an element with attributes or text that has elements inside; ``text`` is before the first."""

    def between(self, text: str) -> None:
        """Handle text in a wanted element, after an element inside."""

    @property
    def settled(self) -> int:
        """The number of bytes before the element that is handled."""
        if self._begun is not None:
            return self._begun.at
        return super().settled if self._at is None else self._at

    @property
    def place(self) -> tuple[str, ...]:
        """The names that lead from below the root element to the one that is handled."""
        return tuple(self.path[1:])

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Begin an element; the one around it is no leaf."""
        super().start(name, attributes)
        if self._begun is not None:
            begun, self._begun = self._begun, None
            self.branch(begun, "".join(self._texts))
        self.path.append(name.rpartition(SEPARATOR)[2])
        place = self._place
        self._places.append(place)
        following = place.following
        self._place = place = place.chosen(name, attributes) if following is None else following.get(name, self._lost)
        if place.found:
            self._find(place.found)
        self._at = self.parser.CurrentByteIndex
        if attributes:
            self._begin_at(self._at, attributes)

    def end(self, name: str) -> None:
        """End an element; it is a leaf if none has begun inside."""
        self._at = None
        if self._begun is not None:
            begun, self._begun = self._begun, None
            self.leaf(begun, "".join(self._texts), self.parser.CurrentByteIndex)
        super().end(name)
        self.path.pop()
        self._place = self._places.pop()
        if self.depth < self._wanted_from:
            self._wanted_from = 0
        if self.depth < self._value_from:
            self._value_from = 0

    def let_go(self) -> None:
        """Give up the element that has begun last: it is too long to be held."""
        if self._at is not None:
            self._begin_at(self._at, {})
        self._give_up()

    def _find(self, found: tuple[str, ...]) -> None:
        """Record that an element begins to which paths lead."""
        if not self._wanted_from and _WANTED in found:
            self._wanted_from = self.depth
        if not self._value_from and _VALUE in found:
            self._value_from = self.depth

    def _begin_at(self, at: int, attributes: Mapping[str, str]) -> None:
        """Hold the element that has begun last, if it is of interest."""
        self._at = None
        is_wanted = self._wanted_from > 0
        most = self.looks_at(attributes, is_wanted=is_wanted)
        if most:
            tag = self.without(self.tag_of(at), self._is_dropped) if self._drops(attributes) else None
            self._begun = OpenElement(at, attributes, tag, self.prefix, is_wanted, self._value_from > 0, most)
            self._texts = []
            self._size = 0

    def _drops(self, attributes: Mapping[str, str]) -> bool:
        if not self._marks or not attributes:
            return False
        return attributes.get(OLD_MARKER) == "true" or not self._marks.isdisjoint(attributes)

    def _is_dropped(self, prefix: str, local: str) -> bool:
        return local in self.dropped and self.is_fitting(prefix) if prefix else local == OLD_MARKER

    def _text(self, text: str) -> None:
        if self._at is not None:
            self._begin_at(self._at, {})
        begun = self._begun
        if begun is None:
            if self._wanted_from:
                self.between(text)
            return
        self._texts.append(text)
        self._size += len(text)
        if self._size > begun.most:
            self._give_up()

    def _give_up(self) -> None:
        begun, self._begun = self._begun, None
        self._texts = []
        if begun is not None:
            self.long(begun)
