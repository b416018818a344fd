"""The editor of a migration: it makes and dissolves elements, up to a bound and in linear time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from persistence.errors import BadRequestError
from persistence.forms.trees import Element
from persistence.limits import MOST_MIGRATED

_ELEMENT = 100
"""Characters that an element counts beside its name and content: its tags, and its weight in memory."""

_MOVE = 16
"""Characters that a move of a node counts: grids inside grids move their content once for each level."""


class Editor:
    """An editor of elements with a bound; its methods raise ``BadRequestError`` when it is passed."""

    def __init__(self) -> None:
        self._left = MOST_MIGRATED

    def make(
        self, parent: Element, name: str, attributes: Mapping[str, str] | None = None, *, is_undeclared: bool = False
    ) -> Element:
        """Make an element for the document of ``parent``; it is not inserted yet.

        With ``is_undeclared`` there is no default namespace in it, even if there is one around it.
        """
        made = dict(attributes or {})
        self._count(_ELEMENT + len(name) + sum(len(key) + len(value) for key, value in made.items()))
        namespaces = {None: ""} if is_undeclared else None
        return parent.makeelement(name, made, namespaces)  # type: ignore[arg-type] # the stubs know no default namespace

    def fill(self, element: Element, attributes: Mapping[str, str], text: str | None) -> None:
        """Give a new element attributes and text."""
        self._count(sum(len(key) + len(value) for key, value in attributes.items()) + len(text or ""))
        for key, value in attributes.items():
            element.set(key, value)
        element.text = text

    def rename(self, element: Element, name: str) -> None:
        """Give an element another name, and keep its attributes and content."""
        self._count(len(name))
        element.tag = name

    def dissolve(self, parent: Element, parts: Mapping[Element, Iterable[Element]]) -> None:
        """Replace some children of ``parent`` by nodes from inside each.

        Text beside the nodes goes with the child; text behind the child stays. All children at a time, because text
        that is joined one piece after the other takes quadratic time.
        """
        before: Element | None = None
        texts: list[str] = []
        for child in list(parent):
            if child not in parts:
                _add_text(parent, before, texts)
                before, texts = child, []
                continue
            nodes = list(parts[child])
            self._count(_MOVE * len(nodes))
            for node in nodes:
                _add_text(parent, before, texts)
                before, texts = node, []
                node.tail = None
                child.addprevious(node)
            texts.append(child.tail or "")
            parent.remove(child)
        _add_text(parent, before, texts)

    def _count(self, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise BadRequestError("the form definition cannot be migrated: its grids and repeats multiply too much")


def _add_text(parent: Element, before: Element | None, texts: list[str]) -> None:
    """Add text behind a child, or at the beginning of the parent."""
    text = "".join(texts)
    if not text:
        return
    if before is None:
        parent.text = (parent.text or "") + text
    else:
        before.tail = (before.tail or "") + text
