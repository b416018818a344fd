"""The elements without elements inside, one after the other, while a document streams by and can be changed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from persistence.forms.editing import Editing
from persistence.forms.matching import Place, nowhere, outside
from persistence.forms.relevance import FR
from persistence.model.index_keys import Step
from persistence.xml.streaming import SEPARATOR


@dataclass(slots=True)
class Begun:
    """An element that has begun, and has no elements inside so far.

    ``at`` is the byte of its start tag. ``tag`` is that tag without what was dropped, with the byte after it; ``None``
    where nothing was. ``prefix`` is one for the form runner's attributes, ``None`` where none is declared.
    ``is_wanted`` says that it is at one of the paths, or inside of one.
    """

    at: int
    attributes: Mapping[str, str]
    tag: tuple[str, int] | None
    prefix: str | None
    is_wanted: bool
    most: int


class Leaves(Editing):
    """Follows some paths (names from below the root element), and looks at leaves."""

    def __init__(self, paths: Iterable[tuple[str, ...]] = ()) -> None:
        super().__init__(FR)
        self.parser.buffer_text = True
        self.parser.CharacterDataHandler = self._text
        self.path: list[str] = []
        """The local names of the elements that have begun, the root element first."""
        self._place: Place[None] = outside((tuple(map(Step, path)), None) for path in paths)
        self._places: list[Place[None]] = []
        self._lost: Place[None] = nowhere()
        self._wanted_from = 0
        self._begun: Begun | None = None
        self._texts: list[str] = []
        self._size = 0

    @abstractmethod
    def looks_at(self, attributes: Mapping[str, str], *, is_wanted: bool) -> int:
        """How many characters of the text of an element that begins are of interest; 0 where it is of none."""

    @abstractmethod
    def drops(self, attributes: Mapping[str, str]) -> bool:
        """Whether attributes are to be dropped from the tag of an element that begins (``is_dropped``)."""

    @abstractmethod
    def leaf(self, begun: Begun, text: str, end: int) -> None:
        """An element without elements inside; ``end`` is the byte of its end tag, or of its only one."""

    @abstractmethod
    def branch(self, begun: Begun, text: str) -> None:
        """An element that turns out to have elements inside; ``text`` stands before the first of them."""

    @abstractmethod
    def long(self, begun: Begun) -> None:
        """An element whose text is longer than ``looks_at`` wanted."""

    def between(self, text: str) -> None:
        """Text in a wanted element that stands after an element inside."""

    def is_dropped(self, prefix: str, local: str) -> bool:
        """Whether an attribute is one of those to be dropped; without any, none is."""
        del prefix, local
        return False

    @property
    def settled(self) -> int:
        """What comes before an element that is being looked at."""
        return super().settled if self._begun is None else self._begun.at

    @property
    def place(self) -> tuple[str, ...]:
        """The names that lead from below the root element to the one that is looked at."""
        return tuple(self.path[1:])

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins; the one around it is no leaf."""
        super().start(name, attributes)
        if self._begun is not None:
            begun, self._begun = self._begun, None
            self.branch(begun, "".join(self._texts))
        self.path.append(name.rpartition(SEPARATOR)[2])
        self._places.append(self._place)
        following = self._place.following
        self._place = self._place.chosen(name, attributes) if following is None else following.get(name, self._lost)
        if not self._wanted_from and self._place.found:
            self._wanted_from = self.depth
        is_wanted = self._wanted_from > 0
        most = self.looks_at(attributes, is_wanted=is_wanted)
        if most:
            at = self.parser.CurrentByteIndex
            tag = None
            if self.drops(attributes):
                whole, after = self.tag_of(at)
                tag = self.without(whole, self.is_dropped), after
            self._begun = Begun(at, attributes, tag, self.prefix, is_wanted, most)
            self._texts = []
            self._size = 0

    def end(self, name: str) -> None:
        """An element ends; if nothing has begun inside, it is a leaf."""
        if self._begun is not None:
            begun, self._begun = self._begun, None
            self.leaf(begun, "".join(self._texts), self.parser.CurrentByteIndex)
        super().end(name)
        self.path.pop()
        self._place = self._places.pop()
        if self.depth < self._wanted_from:
            self._wanted_from = 0

    def _text(self, text: str) -> None:
        if self._begun is None:
            if self._wanted_from:
                self.between(text)
            return
        self._texts.append(text)
        self._size += len(text)
        if self._size > self._begun.most:
            begun, self._begun = self._begun, None
            self._texts = []
            self.long(begun)
