"""The elements of small request documents, and the values that several kinds of them have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_SHOWN
from persistence.model.nearest import nearest

_COUNT = re.compile(r"0*[1-9][0-9]{0,17}", re.ASCII)
_DIRECTIONS = {"asc": False, "desc": True}


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a request: its attributes, and its text."""

    attributes: Mapping[str, str] = field(default_factory=dict)
    text: str = ""

    def value(self, name: str) -> str:
        """An attribute without surrounding blanks; empty where it is absent."""
        return self.attributes.get(name, "").strip()


@dataclass(frozen=True, slots=True)
class Elements:
    """A request document: its root, and by name, in document order, those of its children that were asked for."""

    root: Element
    children: Mapping[str, tuple[Element, ...]]

    def all(self, name: str) -> tuple[Element, ...]:
        """The children of a name."""
        return self.children.get(name, ())

    def first(self, name: str) -> Element | None:
        """The first child of a name; ``None`` where there is none."""
        return next(iter(self.all(name)), None)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The attributes of the root of a kind of request, and by name its children, each with its attributes.

    Names are those of no namespace; attributes of XML itself, such as ``xml:lang``, may stand anywhere.
    """

    what: str
    root: frozenset[str]
    children: Mapping[str, frozenset[str]]

    def check_root(self, attributes: Iterable[str]) -> None:
        """Refuse an unknown attribute of the root, whose own name does not matter.

        Raises:
            BadRequestError: there is one.
        """
        self._check(attributes, self.root, f"a {self.what}")

    def check_child(self, name: str, attributes: Iterable[str]) -> None:
        """Refuse an unknown child, or an unknown attribute of one.

        Raises:
            BadRequestError: it is, or has, one.
        """
        known = self.children.get(name)
        if known is None:
            raise BadRequestError(f"a {self.what} has no element <{shown(name)}>{_meant(name, self.children)}")
        self._check(attributes, known, f"<{name}> of a {self.what}")

    def check_inner(self, child: str, name: str) -> None:
        """Refuse an element inside a child.

        Raises:
            BadRequestError: always.
        """
        raise BadRequestError(f"<{child}> of a {self.what} has text, and no element <{shown(name)}>")

    @staticmethod
    def _check(attributes: Iterable[str], known: frozenset[str], what: str) -> None:
        for name in attributes:
            if name not in known:
                raise BadRequestError(f"{what} has no attribute {shown(name)!r}{_meant(name, known)}")


def shown(name: str) -> str:
    """A name as an error shows it."""
    return name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}…"


def _meant(name: str, known: Iterable[str]) -> str:
    near = nearest(name, sorted(known))
    return "" if near is None else f"; the nearest is {near}"


def count(text: str, what: str, default: int) -> int:
    """A positive integer, or the default where the text is blank.

    Raises:
        BadRequestError: it is none, or longer than any that makes sense.
    """
    trimmed = text.strip()
    if trimmed and not _COUNT.fullmatch(trimmed):
        raise BadRequestError(f"{what} must be a positive integer of at most 18 digits, not {text!r}")
    return int(trimmed) if trimmed else default


def is_descending(direction: str) -> bool:
    """Which way a sort goes, its word in any letter case.

    Raises:
        BadRequestError: it is neither ``asc`` nor ``desc``.
    """
    trimmed = direction.strip().lower()
    if trimmed not in _DIRECTIONS:
        raise BadRequestError(f"a sort needs a direction, asc or desc, not {direction!r}")
    return _DIRECTIONS[trimmed]


_Word = TypeVar("_Word", bound=Enum)


def word(words: type[_Word], text: str, what: str) -> _Word:
    """One of the words of the interface, in exactly its letters.

    Raises:
        BadRequestError: it is none of them.
    """
    try:
        return words(text)
    except ValueError:
        raise BadRequestError(
            f"there is no {what} {text!r}; there are {', '.join(str(each.value) for each in words)}"
        ) from None
