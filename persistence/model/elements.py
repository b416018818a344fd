"""The elements of small request documents, and the values that several kinds of them have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from persistence.errors import BadRequestError
from persistence.limits import LONGEST_SHOWN
from persistence.model.texts import nearest


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
